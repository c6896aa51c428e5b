"""Intervals: where the result of one step may lie if its inputs are known up to the rounding of printed numbers.

Each number of an input may lie anywhere in its own interval; in particular, weights need not add to one. The numbers on
the side (roots, exponentials, means) may be rounded too. The bounds are exact for moves, sums and products of other
quantities (up to the product of two radii); elsewhere they are the extremes in the corners to which derivatives point.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from vitral.explanation.checks.rounding import RoundingRule, is_whole
from vitral.explanation.expressions import PRIMITIVES, Call, Reference, Tree, compute, references

SIDE = ("_power", "_root", "σ_row", "_σ", "_Φ", "_t", "_s", "μ")
"""Numbers on the side that an author may have rounded without saying so."""
CORNERS = 3
"""Corners of the box that are tried for each bound, each by the derivatives in the one before."""
MOST_NUMBERS = 2_000_000
"""In a larger search, a result may be anything."""


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
        return Interval(low, high).where(low <= high, other)

    def where(self, mask: Tensor, other: "Interval") -> "Interval":
        """This interval in the cells of a mask, the other one elsewhere."""
        return Interval(torch.where(mask, self.low, other.low), torch.where(mask, self.high, other.high))

    def contains(self, values: Tensor) -> Tensor:
        """Whether values lie inside, up to floating point."""
        room = 1e-9 * (1 + values.abs().nan_to_num(posinf=0.0, neginf=0.0))
        return (values == self.low) | ((values >= self.low - room) & (values <= self.high + room))


def propagated(tree: Tree, boxes: Mapping[str, Interval], size: float, rule: RoundingRule = RoundingRule()) -> Interval:
    """Where the value of a tree may lie if its inputs do.

    Args:
        tree: the computation.
        boxes: where its inputs lie.
        size: the unit to which the numbers on the side are rounded, where the rule has no other.
        rule: of rounding.
    """
    match tree:
        case Reference(name):
            return boxes[name]
        case Call("matmul" | "add", (left, right)) if not set(references(left)) & set(references(right)):
            a, b = propagated(left, boxes, size, rule), propagated(right, boxes, size, rule)
            if tree.function == "add":
                return Interval(a.low + b.low, a.high + b.high)
            radius = (a.middle.abs() + a.radius) @ b.radius + a.radius @ b.middle.abs()
            return Interval.around(a.middle @ b.middle, radius)
        case Call(function, (inside,), settings) if function in PRIMITIVES and PRIMITIVES[function].kind == "move":
            part, move = propagated(inside, boxes, size, rule), PRIMITIVES[function].value
            return Interval(move(part.low, *settings), move(part.high, *settings))
    return _searched(tree, boxes, size, rule)


def _searched(tree: Tree, boxes: Mapping[str, Interval], size: float, rule: RoundingRule) -> Interval:
    """The extremes over the box of the inputs and of what is rounded on the way, each cell at a point of its own.

    Points are tensors [2 bounds, cells, numbers].
    """
    values = {name: boxes[name].middle for name in references(tree)}
    centre, box = _box(tree, values, boxes, size, rule)
    if not box:
        return Interval(centre, centre)

    def flat(*parts: Tensor) -> Tensor:
        known = {key: part.reshape(box[key].low.shape) for key, part in zip(box, parts, strict=True)}
        varied = {key.name: part for key, part in known.items() if isinstance(key, Reference)}
        value = compute(tree, {**values, **varied}, lambda call, of: of[0] + known[call] if call in known else None)
        return value.reshape(-1)

    middles = [interval.middle.reshape(-1) for interval in box.values()]
    radii = [interval.radius.reshape(-1) for interval in box.values()]
    low = high = centre.reshape(-1)
    if len(low) * max(len(low), *map(len, middles)) > MOST_NUMBERS:
        return Interval(torch.full_like(centre, -torch.inf), torch.full_like(centre, torch.inf))
    points = [x.expand(2, len(low), -1) for x in middles]
    side = torch.tensor([-1.0, 1.0])[:, None, None]
    for _ in range(CORNERS):
        points = [x.detach().clone().requires_grad_() for x in points]
        cells = vmap(vmap(flat))(*points).diagonal(dim1=1, dim2=-1)
        if not cells.requires_grad:  # the inputs do not matter
            return Interval(centre, centre)
        slopes = torch.autograd.grad(cells.sum(), points, allow_unused=True, materialize_grads=True)
        low, high = torch.fmin(low, cells[0].detach()), torch.fmax(high, cells[1].detach())
        points = [
            x + radius * torch.where(slope < 0, -1.0, 1.0) * side
            for x, radius, slope in zip(middles, radii, slopes, strict=True)
        ]
    return Interval(low.reshape(centre.shape), high.reshape(centre.shape))


def _box(
    tree: Tree, values: Mapping[str, Tensor], boxes: Mapping[str, Interval], size: float, rule: RoundingRule
) -> tuple[Tensor, dict[Tree, Interval]]:
    """The value in the middle, and the intervals of what moves: inputs, and roundings of numbers on the side."""
    side: dict[Call, Tensor] = {}

    def note(call: Call, parts: list[Tensor]) -> None:
        if call.function == "aside" and call.settings[0] in SIDE:
            side[call] = parts[0]

    centre = compute(tree, values, note)
    box: dict[Tree, Interval] = {Reference(name): boxes[name] for name in values}
    for call, value in side.items():
        half = torch.where(is_whole(value, size) | ~value.isfinite(), 0.0, rule.side(call.settings[0], size) / 2)
        if call.settings == ("_power",) and value.dim():  # the largest exponent may be subtracted first
            half = half * value.amax(-1, keepdim=True).clamp(min=1.0)
        box[call] = Interval(-half, half)
    return centre, {key: interval for key, interval in box.items() if bool((interval.radius > 0).any())}
