"""The operations a computation is made of: how each makes its numbers, and how one number is worked out by hand.

An operation is called with its inputs and gives its output; the mathematics is that of `vitral.attention.steps` and
PyTorch. `stages` writes the same for one cell: the rule in names, then in numbers. Per-head quantities carry a
leading axis of heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from vitral.explain.notation import (
    Expression,
    Name,
    Number,
    Product,
    Sum,
)

Index = tuple[int, ...]


@dataclass(frozen=True)
class Scribe:
    """How things are called in written arithmetic.

    Attributes:
        first: what the first row and column are called: 1 in worked examples, as on paper; 0 for tensors.
    """

    first: int = 1

    def cell(self, name: str, *index: int) -> Name:
        """One number: scores with 2,1 below."""
        return Name(name, below=",".join(str(place + self.first) for place in index))

    def column(self, letters: str, above: str, column: int) -> Name:
        """A column of a matrix: W^Q with :,1 below."""
        return Name(letters, below=f":,{column + self.first}", above=above)


class Operation(Protocol):
    """What makes a quantity of others. One that only passes some numbers on says where they come from: `passes`."""

    def __call__(self, *inputs: Any, **_: Any) -> Tensor:
        """The quantity."""
        ...

    def formula(self) -> Expression:
        """How it is written."""
        ...

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """The right-hand sides for one cell: the rule in names, then in numbers."""
        ...


def numbers(values: Tensor) -> list[Number]:
    """A vector's entries, to be written."""
    return [Number(value) for value in values.tolist()]


def dot(left: Tensor, right: Tensor, *extra: float) -> Sum:
    """A dot product in numbers, and what is added to it."""
    pairs = zip(numbers(left), numbers(right), strict=True)
    return Sum((*(Product(pair) for pair in pairs), *(Number(term) for term in extra)))


def linear_stages(
    x: Tensor, values: Tensor, extra: list[float], names: tuple[str, str, int, int], scribe: Scribe
) -> tuple[Expression, ...]:
    """The stages of one cell of a linear map; `names` are what is mapped, the matrix, the row and the column."""
    of, letter, row, column = names
    rule: Expression = Product((scribe.cell(of, row), scribe.column("W", letter, column)))
    if extra:
        rule = Sum((rule, Name("b", below=str(column + scribe.first), above=letter)))
    return (rule, dot(x, values, *extra))
