"""Texts too long for memory, of one file or of many: they stay on disk and are read part by part."""

import hashlib
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate

import numpy as np

from vitral.data.alphabet import code_points, utf8

PIECE = 1 << 20
"""Bytes of a long file that are read at once, at least; the tokens of a piece of another program's."""

Part = tuple[int, Callable[[], str]]
"""The characters of a part of a text, and a function that reads it."""


class LongText:
    """A text that stays on disk, sliced like a str: parts that are read whenever they are needed.

    Attributes:
        parts: the parts, in order.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        """Use these parts."""
        self.parts = parts
        self._ends = list(accumulate(length for length, _ in parts))
        self._part = lru_cache(maxsize=2)(lambda number: parts[number][1]())

    def __len__(self) -> int:
        """Number of characters."""
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, where: slice) -> str:
        """A slice of characters, with step 1.

        Raises:
            UsageError: a file has changed, or can no longer be read.
        """
        begin, end, _step = where.indices(len(self))
        if begin >= end:
            return ""
        first, last = (bisect_right(self._ends, index) for index in (begin, end - 1))
        start = self._ends[first] - self.parts[first][0]
        return "".join(map(self._part, range(first, last + 1)))[begin - start : end - start]

    def pieces(self) -> Iterator[str]:
        """The whole text in order, part by part."""
        return filter(None, map(self._part, range(len(self.parts))))


Text = str | LongText
"""The text of a corpus."""


def pieces(text: Text) -> Iterable[str]:
    r"""The whole text in pieces (a str in one); inside a file no border splits a `\r\n`."""
    return [text] if isinstance(text, str) else text.pieces()


def joined_text(texts: Sequence[Text], separator: str) -> Text:
    """Texts one after the other with a separator between them; a str if all of them are.

    >>> joined_text(["a", "b"], "-")
    'a-b'
    """
    short = [text for text in texts if isinstance(text, str)]
    if len(short) == len(texts):
        return separator.join(short)
    return LongText([part for text in texts for part in (*_parts(separator), *_parts(text))][1:])


def _parts(text: Text) -> Sequence[Part]:
    return [(len(text), partial(str, text))] if isinstance(text, str) else text.parts


def in_lines(text: str) -> str:
    r"""The text with `\n` for `\r\n` and a lone `\r`."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def hash_text(text: Text) -> str:
    """SHA-256 of the text's UTF-8, in hexadecimal.

    >>> hash_text("") == hashlib.sha256().hexdigest()
    True
    """
    digest = hashlib.sha256()
    for piece in pieces(text):
        digest.update(utf8(piece))
    return digest.hexdigest()


def character_counts(texts: Iterable[Text]) -> dict[str, int]:
    """The number of occurrences of each distinct character in all texts together, sorted by code point.

    >>> character_counts(["abba!"])
    {'!': 1, 'a': 2, 'b': 2}
    """
    total = np.zeros(sys.maxunicode + 1, dtype=np.int64)
    for piece in (piece for text in texts for piece in pieces(text)):
        for begin in range(0, len(piece), PIECE):
            total += np.bincount(code_points(piece[begin : begin + PIECE]), minlength=total.size)
    return {chr(point): int(total[point]) for point in np.flatnonzero(total)}
