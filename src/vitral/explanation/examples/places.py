"""Places of the values in a TOML file: the line for error messages, the characters for corrections.

`tomllib` returns values without their places. This scanner finds them in a text that `tomllib` has already accepted,
so it parses only headers, keys, strings, brackets and comments.
"""

import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """The place of a value.

    Attributes:
        line: counted from 1.
        start: index of the literal's first character.
        end: index after its last character.
    """

    line: int
    start: int
    end: int


_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}(?!")|\'\'\'.*?\'{3,5}(?!\')|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL
)
_KEY = re.compile(r'[ \t]*(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')[ \t]*')
_PLAIN = re.compile(r"[^,\]}#\r\n]+")


def places(text: str) -> dict[KeyPath, Place]:
    """The place of every value by its path of keys and indices; the place of a table is its header.

    Args:
        text: a TOML document that `tomllib` accepts.
    """
    return _Scanner(text).document()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: dict[KeyPath, Place] = {}
        self.counts: dict[KeyPath, int] = {}
        self.line_ends = [match.end() for match in re.finditer("\n", text)]

    def document(self) -> dict[KeyPath, Place]:
        table: KeyPath = ()
        while True:
            self.blank()
            if self.at >= len(self.text):
                return self.found
            start = self.at
            if self.text[self.at] == "[":
                several = self.text.startswith("[[", self.at)
                self.at += 2 if several else 1
                table = self.indexed(self.key(), several)
                self.at = self.text.index("]", self.at) + (2 if several else 1)
                self.note(table, start)
            else:
                self.pair(table)

    def indexed(self, key: KeyPath, several: bool) -> KeyPath:
        """The key with the indices of the arrays of tables on its way."""
        path: KeyPath = ()
        for depth, part in enumerate(key, start=1):
            path = (*path, part)
            if several and depth == len(key):
                self.counts[path] = self.counts.get(path, -1) + 1
            if path in self.counts:
                path = (*path, self.counts[path])
        return path

    def pair(self, table: KeyPath) -> None:
        path = (*table, *self.key())
        self.at = self.text.index("=", self.at) + 1
        self.value(path)

    def key(self) -> KeyPath:
        """A dotted key."""
        parts: list[str] = []
        while True:
            match = _KEY.match(self.text, self.at)
            assert match is not None
            self.at = match.end()
            [part] = tomllib.loads(f"{match[0]} = 0")
            parts.append(part)
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def value(self, path: KeyPath) -> None:
        self.blank()
        start = self.at
        if self.text[start] == "[":
            self.inside("]", lambda place: self.value((*path, place)))
        elif self.text[start] == "{":
            self.inside("}", lambda _: self.pair(path))
        else:
            match = _STRING.match(self.text, start) or _PLAIN.match(self.text, start)
            assert match is not None
            self.at = start + len(match[0].rstrip())
        self.note(path, start)

    def inside(self, closing: str, part) -> None:
        """Call `part` for each element between two brackets."""
        self.at += 1
        for place in range(len(self.text)):
            self.blank()
            if self.text[self.at] == ",":
                self.at += 1
                self.blank()
            if self.text[self.at] == closing:
                break
            part(place)
        self.at += 1

    def blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def note(self, path: KeyPath, start: int) -> None:
        self.found.setdefault(path, Place(bisect_right(self.line_ends, start) + 1, start, self.at))
