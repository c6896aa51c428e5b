"""The meaning of the names in the arithmetic of one cell, or in a formula, from the values of a sheet."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from equations import Names
from torch import Tensor

from vitral.explanation.expressions import Call, Constant, nodes
from vitral.explanation.expressions.tree import Table
from vitral.explanation.readings.writing import asides
from vitral.explanation.recipe import SheetQuantity
from vitral.explanation.rows import Beam, rule_of
from vitral.explanation.sheet import Index, Sheet

STATEMENTS = {
    "M": "0 where attention is allowed, −∞ elsewhere",
    "σ": "standard deviation of the visible scores of its row, or the root of d_k if they do not differ",
    "θ": "the rate of pair i, 1 over the base to the power of i/h, scaled as in Llama 3.1",
    "p_t": "probability of word t after the words before it",
}
"""Definitions in words, by their name, and statements that stand alone."""
ALONE = (
    "p and i are counted from 0",
    "p is counted from 1, i from 0",
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
    made = Names(values, sheet.first, {}, sheet.vocabulary)
    if "weights" in sheet.values:
        made.ranges["j"] = range(sheet.values["weights"].shape[-1])
    if isinstance(quantity.tree, Call) and quantity.tree.function == "softmax":
        made.ranges["l"] = range(max(sheet.values[quantity.inputs[0]].shape))
    _constants(made, sheet, quantity, head)
    inputs = [sheet.values[name] for name in quantity.inputs]
    if quantity.name == "total":
        made.ranges["i"] = range(len(inputs[0]))
    if sheet.architecture.frequencies is not None:
        made.values["θ"] = sheet.architecture.frequencies.numpy()
    if rule_of(quantity.name)[0]:
        _filtered(made, sheet, quantity)
    elif quantity.name == "greedy":
        _greedy(made, sheet, quantity, inputs[0])
    elif isinstance(quantity.row, Beam):
        _beam(made, sheet, quantity, quantity.row)
    if quantity.is_free:
        _computed(made, sheet, quantity)
    for key, value in list(values.items()):
        name, mark, above = key.partition("^")  # W stands for W^Q, W^K and all others
        values[sheet.called(name) + mark + above] = value
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
        if quantity.name == "out" and "w_o" not in quantity.inputs and len(z) > 1:
            values["z"] = z.numpy()
    return values


def _constants(names: Names, sheet: Sheet, quantity: SheetQuantity, head: int) -> None:
    """The letters of a tree: constants, gains and biases, the row of the embedding table for each token."""
    for node in nodes(sheet.tree(quantity.name)):
        match node:
            case Constant(value, letters) if letters:
                array = value.numbers if isinstance(value, Table) else torch.tensor(value, dtype=torch.float64)
                array = array[head if len(array) > 1 else 0] if array.dim() == 3 else array
                array = array.numpy()
                names.values[letters] = array.item() if array.size == 1 else array
                names.values[f"d[{letters[2:]}]" if letters[:2] == "d_" else letters] = names.values[letters]
            case Call("lookup", _, rows):
                table = sheet.values["embedding"].numpy()[list(rows)]
                names.values["E[token]"] = table.T if sheet.conventions.turned(quantity.name) else table
    if "M" in names.values and sheet.values[quantity.name].dim() == 3:
        names.values["M"] = np.broadcast_to(names.values["M"], sheet.writer.values[quantity.name].shape[1:])
    for name in quantity.inputs:
        if name.endswith(("norm_gain", "norm_bias")):
            names.values["g" if name.endswith("gain") else "b"] = names.values[name]
    names.values["π"], names.values["x"] = math.pi, names.values.get("x", np.linspace(-3, 3, 13)[:, None])


def _filtered(names: Names, sheet: Sheet, quantity: SheetQuantity) -> None:
    shares = sheet.values[quantity.name]
    names.ranges["l"] = range(len(shares))
    names.ranges["kept"] = [place for place in range(len(shares)) if shares[place] > 0]


def _greedy(names: Names, sheet: Sheet, quantity: SheetQuantity, shares: Tensor) -> None:
    names.values["p"] = shares[-1].numpy()
    names.vocabulary = [written(sheet, [place]) for place in range(shares.shape[-1])]
    names.values[quantity.name] = written(sheet, sheet.values[quantity.name])
    names.ranges["w"] = range(shares.shape[-1])


def _beam(names: Names, sheet: Sheet, quantity: SheetQuantity, operation: Beam) -> None:
    name = quantity.name.replace("beam_probability", "beam")
    if name in sheet.values:
        found = [int(place) for place in sheet.values[name]]
        names.values["w"] = names.values["beam"] = [written(sheet, [place]) for place in found]
    else:
        found = list(operation.hypotheses(*(sheet.values[each] for each in quantity.inputs))[0][0])
    if operation.words:
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


def _computed(names: Names, sheet: Sheet, quantity: SheetQuantity) -> None:
    """The indices of a sum or a softmax over a quantity; numbers that stand alone."""
    names.values |= {"rows": -1, "columns": -2}
    names.values |= {
        name: value.item()
        for name, value in names.values.items()
        if isinstance(value, np.ndarray) and value.shape == (1,)
    }
    most = max((size for name in quantity.inputs for size in sheet.values[name].shape), default=1)
    rows = max((sheet.values[name].shape[-2] for name in quantity.inputs if sheet.values[name].dim() > 1), default=most)
    names.ranges |= {letter: range(rows if letter == "i" else most) for letter in "ijl" if letter not in names.ranges}


def _lay_out(values: dict[str, Any], sheet: Sheet) -> None:
    """Turn the matrices that the author writes transposed."""
    for name, value in list(values.items()):
        key = {"E": "embedding", "Concat(z)": "z"}.get(name, name)
        key = f"w_{name[2:].lower()}" if name.startswith("W^") else key
        if isinstance(value, np.ndarray) and value.ndim == 2 and sheet.conventions.turned(key):
            values[name] = value.T


def written(sheet: Sheet, places: Any) -> str:
    """Words as a formula writes them: plain ones bare, others in quotes."""
    words = [sheet.vocabulary[int(place)] for place in places]
    bare = [word[:1].isalpha() and all(letter.isalnum() or letter in "_'’-" for letter in word) for word in words]
    return " ".join(word if is_bare else f"“{word}”" for word, is_bare in zip(words, bare, strict=True))


def of_formula(names: Names, sheet: Sheet, quantity: SheetQuantity, head: int) -> Names:
    """The names for a formula of whole matrices: μ and σ are columns, one number for each row."""
    return _with_asides(names, sheet, quantity, head, None)


def of_cell(names: Names, sheet: Sheet, quantity: SheetQuantity, index: Index) -> Names:
    """The names for one cell: those of a norm, μ and σ, are of its row."""
    return _with_asides(names, sheet, quantity, index[0] if len(index) == 3 else 0, index)


def _with_asides(names: Names, sheet: Sheet, quantity: SheetQuantity, head: int, index: Index | None) -> Names:
    values, writer, along = dict(names.values), sheet.writer, -2 if sheet.conventions.columns else -1
    for call in asides(sheet.tree(quantity.name)) if quantity.row is None else ():
        value, letters = writer.value(call), call.settings[0]
        if index is not None and value.dim() <= len(index) and (value.dim() < 2 or value.shape[along] == 1):
            at = writer.aligned(call, sheet.conventions.index(quantity.name, index))
            value = value[at]
        elif value.dim() == 3:
            value = value[head if len(value) > 1 else 0]
        array = value.item() if value.numel() == 1 else value.numpy()
        if letters == "σ2":
            values["σ"] = array**0.5
        elif letters == "σ_row":
            row = "row" if index is None else str(index[-2] + sheet.first)
            values[f"σ[{row}]"] = array
        else:
            values[letters] = array
    return Names(values, names.first, names.ranges, names.vocabulary, names.chances)
