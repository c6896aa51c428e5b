"""Worked examples in cells: CSV files and spreadsheets.

A name stands in a cell above its matrix, or left of its first row; matrices may stand side by side. Settings are a
cell with the key and a cell with the value to its right.
"""

import csv
import io
import math
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.tables import as_csv
from vitral.explanation.documents.blocks import (
    Block,
    Cell,
    Found,
    NotesDocument,
    Setting,
    as_written,
    setting_value,
    without_labels,
)
from vitral.explanation.documents.labels import SECTIONS, bare, known_label
from vitral.explanation.documents.notes import setting_of
from vitral.explanation.examples.places import KeyPath

MOST_ROWS, MOST_COLUMNS = 2000, 200
MOST_UNZIPPED = 2**24
"""Bytes that a spreadsheet may have when it is unzipped."""
MOST_SHOWN = 30
"""Decimals that a number format may ask for."""
SIGNIFICANT = 10
"""Digits of a number that a spreadsheet computed and shows without a number format."""


class GridDocument(NotesDocument):
    """A worked example in a CSV file."""

    def __init__(self, name: str, text: str, rows: list[list[str]], delimiter: str) -> None:
        """Find the blocks."""
        self.rows, self.delimiter = rows, delimiter
        cells = [
            [Cell(value, line + 1, column + 1) for column, value in enumerate(row)] for line, row in enumerate(rows)
        ]
        super().__init__(name, text, grid_blocks({"": cells}), "")

    def _refuse_cell(self, cell: Cell, complaint: str) -> UsageError:
        return UsageError(
            "{where}, line {line}, column {column}: {complaint}",
            where=self.name,
            line=cell.line,
            column=cell.start,
            complaint=complaint,
        )

    def rewritten(self, changes: Mapping[KeyPath, str]) -> bytes:
        """The same cells with other numbers, as CSV with the same delimiter."""
        rows = [list(row) for row in self.rows]
        for path, value in changes.items():
            cell = self.cells[path]
            rows[cell.line - 1][cell.start - 1] = as_written(value, cell.written)
        return as_csv(rows, self.delimiter).encode()


def read_csv(text: str, name: str) -> GridDocument:
    """A worked example as CSV, with commas, semicolons or tabs between the cells.

    Raises:
        UsageError: no CSV, too large, or nothing with a known name.
    """
    delimiter = delimiter_of(text)
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise UsageError("{where}: not CSV: {fault}", where=name, fault=str(error)) from None
    if len(rows) > MOST_ROWS or any(len(row) > MOST_COLUMNS for row in rows):
        raise _too_large(name)
    return GridDocument(name, text, rows, delimiter)


def delimiter_of(text: str) -> str:
    """The sign between cells: a tab or a semicolon if there is one outside quotes, else a comma."""
    outside = re.sub(r'"[^"]*"', "", text)
    return next((sign for sign in "\t;" if sign in outside), ",")


def _too_large(name: str) -> UsageError:
    return UsageError(
        "{where}: more than {rows:,} rows or {columns:,} columns; a worked example is smaller",
        where=name,
        rows=MOST_ROWS,
        columns=MOST_COLUMNS,
    )


class SpreadsheetDocument(NotesDocument):
    """A worked example in an .xlsx file."""

    def __init__(self, name: str, raw: bytes, sheets: dict[str, list[list[Cell]]]) -> None:
        """Find the blocks of every worksheet."""
        self.raw = raw
        lines = (" | ".join(cell.written for cell in row) for rows in sheets.values() for row in rows)
        super().__init__(name, "\n".join(lines), grid_blocks(sheets), "")

    def _refuse_cell(self, cell: Cell, complaint: str) -> UsageError:
        return UsageError(
            "{where}, cell {cell}: {complaint}", where=self.name, cell=coordinate(cell), complaint=complaint
        )

    def rewritten(self, changes: Mapping[KeyPath, str]) -> bytes:
        """The workbook with other numbers.

        Formulas in cells of the example become the numbers that they showed: openpyxl saves no values beside formulas.
        """
        book = _openpyxl().load_workbook(io.BytesIO(self.raw))
        for cell in set(self.cells.values()):
            target = book[cell.sheet].cell(cell.line, cell.start)
            if target.data_type == "f":
                target.value = _as_number(cell.characters)
        for path, value in changes.items():
            cell = self.cells[path]
            target = book[cell.sheet].cell(cell.line, cell.start)
            target.value = _as_number(value)
            target.data_type = "n" if isinstance(target.value, float) else "s"  # a word may begin with =
        buffer = io.BytesIO()
        book.save(buffer)
        return buffer.getvalue()


def _as_number(characters: str) -> float | str:
    try:
        value = float(characters)
    except ValueError:
        return characters
    return value if math.isfinite(value) else characters


def coordinate(cell: Cell) -> str:
    """A cell as a spreadsheet names it: B4, with the worksheet before it."""
    letters, column = "", cell.start
    while column:
        column, place = divmod(column - 1, 26)
        letters = chr(ord("A") + place) + letters
    return f"{cell.sheet}!{letters}{cell.line}" if cell.sheet else f"{letters}{cell.line}"


def _openpyxl() -> Any:
    try:
        import openpyxl
    except ImportError:
        raise UsageError('spreadsheets need openpyxl: pip install "vitral[xlsx]"') from None
    return openpyxl


def read_spreadsheet(raw: bytes, name: str) -> SpreadsheetDocument:
    """A worked example in an .xlsx file; of formulas the values that were stored with them.

    Raises:
        UsageError: no spreadsheet, too large, a formula without a stored value, or nothing with a known name.
    """
    openpyxl = _openpyxl()
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_UNZIPPED:
                raise _too_large(name)
            for entry in archive.infolist():
                if entry.filename.lower().endswith(".xml"):
                    _refuse_large_ranges(archive.read(entry), name)
        values = openpyxl.load_workbook(io.BytesIO(raw), data_only=True)
        formulas = openpyxl.load_workbook(io.BytesIO(raw))
        sheets = {sheet.title: _cells(sheet, formulas[sheet.title], name) for sheet in values.worksheets}
    except UsageError:
        raise
    except Exception as error:
        raise UsageError("{where}: no spreadsheet (.xlsx): {fault}", where=name, fault=type(error).__name__) from None
    return SpreadsheetDocument(name, raw, sheets)


_RANGE = re.compile(rb"""<(?:\w+:)?(?:mergeCell|dimension)\s[^<>]{0,200}?ref\s*=\s*["']([^"'<>]{1,40})["']""")


def _refuse_large_ranges(xml: bytes, name: str) -> None:
    """Refuse merged cells and dimensions beyond the limits, before openpyxl makes every cell of them."""
    for found in _RANGE.finditer(xml):
        for letters, row in re.findall(r"\$?([A-Za-z]{1,3})\$?(\d+)", found[1].decode("ascii", "replace")):
            column = 0
            for letter in letters.upper():
                column = 26 * column + ord(letter) - ord("A") + 1
            if column > MOST_COLUMNS or int(row) > MOST_ROWS:
                raise _too_large(name)


def _cells(sheet: Any, formulas: Any, name: str) -> list[list[Cell]]:
    if sheet.max_row > MOST_ROWS or sheet.max_column > MOST_COLUMNS:
        raise _too_large(name)
    rows = []
    for line, row in enumerate(sheet.iter_rows(), start=1):
        made = []
        for column, cell in enumerate(row, start=1):
            place = Cell(shown_value(cell.value, cell.number_format or ""), line, column, sheet.title)
            if cell.value is None and formulas.cell(line, column).data_type == "f":
                raise UsageError(
                    "{where}, cell {cell}: a formula without a stored value; open the file in a spreadsheet program "
                    "and save it, or write the number",
                    where=name,
                    cell=coordinate(place),
                )
            made.append(place)
        rows.append(made)
    return rows


def shown_value(value: Any, number_format: str) -> str:
    """A cell's value as its reader sees it.

    >>> shown_value(0.26894142, "0.00"), shown_value(0.1 + 0.2, "General"), shown_value(3.0, "General")
    ('0.27', '0.3', '3')
    """
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    decimals = re.fullmatch(r"[#,]*0(?:\.(?P<zeros>0+))?(?:_\))?", number_format.split(";")[0])
    if decimals:
        return f"{value:.{min(len(decimals['zeros'] or ''), MOST_SHOWN)}f}"
    return f"{value:.{SIGNIFICANT}g}" if isinstance(value, float) else str(value)


def grid_blocks(sheets: Mapping[str, Sequence[Sequence[Cell]]]) -> Found:
    """The blocks and settings of worksheets; a worksheet named "given" or "claimed" is that section."""
    blocks: list[Block] = []
    settings: list[Setting] = []
    ignored: list[Block] = []
    for title, rows in sheets.items():
        finder = _Finder(rows, _section(title))
        for block in finder.blocks():
            known = known_label(block.label, is_vector=block.is_vector) is not None
            (blocks if known else ignored).append(block)
        settings += finder.settings()
    return Found(tuple(blocks), tuple(settings), tuple(ignored))


def _section(words: str) -> str:
    plain = bare(words).lower().strip("[] ")
    return next((section for section, names in SECTIONS.items() if plain in names), "")


class _Finder:
    """Finds the blocks of one worksheet."""

    def __init__(self, rows: Sequence[Sequence[Cell]], section: str) -> None:
        width = max((len(row) for row in rows), default=0)
        self.rows = [[*row, *(_empty(row, line, width))] for line, row in enumerate(rows, start=1)]
        self.width, self.section = width, section
        self.used: set[tuple[int, int]] = set()

    def at(self, line: int, column: int) -> Cell | None:
        """A cell that is not empty, from 0."""
        inside = 0 <= line < len(self.rows) and 0 <= column < self.width
        cell = self.rows[line][column] if inside else None
        return cell if cell is not None and cell.written.strip() else None

    def blocks(self) -> Iterator[Block]:
        section = self.section
        for line, row in enumerate(self.rows):
            for column in range(self.width):
                cell = self.at(line, column)
                if cell is None or (line, column) in self.used or cell.is_number:
                    continue
                section = (_section(cell.written) or section) if column == 0 else section
                label = known_label(cell.written)
                if label is None or self.is_setting(line, column):
                    continue
                found = self.beside(line, column) or self.below(line, column)
                if found:
                    is_vector = len(found) == 1 and len(row) > 1
                    yield Block(cell.written, found, section, cell.line, is_vector and label.row > 0)

    def is_setting(self, line: int, column: int) -> bool:
        value = self.at(line, column + 1)
        return value is not None and setting_of(self.rows[line][column].written, value.written) is not None

    def beside(self, line: int, column: int) -> tuple[tuple[Cell, ...], ...]:
        """Numbers to the right of the name, and below those while the cell under the name is empty."""
        first = self.at(line, column + 1)
        if first is None or not first.is_number:
            return ()
        end = self.end_of(line, column + 1)
        stop = line + 1
        while self.at(stop, column) is None and any(self.at(stop, place) for place in range(column + 1, end)):
            stop += 1
        return self.taken(line, stop, column + 1, end)

    def below(self, line: int, column: int) -> tuple[tuple[Cell, ...], ...]:
        """The rectangle under the name: with a header and labels of rows, which are left out."""
        start = line + 1
        end = max(self.end_of(start, column), self.end_of(start, column + 1) if self.at(start, column + 1) else 0)
        if end <= column:
            return ()
        stop = start
        while any(self.at(stop, place) for place in range(column, end)) and not self.begins(stop, start, column, end):
            stop += 1
        return without_labels(self.taken(start, stop, column, end), header_is_usual=True)

    def begins(self, line: int, start: int, column: int, end: int) -> bool:
        """Whether a row holds the name of the next block, or of a section, instead of numbers."""
        cell = self.at(line, column)
        if cell is None or cell.is_number:
            return False
        alone = all(self.at(line, place) is None for place in range(column + 1, end))
        above = self.at(line - 1, column)
        after_numbers = line > start and above is not None and above.is_number
        named = known_label(cell.written) is not None
        return (alone and (named or bool(_section(cell.written)))) or (after_numbers and named)

    def end_of(self, line: int, column: int) -> int:
        """The column after the last one of a run of cells that are not empty."""
        while self.at(line, column) is not None:
            column += 1
        return column

    def taken(self, line: int, stop: int, column: int, end: int) -> tuple[tuple[Cell, ...], ...]:
        self.used |= {(row, place) for row in range(line, stop) for place in range(column, end)}
        return tuple(tuple(self.rows[row][column:end]) for row in range(line, stop))

    def settings(self) -> Iterator[Setting]:
        for line, row in enumerate(self.rows):
            for column in range(self.width - 1):
                key, value = self.at(line, column), self.at(line, column + 1)
                if key is None or value is None or (line, column) in self.used or key.is_number:
                    continue
                made = setting_of(key.written, value.written)
                if made is None:
                    continue
                words = [cell.written for cell in row[column + 1 :] if cell.written.strip()]
                name, section = made
                several = name in ("tokens", "vocabulary", "beam") and len(words) > 1
                found = words if several else setting_value(name, value.written)
                yield Setting(name, found, key.line, section, replace(value) if section else None)


def _empty(row: Sequence[Cell], line: int, width: int) -> list[Cell]:
    sheet = row[0].sheet if row else ""
    return [Cell("", line, column + 1, sheet) for column in range(len(row), width)]
