"""Blocks of numbers with a name, as people write them, and the worked example that they make together.

A reader of a format finds blocks and settings; `NotesDocument` gives them the form of docs/examples.md.
"""

import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.documents.labels import Label, is_input, known_label
from vitral.explanation.examples.document import Document
from vitral.explanation.examples.places import KeyPath
from vitral.explanation.examples.schema import SPECIAL

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
FRACTION = re.compile(r"[+-]?\d+(?:\.\d+)?/\d+(?:\.\d+)?")
BLANK = re.compile(r"\??|[_.…\s]+|\\_+(?:\\_)*")
"""A cell that is not filled in."""
ORDER = ("x", "q", "k", "scores", "scaled", "masked", "weights", "z", "logits", "probabilities")
"""Without headings and without inputs, the first of these that is there is given, with v; q and k together."""


@dataclass(frozen=True)
class Cell:
    """A number or word as written.

    Attributes:
        written: its characters in the file.
        line: counted from 1; of a spreadsheet the row.
        start: index of the first character in the file; of a spreadsheet the column from 1.
        sheet: the worksheet of a spreadsheet.
    """

    written: str
    line: int
    start: int
    sheet: str = ""

    @property
    def characters(self) -> str:
        """The number or word without markup, with a decimal point and ASCII signs; "?" for a blank."""
        return plain_number(self.written)

    @property
    def is_number(self) -> bool:
        """Whether it is a number, a blank or infinity."""
        characters = self.characters
        return characters in SPECIAL or characters == "?" or _is_finite(characters)


@dataclass(frozen=True)
class Block:
    """A matrix, vector or number with its name.

    Attributes:
        label: the name as written, without markup.
        rows: the cells; a vector has one row.
        section: "given", "claimed", or empty if no heading says.
        line: of its beginning.
        is_vector: whether it was written as a list of numbers, not of rows.
    """

    label: str
    rows: tuple[tuple[Cell, ...], ...]
    section: str
    line: int
    is_vector: bool = False


@dataclass(frozen=True)
class Setting:
    """A setting of the example, as mask: causal."""

    key: str
    value: Any
    line: int
    section: str = ""
    cell: Cell | None = None


@dataclass(frozen=True)
class Found:
    """All that a reader found in a file, in order; `ignored` are blocks whose name is not known."""

    blocks: tuple[Block, ...]
    settings: tuple[Setting, ...] = ()
    ignored: tuple[Block, ...] = field(default=())


_MARKUP = re.compile(
    r"\$|\*\*|`|\\(?:mathbf|mathrm|text|textbf|textit|mathit|bm|boxed|phantom|color)(?![a-z])|\\[,;! ]|~"
)
_FRAC = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")


def plain_number(written: str) -> str:
    r"""A cell's characters without markup, with a decimal point and ASCII signs.

    >>> plain_number("$-\\infty$"), plain_number("0{,}50"), plain_number("\\frac{1}{3}"), plain_number("**−0,5**")
    ('-inf', '0.50', '1/3', '-0.5')
    """
    text = _MARKUP.sub("", _FRAC.sub(r"\1/\2", written)).replace("{,}", ",")
    text = text.replace("{", "").replace("}", "").replace("−", "-").replace("–", "-").strip().strip("\"'")
    text = re.sub(r"\\infty|∞|\binfinity\b|\binfty\b", "inf", text, flags=re.IGNORECASE)
    text = re.sub(r"^([+-]?)\s+", r"\1", text)
    if re.fullmatch(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?", text):
        text = text.replace(",", ".")
    if text.endswith(".") and NUMBER.fullmatch(text):
        text = text[:-1]
    return "?" if BLANK.fullmatch(text) else text.removeprefix("+")


def _is_finite(characters: str) -> bool:
    return bool(NUMBER.fullmatch(characters) or FRACTION.fullmatch(characters))


def as_written(value: str, before: str) -> str:
    """A value in the style of the characters that it replaces: decimal comma, LaTeX's infinity, markup around it."""
    inside = before
    for bare in re.findall(r"[^\s$*`{}|&\\]+(?:\{,\}[^\s$*`{}|&\\]+)?", before):
        if plain_number(bare) == plain_number(before):
            inside = bare
    has_comma = "," in inside and "." not in inside
    made = value.replace(".", "{,}" if "{,}" in inside else ",") if has_comma else value
    if value in ("-inf", "inf"):
        made = value.replace("inf", r"\infty") if "\\" in before or "$" in before else value.replace("inf", "∞")
    return before.replace(inside, made, 1) if inside.strip() else f"{before}{made}"


class NotesDocument(Document):
    """A worked example made of named blocks.

    Attributes:
        name: of the file.
        text: its characters; of a spreadsheet its cells as text.
        notes: one sentence for each block that is not read.
    """

    def __init__(self, name: str, text: str, found: Found, title: str) -> None:
        """Give the blocks their keys.

        Raises:
            UsageError: nothing was found, or a cell is no number.
        """
        self.name, self.text, self._title, self._found = name, text, title, found
        self.cells: dict[KeyPath, Cell] = {}
        self.lines: dict[KeyPath, int] = {}
        if not found.blocks:
            raise UsageError(
                "{where}: no numbers with a known name were found; write the name before each matrix, as Q = … or a "
                "heading; docs/examples.md lists the names",
                where=name,
            )
        self.notes = tuple(
            _("line {line}: not read, since {label!r} is no known name", line=block.line, label=block.label[:40])
            for block in found.ignored
        )

    @property
    def data(self) -> dict[str, Any]:
        """The contents, in the keys of docs/examples.md."""
        return self._data

    @cached_property
    def _data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"title": self._title} if self._title else {}
        data |= {"given": {}, "claimed": {}}
        for setting in self._found.settings:
            table = data[setting.section] if setting.section else data
            table[setting.key] = setting.value
            path = (setting.section, setting.key) if setting.section else (setting.key,)
            self.lines[path] = setting.line
            if setting.cell is not None:
                self.cells[path] = setting.cell
        for section, key, blocks in self._placed():
            data[section][key] = self._values((section, key), blocks)
        return data

    def _placed(self) -> Iterator[tuple[str, str, list[Block]]]:
        """Each key with its section, and its blocks: one, or one for each head."""
        grouped: dict[tuple[str, Label], list[Block]] = {}
        sections = self._sections()
        for block in self._found.blocks:
            label = known_label(block.label, is_vector=block.is_vector)
            assert label is not None
            key = (sections[id(block)], Label(label.name, row=label.row))
            grouped.setdefault(key, []).append(block)
        for section, name in {(section, label.name) for section, label in grouped if label.row}:
            self._join_rows(grouped, section, name)
        for (section, label), blocks in grouped.items():
            heads = [known_label(block.label, is_vector=block.is_vector) for block in blocks]
            numbers = [head.head for head in heads if head is not None]
            if len(blocks) > 1 and numbers != list(range(1, len(blocks) + 1)):
                raise self._refuse_line(blocks[-1].line, _("{name}: is written twice", name=label.name))
            yield section, label.key, blocks

    @staticmethod
    def _join_rows(grouped: dict[tuple[str, Label], list[Block]], section: str, name: str) -> None:
        """Make one matrix of rows that are written one by one, if all are there."""
        keys = [(section, Label(name, row=row)) for row in range(1, len(grouped) + 1)]
        keys = list(itertools.takewhile(grouped.__contains__, keys))
        there = sum(part == section and label.name == name for part, label in grouped)
        if len(keys) < there or any(len(grouped[key]) > 1 or len(grouped[key][0].rows) != 1 for key in keys):
            return
        blocks = [grouped.pop(key)[0] for key in keys]
        joined = tuple(row for block in blocks for row in block.rows)
        grouped[section, Label(name)] = [replace(blocks[0], rows=joined, is_vector=False)]

    def _sections(self) -> dict[int, str]:
        """The section of each block: its heading's, or what its name says."""
        blocks = self._found.blocks
        names = {id(block): known_label(block.label, is_vector=block.is_vector) for block in blocks}
        here = {label.name for label in names.values() if label is not None}
        first: set[str] = set()
        if not any(is_input(name) and not name.startswith(("w_", "b_")) for name in here):
            first = {next((name for name in ORDER if name in here), "")}
            first |= {"q", "k", "v"} if first & {"q", "k"} else set()
            first |= {"v"} if first & {"scores", "scaled", "masked", "weights"} else set()
        made: dict[int, str] = {}
        for block in blocks:
            label = names[id(block)]
            assert label is not None
            given = is_input(label.name) or label.name in first
            made[id(block)] = block.section or ("given" if given else "claimed")
        return made

    def _values(self, path: KeyPath, blocks: list[Block]) -> Any:
        made = [self._matrix((*path, head) if len(blocks) > 1 else path, block) for head, block in enumerate(blocks)]
        self.lines[path] = blocks[0].line
        return made if len(blocks) > 1 else made[0]

    def _matrix(self, path: KeyPath, block: Block) -> Any:
        rows = []
        for place, cells in enumerate(block.rows):
            row = []
            for column, cell in enumerate(cells):
                where = (*path, column) if block.is_vector else (*path, place, column)
                self.cells[where] = cell
                row.append(self._value(cell))
            rows.append(row)
            self.lines[(*path, place)] = cells[0].line if cells else block.line
        return rows[0] if block.is_vector else rows

    def _value(self, cell: Cell) -> Any:
        characters = cell.characters
        if NUMBER.fullmatch(characters) and math.isfinite(float(characters)):
            value = float(characters)
            return int(value) if value == int(value) and "." not in characters and abs(value) < 1e15 else value
        return characters  # "?", infinity, a fraction, a word, or a fault that the reader of examples names

    def refuse(self, complaint: str, *path: str | int) -> UsageError:
        """The error, with the line, or the cell of a spreadsheet."""
        for depth in range(len(path), 0, -1):
            part = path[:depth]
            if part in self.cells:
                return self._refuse_cell(self.cells[part], complaint)
            if part in self.lines:
                return self._refuse_line(self.lines[part], complaint)
        return UsageError("{where}: {complaint}", where=self.name, complaint=complaint)

    def _refuse_cell(self, cell: Cell, complaint: str) -> UsageError:
        return self._refuse_line(cell.line, complaint)

    def _refuse_line(self, line: int, complaint: str) -> UsageError:
        return UsageError("{where}, line {line}: {complaint}", where=self.name, line=line, complaint=complaint)

    def typed(self, path: KeyPath) -> str | None:
        """The characters of a cell, with a decimal point."""
        cell = self.cells.get(path)
        return None if cell is None else cell.characters

    def rewritten(self, changes: Mapping[KeyPath, str]) -> bytes:
        """The text with other numbers in the same places."""
        text = self.text
        cells = {self.cells[path]: value for path, value in changes.items()}
        for cell, value in sorted(cells.items(), key=lambda change: change[0].start, reverse=True):
            made = as_written(value, cell.written)
            text = text[: cell.start] + made + text[cell.start + len(cell.written) :]
        return text.encode()


def setting_value(key: str, written: str) -> Any:
    """A setting's value: as TOML, a list of words, a number, or a word."""
    try:
        return tomllib.loads(f"value = {written}")["value"]
    except ValueError:
        pass
    if key in ("tokens", "vocabulary", "beam"):
        return [word.strip(" \"'`") for word in re.split(r"[,;|]", written)]
    characters = plain_number(written)
    return float(characters) if NUMBER.fullmatch(characters) else characters


def without_labels(rows: Sequence[Sequence[Cell]], *, header_is_usual: bool) -> tuple[tuple[Cell, ...], ...]:
    """The cells without the labels of rows and columns, which are words.

    The first column holds labels if every cell of it below the first row is a word. The first row is a header if no
    cell of it is a number, or if its corner is empty above labels. A single word among numbers stays, and is refused
    where numbers are read.
    """
    rows = [row for row in rows if row]
    if not rows:
        return ()
    first, body = rows[0], rows[1:]
    labelled = all(_is_word(row[0]) for row in body) and bool(body)
    words = all(_is_word(cell) or not cell.written for cell in first) and (header_is_usual or any(map(_is_word, first)))
    if body and (words or (labelled and len(first) > 1 and not first[0].written)):
        rows = body
    if len(rows[0]) > 1 and all(_is_word(row[0]) for row in rows):
        rows = [row[1:] for row in rows]
    elif body and len(first) > 1 and all(not row[0].written for row in (first, *body)):
        rows = [row[1:] for row in rows]  # labels left empty
    return tuple(tuple(row) for row in rows if row)


def _is_word(cell: Cell) -> bool:
    return bool(cell.written) and not cell.is_number and not any(sign.isdigit() for sign in cell.characters[:1])
