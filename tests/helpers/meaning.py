"""The meaning of the names in the arithmetic of one cell, or in a formula, from the values of a sheet."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from equations import Names
from torch import Tensor

from vitral.explanation.operations import Activate, ApplyMask, Index, Normalise, Output, Rotate, Scale, Softmax, Weigh
from vitral.explanation.operations.decoding import Beam, Filtered, FoundBeam, Greedy
from vitral.explanation.sheet import Sheet, SheetQuantity

STATEMENTS = {
    "M": "0 where attention is allowed, −∞ elsewhere",
    "σ": "standard deviation of the visible scores of its row, or √d_k if they do not differ",
    "p": "last row of the probabilities",
    "p_t": "probability of word t after the words before it",
}
"""Definitions in words, by their name, and statements that stand alone."""
ALONE = ("position p and column 2i are counted from 0", "0 for words that are not kept")


def of_head(value: Tensor, head: int, num_heads: int) -> np.ndarray:
    """The part of a quantity that one query head uses."""
    if value.dim() < 3:
        return value.numpy()
    return value[head * len(value) // num_heads].numpy()


def names_of(sheet: Sheet, quantity: SheetQuantity, head: int = 0) -> Names:
    """Names that mean the same in every cell of a quantity, for one head."""
    heads = max(sheet.num_heads, 1)
    values: dict[str, Any] = {name: of_head(value, head, heads) for name, value in sheet.values.items()}
    own = quantity.name
    if sheet.values[own].dim() == 3:
        values[own] = sheet.values[own][head].numpy()
    for letter in ("q", "k", "v"):
        if own.startswith(letter) and f"w_{letter}" in sheet.values:
            values[f"w_{letter}"] = sheet.values[f"w_{letter}"][head].numpy()
            for each in (f"b_{letter}", f"{letter}_pre"):
                if each in sheet.values:
                    values[each] = sheet.values[each][head].numpy()
    for name in list(values):
        if name.startswith(("w_", "b_")):
            mark = name[2:]
            values[f"{name[0].upper() if name[0] == 'w' else 'b'}^{mark.upper() if len(mark) == 1 else mark}"] = values[
                name
            ]
    if "embedding" in values:
        values["E"] = values["embedding"]
    if "z" in sheet.values:
        z = sheet.values["z"]
        values["Concat(z)"] = z.transpose(0, 1).reshape(z.shape[1], -1).numpy()
        if isinstance(quantity.operation, Output) and not quantity.operation.projects and len(z) > 1:
            values["z"] = z.numpy()
    vocabulary = sheet.vocabulary
    made = Names(values, sheet.namer.first, {}, vocabulary)
    if "weights" in sheet.values:
        made.ranges["j"] = range(sheet.values["weights"].shape[-1])
    _of_operation(made, sheet, quantity, head)
    for name, other in sheet.names.items():
        if other.letters != name:
            values[other.letters] = values[name]
    return made


def _of_operation(names: Names, sheet: Sheet, quantity: SheetQuantity, head: int) -> None:
    """What the letters of the operation's own formula mean."""
    values, operation = names.values, quantity.operation
    inputs = [sheet.values[name] for name in quantity.inputs]
    shape = sheet.values[quantity.name].shape
    if hasattr(operation, "rows"):
        values["E[token]"] = values["E"][list(operation.rows)] if "E" in values else None
    if isinstance(operation, Scale):
        values["d[k]"] = values["d_k"] = operation.d_head
        if operation.kind != "adaptive":
            factor = operation.factor.flatten()
            values["s"] = float(factor[min(head, len(factor) - 1)])
    if isinstance(operation, ApplyMask):
        allowed = operation.allowed.expand(shape)[head]
        values["M"] = torch.zeros(allowed.shape).double().masked_fill(~allowed, -math.inf).numpy()
        if operation.bias is not None:
            values["bias"] = operation.bias.expand(shape)[head].numpy()
    if isinstance(operation, Softmax | Weigh):
        names.ranges["l"] = names.ranges["j"] = range(inputs[0].shape[-1])
    if isinstance(operation, Normalise):
        values["ε"] = operation.epsilon
        for name in quantity.inputs[1:]:
            values[{"gain": "g", "bias": "b"}[name.rpartition("_")[2]]] = values[name]
    if isinstance(operation, Activate):
        values["x"] = np.linspace(-3, 3, 13)[:, None]
    if isinstance(operation, Rotate):
        values["h"] = len(operation.frequencies)
    if quantity.name == "position_embedding":
        values["d_model"] = values["d[model]"] = shape[-1]
    if quantity.name == "total":
        values["others"] = operation.rest
        names.ranges["i"] = range(len(inputs[0]))
    if isinstance(operation, Filtered):
        values["p"], values["T"] = inputs[0][-1].numpy(), operation.value
        names.ranges["l"] = range(shape[-1])
        names.ranges["kept"] = [place for place in range(shape[-1]) if sheet.values[quantity.name][place] > 0]
    if isinstance(operation, Greedy):
        values["p"] = inputs[0][-1].numpy()
        names.vocabulary = [written(sheet, [place]) for place in range(inputs[0].shape[-1])]
        values[quantity.name] = written(sheet, sheet.values[quantity.name])
        names.ranges["w"] = range(inputs[0].shape[-1])
    if isinstance(operation, Beam):
        _of_beam(names, sheet, quantity)


def _of_beam(names: Names, sheet: Sheet, quantity: SheetQuantity) -> None:
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
