"""Where the values of a TOML file stand: the line to name in a complaint, the characters to correct.

`tomllib` gives values without their places. This scanner finds them in a text that `tomllib` has already accepted, so
it follows the grammar only as far as places need: headers, keys, strings, brackets and comments.
"""

import re
import tomllib
from bisect import bisect_right
from dataclasses import dataclass

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """Where a value stands.

    Attributes:
        line: from 1.
        start: of its literal, in characters.
        end: behind it.
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


def places(text: str) -> dict[Path, Place]:
    """The place of every value, by its path of keys and indices; a table under a header has that of the header.

    Args:
        text: a TOML document that `tomllib` accepts.
    """
    return _Scanner(text).document()


def line_of(text: str, path: Path) -> int:
    """The line of a value, or of the deepest part of its path that the text has; 1 where it has none of it."""
    known = places(text)
    for depth in range(len(path), 0, -1):
        lines = [known[path[:depth]].line] if path[:depth] in known else []
        lines += [place.line for key, place in known.items() if key[:depth] == path[:depth]]  # of a dotted key's begin
        if lines:
            return lines[0]
    return 1


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: dict[Path, Place] = {}
        self.counts: dict[Path, int] = {}
        self.line_ends = [match.end() for match in re.finditer("\n", text)]

    def document(self) -> dict[Path, Place]:
        table: Path = ()
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

    def indexed(self, key: Path, several: bool) -> Path:
        """The key with the places of the arrays of tables it goes through."""
        path: Path = ()
        for depth, part in enumerate(key, start=1):
            path = (*path, part)
            if several and depth == len(key):
                self.counts[path] = self.counts.get(path, -1) + 1
            if path in self.counts:
                path = (*path, self.counts[path])
        return path

    def pair(self, table: Path) -> None:
        path = (*table, *self.key())
        self.at = self.text.index("=", self.at) + 1
        self.value(path)

    def key(self) -> Path:
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

    def value(self, path: Path) -> None:
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
        """The parts between two brackets."""
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

    def note(self, path: Path, start: int) -> None:
        self.found.setdefault(path, Place(bisect_right(self.line_ends, start) + 1, start, self.at))
