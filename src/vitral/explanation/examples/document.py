"""A worked example as its author wrote it, whatever the format of the file: its data, and the place of each value."""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
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
        data: tables, lists, numbers and strings, as TOML gives them.
        notes: one sentence for each part of the file that is not read.
    """

    name: str
    text: str
    notes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def data(self) -> dict[str, Any]:
        """The contents, in the keys of docs/examples.md."""

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


@dataclass(frozen=True)
class TomlDocument(Document):
    """A worked example in TOML."""

    name: str
    text: str
    notes: tuple[str, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """The contents.

        Raises:
            UsageError: the text is not TOML; the message names the line.
        """
        return self._data

    @cached_property
    def _data(self) -> dict[str, Any]:
        return toml(self.text, self.name)

    @cached_property
    def found(self) -> dict[KeyPath, Place]:
        """The place of every value.

        Raises:
            UsageError: brackets are nested too deep.
        """
        try:
            return places(self.text)
        except RecursionError:
            raise UsageError("{where}: not a worked example: brackets nested too deep", where=self.name) from None

    def refuse(self, complaint: str, *path: str | int) -> UsageError:
        """The error, with the line."""
        return UsageError(
            "{where}, line {line}: {complaint}", where=self.name, line=self.line(path), complaint=complaint
        )

    def line(self, path: KeyPath) -> int:
        """The line of a value, or of the deepest part of its path that the text contains; 1 if it contains none."""
        for depth in range(len(path), 0, -1):
            lines = [self.found[path[:depth]].line] if path[:depth] in self.found else []
            lines += [place.line for key, place in self.found.items() if key[:depth] == path[:depth]]  # a dotted key
            if lines:
                return lines[0]
        return 1

    def typed(self, path: KeyPath) -> str | None:
        """The literal without its quotes."""
        place = self.found.get(path)
        return None if place is None else _unquoted(self.text[place.start : place.end])

    def rewritten(self, changes: Mapping[KeyPath, str]) -> bytes:
        """The text with other literals."""
        return self.replace_in(self.text, changes).encode()

    def replace_in(self, text: str, changes: Mapping[KeyPath, str]) -> str:
        """A text in which the literals have the same places, with other ones."""
        for path, value in sorted(changes.items(), key=lambda change: self.found[change[0]].start, reverse=True):
            place = self.found[path]
            text = text[: place.start] + _literal(value, text[place.start : place.end]) + text[place.end :]
        return text


def mended_toml(document: TomlDocument) -> tuple[TomlDocument, list[str]]:
    """A document in which bare words among numbers are in quotes and lines that are no TOML are left out.

    Its lines are those of the original. Of each line left out there is a complaint.

    Raises:
        UsageError: it is no TOML even so.
    """
    lines, complaints = document.text.split("\n"), list[str]()
    for attempt in range(MOST_MENDED):
        made = TomlDocument(document.name, "\n".join(lines), document.notes)
        try:
            toml(made.text, made.name)
            return made, complaints
        except UsageError as error:
            number = re.search(r", line (\d+): ", str(error))
            if number is None or not lines[int(number[1]) - 1].strip() or attempt + 1 == MOST_MENDED:
                raise
            line = lines[int(number[1]) - 1]
            quoted = _BARE.sub(r'"\1"', line)
            lines[int(number[1]) - 1] = quoted if quoted != line else ""
            complaints += [str(error)] if quoted == line else []
    raise AssertionError  # the last attempt returns or raises


def _unquoted(literal: str) -> str:
    return literal[1:-1] if literal[:1] in ("'", '"') and literal[-1:] == literal[0] else literal


def _literal(value: str, before: str) -> str:
    """The value as TOML: in quotes if it is no number, or replaces a number in quotes."""
    try:
        is_number = math.isfinite(float(value))
    except ValueError:
        is_number = False
    if is_number and _unquoted(before).endswith("%"):
        return json.dumps(as_percent(value))
    was_quoted = before[:1] in ("'", '"') and _unquoted(before) not in {"?", *SPECIAL}
    if is_number and not was_quoted:
        return value
    return json.dumps(value, ensure_ascii=False)
