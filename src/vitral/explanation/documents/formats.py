"""The formats of grids: Markdown, CSV and spreadsheets, cut into cells, and the same files rewritten."""

import io
import itertools
import math
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.documents.grid import Cell, GridDocument
from vitral.explanation.documents.labels import LONGEST_LABEL, bare, known_setting
from vitral.explanation.examples.document import Token
from vitral.explanation.examples.faults import KeyPath
from vitral.explanation.examples.numerals import value_of
from vitral.explanation.examples.schema import SPECIAL

MOST_ROWS, MOST_COLUMNS = 2000, 200
MOST_UNZIPPED = 2**24
"""Bytes that a spreadsheet may have when it is unzipped."""
SIGNIFICANT = 10
"""Digits of a number that a spreadsheet computed and shows without a number format."""
LONGEST_LIST = 20_000
_QUOTED = r'"[^"]*"'
_LIST = re.compile(r"[\[(](?:[^\[\]()]++|[\[(][^\[\]()]*+[\])])*+[\])]")


class TextDocument(GridDocument, ABC):
    """A file that is text."""

    def __init__(self, name: str, text: str) -> None:
        """Cut the lines into cells.

        Raises:
            UsageError: see `GridDocument.find`.
        """
        self.name, self.text = name, text
        self.lines = text.splitlines(keepends=True)
        self.starts = [0, *itertools.accumulate(map(len, self.lines))]
        self.find({"": self.rows()})

    @abstractmethod
    def rows(self) -> list[list[Cell]]:
        """The cells of the file."""

    def cell(self, line: int, start: int, stop: int) -> Cell:
        """The characters between two indices of the text, without blanks around them."""
        written = self.text[start:stop]
        return Cell(written.strip(), line + 1, start + len(written) - len(written.lstrip()))

    def cut(self, line: int, separator: str, whole: str) -> list[Cell]:
        """The cells of a line between separators, except those in what the pattern `whole` matches."""
        written, start = self.lines[line].rstrip("\r\n"), self.starts[line]
        matches = re.finditer(rf"{whole}|{re.escape(separator)}", written)
        separators = [match.start() for match in matches if match[0] == separator]
        edges = itertools.pairwise([-1, *separators, len(written)])
        return [self.cell(line, start + left + 1, start + right) for left, right in edges]


class CsvDocument(TextDocument):
    """A CSV file, with commas, semicolons or tabs between the cells."""

    def rows(self) -> list[list[Cell]]:
        """The cells; tabs or semicolons are between them if there are any outside quotes, else commas."""
        outside = re.sub(_QUOTED, "", self.text)
        separator = next((sign for sign in "\t;" if sign in outside), ",")
        return [self.cut(line, separator, _QUOTED) for line in range(len(self.lines))]


class MarkdownDocument(TextDocument):
    """Notes: tables, lists of numbers behind a name, settings; every other line is one cell."""

    def rows(self) -> list[list[Cell]]:
        """A name stands right above its table, or left of its list; an empty row ends both, and every other line."""
        title = re.search(r"^#[ \t]+([^\n]{1,200})$", self.text, re.MULTILINE)
        self.title = bare(title[1]) if title else ""
        at, cells = 0, [list[Cell]()]
        while at < len(self.lines):
            line = self.lines[at].strip(" \t\r\n")
            rule = self.lines[at + 1].strip() if at + 1 < len(self.lines) else ""
            if "|" in line and "-" in rule and set(rule) <= set("|:- \t"):
                end = next(
                    (end for end in range(at + 2, len(self.lines)) if "|" not in self.lines[end]), len(self.lines)
                )
                rows, at = [self._piped(number) for number in range(at, end) if number != at + 1], end
                self.table_lines |= {cell.line for row in rows for cell in row}
                cells.pop()
            elif not line.strip("`") or line.startswith("```"):
                at += 1
                continue
            else:
                rows = self._line(at)
                at = max(at + 1, rows[-1][-1].line)
            cells += [*rows, []]
        return cells

    def _piped(self, at: int) -> list[Cell]:
        cells, written = self.cut(at, "|", r"\\\|"), self.lines[at].strip()
        return cells[written.startswith("|") : len(cells) - written.endswith("|")]

    def _line(self, at: int) -> list[list[Cell]]:
        """The cells of a line that is in no table, and of those below if its list goes on."""
        line, start = self.lines[at], self.starts[at]
        pair = re.match(r"([^=:\n]{1,60})[=:](.{1,500})", line)
        if not pair or not known_setting(pair[1]):
            opened = re.compile(r"([^\n]{1,200}?)[=:]\s{0,20}(?=[\[(])").match(self.text, start)
            if opened and (rows := self._listed(at, start, opened.end(1), opened.end())):
                return rows
            pair = re.match(r"([^=:\n]{1,60})[=:]\s*([A-Za-z]\w*)\s*$", line)
        if not pair:
            return [[self.cell(at, start, start + len(line[: 2 * LONGEST_LABEL]))]]
        return [[self.cell(at, start + pair.start(part), start + pair.end(part)) for part in (1, 2)]]

    def _listed(self, at: int, start: int, stop: int, begin: int) -> list[list[Cell]]:
        """A list of numbers, or of rows, with its name at the left; nothing if it is none."""
        whole = _LIST.match(self.text, begin, begin + LONGEST_LIST)
        parts = re.compile(r"[^\[\]()]+").finditer(self.text, begin, whole.end()) if whole else ()
        rows = [list(re.compile(r"[^\s,;]+").finditer(self.text, *part.span())) for part in parts]
        line = lambda index: at + self.text.count("\n", start, index) + 1  # noqa: E731
        cells = [[Cell(word[0], line(word.start()), word.start()) for word in row] for row in rows if row]
        numbers = [cell.is_number for row in cells for cell in row]
        if not whole or re.search(r"\n[ \t]*\n", whole[0]) or 2 * sum(numbers) <= len(numbers):
            return []
        names = itertools.chain([self.cell(at, start, stop)], itertools.repeat(Cell("", at + 1, start)))
        return [[name, *row] for name, row in zip(names, cells, strict=False)]


class SpreadsheetDocument(GridDocument):
    """A spreadsheet (.xlsx); of formulas the values that were stored with them."""

    def __init__(self, name: str, raw: bytes) -> None:
        """Read the worksheets.

        Raises:
            UsageError: no spreadsheet, too large, or a formula without a stored value; see `GridDocument.find`.
        """
        self.name, self.raw = name, raw
        try:
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > MOST_UNZIPPED:
                    raise self._too_large()
            values, formulas = (self._book(read_only=True, data_only=shown) for shown in (True, False))
            self.sheets = {sheet.title: self._cells(sheet, formulas[sheet.title]) for sheet in values.worksheets}
        except UsageError:
            raise
        except Exception as error:
            kind = type(error).__name__
            raise UsageError("{where}: no spreadsheet (.xlsx): {fault}", where=name, fault=kind) from None
        rows = (row for rows in self.sheets.values() for row in rows)
        self.text = "\n".join(" | ".join(cell.written for cell in row) for row in rows)
        self.find(self.sheets)

    def _too_large(self) -> UsageError:
        return UsageError(
            "{where}: more than {rows:,} rows or {columns:,} columns; a worked example is smaller",
            where=self.name,
            rows=MOST_ROWS,
            columns=MOST_COLUMNS,
        )

    def _book(self, **how: bool) -> Any:
        try:
            import openpyxl
        except ImportError:
            raise UsageError('spreadsheets need openpyxl: pip install "vitral[xlsx]"') from None
        return openpyxl.load_workbook(io.BytesIO(self.raw), **how)

    def _cells(self, sheet: Any, formulas: Any) -> list[list[Cell]]:
        cells: list[list[Cell]] = []
        rows = zip(sheet.iter_rows(), formulas.iter_rows(), strict=True)
        for line, (row, written) in enumerate(rows, start=1):
            if line > MOST_ROWS or len(row) > MOST_COLUMNS:
                raise self._too_large()
            cells.append([])
            for column, (cell, formula) in enumerate(zip(row, written, strict=True), start=1):
                shown = shown_value(cell.value, getattr(cell, "number_format", None) or "")
                cells[-1].append(Cell(shown, line, column, sheet.title))
                if cell.value is None and formula.value is not None:
                    complaint = _(
                        "a formula without a stored value; open the file in a spreadsheet program and save it, or "
                        "write the number"
                    )
                    raise self.refuse_token(complaint, cells[-1][-1])
        return cells

    def refuse_token(self, complaint: str, token: Token) -> UsageError:
        """The error, with the cell's name."""
        from openpyxl.utils import get_column_letter

        where = f"{token.sheet}!{get_column_letter(token.column)}{token.line}"
        return UsageError("{where}, cell {cell}: {complaint}", where=self.name, cell=where, complaint=complaint)

    def rewritten(self, changes: Mapping[KeyPath, str]) -> bytes:
        """The workbook with other numbers; formulas become the numbers that they showed."""
        book, tokens = self._book(), {self.tokens[path]: value for path, value in changes.items()}
        for cell in (cell for rows in self.sheets.values() for row in rows for cell in row):
            target = book[cell.sheet].cell(cell.line, cell.column)
            if cell in tokens or target.data_type == "f":
                written = tokens.get(cell, cell.characters)
                number = value_of(written) if written not in SPECIAL else None
                target.value = written if number is None else number
                target.data_type = "s" if number is None else "n"  # a word may begin with =
        buffer = io.BytesIO()
        book.save(buffer)
        return buffer.getvalue()


def shown_value(value: Any, number_format: str) -> str:
    """A cell's value as its reader sees it.

    >>> shown_value(0.26894142, "0.00"), shown_value(0.1 + 0.2, "General"), shown_value(0.218, "0.0%")
    ('0.27', '0.3', '21.8%')
    """
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return str(value)
    decimals = re.fullmatch(r"[#,]*0(?:\.(?P<zeros>0{1,30}))?(?P<percent>%)?(?:_\))?", number_format.split(";")[0])
    if decimals:
        digits = len(decimals["zeros"] or "")
        return f"{value:.{digits}%}" if decimals["percent"] else f"{value:.{digits}f}"
    return f"{value:.{SIGNIFICANT}g}" if isinstance(value, float) else str(value)
