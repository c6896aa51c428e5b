"""Texts too long for memory: they stay on disk and are read piece by piece."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from vitral.core.checked import checked
from vitral.core.language import N_
from vitral.data.alphabet import utf8
from vitral.data.opening import changed, opened, stamp_of

PIECE = 1 << 20
"""Bytes read at once."""

_KEPT = 2


@checked(first=["__init__"])
class LongText:
    r"""The text of a long UTF-8 file, without byte order mark and with newlines normalised, sliced like a str.

    `read_document` creates it after one pass over the file, which finds piece borders that split no character and no
    `\r\n`. It supports `len(text)` and `text[begin:end]`; each access reads from the file, which must not change.
    """

    def __init__(self, path: Path, marks: list[tuple[int, int]], *, newlines: str, stamp: tuple[int, int]) -> None:
        """Use the piece borders found by a pass over the file.

        Args:
            path: the file.
            marks: (byte, character) offsets at which each piece begins, and at which the last ends.
            newlines: `"lf"` or `"keep"`.
            stamp: size and modification time of the file during that pass.
        """
        self._path, self._newlines, self._stamp = path, newlines, stamp
        self._bytes, self._characters = [byte for byte, _ in marks], [character for _, character in marks]
        self._recent: dict[int, str] = {}

    def __len__(self) -> int:
        """Number of characters."""
        return self._characters[-1]

    def __getitem__(self, where: slice) -> str:
        """A slice of characters, with step 1.

        Raises:
            UsageError: the file has changed, or can no longer be read.
        """
        begin, end, step = where.indices(len(self))
        if step != 1:
            raise TypeError("a slice of a long text must have step 1")
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
        with opened(self._path, N_("{path}: can no longer be read ({reason})")) as file:
            if stamp_of(file.fileno()) != self._stamp:
                raise changed(self._path)
            file.seek(begin)
            return file.read(end - begin)


Text = str | LongText
"""The text of a corpus."""


def pieces(text: Text) -> Iterable[str]:
    r"""The whole text in pieces (a str in one); no piece border splits a `\r\n`."""
    return [text] if isinstance(text, str) else text.pieces()


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
