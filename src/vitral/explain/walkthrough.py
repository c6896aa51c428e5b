"""A computation told in numbered steps: what every renderer is given."""

import html
from collections.abc import Callable
from dataclasses import dataclass

from vitral.explain.notation import Expression

Cell = tuple[int, int]
Working = Callable[[int, int], "Arithmetic"]


@dataclass(frozen=True)
class Arithmetic:
    """One number and where it comes from.

    Attributes:
        target: the number's name, as scores with 2,1 below.
        stages: the equation's sides between the name and the value: the rule in names, then in numbers.
        value: the number as the computation has it.
    """

    target: Expression
    stages: tuple[Expression, ...]
    value: float


@dataclass(frozen=True)
class Panel:
    """One matrix of a step: the only one, or one head's.

    Attributes:
        label: which head, or empty.
        matrix: the numbers, [rows, columns].
        row_labels: one for each row.
        column_labels: one for each column.
        columns_are_positions: the columns are positions, as the rows are; else features or words.
        cell: row and column of the number whose arithmetic is written out.
        working: the arithmetic of any cell, by row and column from 0.
    """

    label: str
    matrix: tuple[tuple[float, ...], ...]
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    columns_are_positions: bool
    cell: Cell
    working: Working


@dataclass(frozen=True)
class Step:
    """One step of a computation. It holds all its numbers; how many are shown is up to whoever shows them.

    Attributes:
        name: as in `vitral.core.names`, without the block.
        title: what it is called.
        formula: how each number comes about.
        shapes: of what goes in and comes out, with the names of the axes.
        sentence: what it means here.
        panels: its matrices.
        is_share: the numbers are shares of one (weights, probabilities), to be coloured from 0 to 1.
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
    """Steps that belong together.

    Attributes:
        title: as "Block 0"; empty if the walkthrough has only this one.
        steps: in order.
    """

    title: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Walkthrough:
    """Chapters in order; steps are numbered through.

    Attributes:
        title: what is computed.
        intro: on what, and how to read it; one string a paragraph.
        chapters: the computation.
        language: of the texts, "en" or "pt".
    """

    title: str
    intro: tuple[str, ...]
    chapters: tuple[Chapter, ...]
    language: str = "en"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all chapters."""
        return tuple(step for chapter in self.chapters for step in chapter.steps)

    def __str__(self) -> str:
        """The whole of it as text."""
        from vitral.explain.renderers import to_text

        return to_text(self)

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        return f"<pre>{html.escape(str(self))}</pre>"
