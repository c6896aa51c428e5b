"""The rules of the backward pass, by hand: from the gradient of an operation's output to that of each of its inputs.

`contribution` has the rule of every operation as an equation in names and, for one cell, in numbers; it is filled by
`backward.attention` and `backward.block`. Autograd computes the gradients themselves (`backward.gradients`); tests
compare the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch

from torch import Tensor

from vitral.explanation.formulas.notation import Expression, Name, Number, Over, Sum
from vitral.explanation.operations import Index, Operation
from vitral.explanation.operations.base import CellNamer, dot

Stages = tuple[Expression, Expression]


@dataclass(frozen=True)
class Use:
    """One use of a quantity: an operation with its inputs, its output, and the gradient of the output.

    Attributes:
        name: of the output.
        inputs: names of the inputs.
        values: of the inputs.
        output: the output's value.
        gradient: of the output.
        namer: names cells.
    """

    name: str
    inputs: tuple[str, ...]
    values: Sequence[Tensor]
    output: Tensor
    gradient: Tensor
    namer: CellNamer

    def d(self, *index: int) -> Name:
        """A cell or a row of the output's gradient, by name."""
        return self.namer.cell(f"d{self.name}", *index)

    def cell(self, place: int, *index: int) -> Name:
        """A cell or a row of an input, by name."""
        return self.namer.cell(self.inputs[place], *index)


@dataclass(frozen=True)
class Contribution:
    """What one use adds to the gradient of an input.

    Attributes:
        kind: of the rule, for its sentence: "product", "softmax", "mask", "scale", "copy", "norm", "activation",
            "rotation", "bias", "lookup".
        formula: of the whole matrix.
        stages: for one cell of the input, the rule in names and in numbers.
    """

    kind: str
    formula: Expression
    stages: Callable[[Index], Stages]


@singledispatch
def contribution(operation: Operation, use: Use, place: int) -> Contribution | None:
    """The rule for the input number `place`; None if none is written here."""
    return None


def gradient_name(name: str) -> Name:
    """The name of a quantity's gradient: dx, dW with superscript Q."""
    letters, _, mark = name.partition("_")
    if letters in ("w", "b") and mark:
        return Name(
            f"d{letters.upper() if letters == 'w' else letters}", above=mark.upper() if len(mark) == 1 else mark
        )
    return Name("dE" if name == "embedding" else f"d{name}")


def matrix(name: str, *below: str) -> Name:
    """A row, a column or a cell of a matrix by name: W with superscript Q and subscript 1,:."""
    mark = name.partition("_")[2]
    if name == "embedding":
        return Name("E", below=",".join(below))
    return Name("W", below=",".join(below), above=mark.upper() if len(mark) == 1 else mark)


def dots(pairs: Sequence[tuple[Tensor, Tensor]]) -> Sum:
    """The sum of several dot products in numbers."""
    return Sum(tuple(term for left, right in pairs for term in dot(left, right).terms))


def summed(term: Expression, *indices: str) -> Expression:
    """The sum of a term over indices; those that are empty are left out."""
    for index in reversed([index for index in indices if index]):
        term = Over(index, term)
    return term


def transposed(name: Name) -> Name:
    """The name of a transposed matrix."""
    return Name(name.letters, above=f"{name.above}ᵀ" if name.above else "T")


def of_bias(use: Use) -> Contribution:
    """A bias is added to every row, so the rows' gradients are added."""

    def stages(index: Index) -> Stages:
        *head, column = index
        values = use.gradient[(*head, slice(None), column)]
        rule = Over("i", Name(f"d{use.name}", below=f"i,{column + use.namer.first}"))
        return rule, Sum(tuple(map(Number, values.tolist())))

    return Contribution("bias", Over("i", Name(f"d{use.name}", below="i")), stages)
