"""A worked example as its author wrote it, whatever the format of the file: its data, and the place of each value."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from vitral.core.errors import UsageError
from vitral.explanation.examples.numerals import as_percent
from vitral.explanation.examples.places import KeyPath, Place, places
from vitral.explanation.examples.schema import SPECIAL, toml

MOST_MENDED = 60
_BARE = re.compile(
    r"(?<=[\[,])\s*(?![-+]?(?:inf|nan|true|false|[\d.]+(?:[eE][-+]?\d+)?)\s*[,\]])([^\s\[\]{}\",'=]+)(?=\s*[,\]])"
)
"""A word without quotes in a list, as 2x or abc."""


class Document(ABC):
    """A worked example as written.

    A path leads to a value: the keys of tables and the indices of lists, as ("claimed", "scores", 0, 1).

    Attributes:
        name: of the file, or "example", for messages.
        text: its characters, or a readable form of a file that is no text.
        data: tables, lists, numbers and strings in the keys of docs/examples.md, as TOML gives them.
        notes: one sentence for each part of the file that is not read.
        faults: complaints about lines that were left out.
    """

    name: str
    text: str
    data: dict[str, Any]
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @abstractmethod
    def refuse(self, complaint: str, *path: str | int) -> UsageError:
        """The error for a value: the file, the place of the deepest part of `path` that the file has, the complaint."""

    @abstractmethod
    def typed(self, path: KeyPath) -> str | None:
        """The characters of a value as the author typed them, without quotes; None if the file has no such value."""

    @abstractmethod
    def rewritten(self, changes: Mapping[KeyPath, str]) -> bytes:
        """The file with other values at some places, in its own format.

        Args:
            changes: the new values as characters: numbers with a decimal point, words, "inf" and "-inf".
        """


class TomlDocument(Document):
    """A worked example in TOML."""

    def __init__(self, name: str, text: str, *, mend: bool = False) -> None:
        """Read the text.

        Args:
            name: of the file.
            text: its characters.
            mend: whether to put bare words among numbers in quotes, and to leave out lines that are no TOML.

        Raises:
            UsageError: the text is not TOML; the message names the line.
        """
        self.name, lines, faults = name, text.split("\n"), list[str]()
        for attempt in range(MOST_MENDED if mend else 1):
            self.text = "\n".join(lines)
            try:
                self.data = toml(self.text, name)
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
    def found(self) -> dict[KeyPath, Place]:
        """The place of every value."""
        return places(self.text)

    def refuse(self, complaint: str, *path: str | int) -> UsageError:
        """The error, with the line."""
        return UsageError(
            "{where}, line {line}: {complaint}", where=self.name, line=self.line(path), complaint=complaint
        )

    def line(self, path: KeyPath) -> int:
        """The line of the first value in the deepest part of a path that the text contains; 1 if it contains none."""
        parts = (path[:depth] for depth in range(len(path), 0, -1))
        return next((place.line for part in parts for key, place in self.found.items() if key[: len(part)] == part), 1)

    def typed(self, path: KeyPath) -> str | None:
        """The literal without its quotes."""
        place = self.found.get(path)
        return None if place is None else _unquoted(self.text[place.start : place.end])

    def rewritten(self, changes: Mapping[KeyPath, str]) -> bytes:
        """The text with other literals."""
        text = self.text
        for path, value in sorted(changes.items(), key=lambda change: self.found[change[0]].start, reverse=True):
            place = self.found[path]
            text = text[: place.start] + _literal(value, text[place.start : place.end]) + text[place.end :]
        return text.encode()


def _unquoted(literal: str) -> str:
    return literal[1:-1] if literal[:1] in ("'", '"') and literal[-1:] == literal[0] else literal


def _literal(value: str, before: str) -> str:
    """The value as TOML: in quotes if it is no number, or replaces a number in quotes."""
    was = _unquoted(before)
    is_number = not value.strip("+-.0123456789")
    if is_number and was.endswith("%"):
        value = as_percent(value)
    elif is_number and (was == before or was == "?" or was in SPECIAL):
        return value
    return json.dumps(value, ensure_ascii=False)
