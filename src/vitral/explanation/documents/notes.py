"""Notes as text: Markdown tables, LaTeX matrices and tables, printed arrays, each with its name before it."""

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.documents.blocks import (
    Block,
    Cell,
    Found,
    NotesDocument,
    Setting,
    setting_value,
    without_labels,
)
from vitral.explanation.documents.labels import LONGEST_LABEL, SECTIONS, WORDS, bare, known_label, quantity_named
from vitral.explanation.examples.document import Document, TomlDocument
from vitral.explanation.examples.schema import Head

LONGEST_LINE = 500
"""A longer line is no setting and no heading."""
DEEPEST = 4

GIVEN_WORDS = ("d_k", "start", "beams", "length")
"""Single numbers and words that are given, and are no settings."""
_RULE_NAME = re.compile(r"(?:temperature|top_k|top_p|min_p)_[\d.]+")
_BEGIN = re.compile(
    r"\\begin\{(?P<kind>(?:small)?[bBpvV]?matrix\*?|array|tabular\*?|longtable)\}(?:\[[^\]\n]{0,20}\])?(?:\{[^\n]{0,80}?\}(?=\s|\n|\\|\d|&|$))?"
)
_RULES = re.compile(r"\\(?:hline|toprule|midrule|bottomrule)\b|\\cline\{[^}\n]*\}|(?<!\\)%[^\n]*")
_ARRAY = re.compile(r"(?:(?:np\.|numpy\.|torch\.)?(?:array|tensor|matrix)\s*\(\s*)?(?<!\\)\[")
LONGEST_LIST = 20_000
_TUPLE = re.compile(r"=[ \t]*(\([ \t]*[+\-−]?[\d?.][^()\n=]{0,500}\))")
_SETTING = re.compile(
    r"[ \t%#>*`-]*(?P<key>[A-Za-z_][\w.]*(?: [\w.]+){0,3})\**[ \t]*[:=][ \t]*\**[ \t]*(?P<value>\S.*)"
)
_HEADING = re.compile(r"(?:#+[ \t]+|\\(?:sub)*section\*?\{|\**\[?)(?P<words>[^\n}\]*#:]+)")
_TITLE = re.compile(r"^#[ \t]+(?P<markdown>[^\n]{1,200})$|\\title\{(?P<latex>[^{}\n]{1,200})\}", re.MULTILINE)
_BETWEEN = re.compile(
    r"\\begin\{(?:equation|align|table|center|gather|displaymath)\*?\}(?:\[[^\]\n]{0,20}\])?|\\(?:centering|left|right)\b|\$\$|\\\[|[({[]\s*$"
)
"""Commands between a name and its matrix."""


@dataclass(frozen=True)
class _Structure:
    """A table, matrix or list of numbers in the text."""

    start: int
    end: int
    rows: tuple[tuple[Cell, ...], ...]
    is_vector: bool = False
    is_table: bool = False


def read_notes(text: str, name: str) -> Document:
    """A worked example in notes. If they contain a fenced block of TOML with [given], that block is the example.

    Raises:
        UsageError: nothing with a known name was found.
    """
    masked = _fenced(text)
    if re.search(r"^[ \t]*\[given", masked, re.MULTILINE):
        return FencedDocument(name, masked, whole=text)
    title = _TITLE.search(text)
    found = _Scanner(text, name).found()
    return NotesDocument(name, text, found, bare(title["markdown"] or title["latex"]) if title else "")


def _fenced(text: str) -> str:
    """The fenced blocks of TOML, with blanks for everything else, so that every place is the same."""
    kept, inside = [], False
    for line in text.splitlines(keepends=True):
        fence = line.strip().replace(" ", "").lower()
        inside = inside and not fence.startswith("```")
        kept.append(line if inside else re.sub(r"[^\n\r]", " ", line))
        inside = inside or fence == "```toml"
    return "".join(kept)


@dataclass(frozen=True)
class FencedDocument(TomlDocument):
    """A worked example in TOML inside other text; `text` has blanks for the rest, so that places are the same."""

    whole: str = ""

    def rewritten(self, changes: Any) -> bytes:
        """The whole text with other literals."""
        return self.replace_in(self.whole, changes).encode()


class _Scanner:
    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.line_ends = [match.end() for match in re.finditer("\n", text)]

    def line(self, place: int) -> int:
        return bisect_right(self.line_ends, place) + 1

    def cell(self, start: int, end: int) -> Cell:
        """The characters between two places, without blanks around them."""
        written = self.text[start:end]
        begin = start + len(written) - len(written.lstrip())
        return Cell(written.strip(), self.line(begin), begin)

    def found(self) -> Found:
        structures = sorted(self.structures(), key=lambda structure: structure.start)
        blocks: list[Block] = []
        ignored: list[Block] = []
        end = 0
        for structure in structures:
            if structure.start < end:
                continue  # inside another one
            label = self.label(structure, end)
            block = Block(
                label, structure.rows, self.section(structure.start), self.line(structure.start), structure.is_vector
            )
            known = known_label(label, is_vector=structure.is_vector) is not None
            if known or structure.is_table or len(block.rows) > 1:
                (blocks if known else ignored).append(block)
            end = structure.end
        return Found(tuple(blocks), tuple(self.settings(structures)), tuple(ignored))

    def structures(self) -> Iterator[_Structure]:
        yield from self.tables()
        stops: dict[str, int] = {}
        for match in _BEGIN.finditer(self.text):
            closing = f"\\end{{{match['kind']}}}"
            if stops.get(closing, 0) >= 0:
                stops[closing] = self.text.find(closing, match.end())
            if stops[closing] >= 0:
                stop = stops[closing]
                yield self.matrix(match.start(), stop + len(closing), match.end(), stop)
        start = 0
        while match := _ARRAY.search(self.text, start):
            begin = match.end() - 1
            stop = self.closing(begin)
            made = self.listed(match.start(), begin, stop) if stop else None
            start = stop if made is not None else match.end()
            if made is not None:
                yield made
        for match in _TUPLE.finditer(self.text):
            made = self.listed(match.start(1), match.start(1), match.end(1))
            if made is not None:
                yield made

    def tables(self) -> Iterator[_Structure]:
        """Markdown tables: a line with |, a rule below it, and further lines with |."""
        lines = self.text.splitlines(keepends=True)
        starts = [0, *itertools.accumulate(map(len, lines))]
        at = 1
        while at < len(lines):
            rule = lines[at].strip()
            if "|" in lines[at - 1] and "-" in rule and set(rule) <= set("|:- \t"):
                end = at + 1
                while end < len(lines) and "|" in lines[end]:
                    end += 1
                yield self.piped(starts[at - 1], starts[end])
                at = end
            at += 1

    def closing(self, begin: int) -> int:
        """The place after the bracket that closes the one at `begin`; 0 if there is none before an empty line."""
        depth = 0
        for place in range(begin, min(len(self.text), begin + LONGEST_LIST)):
            sign = self.text[place]
            if sign == "\n" and self.text[place + 1 : place + 2] == "\n":
                return 0
            depth += (sign == "[") - (sign == "]")
            if depth == 0:
                return place + 1
            if depth > DEEPEST:
                return 0
        return 0

    def piped(self, start: int, end: int) -> _Structure:
        """A Markdown table; its header is a row of numbers only if every cell of it is a number."""
        rows = []
        place = start
        for written in self.text[start:end].splitlines(keepends=True):
            bars = [place + at for at, sign in enumerate(written) if sign == "|" and written[at - 1 : at] != "\\"]
            edges = [place - 1, *bars, place + len(written.rstrip("\n"))]
            cells = [self.cell(left + 1, right) for left, right in itertools.pairwise(edges)]
            rows.append(cells[1:] if written.lstrip().startswith("|") else cells)
            rows[-1] = rows[-1][:-1] if written.rstrip().endswith("|") else rows[-1]
            place += len(written)
        header, _rule, *body = rows
        return _Structure(start, end, without_labels([header, *body], header_is_usual=True), is_table=True)

    def matrix(self, start: int, end: int, begin: int, stop: int) -> _Structure:
        """A matrix or table of LaTeX."""
        rows = []
        place = begin
        for written in re.split(r"(\\\\(?:\s{0,20}\[[^\]\n]{0,20}\])?|\\tabularnewline)", self.text[begin:stop]):
            if not written.startswith("\\\\") and not written.startswith("\\tabular"):
                clean = _RULES.sub(lambda match: " " * len(match[0]), written)
                if clean.strip():
                    rows.append(self._split(clean, place))
            place += len(written)
        return _Structure(start, end, without_labels(rows, header_is_usual=False), is_table=True)

    def _split(self, row: str, place: int) -> list[Cell]:
        cells = []
        for part in re.split(r"((?<!\\)&)", row):
            if part != "&":
                lead = len(part) - len(part.lstrip())
                cells.append(Cell(part.strip(), self.line(place + lead), place + lead))
            place += len(part)
        return cells

    def listed(self, start: int, begin: int, stop: int) -> _Structure | None:
        """A printed array, or a list; None if it is no list of numbers."""
        body = self.text[begin:stop]
        if "..." in body:
            line = self.line(begin)
            raise UsageError(
                "{where}, line {line}: {complaint}",
                where=self.name,
                line=line,
                complaint=_(
                    "the printed array is shortened (…); print it whole, with numpy.set_printoptions(threshold=10**6)"
                ),
            )
        depth, most = 0, 0
        rows: list[list[Cell]] = []
        for match in re.finditer(r"[\[\]()]|[^\s,;\[\]()]+", body):
            sign = match[0]
            if sign in "[(":
                depth, most = depth + 1, max(most, depth + 1)
                rows += [[]] if not rows or rows[-1] else []
            elif sign in "])":
                depth -= 1
            elif rows:
                rows[-1].append(Cell(sign, self.line(begin + match.start()), begin + match.start()))
        rows = [row for row in rows if row]
        numbers = sum(cell.is_number for row in rows for cell in row)
        if depth != 0 or 2 * numbers <= sum(map(len, rows)):
            return None
        if most > 2 or (most == 1 and len(rows) > 1):
            return None
        return _Structure(start, stop, tuple(map(tuple, rows)), is_vector=most == 1)

    def label(self, structure: _Structure, end: int) -> str:
        """The words before a structure: on its line, or on the last line before it that is not empty."""
        before = _BETWEEN.sub(" ", self.text[end : structure.start])
        caption = re.search(r"\\caption\{([^{}\n]{0,500})\}", before)
        lines = [
            line for line in before.splitlines() if bare(line[:LONGEST_LABEL]) and not set(line.strip()) <= set("`-=|")
        ]
        return (caption[1] if caption else lines[-1].strip() if lines else "")[-LONGEST_LABEL:]

    def section(self, place: int) -> str:
        """The section that the last heading before a place names."""
        return next((section for start, section in reversed(self.headings) if start <= place), "")

    @cached_property
    def headings(self) -> list[tuple[int, str]]:
        """The headings that name a section, with their places."""
        made, place = [], 0
        for line in self.text.splitlines(keepends=True):
            match = _HEADING.match(line.lstrip()) if len(line) <= LONGEST_LINE else None
            words = bare(match["words"]).lower() if match else ""
            made += [(place, section) for section, names in SECTIONS.items() if words in names]
            place += len(line)
        return made

    def settings(self, structures: list[_Structure]) -> Iterator[Setting]:
        """Lines such as mask: causal, and single numbers or words that are claimed."""
        spans = [(structure.start, structure.end) for structure in structures]
        place = 0
        for line in self.text.splitlines(keepends=True):
            match = _SETTING.match(line.rstrip(" \t`\r\n")) if len(line) <= LONGEST_LINE else None
            start = place + match.start("value") if match else place
            place += len(line)
            if match is None or any(begin <= start < end for begin, end in spans):
                continue
            key, written, at = bare(match["key"]).lower().replace(" ", "_"), match["value"], self.line(start)
            made = setting_of(key, written)
            if made is not None:
                name, section = made
                cell = Cell(written, at, start) if section else None
                yield Setting(name, setting_value(name, written), at, section, cell)


def setting_of(key: str, written: str) -> tuple[str, str] | None:
    """The name and section of a setting, or of a single number or word of the example; None for anything else."""
    plain = bare(key).lower().replace(" ", "_")
    name = quantity_named(plain) or plain
    if plain in Head.model_fields and plain not in ("given", "claimed"):
        return plain, ""
    if name in WORDS or plain in GIVEN_WORDS or _RULE_NAME.fullmatch(plain):
        return name, "given" if plain in GIVEN_WORDS else "claimed"
    return None
