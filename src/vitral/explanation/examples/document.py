"""A worked example as its author wrote it, whatever the format of the file: its data, and the place of each value."""

import json
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vitral.core.errors import UsageError
from vitral.explanation.examples.numerals import as_percent
from vitral.explanation.examples.places import KeyPath
from vitral.explanation.examples.schema import SPECIAL, toml

MOST_MENDED = 60
_BARE = re.compile(
    r"(?<=[\[,])\s*(?![-+]?(?:inf|nan|true|false|[\d.]+(?:[eE][-+]?\d+)?)\s*[,\]])([^\s\[\]{}\",'=]+)(?=\s*[,\]])"
)
"""A word without quotes in a list, as 2x or abc."""


@dataclass(frozen=True)
class Written(ABC):
    """A number or word as written.

    Attributes:
        written: its characters in the file.
        line: counted from 1; of a spreadsheet the row.
        column: counted from 1; of a text the index of the first character.
        sheet: the worksheet of a spreadsheet.
    """

    written: str
    line: int
    column: int
    sheet: str = ""

    @property
    def end(self) -> int:
        """In a text, the index after its last character."""
        return self.column + len(self.written)

    @property
    @abstractmethod
    def characters(self) -> str:
        """The number or word without markup."""

    @abstractmethod
    def changed(self, value: str) -> str:
        """Another value, in the style of this one."""


class Source:
    """The file of a worked example.

    Attributes:
        name: of the file, or "example", for messages.
        text: its characters, or a readable form of a file that is no text.
    """

    name: str
    text: str

    def refuse(self, complaint: str, place: Written) -> UsageError:
        """The error for a value."""
        return UsageError("{where}, line {line}: {complaint}", where=self.name, line=place.line, complaint=complaint)

    def rewritten(self, changes: Mapping[Any, str]) -> bytes:
        """The file with other values in some places."""
        text = self.text
        for place, value in sorted(changes.items(), key=lambda change: -change[0].column):
            text = text[: place.column] + place.changed(value) + text[place.end :]
        return text.encode()


class Document(ABC):
    """A worked example as written.

    A path leads to a value: the keys of tables and the indices of lists, as ("claimed", "scores", 0, 1).

    Attributes:
        source: the file.
        data: tables, lists, numbers and strings in the keys of docs/examples.md, as TOML gives them.
        notes: one sentence for each part of the file that is not read.
        faults: complaints about lines that were left out.
        start: the place of what the file does not have; None if that is not said.
    """

    source: Source
    data: dict[str, Any]
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    start: Written | None = None

    @abstractmethod
    def place(self, path: KeyPath) -> Written | None:
        """The value with this path, or the first of the list or table; None if the file has none."""

    @property
    def name(self) -> str:
        """Of the file."""
        return self.source.name

    @property
    def text(self) -> str:
        """Its characters."""
        return self.source.text

    def refuse(self, complaint: str, *path: str | int) -> UsageError:
        """The error for a value: the file, the place of the deepest part of `path` that the file has, the complaint."""
        places = (self.place(path[:depth]) for depth in range(len(path), 0, -1))
        place = next(filter(None, places), self.start)
        if place is None:
            return UsageError("{where}: {complaint}", where=self.name, complaint=complaint)
        return self.source.refuse(complaint, place)

    def typed(self, path: KeyPath) -> str | None:
        """The characters of a value as the author typed them, without markup; None if the file has no such value."""
        place = self.place(path)
        return None if place is None else place.characters

    def rewritten(self, changes: Mapping[KeyPath, str]) -> bytes:
        """The file with other values at some places, in its own format.

        Args:
            changes: the new values as characters: numbers with a decimal point, words, "inf" and "-inf".
        """
        return self.source.rewritten({self.place(path): value for path, value in changes.items()})


class Literal(Written):
    """A number or word of TOML."""

    @property
    def characters(self) -> str:
        """The literal without its quotes."""
        written = self.written
        return written[1:-1] if written[:1] in ("'", '"') and written[-1:] == written[0] else written

    def changed(self, value: str) -> str:
        """The value as TOML: in quotes if it is no number, or replaces a number in quotes."""
        was = self.characters
        is_number = not value.strip("+-.0123456789")
        if is_number and was.endswith("%"):
            value = as_percent(value)
        elif is_number and (was == self.written or was == "?" or was in SPECIAL):
            return value
        return json.dumps(value, ensure_ascii=False)


class TomlDocument(Document):
    """A worked example in TOML."""

    start = Literal("", 1, 0)

    def __init__(self, name: str, text: str, *, mend: bool = False) -> None:
        """Read the text.

        Args:
            name: of the file.
            text: its characters.
            mend: whether to put bare words among numbers in quotes, and to leave out lines that are no TOML.

        Raises:
            UsageError: the text is not TOML; the message names the line.
        """
        self.source, lines, faults = Source(), text.split("\n"), list[str]()
        self.source.name = name
        for attempt in range(MOST_MENDED if mend else 1):
            self.source.text = "\n".join(lines)
            try:
                self.data = toml(self.source.text, name)
                break
            except UsageError as error:
                number = re.search(r", line (\d+): ", str(error))
                place = int(number[1]) - 1 if number else -1
                line = lines[place]
                if not mend or number is None or not line.strip() or attempt + 1 == MOST_MENDED:
                    raise
                quoted = _BARE.sub(r'"\1"', line)
                lines[place] = quoted if quoted != line else ""
                faults += [str(error)] if quoted == line else []
        self.faults = tuple(faults)

    @cached_property
    def found(self) -> dict[KeyPath, Literal]:
        """The place of every value, and of the first value in every list and table."""
        found = dict[KeyPath, Literal]()
        for path, place in places(self.text).items():
            for depth in range(len(path)):
                found.setdefault(path[: depth + 1], place)
        return found

    def place(self, path: KeyPath) -> Literal | None:
        """The literal."""
        return self.found.get(path)


_STRING = r'"""(?:\\.|[^\\])*?"{3,5}(?!")|\'\'\'.*?\'{3,5}(?!\')|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
_WORD_OF_TOML = r'[^\s\[\]{},=#"\'.][^\s\[\]{},=#"\']*(?: \d\d:[^\s,\]}#]*)?'
_WORD = rf"(?>{_STRING}|\[(?:\s|#[^\n]*)*+\]|\{{\s*\}}|{_WORD_OF_TOML})"
_TOKEN = rf"#[^\n]*|(?P<value>{_WORD})(?![ \t]*[=.\"'])|{_WORD}|[ \t\r]+|."
_INSIDE = re.compile(_TOKEN, re.DOTALL)
_OUTSIDE = re.compile(rf"^[ \t]*\[[^\n]*|{_TOKEN}", re.DOTALL | re.MULTILINE)
"""Outside brackets a line may be the header of a table."""


def places(text: str) -> dict[KeyPath, Literal]:
    """The place of every number, word and empty list, by its path of keys and indices.

    Args:
        text: a TOML document that `tomllib` accepts. It returns values without their places; here each value is
            replaced by its number, and `tomllib` tells at which key the number stands.
    """
    at, line, depth = 0, 1, 0
    values, numbered = list[Literal](), list[str]()
    while token := (_INSIDE if depth else _OUTSIDE).match(text, at):
        written = token[0]
        if token["value"]:
            numbered.append(str(len(values)))
            values.append(Literal(written, line, at))
        else:
            depth += (written in "[{") - (written in "]}")
            numbered.append(written)
        at, line = token.end(), line + written.count("\n")
    return {path: values[number] for path, number in _numbers(tomllib.loads("".join(numbered)), ())}


def _numbers(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    if isinstance(value, int):
        yield path, value
    else:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(part, (*path, key))
