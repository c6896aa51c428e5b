"""The worked example in a grid of cells: blocks of numbers with a name, and settings.

A name stands in a cell above its matrix, or left of its first row; matrices may stand side by side. Settings are a
cell with the key and a cell with the value to its right.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.documents.labels import Label, is_input, known_label, known_setting, section_of
from vitral.explanation.examples.document import Document, Token
from vitral.explanation.examples.faults import KeyPath
from vitral.explanation.examples.numerals import as_percent, value_of
from vitral.explanation.examples.schema import AXES, IDENTITY, SPECIAL

ORDER = ("x", "q", "k", "scores", "scaled", "masked", "weights", "z", "logits", "probabilities")
"""Without headings and without inputs, the first of these that is there is given, with v; q and k together."""
LISTS = ("tokens", "memory_tokens", "vocabulary", "beam")
_MARKUP = re.compile(r"\$|\*\*|`|~")
_BLANK = re.compile(r"\??|[_.…\s]+|\\_+(?:\\_)*")


class Cell(Token):
    """A number or word in notes, or in a table."""

    @property
    def characters(self) -> str:
        """The number or word without markup, with a decimal point and ASCII signs; "?" for a blank."""
        return plain_number(self.written)

    def changed(self, value: str) -> str:
        """The value in the style of this one: percent, decimal comma, markup around it."""
        before = max(re.findall(r"[^\s$*`|\"]+", self.written), key=len, default="")
        after = as_percent(value) if before.endswith("%") else value
        after = after.replace(".", ",") if "," in before and "." not in before else after
        if value in ("-inf", "inf"):
            after = value.replace("inf", r"\infty" if "\\" in self.written or "$" in self.written else "∞")
        return self.written.replace(before, after, 1) if before else f"{self.written}{after}"

    @cached_property
    def is_number(self) -> bool:
        """Whether it is a number, a blank or infinity."""
        characters = self.characters
        return characters in SPECIAL or characters == "?" or value_of(characters) is not None

    @property
    def is_word(self) -> bool:
        """Whether it is a label, and neither a number, nor empty, nor a number with a fault."""
        return bool(self.written) and not self.is_number and not self.characters[:1].isdigit()


def plain_number(written: str) -> str:
    r"""A cell's characters without markup, with a decimal point and ASCII signs.

    >>> plain_number("$-\\infty$"), plain_number("**−0,5**"), plain_number("+ 2."), plain_number("__")
    ('-inf', '-0.5', '2', '?')
    """
    text = _MARKUP.sub("", written).replace("−", "-").replace("–", "-").strip().strip("\"'")
    text = re.sub(r"\\infty|∞|\binfinity\b|\binfty\b", "inf", text, flags=re.IGNORECASE)
    text = re.sub(r"^([+-]?)\s+", r"\1", text)
    text = re.sub(r"(?<=\d),(?=\d)", ".", text) if re.fullmatch(r"[^,]*,\d+[^,]*", text) else text
    text = text[:-1] if re.fullmatch(r"[+-]?\d+\.", text) else text
    return "?" if _BLANK.fullmatch(text) else text.removeprefix("+")


Rows = tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Block:
    """A matrix, vector or number with its name; `section` is "given", "claimed", or empty if no heading says."""

    label: Label
    name: Cell
    rows: Rows
    section: str


class GridDocument(Document):
    """A worked example made of named blocks of cells.

    Attributes:
        title: a heading, or empty.
        table_lines: lines in which no cell is the name of others.
        tokens: the cells; those of names by the path of their matrix.
    """

    title: str = ""
    table_lines: frozenset[int] = frozenset()

    def find(self, sheets: Mapping[str, Sequence[Sequence[Cell]]]) -> None:
        """Give the blocks their keys.

        Args:
            sheets: the rows of each worksheet; a file without worksheets has one, without a name.

        Raises:
            UsageError: nothing was found, or a quantity is written twice.
        """
        self.tokens = {}
        self.data = {"title": self.title} if self.title else {}
        self.data |= {"given": {}, "claimed": {}}
        finders = [_Finder(rows, section_of(title), self.table_lines) for title, rows in sheets.items()]
        blocks = [block for finder in finders for block in finder.blocks()]
        if not blocks:
            raise UsageError(
                "{where}: no numbers with a known name were found; write the name before each matrix, as Q = … or a "
                "heading; docs/examples.md lists the names",
                where=self.name,
            )
        for path, value, cell in (setting for finder in finders for setting in finder.settings()):
            (self.data[path[0]] if path[1:] else self.data)[path[-1]] = value
            self.tokens[path] = cell
        self._insert(blocks)
        self.notes = tuple(
            _("line {line}: not read, since {label!r} is no known name", line=line, label=label)
            for finder in finders
            for line, label in finder.unread()
        )

    def _insert(self, blocks: Sequence[Block]) -> None:
        """Put the blocks into the tables: heads 1, 2, … as a list, given rows as a matrix, other parts by number."""
        grouped: dict[tuple[str, str], list[Block]] = {}
        first = _earliest({block.label.name for block in blocks})
        for block in blocks:
            name = block.label.name
            section = block.section or ("given" if is_input(name) or name in first else "claimed")
            grouped.setdefault((section, name), []).append(block)
        for (section, name), parts in grouped.items():
            numbers = [block.label.head or block.label.row for block in parts]
            is_whole = numbers == list(range(1, len(parts) + 1)) or numbers == [0]
            if is_whole and section == "given" and parts[0].label.row:
                rows = tuple(row for part in parts for row in part.rows)
                parts, numbers = [replace(parts[0], rows=rows)], [0]
            if is_whole and len(parts) > 1 and not parts[0].label.row:
                heads = [self._matrix((section, name, head), block) for head, block in enumerate(parts)]
                self.data[section][name] = heads
            else:
                for number, block in zip(numbers, parts, strict=True):
                    key = name if not number or (is_whole and block.label.head) else f"{name}[{number}]"
                    if key in self.data[section]:
                        raise self.refuse_token(_("{name}: is written twice", name=name), block.name)
                    self.data[section][key] = self._matrix((section, key), block)
            self.tokens.setdefault((section, name), parts[0].name)

    def _matrix(self, path: KeyPath, block: Block) -> Any:
        """The values of a block, whose cells are noted; one row of a vector, or of a part, is a list."""
        self.tokens[path] = block.name
        is_list = len(block.rows) == 1 and ("[" in str(path[-1]) or len(AXES.get(block.label.name, " ")) == 1)
        for row, cells in enumerate(block.rows):
            self.tokens[(*path, row)] = cells[0]
            self.tokens |= {(*path, *(() if is_list else (row,)), column): cell for column, cell in enumerate(cells)}
        rows = [[cell.characters for cell in cells] for cells in block.rows]
        return rows[0] if is_list else rows


def _earliest(names: set[str]) -> set[str]:
    """The quantities that are given where no heading says so, beside inputs and parameters."""
    if any(is_input(name) and not name.startswith(("w_", "b_")) for name in names):
        return set()
    first = next((name for name in ORDER if name in names), "")
    together = {"q": "qkv", "k": "qkv", **dict.fromkeys(("scores", "scaled", "masked", "weights"), "v")}
    return {first, *together.get(first, "")}


class _Finder:
    """Finds the blocks of one worksheet."""

    def __init__(self, rows: Sequence[Sequence[Cell]], section: str, table_lines: Collection[int]) -> None:
        self.rows, self.section, self.table_lines = rows, section, table_lines
        self.used: set[tuple[int, int]] = set()

    def at(self, line: int, column: int) -> Cell | None:
        """A cell that is not empty, from 0."""
        cell = self.rows[line][column] if 0 <= line < len(self.rows) and 0 <= column < len(self.rows[line]) else None
        return cell if cell is not None and cell.written.strip() else None

    def _words(self) -> Iterator[tuple[int, int, Cell]]:
        """Each word with its line and column, from 0, that is in no block found so far."""
        for line, row in enumerate(self.rows):
            for column in range(len(row)):
                cell = self.at(line, column)
                if (
                    cell
                    and cell.line not in self.table_lines
                    and (line, column) not in self.used
                    and not cell.is_number
                ):
                    yield line, column, cell

    def blocks(self) -> Iterator[Block]:
        section = self.section
        for line, column, cell in self._words():
            section = (section_of(cell.written) or section) if column == 0 else section
            value = self.at(line, column + 1)
            if (value is not None and known_setting(cell.written)) or known_label(cell.written) is None:
                continue
            rows = self.beside(line, column) or self.below(line, column)
            label = known_label(cell.written, is_row=len(rows) == 1)
            if rows and label:
                yield Block(label, cell, rows, section)

    def settings(self) -> Iterator[tuple[tuple[str, ...], Any, Cell]]:
        """The path, value and cell of each setting, as mask: causal, and of each quantity that is a word."""
        for line, column, key in self._words():
            value, path = self.at(line, column + 1), known_setting(key.written)
            if value is None:
                continue
            if path:
                words = [cell.written for cell in self.rows[line][column + 1 :] if cell.written.strip()]
                is_list = path[-1] in LISTS and len(words) > 1
                yield path, words if is_list else setting_value(path[-1], value.written), value
                self.used.add((line, column + 1))
            elif value.written.casefold() in (*IDENTITY, "sinusoidal") and (label := known_label(key.written)):
                yield ("given", label.name), value.written.casefold(), value

    def unread(self) -> Iterator[tuple[int, str]]:
        """The line of each part with numbers that is in no block, and the words before it."""
        words, goes_on = "", False
        for line, row in enumerate(self.rows):
            unused = [
                cell for column, cell in enumerate(row) if self.at(line, column) and (line, column) not in self.used
            ]
            is_part = len(unused) > 1 and any(cell.is_number for cell in unused)
            if is_part and not goes_on and not known_setting(unused[0].written):
                yield unused[0].line, (unused[0].written if unused[0].is_word else words)[:40]
            words = next((cell.written for cell in unused if not cell.is_number), words)
            goes_on = is_part

    def beside(self, line: int, column: int) -> Rows:
        """Numbers to the right of the name, and below those while the cell under the name is empty."""
        first = self.at(line, column + 1)
        if first is None or not first.is_number:
            return ()
        end, stop = self.end_of(line, column + 1), line + 1
        while self.at(stop, column) is None and self.at(stop, column + 1):
            stop += 1
        return self.take(line, stop, column + 1, end)

    def below(self, line: int, column: int) -> Rows:
        """The rectangle under the name: with a header and labels of rows, which are left out."""
        start = line + 1
        end = max(self.end_of(start, column), self.end_of(start, column + 1) if self.at(start, column + 1) else 0)
        stop = start
        while any(self.at(stop, index) for index in range(column, end)) and not self.begins(stop, start, column, end):
            stop += 1
        return _without_labels(self.take(start, stop, column, end)) if end > column else ()

    def begins(self, line: int, start: int, column: int, end: int) -> bool:
        """Whether a row holds the name of the next block, or of a section, instead of numbers."""
        cell = self.at(line, column)
        if cell is None or cell.is_number:
            return False
        alone = all(self.at(line, index) is None for index in range(column + 1, end))
        above = self.at(line - 1, column) if line > start else None
        named = known_label(cell.written) is not None or bool(section_of(cell.written))
        return named and (alone or (above is not None and above.is_number))

    def end_of(self, line: int, column: int) -> int:
        """The column after the last one of a run of cells that are not empty."""
        while self.at(line, column) is not None:
            column += 1
        return column

    def take(self, line: int, stop: int, column: int, end: int) -> Rows:
        """The cells of a rectangle, as far as the rows go, which are used from now on."""
        self.used |= {(row, index) for row in range(line, stop) for index in range(column, end)}
        return tuple(tuple(self.rows[row][column : max(end, self.end_of(row, column))]) for row in range(line, stop))


def _without_labels(rows: Rows) -> Rows:
    """The cells without the labels of rows and columns, which are words.

    The first column holds labels if every cell of it below the first row is a word. The first row is a header if no
    cell of it is a number, or if its corner is empty above labels. A single word among numbers stays, and is refused
    where numbers are read.
    """
    if len(rows) < 2:
        return rows
    first, *body = rows
    labelled = all(row[0].is_word for row in body)
    if all(cell.is_word or not cell.written for cell in first) or (labelled and not first[0].written):
        rows = tuple(body)
    if len(rows[0]) > 1 and (all(row[0].is_word for row in rows) or all(not row[0].written for row in (first, *body))):
        rows = tuple(row[1:] for row in rows)  # labels, or labels left empty
    return rows


def setting_value(key: str, written: str) -> Any:
    """A setting's value: as TOML, a list of words, or a word."""
    try:
        return tomllib.loads(f"value = {written}")["value"]
    except ValueError:
        pass
    if key in LISTS:
        return [word.strip(" \"'`") for word in written.replace(";", ",").replace("|", ",").split(",")]
    return written.strip(" \"'`")
