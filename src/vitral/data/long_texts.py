"""Texts too long for memory, of one file or of many: they stay on disk and are read part by part."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate

from vitral.data.alphabet import character_counts, utf8

PIECE = 1 << 20
"""Characters of a piece, at least; bytes read at once."""
_KEPT = 2

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
        self._recent: dict[int, str] = {}

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
        first, last = (bisect_right(self._ends, place) for place in (begin, end - 1))
        start = self._ends[first] - self.parts[first][0]
        return "".join(map(self._part, range(first, last + 1)))[begin - start : end - start]

    def pieces(self) -> Iterator[str]:
        """The whole text in order, at least about a million characters at a time."""
        held, size = list[str](), 0
        for number in range(len(self.parts)):
            if part := self._part(number):
                held.append(part)
                size += len(part)
            if size >= PIECE and not held[-1].endswith("\r"):
                yield "".join(held)
                held, size = [], 0
        if held:
            yield "".join(held)

    def _part(self, number: int) -> str:
        if number not in self._recent:
            while len(self._recent) >= _KEPT:
                del self._recent[next(iter(self._recent))]
            self._recent[number] = self.parts[number][1]()
        return self._recent[number]


Text = str | LongText
"""The text of a corpus."""


def pieces(text: Text) -> Iterable[str]:
    r"""The whole text in pieces (a str in one); no piece border splits a `\r\n`."""
    return [text] if isinstance(text, str) else text.pieces()


def joined_text(texts: Sequence[Text], separator: str) -> Text:
    """Texts one after the other with a separator between them; a str if all of them are.

    >>> joined_text(["a", "b"], "-")
    'a-b'
    """
    if all(isinstance(text, str) for text in texts):
        return separator.join(text for text in texts if isinstance(text, str))
    parts = list[Part]()
    for text in texts:
        parts += [_in_memory(separator)] if parts else []
        parts += [_in_memory(text)] if isinstance(text, str) else text.parts
    return LongText(parts)


def _in_memory(text: str) -> Part:
    return len(text), partial(str, text)


def in_lines(text: str, newlines: str) -> str:
    r"""The text with `\n` for `\r\n` and a lone `\r`, if `newlines` is `"lf"`."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if newlines == "lf" and "\r" in text else text


def hash_text(text: Text) -> str:
    """SHA-256 of the text's UTF-8, in hexadecimal.

    >>> hash_text("") == hashlib.sha256().hexdigest()
    True
    """
    digest = hashlib.sha256()
    for piece in pieces(text):
        digest.update(utf8(piece))
    return digest.hexdigest()


def text_counts(texts: Iterable[Text]) -> dict[str, int]:
    """The number of occurrences of each character in all texts together, sorted by code point.

    >>> text_counts(["ab", "b"])
    {'a': 1, 'b': 2}
    """
    return character_counts(piece for text in texts for piece in pieces(text))
