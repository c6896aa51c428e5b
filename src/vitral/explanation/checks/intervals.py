"""Intervals: where the result of one step may lie if its inputs are known up to the rounding of printed numbers.

Each number of an input may lie anywhere in its own interval; in particular, weights need not add to one. The bounds
are exact for sums, products of two independent numbers (up to the product of two radii), monotone functions and the
softmax. For a norm, and for any other operation, naive interval arithmetic is far too wide and the first order is
wrong where a number lies near the mean; there the bounds are the extremes that a search over the box finds: it begins
in the corner to which the first order points and improves one number after another.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.explanation.checks.units import is_whole
from vitral.explanation.operations import (
    Activate,
    Add,
    ApplyMask,
    Linear,
    Lookup,
    Normalise,
    Operation,
    Output,
    Project,
    Replace,
    Scale,
    Score,
    Softmax,
    Weigh,
)

MOST_EVALUATIONS = 600
"""A search in more dimensions stays at the first order."""
SLACK = 1.02
"""Factor of the width of a searched interval."""


@dataclass(frozen=True)
class Interval:
    """Bounds of every cell of a quantity.

    Attributes:
        low: the lower ones.
        high: the upper ones.
    """

    low: Tensor
    high: Tensor

    @classmethod
    def around(cls, values: Tensor, radius: Tensor | float) -> "Interval":
        """Values up to a radius."""
        return cls(values - radius, values + radius)

    @property
    def middle(self) -> Tensor:
        """The middle; an infinity stays."""
        return torch.where(self.low == self.high, self.low, (self.low + self.high) / 2)

    @property
    def radius(self) -> Tensor:
        """Half of the width."""
        return torch.where(self.low == self.high, 0.0, (self.high - self.low) / 2)

    @property
    def is_point(self) -> Tensor:
        """Whether only one number is possible, up to floating point."""
        return (self.low == self.high) | (self.high - self.low <= 1e-11 * (1 + self.high.abs()))

    def wider(self, by: Tensor) -> "Interval":
        """The interval with more room on both sides."""
        return Interval(self.low - by, self.high + by)

    def within(self, other: "Interval") -> "Interval":
        """The part inside another interval; the other where they do not meet."""
        low, high = torch.maximum(self.low, other.low), torch.minimum(self.high, other.high)
        return Interval(torch.where(low <= high, low, other.low), torch.where(low <= high, high, other.high))

    def contains(self, values: Tensor) -> Tensor:
        """Whether values lie inside, up to floating point."""
        room = 1e-9 * (1 + values.abs().nan_to_num(posinf=0.0, neginf=0.0))
        return (values == self.low) | ((values >= self.low - room) & (values <= self.high + room))


def step(operation: Operation, inputs: Sequence[Interval], size: float) -> Interval:
    """Where the result of an operation may lie, if the numbers inside it are rounded to `size`.

    Inside are the root of a scale, the exponentials of a softmax, the mean and the deviation of a norm, Φ of a GELU.
    """
    made = reached(operation, inputs)
    middles = [each.middle for each in inputs]
    if isinstance(operation, Scale) and operation.kind == "sqrt" and not is_whole(1 / operation.factor, size):
        return made.wider(made.middle.abs().nan_to_num(posinf=0.0) * size / 2 * operation.factor)
    if isinstance(operation, Activate) and operation.kind in ("gelu", "gelu_tanh", "swiglu"):
        made = made.wider(torch.stack([middle.abs() for middle in middles]).prod(dim=0) * size / 2)
        if operation.kind != "swiglu":  # the exact one or the usual approximation with tanh
            off = (functional.gelu(middles[0], approximate="tanh") - functional.gelu(middles[0])).abs()
            made = made.wider(off)
        return made
    if isinstance(operation, Softmax):
        return made.wider(_of_powers(middles[0], size / 2))
    if isinstance(operation, Normalise):
        x, gain = middles[:2]
        mean = x.mean(dim=-1, keepdim=True) if operation.kind == "layernorm" else torch.zeros_like(x[..., :1])
        deviation = ((x - mean).square().mean(dim=-1, keepdim=True) + operation.epsilon).sqrt()
        of_mean, of_deviation = (torch.where(is_whole(each, size), 0.0, size / 2) for each in (mean, deviation))
        return made.wider((of_mean + made.middle.abs() * of_deviation) / deviation.clamp(min=size) * gain.abs())
    return made


def _of_powers(entries: Tensor, half: float) -> Tensor:
    """How far the weights move if every exponential is off by `half`, to the first order."""
    weights = torch.softmax(entries, dim=-1).nan_to_num()
    largest = entries.amax(dim=-1, keepdim=True).clamp(min=0.0)  # the author may subtract it first
    total = torch.exp(entries - largest).sum(dim=-1, keepdim=True).clamp(min=half)
    others = (weights > 0).sum(dim=-1, keepdim=True) - 1
    off = half / total * ((1 - weights) + others * weights)
    return torch.where(weights > 0, torch.minimum(off, torch.ones_like(off)), 0.0)


@singledispatch
def reached(operation: Operation, inputs: Sequence[Interval]) -> Interval:
    """Where the result of an operation may lie."""
    if all(bool(each.is_point.all()) for each in inputs):
        return _point(operation(*(each.middle for each in inputs)))
    return _searched(operation, inputs)


def _point(values: Tensor) -> Interval:
    return Interval(values, values)


@reached.register(Add)
@reached.register(ApplyMask)
@reached.register(Lookup)
@reached.register(Replace)
def _(operation: Operation, inputs: Sequence[Interval]) -> Interval:
    return Interval(operation(*(each.low for each in inputs)), operation(*(each.high for each in inputs)))


@reached.register(Project)
@reached.register(Linear)
@reached.register(Score)
@reached.register(Weigh)
@reached.register(Output)
def _(operation: Operation, inputs: Sequence[Interval]) -> Interval:
    middle = operation(*(each.middle for each in inputs))
    left, *rest = inputs
    if not rest:
        return Interval.around(middle, operation(left.radius))
    right, *bias = rest
    near, far = left.middle.abs(), right.middle.abs()
    radius = operation(near + left.radius, right.radius) + operation(left.radius, far)
    for each in bias:
        radius = radius + (each.radius[:, None] if each.radius.dim() > 1 else each.radius)
    return Interval.around(middle, radius)


@reached.register
def _(operation: Softmax, inputs: Sequence[Interval]) -> Interval:
    """A weight is largest where its own entry is high and all others are low."""
    [entries] = inputs
    return Interval(_weight(entries.low, entries.high, operation), _weight(entries.high, entries.low, operation))


def _weight(own: Tensor, others: Tensor, operation: Softmax) -> Tensor:
    """The softmax of each entry among other values of the others."""
    factor = math.log(operation.base)
    own, others = own * factor, others * factor
    edge = torch.full_like(others[..., :1], -math.inf)
    before = torch.cat([edge, others[..., :-1].logcumsumexp(dim=-1)], dim=-1)
    after = torch.cat([edge, others[..., 1:].flip(-1).logcumsumexp(dim=-1)], dim=-1).flip(-1)
    rest = torch.logaddexp(before, after)
    return torch.where(own == -math.inf, 0.0, torch.sigmoid(own - rest))


@reached.register
def _(operation: Activate, inputs: Sequence[Interval]) -> Interval:
    """The ends and the middle of each number; of a product of two, all combinations."""
    ends = [[each.low, each.middle, each.high] for each in inputs]
    made = torch.stack([operation(*each) for each in itertools.product(*ends)])
    return Interval(made.amin(dim=0), made.amax(dim=0))


@reached.register
def _(operation: Scale, inputs: Sequence[Interval]) -> Interval:
    [scores] = inputs
    if operation.kind == "adaptive":
        return _searched(operation, inputs)
    ends = torch.stack([operation(scores.low), operation(scores.high)])
    return Interval(ends.amin(dim=0), ends.amax(dim=0))


@reached.register
def _(operation: Normalise, inputs: Sequence[Interval]) -> Interval:
    x, *rest = inputs
    if all(bool(each.is_point.all()) for each in inputs):
        return _point(operation(*(each.middle for each in inputs)))
    gain = rest[0].middle
    shift = rest[1].middle if len(rest) > 1 else torch.zeros_like(gain)
    plain = _extremes(lambda rows: operation(rows, torch.ones_like(gain)), x)
    ends = torch.stack([plain.low * gain, plain.high * gain]) + shift
    made = Interval(ends.amin(dim=0), ends.amax(dim=0))
    of_gain = rest[0].radius * torch.maximum(plain.low.abs(), plain.high.abs())
    return made.wider(of_gain + (rest[1].radius if len(rest) > 1 else 0.0))


def _extremes(function: Callable[[Tensor], Tensor], rows: Interval) -> Interval:
    """The bounds of a function of each row, [rows, width] to [rows, width], found by a search over the box."""
    middle, radius = rows.middle, rows.radius
    count, width = middle.shape
    steps = torch.eye(width, dtype=middle.dtype)
    ends = []
    for side in (-1.0, 1.0):
        # First order: [rows, cells, numbers]; the effect of each number of the row on each cell.
        moved = middle[:, None, :] + radius[:, None, :] * steps
        effect = function(moved.flatten(0, 1)).reshape(count, width, width) - function(middle)[:, None, :]
        at = middle[:, None, :] + side * radius[:, None, :] * effect.mT.sign()
        best = _cells(function, at)
        for place in range(width):
            for offset in (-1.0, 0.0, 1.0):
                other = at.clone()
                other[:, :, place] = (middle + offset * radius)[:, None, place]
                made = _cells(function, other)
                better = side * made > side * best
                at, best = torch.where(better[:, :, None], other, at), torch.where(better, made, best)
        ends.append(best)
    low, high = ends
    centre = function(middle)
    return Interval(centre - SLACK * (centre - low), centre + SLACK * (high - centre))


def _cells(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Cell j of the function at point j of each row, [rows, cells] of [rows, cells, numbers]."""
    made = function(at.flatten(0, 1)).reshape(at.shape)
    return made.diagonal(dim1=1, dim2=2)


def _searched(operation: Operation, inputs: Sequence[Interval]) -> Interval:
    """The bounds of any operation: the first order, and its value in the corners to which that points."""
    middles = [each.middle for each in inputs]
    centre = operation(*middles)
    moves = [
        (which, tuple(place)) for which, each in enumerate(inputs) for place in (each.radius > 0).nonzero().tolist()
    ]
    effects = []
    for which, place in moves:
        ends = []
        for end in (inputs[which].low, inputs[which].high):
            moved = middles[which].clone()
            moved[place] = end[place]
            ends.append(_value(operation, [*middles[:which], moved, *middles[which + 1 :]], centre))
        effects.append((ends[1] - ends[0]) / 2)
    if not effects:
        return _point(centre)
    effect = torch.stack(effects).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    radius = effect.abs().sum(dim=0)
    low, high = centre - radius, centre + radius
    if 2 * centre.numel() > MOST_EVALUATIONS:
        return Interval(low, high)
    for place in (radius > 0).nonzero().tolist():
        index = tuple(place)
        for side in (-1.0, 1.0):
            corner = [middle.clone() for middle in middles]
            for (which, where), towards in zip(moves, effect[(slice(None), *index)].sign().tolist(), strict=True):
                corner[which][where] += side * towards * inputs[which].radius[where]
            made = _value(operation, corner, centre)[index]
            low[index], high[index] = torch.minimum(low[index], made), torch.maximum(high[index], made)
    return Interval(low, high)


def _value(operation: Operation, inputs: Sequence[Tensor], otherwise: Tensor) -> Tensor:
    try:
        return operation(*inputs)
    except UsageError:  # no distribution
        return otherwise
