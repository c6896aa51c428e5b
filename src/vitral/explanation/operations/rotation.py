"""The operation of rotary positions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.core.language import N_
from vitral.explanation.expressions.tree import Call, Constant, Tree
from vitral.explanation.formulas.notation import (
    Apply,
    Difference,
    Equation,
    Expression,
    Fraction,
    Name,
    Number,
    Power,
    Product,
    Sum,
    Words,
)
from vitral.explanation.operations.base import (
    CellNamer,
    Index,
    named,
)
from vitral.model.positions import pairs
from vitral.model.settings import ROTARY, LinearScaling, Llama3Scaling, RotaryConfig

LLAMA3 = N_("the rate of pair i, 1 over the base to the power of i/h, scaled as in Llama 3.1")


@dataclass(frozen=True)
class Rotate:
    """Queries or keys rotated in pairs by position: rotary positions (Su et al. 2021, eq. 34).

    Attributes:
        letter: "q" or "k".
        frequencies: of each pair, radians per position; the features after the pairs stay as they are.
        rotation: base, pairing and scaling.
    """

    letter: str
    frequencies: Tensor
    rotation: RotaryConfig = ROTARY

    def __call__(self, x: Tensor) -> Tensor:
        """[heads, time, d_head] of the same shape."""
        positions = torch.arange(x.shape[-2], dtype=self.frequencies.dtype)
        angles = torch.outer(positions, self.frequencies)
        first, second = pairs(self.width, self.rotation)
        one, other = x[..., first], x[..., second]
        cos, sin = angles.cos(), angles.sin()
        turned = x.clone()
        turned[..., first], turned[..., second] = one * cos - other * sin, one * sin + other * cos
        return turned

    @property
    def width(self) -> int:
        """Number of features that turn."""
        return 2 * len(self.frequencies)

    def pair(self, column: int) -> tuple[int, int, int] | None:
        """The number of a column's pair and the two columns of the pair; None if the column stays."""
        if column >= self.width:
            return None
        if self.rotation.pairing == "interleaved":
            return column // 2, column // 2 * 2, column // 2 * 2 + 1
        half = len(self.frequencies)
        return column % half, column % half, column % half + half

    @property
    def subscript(self) -> str:
        """The place of the first of a pair in the formula."""
        return "p,2i" if self.rotation.pairing == "interleaved" else "p,i"

    @property
    def _second(self) -> str:
        return "p,2i+1" if self.rotation.pairing == "interleaved" else "p,i+h"

    def tree(self, inputs: Sequence[str]) -> Tree:
        """See `Operation`."""
        [x] = named(inputs)
        turning = Call("pick", (x,), (-1, None, self.width))
        kind = "of pairs" if self.rotation.pairing == "interleaved" else "half"
        halves = Call(f"first {kind}", (turning,)), Call(f"second {kind}", (turning,))
        angles = Call("matmul", (Call("positions", (x,)), Constant.of(self.frequencies[None])))
        cos, sin = Call("cos", (angles,)), Call("sin", (angles,))
        turned = [[Call("multiply", (half, function)) for function in (cos, sin)] for half in halves]
        low = Call("subtract", (turned[0][0], turned[1][1]))
        both = low, Call("add", (turned[0][1], turned[1][0]))
        made = Call("pairs", both) if self.rotation.pairing == "interleaved" else Call("concat", both)
        return Call("with the rest", (made, x))

    def formula(self) -> Expression:
        """The first of each pair; the second is a further equation."""
        return self._turned(self._cells(self.subscript, self._second), self._parts(self._angle()), first=True)

    def after(self, name: str) -> tuple[Equation, ...]:
        """The second of each pair, the features that stay, the number of pairs, and scaled rates."""
        second = self._turned(self._cells(self.subscript, self._second), self._parts(self._angle()), first=False)
        made = [
            Equation((Name(name, below=self._second), second)),
            Equation((Name("h"), Number(len(self.frequencies), exact=True))),
        ]
        if self.rotation.fraction < 1:
            stays = Name(name, below="p,i+w"), Name(f"{self.letter}_pre", below="p,i+w")
            made += [Equation(stays), Equation((Name("w"), Number(self.width, exact=True)))]
        if isinstance(self.rotation.scaling, Llama3Scaling):
            made.append(Equation((Name("θ", below="i"), Words(LLAMA3))))
        return tuple(made)

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The two numbers of its pair, with sine and cosine of the angle."""
        head, row, column = index
        pair, values = self.pair(column), inputs[0][head, row]
        if pair is None:
            return (namer.cell(f"{self.letter}_pre", row, column),)
        place, one, other = pair
        first = column == one
        cells = tuple(namer.cell(f"{self.letter}_pre", row, part) for part in (one, other))
        numbers = (Number(float(values[one])), Number(float(values[other])))
        angle = row * float(self.frequencies[place])
        factors = (Number(math.cos(angle)), Number(math.sin(angle)))
        return (
            self._turned(cells, self._parts(self._angle(row, place)), first=first),
            self._turned(numbers, self._parts(Number(angle)), first=first),
            self._turned(numbers, factors, first=first),
        )

    def _angle(self, row: int | None = None, place: int | None = None) -> Expression:
        """The angle of a position and a pair, or in letters."""
        position = Name("p") if row is None else Number(row, exact=True)
        if isinstance(self.rotation.scaling, Llama3Scaling):
            rate = Name("θ", below="i") if place is None else Number(float(self.frequencies[place]))
            return Product((position, rate))
        exponent = (
            Fraction(Name("i"), Name("h"))
            if place is None
            else Fraction(Number(place, exact=True), Number(len(self.frequencies), exact=True))
        )
        rate = Power(Number(self.rotation.base, exact=True), exponent)
        if isinstance(self.rotation.scaling, LinearScaling):
            rate = Product((Number(self.rotation.scaling.factor, exact=True), rate))
        return Fraction(position, rate)

    def _cells(self, *places: str) -> tuple[Expression, ...]:
        return tuple(Name(f"{self.letter}_pre", below=place) for place in places)

    @staticmethod
    def _parts(angle: Expression) -> tuple[Expression, ...]:
        return Apply("cos", (angle,)), Apply("sin", (angle,))

    @staticmethod
    def _turned(pair: tuple[Expression, ...], parts: tuple[Expression, ...], *, first: bool) -> Expression:
        (one, other), (cos, sin) = pair, parts
        if first:
            return Difference(Product((one, cos)), Product((other, sin)))
        return Sum((Product((one, sin)), Product((other, cos))))
