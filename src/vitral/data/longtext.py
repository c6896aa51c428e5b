"""A text too long to be held in memory: it stays in its file and is read piece by piece."""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.data.alphabet import utf8

PIECE = 1 << 20
"""Bytes that are read at once."""

_KEPT = 2


class LongText:
    r"""The characters of a UTF-8 file, without its byte order mark, newlines made `\n` or kept; read like a str.

    Made by `vitral.data.reading.read_document`, which has read the file once and knows where every piece begins: whole
    characters, no `\r\n` cut in two. `len(text)` and `text[begin:end]` are all there is; the file is read again for
    each, and must not have changed.
    """

    def __init__(self, path: Path, marks: list[tuple[int, int]], *, newlines: str, stamp: tuple[int, int]) -> None:
        """Stand for a file that has been surveyed.

        Args:
            path: the file.
            marks: (byte, character) at which each piece begins, and at which the last ends.
            newlines: `"lf"` or `"keep"`.
            stamp: the file's size and time of change when it was surveyed.
        """
        self._path, self._newlines, self._stamp = path, newlines, stamp
        self._bytes, self._characters = [byte for byte, _ in marks], [character for _, character in marks]
        self._recent: dict[int, str] = {}

    def __len__(self) -> int:
        """Characters."""
        return self._characters[-1]

    def __getitem__(self, where: slice) -> str:
        """The characters from one place to another.

        Raises:
            UsageError: the file has changed, or cannot be read any more.
        """
        begin, end, step = where.indices(len(self))
        if step != 1:
            raise TypeError("a long text is read in one direction")
        if begin >= end:
            return ""
        first, last = (bisect_right(self._characters, place) - 1 for place in (begin, end - 1))
        together = "".join(self._piece(number) for number in range(first, last + 1))
        return together[begin - self._characters[first] : end - self._characters[first]]

    def pieces(self) -> Iterator[str]:
        """The whole text in order, about a million characters at a time."""
        return (self._piece(number) for number in range(len(self._bytes) - 1))

    def _piece(self, number: int) -> str:
        if number not in self._recent:
            while len(self._recent) >= _KEPT:
                del self._recent[next(iter(self._recent))]
            self._recent[number] = in_lines(self._read(number).decode("utf-8"), self._newlines)
        return self._recent[number]

    def _read(self, number: int) -> bytes:
        begin, end = self._bytes[number], self._bytes[number + 1]
        try:
            with self._path.open("rb") as file:
                if stamp_of(file.fileno()) != self._stamp:
                    raise UsageError(f"{self._path}: has changed while it was read; try again when it is at rest")
                file.seek(begin)
                return file.read(end - begin)
        except OSError as error:
            raise UsageError(f"{self._path}: cannot be read any more ({error.strerror})") from None


Text = str | LongText
"""What a corpus holds."""


def pieces(text: Text) -> Iterable[str]:
    r"""The whole text in order, a str in one piece; no `\r\n` is cut in two."""
    return [text] if isinstance(text, str) else text.pieces()


def in_lines(text: str, newlines: str) -> str:
    r"""The text with `\n` for `\r\n` and a lone `\r`, if `newlines` is `"lf"`."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if newlines == "lf" and "\r" in text else text


def stamp_of(descriptor: int) -> tuple[int, int]:
    """Size and time of change of an open file."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def hash_text(text: Text) -> str:
    """SHA-256 of the text's UTF-8, in hexadecimal.

    >>> hash_text("") == hashlib.sha256().hexdigest()
    True
    """
    digest = hashlib.sha256()
    for piece in pieces(text):
        digest.update(utf8(piece))
    return digest.hexdigest()
