"""The worked example in a grid of cells: blocks of numbers with a name, and settings.

A name stands in a cell above its matrix, or left of its first row; matrices may stand side by side. Settings are a
cell with the key and a cell with the value to its right.
"""

import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.documents.grid import Cell, Grid
from vitral.explanation.documents.labels import Label, is_input, known_label, known_setting, section_of
from vitral.explanation.examples.document import Document
from vitral.explanation.examples.places import KeyPath
from vitral.explanation.examples.schema import AXES, IDENTITY

ORDER = ("x", "q", "k", "scores", "scaled", "masked", "weights", "z", "logits", "probabilities")
"""Without headings and without inputs, the first of these that is there is given, with v; q and k together."""
LISTS = ("tokens", "memory_tokens", "vocabulary", "beam")
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
        cells: by path; those of names by the path of their matrix.
    """

    def __init__(self, grid: Grid) -> None:
        """Give the blocks their keys.

        Raises:
            UsageError: nothing was found, or a quantity is written twice.
        """
        self.source = grid
        self.cells: dict[KeyPath, Cell] = {}
        self.data = {"title": grid.title} if grid.title else {}
        self.data |= {"given": {}, "claimed": {}}
        finders = [_Finder(rows, section_of(title), grid.tables) for title, rows in grid.sheets.items()]
        blocks = [block for finder in finders for block in finder.blocks()]
        if not blocks:
            raise UsageError(
                "{where}: no numbers with a known name were found; write the name before each matrix, as Q = … or a "
                "heading; docs/examples.md lists the names",
                where=self.name,
            )
        for path, value, cell in (setting for finder in finders for setting in finder.settings()):
            (self.data[path[0]] if path[1:] else self.data)[path[-1]] = value
            self.cells[path] = cell
        self._place(blocks)
        self.notes = tuple(
            _("line {line}: not read, since {label!r} is no known name", line=line, label=label)
            for finder in finders
            for line, label in finder.unread()
        )

    def _place(self, blocks: Sequence[Block]) -> None:
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
                made = [self._matrix((section, name, place), block) for place, block in enumerate(parts)]
                self.data[section][name] = made
            else:
                for number, block in zip(numbers, parts, strict=True):
                    key = name if not number or (is_whole and block.label.head) else f"{name}[{number}]"
                    if key in self.data[section]:
                        raise self.source.refuse(_("{name}: is written twice", name=name), block.name)
                    self.data[section][key] = self._matrix((section, key), block)
            self.cells.setdefault((section, name), parts[0].name)

    def _matrix(self, path: KeyPath, block: Block) -> Any:
        """The values of a block, whose cells are noted; one row of a vector, or of a part, is a list."""
        self.cells[path] = block.name
        is_list = len(block.rows) == 1 and ("[" in str(path[-1]) or len(AXES.get(block.label.name, " ")) == 1)
        for place, cells in enumerate(block.rows):
            self.cells[(*path, place)] = cells[0]
            self.cells |= {(*path, *(() if is_list else (place,)), column): cell for column, cell in enumerate(cells)}
        made = [[cell.characters for cell in cells] for cells in block.rows]
        return made[0] if is_list else made

    def place(self, path: KeyPath) -> Cell | None:
        """The cell, or that of a matrix's name."""
        return self.cells.get(path)


def _earliest(names: set[str]) -> set[str]:
    """The quantities that are given where no heading says so, beside inputs and parameters."""
    if any(is_input(name) and not name.startswith(("w_", "b_")) for name in names):
        return set()
    first = next((name for name in ORDER if name in names), "")
    others = {"q": "qkv", "k": "qkv", **dict.fromkeys(("scores", "scaled", "masked", "weights"), "v")}
    return {first, *others.get(first, "")}


class _Finder:
    """Finds the blocks of one worksheet."""

    def __init__(self, rows: Sequence[Sequence[Cell]], section: str, tables: Collection[int]) -> None:
        self.rows, self.section, self.tables = rows, section, tables
        self.used: set[tuple[int, int]] = set()

    def at(self, line: int, column: int) -> Cell | None:
        """A cell that is not empty, from 0."""
        cell = self.rows[line][column] if 0 <= line < len(self.rows) and 0 <= column < len(self.rows[line]) else None
        return cell if cell is not None and cell.written.strip() else None

    def _words(self) -> Iterator[tuple[int, int, Cell]]:
        """Each word with its place, from 0, that is in no block found so far."""
        for line, row in enumerate(self.rows):
            for column in range(len(row)):
                cell = self.at(line, column)
                if cell and cell.line not in self.tables and (line, column) not in self.used and not cell.is_number:
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
                several = path[-1] in LISTS and len(words) > 1
                yield path, words if several else setting_value(path[-1], value.written), value
                self.used.add((line, column + 1))
            elif value.written.casefold() in (*IDENTITY, "sinusoidal") and (label := known_label(key.written)):
                yield ("given", label.name), value.written.casefold(), value

    def unread(self) -> Iterator[tuple[int, str]]:
        """The line of each part with numbers that is in no block, and the words before it."""
        words, before = "", False
        for line, row in enumerate(self.rows):
            free = [
                cell for column, cell in enumerate(row) if self.at(line, column) and (line, column) not in self.used
            ]
            here = len(free) > 1 and any(cell.is_number for cell in free)
            if here and not before and not known_setting(free[0].written):
                yield free[0].line, (free[0].written if free[0].is_word else words)[:40]
            words = next((cell.written for cell in free if not cell.is_number), words)
            before = here

    def beside(self, line: int, column: int) -> Rows:
        """Numbers to the right of the name, and below those while the cell under the name is empty."""
        first = self.at(line, column + 1)
        if first is None or not first.is_number:
            return ()
        end, stop = self.end_of(line, column + 1), line + 1
        while self.at(stop, column) is None and self.at(stop, column + 1):
            stop += 1
        return self.taken(line, stop, column + 1, end)

    def below(self, line: int, column: int) -> Rows:
        """The rectangle under the name: with a header and labels of rows, which are left out."""
        start = line + 1
        end = max(self.end_of(start, column), self.end_of(start, column + 1) if self.at(start, column + 1) else 0)
        stop = start
        while any(self.at(stop, place) for place in range(column, end)) and not self.begins(stop, start, column, end):
            stop += 1
        return _without_labels(self.taken(start, stop, column, end)) if end > column else ()

    def begins(self, line: int, start: int, column: int, end: int) -> bool:
        """Whether a row holds the name of the next block, or of a section, instead of numbers."""
        cell = self.at(line, column)
        if cell is None or cell.is_number:
            return False
        alone = all(self.at(line, place) is None for place in range(column + 1, end))
        above = self.at(line - 1, column) if line > start else None
        named = known_label(cell.written) is not None or bool(section_of(cell.written))
        return named and (alone or (above is not None and above.is_number))

    def end_of(self, line: int, column: int) -> int:
        """The column after the last one of a run of cells that are not empty."""
        while self.at(line, column) is not None:
            column += 1
        return column

    def taken(self, line: int, stop: int, column: int, end: int) -> Rows:
        """The cells of a rectangle, as far as the rows go, which are used from now on."""
        self.used |= {(row, place) for row in range(line, stop) for place in range(column, end)}
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
