"""Intervals: where the result of one step may lie if its inputs are known up to the rounding of printed numbers.

Each number of an input may lie anywhere in its own interval; in particular, weights need not add to one. The numbers on
the side (roots, exponentials, means) may be rounded too. The bounds are exact for moves, sums and products of other
quantities (up to the product of two radii); elsewhere they are the extremes that a search over the box finds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from vitral.explanation.checks.units import is_whole
from vitral.explanation.expressions import (
    DEFINITIONS,
    PRIMITIVES,
    Call,
    Reference,
    Tree,
    compute,
    every,
    references,
)

SIDE = ("_power", "_root", "σ_row", "_σ", "_Φ", "_t", "_s", "μ")
"""Numbers on the side that an author may have rounded without saying so."""
TURNING = ["mean", "seen", "maximum", "minimum", "abs", "where", "sin", "cos", "Φ", "tanh", "multiply", "power"]
"""Functions that may grow here and fall there; without them, a corner of the box is the extreme."""
Box = dict[Tree, tuple[Tensor, Tensor]]
"""Middles and radii of inputs and of calls whose values are rounded."""
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
        return Interval(torch.where(low <= high, low, other.low), torch.where(low <= high, high, other.high))

    def contains(self, values: Tensor) -> Tensor:
        """Whether values lie inside, up to floating point."""
        room = 1e-9 * (1 + values.abs().nan_to_num(posinf=0.0, neginf=0.0))
        return (values == self.low) | ((values >= self.low - room) & (values <= self.high + room))


def reached(tree: Tree, boxes: Mapping[str, Interval], size: float) -> Interval:
    """Where the value of a tree may lie if its inputs do, and the numbers on the side are rounded to `size`."""
    match tree:
        case Reference(name):
            return boxes[name]
        case Call("matmul", (left, right)) if not set(references(left)) & set(references(right)):
            a, b = reached(left, boxes, size), reached(right, boxes, size)
            radius = (a.middle.abs() + a.radius) @ b.radius + a.radius @ b.middle.abs()
            return Interval.around(a.middle @ b.middle, radius)
        case Call("add", (left, right)) if not set(references(left)) & set(references(right)):
            a, b = reached(left, boxes, size), reached(right, boxes, size)
            return Interval(a.low + b.low, a.high + b.high)
        case Call(function, (inside,), settings) if function in PRIMITIVES and PRIMITIVES[function].kind == "move":
            part, move = reached(inside, boxes, size), PRIMITIVES[function].value
            return Interval(move(part.low, *settings), move(part.high, *settings))
    return _searched(tree, boxes, size)


def _searched(tree: Tree, boxes: Mapping[str, Interval], size: float) -> Interval:
    """The extremes over the box of the inputs and of what is rounded on the way.

    The search begins in the corner to which the derivatives point, and moves one coordinate after another where a
    function may turn.
    """
    centre, box = _box(tree, boxes, size)
    if not box:
        return Interval(centre, centre)
    cells = _Cells(tree, {name: boxes[name].middle for name in references(tree)}, box, centre)
    middles, radii = ([cells.inputs(each) for each in kind] for kind in zip(*box.values(), strict=True))
    if centre.numel() * sum(1 if cells.grain == "cell" else x.shape[-1] for x in middles) > MOST_NUMBERS:
        return Interval(torch.full_like(centre, -torch.inf), torch.full_like(centre, torch.inf))
    points = [x.repeat(len(cells.meant), *(1 for _ in x.shape)).requires_grad_() for x in middles]
    slopes = torch.autograd.grad(cells.at(points).sum(), points, allow_unused=True, materialize_grads=True)
    side = torch.tensor([-1.0, 1.0], dtype=centre.dtype).reshape(2, *(1 for _ in slopes[0].shape[1:]))
    corners = [
        x + radius * side[:, None] * slope.nan_to_num().sign()
        for x, radius, slope in zip(middles, radii, slopes, strict=True)
    ]
    best = cells.at(corners)
    for which, (x, radius) in enumerate(zip(middles, radii, strict=True)):
        for place in cells.places(radius):
            tried = [corner.repeat(3, *(1 for _ in corner.shape)) for corner in corners]
            for point, offset in zip(tried[which], (-1.0, 0.0, 1.0), strict=True):
                point[place] = (x + offset * radius)[place]
            for point, made in zip(tried[which], cells.at(tried), strict=True):
                better = side * made > side * best
                best = torch.where(better, made, best)
                corners[which] = torch.where(cells.points(better), point, corners[which])
    low, high = best.reshape(2, *centre.shape)
    return Interval(torch.minimum(centre, low), torch.maximum(centre, high))


class _Cells:
    """The cells of a result, each computed at a point of its own.

    The grain says what a point is: for a function of cells a number of each input, for one of rows a row of each, for
    any other all numbers. Points are tensors [..., cells of a grain, grains, numbers of a point].
    """

    def __init__(self, tree: Tree, values: Mapping[str, Tensor], box: Box, centre: Tensor) -> None:
        self.tree, self.values, self.box = tree, values, box
        calls = [call for call in every(tree) if call.function not in (*DEFINITIONS, "aside", "plain", "shift")]
        self.turns = any(call.function in TURNING for call in calls)
        kinds = {(PRIMITIVES[call.function].kind, call.settings) for call in calls}
        if all(kind == "cell" for kind, _ in kinds):
            self.grain, self.shape, width = "cell", centre.shape, ()
        elif centre.dim() and all(kind == "cell" or (kind, axis) == ("fold", (-1,)) for kind, axis in kinds):
            self.grain, self.shape, width = "row", centre.shape[:-1], centre.shape[-1:]
        else:
            self.grain, self.shape, width = "all", (), (centre.numel(),)
        self.meant = torch.eye(*(width or (1,)), dtype=torch.bool).reshape(
            *(width or (1,)), *(1 for _ in self.shape), *width
        )
        """Which cell of the result is meant for each point."""

    def inputs(self, x: Tensor) -> Tensor:
        """The numbers of one input that go into each cell or row."""
        if self.grain == "all":
            return x.reshape(-1)
        return x.expand(*self.shape, *(() if self.grain == "cell" else x.shape[-1:] or (1,)))

    def at(self, points: Sequence[Tensor]) -> Tensor:
        """Each cell at its point."""
        if self.grain == "all":
            made = vmap(self.flat)(*(x.flatten(0, -2) for x in points)).unflatten(0, points[0].shape[:-1])
        else:
            made = self.value(points)
        return torch.where(self.meant, made, 0.0).sum(dim=-self.meant.dim())

    def flat(self, *parts: Tensor) -> Tensor:
        shaped = [part.reshape(x.shape) for part, (x, _) in zip(parts, self.box.values(), strict=True)]
        return self.value(shaped).reshape(-1)

    def value(self, parts: Sequence[Tensor]) -> Tensor:
        known = dict(zip(self.box, parts, strict=True))
        values = {**self.values, **{key.name: part for key, part in known.items() if isinstance(key, Reference)}}
        return compute(self.tree, values, lambda call, made: made[0] + known[call] if call in known else None)

    def places(self, radius: Tensor) -> list[Any]:
        """The coordinates along which to search."""
        if not self.turns or self.grain == "cell":
            return [...] if self.turns else []
        return [(..., place) for place in range(radius.shape[-1]) if bool((radius[..., place] > 0).any())]

    def points(self, cells: Tensor) -> Tensor:
        """The points of some cells, as a mask."""
        made = cells[:, None] & self.meant
        return made if self.grain == "cell" else made.any(dim=-1, keepdim=True)


def _box(tree: Tree, boxes: Mapping[str, Interval], size: float) -> tuple[Tensor, Box]:
    """The value in the middle, and middles and radii of what moves: inputs, and roundings of numbers on the side."""
    side: dict[Call, Tensor] = {}

    def note(call: Call, parts: list[Tensor]) -> None:
        if call.function == "aside" and call.settings[0] in SIDE:
            side[call] = parts[0]

    box: Box = {Reference(name): (boxes[name].middle, boxes[name].radius) for name in references(tree)}
    centre = compute(tree, {name: boxes[name].middle for name in references(tree)}, note)
    for call, value in side.items():
        half = torch.where(is_whole(value, size) | ~value.isfinite(), 0.0, size / 2)
        if call.settings == ("_power",) and value.dim():  # the largest exponent may be subtracted first
            half = half * value.amax(-1, keepdim=True).clamp(min=1.0)
        box[call] = torch.zeros_like(half), half
    return centre, {key: (middle, radius) for key, (middle, radius) in box.items() if bool((radius > 0).any())}
