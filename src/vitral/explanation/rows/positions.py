"""Sinusoidal and rotary positions: their formulas have letters for pairs of columns, which no tree has."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.core.language import N_
from vitral.explanation.expressions import Call, Constant, Tree
from vitral.explanation.formulas.notation import Apply, Equation, Expression, Name, Words, exact
from vitral.explanation.rows.base import Row
from vitral.model.positions import partners
from vitral.model.settings import ROTARY, LinearScaling, Llama3Scaling, RotaryConfig

FROM_ONE = N_("position p is counted from 1, column 2i from 0")
FROM_ZERO = N_("p and 2i are counted from 0")
LLAMA3 = N_("the rate of pair i, 1 over the base to the power of i/h, scaled as in Llama 3.1")


def _angle(rows: Tensor, base: float, exponents: Tensor, size: int, factor: float | None = None) -> Tree:
    """Positions over powers of the base, as the number on the side that a sine takes."""
    rate: Tree = Call("power", (Constant(base), Call("divide", (Constant.of(exponents), Constant(float(size))))))
    rate = rate if factor is None else Call("multiply", (Constant(factor), rate))
    return Call("aside", (Call("divide", (Constant.of(rows[:, None]), rate)),), ("_angle",))


@dataclass(frozen=True)
class Sinusoids(Row):
    """The sinusoidal position embedding (Vaswani et al. 2017, §3.5).

    Attributes:
        time: number of positions.
        width: of the stream.
        base: of the angles' rates.
        halves: whether all sines stand before all cosines.
        first: number of the first position.
    """

    time: int
    width: int
    base: float = 10_000.0
    halves: bool = False
    first: int = 0

    def tree(self) -> Tree:
        """The table, [time, width]."""
        columns, half = torch.arange(self.width, dtype=torch.float64), (self.width + 1) // 2
        even = 2 * (columns % half) if self.halves else columns - columns % 2
        sine = columns < half if self.halves else columns % 2 == 0
        angle = _angle(torch.arange(self.time).double() + self.first, self.base, even, self.width)
        return Call("where", (Constant.of(sine), Call("sin", (angle,)), Call("cos", (angle,))))

    @property
    def subscript(self) -> str:  # pyright: ignore
        """The place of a sine in the formula."""
        return "p,i" if self.halves else "p,2i"

    @property
    def _angle(self) -> tuple[Expression, ...]:
        return (Name("p") / exact(self.base) ** (Name("2i") / Name("d", below="model")),)

    def formula(self) -> Expression:
        """Sine of even columns, or of the first half; the cosine of the others is a further equation."""
        return Apply("sin", self._angle)

    def after(self, name: str) -> Iterator[Equation]:
        """The cosine of the other columns, and the meaning of the letters."""
        yield Equation((Name(name, below="p,i+h" if self.halves else "p,2i+1"), Apply("cos", self._angle)))
        if self.halves:
            yield Equation((Name("h"), exact((self.width + 1) // 2)))
        yield Equation((Name("d", below="model"), exact(self.width)))
        if not self.halves:
            yield Equation((Words(FROM_ONE if self.first == 1 else FROM_ZERO),))


@dataclass(frozen=True)
class Rotary(Row):
    """Queries or keys rotated in pairs by position: rotary positions (Su et al. 2021, eq. 34).

    Attributes:
        letter: "q" or "k".
        frequencies: of each pair, radians per position; the features after the pairs stay as they are.
        rotation: base, pairing and scaling.
    """

    letter: str
    frequencies: Tensor
    rotation: RotaryConfig = ROTARY

    @property
    def width(self) -> int:
        """Number of features that turn."""
        return 2 * len(self.frequencies)

    @property
    def _is_interleaved(self) -> bool:
        return self.rotation.pairing == "interleaved"

    def tree(self, x: Tree, time: int, width: int) -> Tree:
        """The rotation of x, [heads, time, width]."""
        columns, half = torch.arange(width), len(self.frequencies)
        pair = columns // 2 if self._is_interleaved else columns % half
        first = columns % 2 == 0 if self._is_interleaved else columns < half
        rows, scaling = torch.arange(time).double(), self.rotation.scaling
        if isinstance(scaling, Llama3Scaling):
            rates = Constant.of(self.frequencies[pair.clamp(max=half - 1)], "θ")
            angle: Tree = Call("multiply", (Constant.of(rows[:, None]), rates))
            angle = Call("aside", (angle,), ("_angle",))
        else:
            factor = scaling.factor if isinstance(scaling, LinearScaling) else None
            angle = _angle(rows, self.rotation.base, pair, half, factor)
        other = Call("partner", (x,), tuple(partners(width, self.rotation).tolist()))
        cos, sin = Call("cos", (angle,)), Call("sin", (angle,))
        one = Call("subtract", (Call("multiply", (x, cos)), Call("multiply", (other, sin))))
        two = Call("add", (Call("multiply", (other, sin)), Call("multiply", (x, cos))))
        turned = Call("where", (Constant.of(first), one, two))
        return turned if self.width == width else Call("where", (Constant.of(columns >= self.width), x, turned))

    @property
    def subscript(self) -> str:  # pyright: ignore
        """The place of the first of a pair in the formula."""
        return "p,2i" if self._is_interleaved else "p,i"

    @property
    def _second(self) -> str:
        return "p,2i+1" if self._is_interleaved else "p,i+h"

    def formula(self) -> Expression:
        """The first of each pair; the second is a further equation."""
        one, other, cos, sin = self._parts
        return one * cos - other * sin

    def after(self, name: str) -> Iterator[Equation]:
        """The second of each pair, the features that stay, the number of pairs, and scaled rates."""
        one, other, cos, sin = self._parts
        yield Equation((Name(name, below=self._second), one * sin + other * cos))
        yield Equation((Name("h"), exact(len(self.frequencies))))
        if self.rotation.fraction < 1:
            yield Equation((Name(name, below="p,i+w"), Name(f"{self.letter}_pre", below="p,i+w")))
            yield Equation((Name("w"), exact(self.width)))
        if isinstance(self.rotation.scaling, Llama3Scaling):
            yield Equation((Name("θ", below="i"), Words(LLAMA3)))

    @property
    def _parts(self) -> tuple[Expression, Expression, Expression, Expression]:
        """The two features of a pair, and the cosine and sine of its angle, in letters."""
        scaling, rate = self.rotation.scaling, exact(self.rotation.base) ** (Name("i") / Name("h"))
        angle: Expression = Name("p") / (exact(scaling.factor) * rate if isinstance(scaling, LinearScaling) else rate)
        if isinstance(scaling, Llama3Scaling):
            angle = Name("p") * Name("θ", below="i")
        one, other = (Name(f"{self.letter}_pre", below=each) for each in (self.subscript, self._second))
        return one, other, Apply("cos", (angle,)), Apply("sin", (angle,))
