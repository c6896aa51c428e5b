"""The steps of a computation as every renderer receives them."""

from collections.abc import Callable
from dataclasses import dataclass

from vitral.explanation.formulas.notation import Equation, Expression, Number, Words

Cell = tuple[int, int]
Working = Callable[[int, int], "Arithmetic"]


@dataclass(frozen=True)
class Arithmetic:
    """The computation of one number.

    Attributes:
        target: the number's name, as scores with subscript 2,1.
        stages: the sides of the equation between name and value: the rule in names, then in numbers; none if given.
        value: the number.
        before: equations of numbers that the stages use, as the mean and the variance of a norm.
        word: the word that the number stands for, if it is a choice.
    """

    target: Expression
    stages: tuple[Expression, ...]
    value: float
    before: tuple[Equation, ...] = ()
    word: Words | None = None

    def equation(self) -> Equation:
        """The whole equation, from the name to the value."""
        return Equation((self.target, *self.stages, self.word or Number(self.value)), self.before)


@dataclass(frozen=True)
class Panel:
    """One matrix of a step: the only one, or one head's.

    `quantity`, `head` and the indices of rows and columns name each number; every page writes them as data attributes.

    Attributes:
        label: the head, or empty.
        matrix: the numbers, [rows, columns].
        row_labels: one for each row.
        column_labels: one for each column.
        columns_are_positions: whether the columns are positions, as the rows are, instead of features or words.
        cell: row and column of the number whose arithmetic is written out.
        working: the arithmetic of any cell, by row and column from 0.
        quantity: name of the quantity, as `Step.name`, or that of a given quantity.
        head: number of the head from 0; None without heads.
        also: further cells whose arithmetic is written out, as one that the mask hides.
        asked: names of the options that choose a row and a column, as ("query", "key"); empty if there are none.
        first: the number of the first row and column for these options.
        words: the words that the numbers stand for, in the matrix's shape; empty if they are numbers.
    """

    label: str
    matrix: tuple[tuple[float, ...], ...]
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    columns_are_positions: bool
    cell: Cell
    working: Working
    quantity: str = ""
    head: int | None = None
    also: tuple[Cell, ...] = ()
    asked: tuple[str, ...] = ()
    first: int = 0
    words: tuple[tuple[str, ...], ...] = ()

    @property
    def worked(self) -> tuple[Cell, ...]:
        """The cells whose arithmetic is written out, the chosen one first."""
        return (self.cell, *self.also)


@dataclass(frozen=True)
class Step:
    """One step of a computation, with all its numbers; a renderer may truncate them.

    Attributes:
        name: as in `vitral.core.names`, without the block's prefix and "attn.".
        title: its heading.
        formula: the formula of each number.
        shapes: of inputs and output, with the names of the axes.
        sentence: its meaning here.
        panels: its matrices.
        is_share: whether the numbers are shares of one (weights, probabilities), to be coloured from 0 to 1.
    """

    name: str
    title: str
    formula: Expression
    shapes: str
    sentence: str
    panels: tuple[Panel, ...]
    is_share: bool = False


@dataclass(frozen=True)
class Chapter:
    """Steps under one heading.

    Attributes:
        title: as "Block 0"; empty if it is the only chapter.
        steps: in order.
    """

    title: str
    steps: tuple[Step, ...]
