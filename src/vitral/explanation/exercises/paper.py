"""A sheet of paper with boxes to fill in, as plain data."""

from dataclasses import dataclass

from vitral.explanation.formulas.notation import Expression


@dataclass(frozen=True)
class PaperGrid:
    """A table of numbers, or of boxes for numbers.

    Attributes:
        label: above it.
        rows: a label for each row.
        columns: a label for each column.
        cells: the numbers as text; None for a box.
        is_asked: whether it is to be filled in, so that its numbers have boxes on the key too.
    """

    label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str | None, ...], ...]
    is_asked: bool = False


@dataclass(frozen=True)
class PaperTask:
    """One quantity to compute.

    Attributes:
        heading: with its number.
        formulas: of each number; several if the quantity is computed from others that are not asked.
        grids: where the numbers go.
    """

    heading: str
    formulas: tuple[Expression, ...]
    grids: tuple[PaperGrid, ...]


@dataclass(frozen=True)
class Paper:
    """A sheet.

    Attributes:
        title: its heading.
        fields: lines for the name and the like, in order.
        intro: paragraphs.
        given_heading: above the given numbers.
        given: the given numbers.
        helps_heading: above the tables that help.
        helps: tables that help, as of exponentials.
        tasks: in order.
        decimals: digits of the numbers in formulas.
        language: BCP 47 code of the text.
    """

    title: str
    fields: tuple[str, ...]
    intro: tuple[str, ...]
    given_heading: str
    given: tuple[PaperGrid, ...]
    helps_heading: str
    helps: tuple[PaperGrid, ...]
    tasks: tuple[PaperTask, ...]
    decimals: int
