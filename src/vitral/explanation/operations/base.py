"""The interface of operations, and helpers for writing the arithmetic of one cell.

An operation is called with its inputs and returns its output, computed by `vitral.attention.steps` and PyTorch. Its
method `stages` writes the computation of one cell: first the rule in names, then in numbers. Quantities of heads have
a leading axis of heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from vitral.explanation.expressions.tree import Call, Reference, Tree
from vitral.explanation.formulas.notation import Expression, Name, Number, Product, Sum

Index = tuple[int, ...]


@dataclass(frozen=True)
class CellNamer:
    """Names of cells in written arithmetic.

    Attributes:
        first: the number of the first row and column: 1 in worked examples, as on paper; 0 for tensors.
    """

    first: int = 1

    def cell(self, name: str, *index: int) -> Name:
        """One number: scores with subscript 2,1."""
        return Name(name, below=",".join(str(place + self.first) for place in index))

    def column(self, letters: str, above: str, column: int) -> Name:
        """A column of a matrix: W^Q with subscript :,1."""
        return Name(letters, below=f":,{column + self.first}", above=above)


class Operation(Protocol):
    """Computes a quantity from others.

    An operation that may copy cells unchanged has a method `passes(inputs, index)`, which returns the name and index
    of the copied cell, or None.
    """

    def __call__(self, *inputs: Any, **_: Any) -> Tensor:
        """The quantity."""
        ...

    def tree(self, inputs: Sequence[str]) -> Tree:
        """The computation from inputs of these names, as a tree whose value is the quantity."""
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
