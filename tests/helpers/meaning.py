"""The meaning of the names in the arithmetic of one cell, or in a formula, from the values of a sheet."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from equations import Names
from torch import Tensor

from vitral.explanation.examples.parameters import Total
from vitral.explanation.expressions import Call, Reference
from vitral.explanation.operations import (
    Activate,
    ApplyMask,
    Index,
    Lookup,
    Normalise,
    Output,
    Rotate,
    Scale,
    Sinusoid,
    Softmax,
)
from vitral.explanation.operations.decoding import Beam, Filtered, FoundBeam, Greedy
from vitral.explanation.operations.expression import Compute
from vitral.explanation.sheet import Sheet, SheetQuantity

STATEMENTS = {
    "M": "0 where attention is allowed, −∞ elsewhere",
    "σ": "standard deviation of the visible scores of its row, or the root of d_k if they do not differ",
    "θ": "the rate of pair i, 1 over the base to the power of i/h, scaled as in Llama 3.1",
    "p": "last row of the probabilities",
    "p_t": "probability of word t after the words before it",
}
"""Definitions in words, by their name, and statements that stand alone."""
ALONE = (
    "p and 2i are counted from 0",
    "position p is counted from 1, column 2i from 0",
    "0 for words that are not kept",
)


def of_head(value: Tensor, head: int, num_heads: int) -> np.ndarray:
    """The part of a quantity that one query head uses."""
    if value.dim() < 3:
        return value.numpy()
    return value[head * len(value) // num_heads].numpy()


def names_of(sheet: Sheet, quantity: SheetQuantity, head: int = 0) -> Names:
    """Names that mean the same in every cell of a quantity, for one head."""
    values = _values_of(sheet, quantity, head)
    _lay_out(values, sheet)
    made = Names(values, sheet.namer.first, {}, sheet.vocabulary)
    if "weights" in sheet.values:
        made.ranges["j"] = range(sheet.values["weights"].shape[-1])
    inputs = [sheet.values[name] for name in quantity.inputs]
    for kind, define in DEFINE.items():
        if isinstance(quantity.operation, kind):
            define(made, sheet, quantity, inputs, head)
    for name, other in sheet.names.items():
        if other.letters != name:
            values[other.letters] = values[name]
    return made


def _values_of(sheet: Sheet, quantity: SheetQuantity, head: int) -> dict[str, Any]:
    """The arrays of a head by the names of formulas."""
    values: dict[str, Any] = {name: of_head(value, head, sheet.num_heads) for name, value in sheet.values.items()}
    letter, own = quantity.name[0], [quantity.name]
    if f"w_{letter}" in values and quantity.name in (letter, f"{letter}_pre"):
        own += [f"w_{letter}", f"b_{letter}", f"{letter}_pre"]  # their heads are those of the keys and values
    for name in own:
        if name in values and (sheet.values[name].dim() == 3 or name.startswith("b_")):
            values[name] = sheet.values[name][head].numpy()
    for name in list(values):
        kind, _, mark = name.partition("_")
        if kind in ("w", "b"):
            values[f"{'W' if kind == 'w' else 'b'}^{mark.upper() if len(mark) == 1 else mark}"] = values[name]
    values["E"] = values.get("embedding")
    if "z" in sheet.values:
        z = sheet.values["z"]
        values["Concat(z)"] = z.transpose(0, 1).reshape(z.shape[1], -1).numpy()
        if isinstance(quantity.operation, Output) and not quantity.operation.projects and len(z) > 1:
            values["z"] = z.numpy()
    return values


def _operation(quantity: SheetQuantity) -> Any:
    """The operation, as one of a known kind."""
    return quantity.operation


def _lookup(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    names.values["E[token]"] = names.values["E"][list(_operation(quantity).rows)]


def _scale(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    operation = _operation(quantity)
    names.values["d[k]"] = names.values["d_k"] = operation.d_head
    factor = operation.factor.flatten()
    names.values["s"] = float(factor[min(head, len(factor) - 1)])


def _mask(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    operation, shape = _operation(quantity), inputs[0].shape
    allowed = operation.allowed.expand(shape)[head]
    names.values["M"] = torch.zeros(allowed.shape).double().masked_fill(~allowed, -math.inf).numpy()
    if operation.bias is not None:
        names.values["bias"] = operation.bias.expand(shape)[head].numpy()


def _softmax(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    names.ranges["l"] = range(inputs[0].shape[-1])


def _norm(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    names.values["ε"] = _operation(quantity).epsilon
    for name in quantity.inputs[1:]:
        names.values[{"gain": "g", "bias": "b"}[name.rpartition("_")[2]]] = names.values[name]


def _letters(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    operation = quantity.operation
    names.values["π"] = math.pi
    names.values["x"] = np.linspace(-3, 3, 13)[:, None]
    half = (operation.width + 1) // 2 if isinstance(operation, Sinusoid) else 0
    names.values["h"] = len(getattr(operation, "frequencies", ())) or half
    if isinstance(operation, Rotate):
        names.values["w"], names.values["θ"] = operation.width, operation.frequencies.numpy()
    names.values["d_model"] = names.values["d[model]"] = getattr(operation, "width", 0)


def _total(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    names.values["others"] = _operation(quantity).rest
    names.ranges["i"] = range(len(inputs[0]))


def _filtered(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    shares = sheet.values[quantity.name]
    names.values["p"], names.values["T"] = inputs[0][-1].numpy(), _operation(quantity).value
    names.ranges["l"] = range(len(shares))
    names.ranges["kept"] = [place for place in range(len(shares)) if shares[place] > 0]


def _greedy(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    names.values["p"] = inputs[0][-1].numpy()
    names.vocabulary = [written(sheet, [place]) for place in range(inputs[0].shape[-1])]
    names.values[quantity.name] = written(sheet, sheet.values[quantity.name])
    names.ranges["w"] = range(inputs[0].shape[-1])


def _beam(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    operation = quantity.operation
    name = quantity.name.replace("beam_probability", "beam")
    assert isinstance(operation, Beam)
    if name in sheet.values:
        found = [int(place) for place in sheet.values[name]]
        names.values["w"] = names.values["beam"] = [written(sheet, [place]) for place in found]
    else:
        found = list(operation.hypotheses(*(sheet.values[each] for each in quantity.inputs))[0][0])
    if isinstance(operation, FoundBeam):
        steps = list(operation.shares)
    else:
        table = sheet.values[quantity.inputs[0]]
        steps = [float(table[a, b]) for a, b in pairwise([operation.start, *found])]
        for words, _ in operation.hypotheses(table):
            chain = [float(table[a, b]) for a, b in pairwise([operation.start, *words])]
            names.chances[written(sheet, words)] = math.prod(chain)
    names.chances[written(sheet, found)] = math.prod(steps)
    names.values["p"] = np.array(steps)
    names.values["P(w)"] = max(names.chances, key=lambda words: names.chances[words])
    names.ranges["t"] = range(len(steps))


def _computed(names: Names, sheet: Sheet, quantity: SheetQuantity, inputs: list[Tensor], head: int) -> None:
    """The indices of a sum or a softmax over a quantity; numbers that stand alone."""
    names.values |= {"rows": -1, "columns": -2}
    names.values |= {
        name: value.item()
        for name, value in names.values.items()
        if isinstance(value, np.ndarray) and value.shape == (1,)
    }
    assert isinstance(quantity.operation, Compute)
    match quantity.operation.expression:
        case Call("softmax", (Reference(name),), settings):
            axis = settings[0] if settings and settings[0] is not None else -1
            names.ranges["l"] = range(names.values[name].shape[axis])
        case Call("sum" | "mean", (Reference(name),)):
            shape = names.values[name].shape
            names.ranges |= {letter: range(size) for letter, size in zip("ij", shape, strict=False)}


def _lay_out(values: dict[str, Any], sheet: Sheet) -> None:
    """Turn the matrices that the author writes transposed."""
    for name, value in list(values.items()):
        key = {"E": "embedding", "Concat(z)": "z"}.get(name, name)
        key = f"w_{name[2:].lower()}" if name.startswith("W^") else key
        if isinstance(value, np.ndarray) and value.ndim == 2 and sheet.conventions.turned(key):
            values[name] = value.T


DEFINE = {
    Compute: _computed,
    Lookup: _lookup,
    Scale: _scale,
    ApplyMask: _mask,
    Softmax: _softmax,
    Normalise: _norm,
    Activate: _letters,
    Rotate: _letters,
    Sinusoid: _letters,
    Total: _total,
    Filtered: _filtered,
    Greedy: _greedy,
    Beam: _beam,
}
"""What the letters of an operation's own formula mean."""


def written(sheet: Sheet, places: Any) -> str:
    """Words as a formula writes them: plain ones bare, others in quotes."""
    words = [sheet.vocabulary[int(place)] for place in places]
    bare = [word[:1].isalpha() and all(letter.isalnum() or letter in "_'’-" for letter in word) for word in words]
    return " ".join(word if is_bare else f"“{word}”" for word, is_bare in zip(words, bare, strict=True))


def of_formula(names: Names, sheet: Sheet, quantity: SheetQuantity, head: int) -> Names:
    """The names for a formula of whole matrices: μ and σ are columns, one number for each row."""
    operation, values = quantity.operation, dict(names.values)
    if isinstance(operation, Normalise):
        rows = sheet.values[operation.of].numpy()
        values["μ"], values["σ"] = rows.mean(axis=-1, keepdims=True), rows.std(axis=-1, keepdims=True)
    if isinstance(operation, Scale) and operation.kind == "adaptive":
        assert operation.allowed is not None
        scores = sheet.values["scores"]
        allowed = operation.allowed.expand(scores.shape)[head]
        spreads = [
            float(row[seen].numpy().std()) if seen.any() else 0.0
            for row, seen in zip(scores[head], allowed, strict=True)
        ]
        usual = math.sqrt(operation.d_head or 1)
        values["σ[row]"] = np.array([[spread if spread > 1e-6 else usual] for spread in spreads])
    return Names(values, names.first, names.ranges, names.vocabulary, names.chances)


def of_picture(sheet: Sheet, head: int) -> Names:
    """The names of the formula of a whole attention, for one head."""
    scaled, masked = sheet["scaled"], sheet["masked"]
    names = of_formula(names_of(sheet, scaled, head), sheet, scaled, head)
    names.values |= names_of(sheet, masked, head).values
    for letter in "qkv":
        names.values[letter.upper()] = of_head(sheet.values[letter], head, sheet.num_heads)
    return names


def of_cell(names: Names, sheet: Sheet, quantity: SheetQuantity, index: Index) -> Names:
    """The names for one cell: those of a norm, μ and σ, are of its row."""
    operation = quantity.operation
    values = dict(names.values)
    if isinstance(operation, Normalise):
        row = sheet.values[operation.of][index[0]]
        values["μ"], values["σ"] = float(row.mean()), float(row.std(unbiased=False))
    if isinstance(operation, Scale) and operation.kind == "adaptive":
        assert operation.allowed is not None
        scores = sheet.values["scores"]
        visible = scores[index[0], index[1]][operation.allowed.expand(scores.shape)[index[0], index[1]]]
        values["μ"] = float(visible.mean()) if len(visible) else 0.0
        values[f"σ[{index[1] + sheet.namer.first}]"] = float(visible.numpy().std()) if len(visible) else 0.0
    return Names(values, names.first, names.ranges, names.vocabulary, names.chances)
