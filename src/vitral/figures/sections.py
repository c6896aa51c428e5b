"""What a report is made of: small frozen pieces that a page and a Markdown file are both written from.

All text is plain: it is escaped where it is written, never here, and shows what is invisible (`text.visible`).
"""

from dataclasses import dataclass

from vitral.core.errors import UsageError


@dataclass(frozen=True)
class Heading:
    """A heading; those of level 2 make the table of contents.

    Attributes:
        text: what it says.
        level: 2, 3 or 4; the page's title is the only heading of level 1.
    """

    text: str
    level: int = 2

    def __post_init__(self) -> None:
        """Refuse a level that a section cannot have."""
        if self.level not in (2, 3, 4):
            raise UsageError(f"heading {self.text!r}: a section's heading is of level 2, 3 or 4, not {self.level}")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True)
class Callout:
    """The sentence a hurried reader should see."""

    text: str


@dataclass(frozen=True)
class Listing:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows and stands left; the others stand right, as numbers do.

    Attributes:
        caption: what it shows.
        columns: their headings.
        rows: as many cells each as there are columns, as text ready to show.
        prose: indices of columns that hold words rather than numbers, and so stand left.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    prose: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse rows that are not as long as the table is wide."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise UsageError(f"table {self.caption!r}: {len(row)} cells in a row of {len(self.columns)} columns")


@dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        svg: the SVG file's text; goes into the page as it is, so it must come from `vitral.figures`.
        caption: what it shows and how to read it.
        alt: what a reader who cannot see it should be told: the finding, not the drawing.
        path: where the Markdown file finds the image, relative to itself.
    """

    svg: str
    caption: str
    alt: str
    path: str = ""


@dataclass(frozen=True)
class Preformatted:
    """Text whose line breaks count: a sample, a configuration, a command."""

    text: str
    caption: str = ""


@dataclass(frozen=True)
class Columns:
    """Texts side by side, one below the other on a narrow screen."""

    items: tuple[Preformatted, ...]


@dataclass(frozen=True)
class Details:
    """Sections that fold away; unfolded on paper.

    Attributes:
        summary: what they are about; always seen.
        sections: what folds.
        unfolded: whether they are seen before they are asked for.
    """

    summary: str
    sections: tuple["Section", ...]
    unfolded: bool = False


@dataclass(frozen=True)
class Formula:
    """A formula.

    Attributes:
        mathml: a `math` element; goes into the page as it is, so it must come from code, not from a text.
        text: the same for files without mathematics.
    """

    mathml: str
    text: str


@dataclass(frozen=True)
class CellTable:
    """A table of numbers each of which tells, when chosen, how it comes about.

    Attributes:
        caption: what it shows.
        columns: headings, the first of them the rows' own.
        rows: as many cells each as there are columns.
        workings: how each cell comes about, of the same shape less the first column; None where nothing is told.
        chosen: row and column, in `workings`, of the one told at first.
        heat: shares from 0 to 1 by which cells are shaded, of the shape of `workings`; empty for none.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    workings: tuple[tuple[Formula | None, ...], ...]
    chosen: tuple[int, int]
    heat: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together."""
        shape = [len(self.columns) - 1] * len(self.rows)
        parts = [[len(row) - 1 for row in self.rows], *([len(row) for row in part] for part in self._parts())]
        if any(part != shape for part in parts):
            raise UsageError(f"table {self.caption!r}: its rows, workings and heat are not all of one shape")

    def _parts(self) -> list[tuple[tuple[object, ...], ...]]:
        return [self.workings, self.heat] if self.heat else [self.workings]


@dataclass(frozen=True)
class Beside:
    """Tables of cells side by side, as many as there is room for."""

    tables: tuple[CellTable, ...]


Section = (
    Heading
    | Paragraph
    | Callout
    | Listing
    | Table
    | Figure
    | Preformatted
    | Columns
    | Details
    | Formula
    | CellTable
    | Beside
)
