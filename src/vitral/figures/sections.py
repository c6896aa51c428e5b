"""The sections of a report, as frozen data; HTML and Markdown are both written from them.

All text is plain: it is escaped, and hidden characters made visible (`text.visible`), where it is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vitral.core.errors import UsageError


@dataclass(frozen=True)
class Heading:
    """A heading; those of level 2 are in the table of contents.

    Attributes:
        text: of the heading.
        level: 2, 3 or 4; the title of the page is the only heading of level 1.
    """

    text: str
    level: int = 2

    def __post_init__(self) -> None:
        """Refuse other levels."""
        if self.level not in (2, 3, 4):
            raise UsageError(
                "heading {text!r}: the level must be 2, 3 or 4, not {level}", text=self.text, level=self.level
            )


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True)
class Callout:
    """The main result, in a sentence or two."""

    text: str


@dataclass(frozen=True)
class Listing:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows and is left-aligned, the others are right-aligned.

    Attributes:
        caption: of the table.
        columns: headings.
        rows: one cell for each column, as text.
        prose: indices of columns of words, which are left-aligned.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    prose: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse rows of another length than `columns`."""
        for row in self.rows:
            if len(row) != len(self.columns):
                raise UsageError(
                    "table {caption!r}: {cells} cells in a row of {columns} columns",
                    caption=self.caption,
                    cells=len(row),
                    columns=len(self.columns),
                )


@dataclass(frozen=True)
class SortableTable:
    """A table whose rows can be sorted by any column, with a small drawing at the end of each row.

    Attributes:
        table: captions, columns and cells.
        keys: of each cell, the value that it is sorted by; None stays at the end.
        drawings: of each row, the text of an SVG file, not escaped, or empty; no column of drawings if empty.
        drawn: heading of the drawings.
        alts: of each drawing, the finding in words.
    """

    table: Table
    keys: tuple[tuple[float | str | None, ...], ...]
    drawings: tuple[str, ...] = ()
    drawn: str = ""
    alts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse keys and drawings of other numbers than there are cells and rows."""
        rows = len(self.table.rows)
        if {len(keys) for keys in self.keys} - {len(self.table.columns)} or len(self.keys) != rows:
            raise UsageError("table {caption!r}: its keys are not as many as its cells", caption=self.table.caption)
        if {len(self.drawings), len(self.alts)} - {0, rows}:
            raise UsageError("table {caption!r}: its drawings are not as many as its rows", caption=self.table.caption)


@dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        svg: text of an SVG file; not escaped, so it must come from `vitral.figures`.
        caption: contents, and how to read them.
        alt: alternative text: the finding, not the drawing.
        path: of the image, relative to the Markdown file.
    """

    svg: str
    caption: str
    alt: str
    path: str = ""


@dataclass(frozen=True)
class Preformatted:
    """Text with its line breaks: a sample, a configuration, a command.

    Attributes:
        text: of any length.
        caption: a line above.
        marks: (begin, end) of passages to mark, in order and apart; Markdown leaves them out.
    """

    text: str
    caption: str = ""
    marks: tuple[tuple[int, int], ...] = ()

    @property
    def pieces(self) -> list[tuple[str, bool]]:
        """The text in pieces, and whether each is marked.

        >>> Preformatted("abcd", marks=((1, 3),)).pieces
        [('a', False), ('bc', True), ('d', False)]
        """
        borders = [0, *(border for mark in self.marks for border in mark), len(self.text)]
        cut = [(self.text[begin:end], index % 2 == 1) for index, (begin, end) in enumerate(pairwise(borders))]
        return [piece for piece in cut if piece[0]]


@dataclass(frozen=True)
class Columns:
    """Texts side by side; one below the other on a narrow screen."""

    items: tuple[Preformatted, ...]


@dataclass(frozen=True)
class Details:
    """Sections that can be folded; unfolded on paper.

    Attributes:
        summary: always visible.
        sections: the content.
        unfolded: whether the content is visible at first.
    """

    summary: str
    sections: tuple["Section", ...]
    unfolded: bool = False


@dataclass(frozen=True)
class Formula:
    """A formula.

    Attributes:
        mathml: a `math` element; not escaped, so it must be generated by code.
        text: the same as plain text.
        latex: the same for Markdown between dollar signs; if empty, Markdown has the plain text.
        whole: the `math` element with all terms, if `mathml` leaves some out; else empty.
    """

    mathml: str
    text: str
    latex: str = ""
    whole: str = ""


@dataclass(frozen=True)
class CellWords:
    """The words of a page around its tables of numbers, in the page's language.

    Attributes:
        open: opens a table that is not shown whole.
        close: closes it again.
        all_terms: opens a sum that is not written whole.
        fewer_terms: closes it again.
        scroll: the hint beside a table that is wider than the screen.
    """

    open: str
    close: str
    all_terms: str
    fewer_terms: str
    scroll: str


@dataclass(frozen=True)
class WholeTable:
    """All of a table of which a page shows a part until it is opened.

    Attributes:
        columns: headings, without that of the row names.
        rows: the name and the numbers of each row.
        workings: the arithmetic of each cell, in the shape of the numbers; empty if it is only that of the cells shown.
        ask: how the arithmetic of another cell is found, with the places {row} and {column}; may be empty.
        first: the number of the first row and column in `ask`.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    workings: tuple[tuple[Formula | None, ...], ...] = ()
    ask: str = ""
    first: int = 0


@dataclass(frozen=True)
class CellTable:
    """A table of numbers; choosing a cell shows its arithmetic.

    Every number's `td` has the attributes data-row and data-column, the indices from 0 in the whole table; its
    `table` has data-quantity and data-head, where these are known. Scripts may rely on them.

    Attributes:
        caption: of the table.
        columns: headings, the first of them that of the row names.
        rows: one cell for each column.
        workings: the arithmetic of each cell, in the shape of `rows` without the first column; None for none.
        chosen: row and column, in `workings`, of the cell chosen at first.
        heat: shades from 0 to 1 in the shape of `workings`; empty for none.
        also: further cells, in `workings`, whose arithmetic is below the table.
        quantity: name of the quantity.
        head: number of the head from 0; None without heads.
        rows_at: for each row its index in the whole table, None for a gap; empty if the table is whole.
        columns_at: the same of columns.
        whole: the whole table, if it can be opened.
        words: around it; without them nothing can be opened.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    workings: tuple[tuple[Formula | None, ...], ...]
    chosen: tuple[int, int]
    heat: tuple[tuple[float, ...], ...] = ()
    also: tuple[tuple[int, int], ...] = ()
    quantity: str = ""
    head: int | None = None
    rows_at: tuple[int | None, ...] = ()
    columns_at: tuple[int | None, ...] = ()
    whole: WholeTable | None = None
    words: CellWords | None = None

    def __post_init__(self) -> None:
        """Refuse rows, workings and heat of different shapes."""
        shape = [len(self.columns) - 1] * len(self.rows)
        parts = [[len(row) - 1 for row in self.rows], *([len(row) for row in part] for part in self._parts())]
        if any(part != shape for part in parts):
            raise UsageError(
                "table {caption!r}: its rows, workings and heat are not all of one shape", caption=self.caption
            )

    def _parts(self) -> list[tuple[tuple[object, ...], ...]]:
        return [self.workings, self.heat] if self.heat else [self.workings]


@dataclass(frozen=True)
class Beside:
    """Tables of cells side by side, where there is room."""

    tables: tuple[CellTable, ...]


@dataclass(frozen=True)
class LiveTables:
    """Makes the tables of cells on a page alive: given numbers can be edited, or blanks filled in.

    The page has at most one, above its tables.

    Attributes:
        data: for the script (`web/src/sheet.ts`); the tables name their quantities.
        title: for screen readers.
        button: the words on the button that restores or clears.
        file: the words and the name of the file that the reader can save; None for none.
    """

    data: Mapping[str, Any]
    title: str
    button: str
    file: tuple[str, str] | None = None


@dataclass(frozen=True)
class Drawing:
    """A small drawing in SVG, readable at its own size.

    Attributes:
        svg: the elements inside `svg`; not escaped, so they must be generated by code. Rectangles and texts have the
            classes of page.css.
        width: in pixels.
        height: in pixels.
        title: its name for screen readers.
        description: its content in words.
    """

    svg: str
    width: int
    height: int
    title: str
    description: str


@dataclass(frozen=True)
class Diagram:
    """Drawings in rows, from top to bottom; those of one row side by side, where there is room.

    Attributes:
        caption: contents.
        rows: the drawings.
        text: the same as lines of text, for Markdown and plain text.
        formula: a `math` element below the caption; not escaped, so it must be generated by code; may be empty.
    """

    caption: str
    rows: tuple[tuple[Drawing, ...], ...]
    text: str
    formula: str = ""


Section = (
    Heading
    | Paragraph
    | Callout
    | Listing
    | Table
    | SortableTable
    | Figure
    | Diagram
    | Preformatted
    | Columns
    | Details
    | Formula
    | CellTable
    | Beside
    | LiveTables
)
