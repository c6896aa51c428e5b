"""Places in a file: faults at a place, and the place of each value of TOML, for messages and for corrections.

`tomllib` returns values without their places. Here each value is replaced by its number, and `tomllib` tells at which
key the number stands.
"""

import re
import tomllib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vitral.core.errors import UsageError

KeyPath = tuple[str | int, ...]


class Fault(UsageError):
    """Something wrong at a place of the file, as keys of tables and indices of lists; its reader adds the line."""

    def __init__(self, sentence: str, path: KeyPath = (), /, **places: Any) -> None:
        """Hold the sentence, with values in its places, and the place."""
        super().__init__(sentence, **places)
        self.path = path


class Misfit(Fault):
    """Numbers of a wrong shape."""


@contextmanager
def at(*path: str | int) -> Generator[None]:
    """Give an error without a place this one."""
    try:
        yield
    except Fault:
        raise
    except UsageError as error:
        raise Fault(str(error), path) from None


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


_STRING = r'"""(?:\\.|[^\\])*?"{3,5}(?!")|\'\'\'.*?\'{3,5}(?!\')|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
_BARE = r'[^\s\[\]{},=#"\'.][^\s\[\]{},=#"\']*(?: \d\d:[^\s,\]}#]*)?'
_WORD = rf"(?>{_STRING}|\[(?:\s|#[^\n]*)*+\]|\{{\s*\}}|{_BARE})"
_TOKEN = rf"#[^\n]*|(?P<value>{_WORD})(?![ \t]*[=.\"'])|{_WORD}|[ \t\r]+|."
_INSIDE = re.compile(_TOKEN, re.DOTALL)
_OUTSIDE = re.compile(rf"^[ \t]*\[[^\n]*|{_TOKEN}", re.DOTALL | re.MULTILINE)
"""Outside brackets a line may be the header of a table."""


def places(text: str) -> dict[KeyPath, Place]:
    """The place of every number, word and empty list, by its path of keys and indices.

    Args:
        text: a TOML document that `tomllib` accepts.
    """
    at, line, depth = 0, 1, 0
    values, numbered = list[Place](), list[str]()
    while token := (_INSIDE if depth else _OUTSIDE).match(text, at):
        written = token[0]
        if token["value"]:
            numbered.append(str(len(values)))
            values.append(Place(line, at, token.end()))
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
