"""Known slips: the result of each operation after a common mistake.

`variants` computes the result under every slip of an operation; the diagnosis compares it with the printed numbers.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import singledispatch

import torch
from torch import Tensor

from vitral.explanation.examples.parameters import Total
from vitral.explanation.operations import (
    Activate,
    Add,
    ApplyMask,
    Linear,
    Normalise,
    Operation,
    Output,
    Project,
    Scale,
    Score,
    Softmax,
    Weigh,
)
from vitral.explanation.sheet import SheetQuantity, Values

KINDS = (
    "digits-swapped",
    "scale-missing",
    "mask-late",
    "zero-for-infinity",
    "wrong-axis",
    "transposed",
    "term-dropped",
    "other-row",
    "mask-missing",
    "mask-other",
    "scale-other",
    "bias-missing",
    "residual-missing",
    "norm-other",
    "activation-missing",
    "not-exponential",
    "sign-lost",
    "point-misplaced",
)
"""Kinds of slips; of two that explain as many cells, the earlier is chosen."""
COMMON = 8
"""The first kinds, so common that they are chosen even if they fit only with one more unit of rounding."""


@dataclass(frozen=True)
class Variant:
    """A quantity after a slip.

    Attributes:
        kind: of the slip.
        made: the quantity with the slip made in every cell.
        grain: the smallest extent of the slip: "all" cells, a "row", a "column", or one "cell".
        places: placeholders of its phrase.
    """

    kind: str
    made: Tensor
    grain: str = "all"
    places: dict[str, object] = field(default_factory=dict)


def variants(quantity: SheetQuantity, values: Values) -> Iterator[Variant]:
    """Every known slip in computing a quantity from these values."""
    inputs = [values[name] for name in quantity.inputs]
    yield from slips_of(quantity.operation, quantity, inputs, values)


@singledispatch
def slips_of(operation: Operation, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    """The slips of an operation; none by default."""
    yield from ()


@slips_of.register
def _(operation: Project, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    x, weight, *bias = inputs
    own = f"w_{quantity.name}"
    plain = operation(x, weight)
    extra = bias[0][:, None, :] if bias else torch.zeros(())
    if bias:
        yield Variant("bias-missing", plain)
    if weight.shape[1] == weight.shape[2]:
        yield Variant("transposed", operation(x, weight.mT) + extra, places={"matrix": own})
    for name in ("w_q", "w_k", "w_v"):
        other = values.get(name)
        if name != own and other is not None and other.shape == weight.shape:
            yield Variant("other-row", operation(x, other) + extra, places={"row": name})
    for name, row in _rows(values, weight.shape[-1], ("w_q", "w_k", "w_v", "q", "k", "v")):
        yield Variant("other-row", _per_head(row, len(plain))[:, None, :].expand_as(plain), "row", {"row": name})
    for place in range(len(x)):
        made = (operation(x[place : place + 1], weight) + extra).expand_as(plain)
        yield Variant("other-row", made, "row", {"row": (operation.of, place)})
    for term in range(x.shape[1]):
        lost = x[None, :, term, None] * weight[:, None, term, :]
        yield Variant("term-dropped", plain + extra - lost, "cell", {"term": term})


@slips_of.register
def _(operation: Linear, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    x, weight, *bias = inputs
    full = operation(*inputs)
    yield from _linear_slips(x, weight.T if operation.tied else weight, full, bias, quantity.inputs[1])


@slips_of.register
def _(operation: Output, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    z, *rest = inputs
    together = z.transpose(-2, -3).flatten(-2)
    if len(z) > 1:
        swapped = z.flip(0).transpose(-2, -3).flatten(-2)
        yield Variant("other-row", swapped if not rest else operation(z.flip(0), *rest), places={"row": "z"})
    if rest:
        yield from _linear_slips(together, rest[0], operation(*inputs), rest[1:], "w_o")


def _linear_slips(x: Tensor, weight: Tensor, full: Tensor, bias: list[Tensor], name: str) -> Iterator[Variant]:
    if bias:
        yield Variant("bias-missing", full - bias[0])
    if weight.shape[0] == weight.shape[1]:
        extra = bias[0] if bias else 0.0
        yield Variant("transposed", x @ weight.T + extra, places={"matrix": name})
    for term in range(x.shape[1]):
        yield Variant("term-dropped", full - x[:, term, None] * weight[None, term, :], "cell", {"term": term})


@slips_of.register
def _(operation: Score, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    q, k = inputs
    shared = k.repeat_interleave(len(q) // len(k), dim=0)
    full = operation(q, k)
    if full.shape[1] == full.shape[2]:
        yield Variant("transposed", full.mT, places={"matrix": "scores"})
    for name, row in _rows(values, q.shape[-1], ("w_k", "w_q", "w_v", "q", "v", "x", "resid_pre", "k")):
        heads = _per_head(row, len(q))
        yield Variant("other-row", (q @ heads[:, :, None]).expand_as(full), "column", {"row": name})
        yield Variant("other-row", (shared @ heads[:, :, None]).mT.expand_as(full), "row", {"row": name})
    for place in range(q.shape[1]):
        made = (q[:, place : place + 1] @ shared.mT).expand_as(full)
        yield Variant("other-row", made, "row", {"row": ("q", place)})
    for term in range(q.shape[2]):
        lost = q[:, :, None, term] * shared[:, None, :, term]
        yield Variant("term-dropped", full - lost, "cell", {"term": term})


@slips_of.register
def _(operation: Scale, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    [scores] = inputs
    if operation.kind != "none":
        yield Variant("scale-missing", scores)
    if operation.d_head is not None:
        width = operation.d_head
        others = {"1/√d_k": 1 / math.sqrt(width), "1/d_k": 1 / width, "√d_k": math.sqrt(width)}
        for name, factor in others.items():
            yield Variant("scale-other", scores * factor, places={"scale": name})


@slips_of.register
def _(operation: ApplyMask, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    [scaled] = inputs
    allowed = operation.allowed.expand(scaled.shape)
    if bool(allowed.all()):
        return
    yield Variant("zero-for-infinity", torch.where(allowed, operation(scaled), 0.0))
    yield Variant("mask-missing", replace(operation, allowed=torch.ones_like(allowed))(scaled))
    if scaled.shape[1] == scaled.shape[2]:
        yield Variant("mask-other", replace(operation, allowed=allowed.mT)(scaled))
        strict = allowed & ~torch.eye(scaled.shape[1], dtype=torch.bool)
        yield Variant("mask-other", replace(operation, allowed=strict)(scaled))


@slips_of.register
def _(operation: Softmax, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    [entries] = inputs
    if quantity.name == "weights" and "scaled" in values:
        seen = entries != -math.inf
        before = values["scaled"]
        yield Variant("mask-late", operation(before) * seen)
        yield Variant("wrong-axis", operation(before.mT).mT * seen)
    if entries.dim() > 1:
        yield Variant("wrong-axis", operation(entries.mT).mT)
    powers = torch.exp(entries - entries.amax(dim=-1, keepdim=True).clamp(min=-1e300))
    total = powers.sum(dim=-1, keepdim=True)
    for term in range(entries.shape[-1]):
        yield Variant("term-dropped", powers / (total - powers[..., term, None]), "row", {"term": term})
    finite = entries.masked_fill(entries == -math.inf, 0.0)
    yield Variant("not-exponential", finite / finite.sum(dim=-1, keepdim=True))


@slips_of.register
def _(operation: Weigh, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    weights, v = inputs
    shared = v.repeat_interleave(len(weights) // len(v), dim=0)
    full = operation(weights, v)
    if weights.shape[1] == weights.shape[2]:
        yield Variant("transposed", weights.mT @ shared, places={"matrix": "weights"})
    for place in range(weights.shape[1]):
        made = (weights[:, place : place + 1] @ shared).expand_as(full)
        yield Variant("other-row", made, "row", {"row": ("weights", place)})
    for name, row in _rows(values, v.shape[-1], ("w_v", "w_k", "w_q", "k", "q", "x", "resid_pre", "v")):
        heads = _per_head(row, len(weights))
        for place in range(shared.shape[1]):
            change = weights[:, :, place, None] * (heads - shared[:, place])[:, None, :]
            yield Variant("other-row", full + change, "row", {"row": name})
    for term in range(weights.shape[2]):
        yield Variant(
            "term-dropped", full - weights[:, :, term, None] * shared[:, None, term, :], "cell", {"term": term}
        )


@slips_of.register
def _(operation: Add, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    left, right = inputs
    kind = "term-dropped" if "position_embedding" in quantity.inputs else "residual-missing"
    yield Variant(kind, right, places={"term": 0})
    yield Variant("term-dropped", left, places={"term": 1})


@slips_of.register
def _(operation: Normalise, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    x, gain, *bias = inputs
    shift = bias[0] if bias else torch.zeros_like(gain)
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    width = x.shape[-1]
    if width > 1:
        sample = variance * width / (width - 1)
        yield Variant("norm-other", centred / sample.sqrt() * gain + shift, places={"how": "sample"})
    yield Variant("norm-other", centred / variance * gain + shift, places={"how": "variance"})
    yield Variant("norm-other", x / variance.sqrt() * gain + shift, places={"how": "mean"})
    yield Variant("norm-other", x, places={"how": "none"})
    if bias:
        yield Variant("bias-missing", operation(x, gain))


@slips_of.register
def _(operation: Activate, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    yield Variant("activation-missing", inputs[0])


@slips_of.register
def _(operation: Total, quantity: SheetQuantity, inputs: list[Tensor], values: Values) -> Iterator[Variant]:
    for term, count in enumerate(inputs[0].tolist()):
        yield Variant("term-dropped", operation(inputs[0]) - count, places={"term": term})


def misprints(value: float, decimals: int) -> Iterator[tuple[str, float]]:
    """Numbers that may have been misprinted as `value`: adjacent digits swapped, sign lost, point misplaced.

    >>> [meant for kind, meant in misprints(0.76, 2) if kind == "digits-swapped"]
    [7.06, 0.67]
    """
    if not math.isfinite(value):
        return
    seen: set[float] = {value}
    for digits in range(decimals + 1):
        written = f"{abs(value):.{digits}f}"
        if float(written) != abs(value):
            continue
        places = [place for place, sign in enumerate(written) if sign.isdigit()]
        for first, second in itertools.pairwise(places):
            swapped = list(written)
            swapped[first], swapped[second] = swapped[second], swapped[first]
            meant = math.copysign(float("".join(swapped)), value)
            if meant not in seen:
                seen.add(meant)
                yield "digits-swapped", meant
    yield "sign-lost", -value
    yield "point-misplaced", value * 10
    yield "point-misplaced", value / 10


def _per_head(row: Tensor, num_heads: int) -> Tensor:
    """One row for each head; if there are fewer rows, each serves a group of heads."""
    return row.repeat_interleave(-(-num_heads // len(row)), dim=0)[:num_heads]


def _rows(values: Values, width: int, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, int], Tensor]]:
    """Rows of width `width` of other matrices, [heads or 1, width], with the matrix and the row's index."""
    for name in names:
        matrix = values.get(name)
        if matrix is None or matrix.shape[-1] != width:
            continue
        heads = matrix if matrix.dim() == 3 else matrix[None]
        for place in range(heads.shape[1]):
            yield (name, place), heads[:, place]
