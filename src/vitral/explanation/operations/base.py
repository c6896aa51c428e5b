"""The interface of operations, and helpers for writing the arithmetic of one cell.

An operation is called with its inputs and returns its output, computed by `vitral.attention.steps` and PyTorch. Its
method `stages` writes the computation of one cell: first the rule in names, then in numbers. Quantities of heads have
a leading axis of heads.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from vitral.explanation.expressions.tree import Call, Reference, Tree
from vitral.explanation.formulas.notation import (
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

Index = tuple[int, ...]
_PLAIN = re.compile(r"[^\W\d_][\w'’-]*")
"""A word that needs no quotes among the names of a formula."""
TWO = Number(2, exact=True)
MEAN = Name("μ")
VARIANCE = Power(Name("σ"), TWO)


@dataclass(frozen=True)
class CellNamer:
    """Names of cells, and words of the vocabulary, in written arithmetic.

    Attributes:
        first: the number of the first row and column: 1 in worked examples, as on paper; 0 for tensors.
        vocabulary: the words, if there are any.
    """

    first: int = 1
    vocabulary: tuple[str, ...] = ()

    def cell(self, name: str, *index: int) -> Name:
        """One number: scores with subscript 2,1."""
        return Name(name, below=",".join(str(place + self.first) for place in index))

    def column(self, letters: str, above: str, column: int) -> Name:
        """A column of a matrix: W^Q with subscript :,1."""
        return Name(letters, below=f":,{column + self.first}", above=above)

    def words(self, indices: Iterable[int]) -> Words:
        """Words of the vocabulary, each that is not plain letters in quotes."""
        found = [
            self.vocabulary[index] if index < len(self.vocabulary) else str(index + self.first) for index in indices
        ]
        return Words(" ".join(word if _PLAIN.fullmatch(word) else f"“{word}”" for word in found), own=True)


class Operation(Protocol):
    """Computes a quantity from others.

    Further members, where an operation needs them:

    - `passes(inputs, index)`: the name and index of the cell that it copies unchanged, or None.
    - `before(inputs, index, namer)`: equations of numbers that the stages of a cell use, as its row's mean.
    - `after(name)`: further equations of the formula, and definitions of its letters.
    - `subscript`: of the quantity in its formula, if the formula is that of one cell.
    - `chooses`: whether the numbers of the quantity are indices of words.
    """

    def __call__(self, *inputs: Any, **_: Any) -> Tensor:
        """The quantity."""
        ...

    def tree(self, inputs: Sequence[str]) -> Tree | None:
        """The computation from inputs of these names, as a tree whose value is the quantity; None for a derivative."""
        ...

    def formula(self) -> Expression:
        """The right-hand side of its formula."""
        ...

    def stages(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> tuple[Expression, ...]:
        """The right-hand sides for one cell: the rule in names, then in numbers."""
        ...


def linear_tree(x: Tree, weight: Tree, bias: Sequence[Tree]) -> Tree:
    """The tree of x W + b."""
    product = Call("matmul", (x, weight))
    return Call("add", (product, bias[0])) if bias else product


def named(inputs: Sequence[str]) -> list[Tree]:
    """References to quantities."""
    return [Reference(name) for name in inputs]


def numbers(values: Tensor) -> list[Number]:
    """The entries of a vector."""
    return [Number(value) for value in values.tolist()]


def dot(left: Tensor, right: Tensor, *extra: float) -> Sum:
    """A dot product in numbers, plus `extra` terms."""
    pairs = zip(numbers(left), numbers(right), strict=True)
    return Sum((*(Product(pair) for pair in pairs), *(Number(term) for term in extra)))


def linear_stages(
    x: Tensor, values: Tensor, extra: list[float], names: tuple[str, str, int, int], namer: CellNamer
) -> tuple[Expression, ...]:
    """The stages of one cell of a linear map.

    Args:
        x: the input row.
        values: the matrix column.
        extra: the bias, if there is one.
        names: of the input and the matrix, with the row and the column of the cell.
        namer: names cells.
    """
    of, letter, row, column = names
    rule: Expression = Product((namer.cell(of, row), namer.column("W", letter, column)))
    if extra:
        rule = Sum((rule, Name("b", below=str(column + namer.first), above=letter)))
    return (rule, dot(x, values, *extra))


def mean_of(values: Tensor) -> tuple[Expression, Number]:
    """The mean of a vector as arithmetic, and its value."""
    return Fraction(Sum(tuple(numbers(values))), Number(len(values), exact=True)), Number(float(values.mean()))


def squares(values: Tensor, mean: Number | None = None) -> tuple[Expression, Number]:
    """The mean of the squares of a vector, or of those of its distances from the mean, and its value."""
    terms = [number if mean is None else Difference(number, mean) for number in numbers(values)]
    value = float((values if mean is None else values - mean.value).square().mean())
    above = Sum(tuple(Power(term, TWO) for term in terms))
    return Fraction(above, Number(len(values), exact=True)), Number(value)


def spread(values: Tensor) -> tuple[Equation, Equation]:
    """Mean and variance of a vector."""
    mean, value = mean_of(values)
    return Equation((MEAN, mean, value)), Equation((VARIANCE, *squares(values, value)))
