"""Texts too long for memory, of one file or of many: they stay on disk and are read piece by piece."""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

from vitral.core.checked import checked
from vitral.core.language import N_
from vitral.data.alphabet import character_counts, utf8
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

    def __init__(
        self,
        path: Path,
        marks: list[tuple[int, int]],
        *,
        newlines: str,
        stamp: tuple[int, int],
        sha256: str,
        counts: dict[str, int],
    ) -> None:
        """Use what a pass over the file has found.

        Args:
            path: the file.
            marks: (byte, character) offsets at which each piece begins, and at which the last ends.
            newlines: `"lf"` or `"keep"`.
            stamp: size and modification time of the file during that pass.
            sha256: of the text's UTF-8, in hexadecimal.
            counts: the number of occurrences of each character, sorted by code point.
        """
        self._path, self._newlines, self._stamp = path, newlines, stamp
        self._sha256, self._counts = sha256, counts
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

    @property
    def sha256(self) -> str:
        """SHA-256 of the text's UTF-8, in hexadecimal.

        Raises:
            UsageError: the file has changed, or can no longer be read.
        """
        with self._opened():
            return self._sha256

    @property
    def counts(self) -> dict[str, int]:
        """The number of occurrences of each character, sorted by code point.

        Raises:
            UsageError: the file has changed, or can no longer be read.
        """
        with self._opened():
            return self._counts

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
        with self._opened() as file:
            file.seek(begin)
            return file.read(end - begin)

    @contextmanager
    def _opened(self) -> Generator[BinaryIO]:
        with opened(self._path, N_("{path}: can no longer be read ({reason})")) as file:
            if stamp_of(file.fileno()) != self._stamp:
                raise changed(self._path)
            yield file


@dataclass(frozen=True)
class FileText:
    """The text of a file of a large folder: it is read whole whenever it is needed.

    Attributes:
        read: reads it; refuses a file that has changed.
        length: its number of characters.
    """

    read: Callable[[], str]
    length: int

    def __len__(self) -> int:
        """Number of characters."""
        return self.length

    def __getitem__(self, where: slice) -> str:
        """A slice of characters."""
        return self.read()[where]

    def pieces(self) -> Iterator[str]:
        """The whole text, in one piece."""
        yield self.read()


@checked(first=["__init__"])
class JoinedText:
    """Texts one after the other with a separator between them, sliced like a str; `joined_text` makes it."""

    def __init__(self, parts: "Sequence[Text]", separator: str) -> None:
        """Join these texts; at least one."""
        self._parts, self._separator = parts, separator
        self._begins = [0, *accumulate(len(part) + len(separator) for part in parts)]
        self._recent: dict[int, Text] = {}
        self._counts: dict[str, int] | None = None

    def __len__(self) -> int:
        """Number of characters."""
        return self._begins[-1] - len(self._separator)

    @property
    def counts(self) -> dict[str, int]:
        """The number of occurrences of each character, sorted by code point; counted once."""
        if self._counts is None:
            self._counts = character_counts(self.pieces())
        return self._counts

    def __getitem__(self, where: slice) -> str:
        """A slice of characters, with step 1.

        Raises:
            UsageError: a file has changed, or can no longer be read.
        """
        begin, end, step = where.indices(len(self))
        if step != 1:
            raise TypeError("a slice of a joined text must have step 1")
        if begin >= end:
            return ""
        first, last = (bisect_right(self._begins, place) - 1 for place in (begin, end - 1))
        return "".join(self._slice(number, begin, end) for number in range(first, last + 1))

    def pieces(self) -> Iterator[str]:
        """The whole text in order, at least about a million characters at a time."""
        held, size = list[str](), 0
        for number in range(len(self._parts)):
            last = number + 1 == len(self._parts)
            for piece in chain(pieces(self._part(number)), [] if last else [self._separator]):
                held += [piece] if piece else []
                size += len(piece)
                if size >= PIECE and not held[-1].endswith("\r"):
                    yield "".join(held)
                    held, size = [], 0
        if held:
            yield "".join(held)

    def _slice(self, number: int, begin: int, end: int) -> str:
        """The characters from begin to end that belong to this text and the separator after it."""
        first, length = self._begins[number], len(self._parts[number])
        begin, end = max(begin - first, 0), end - first
        text = self._part(number)[begin:end] if begin < length else ""
        return text + self._separator[max(begin - length, 0) : max(end - length, 0)]

    def _part(self, number: int) -> "Text":
        part = self._parts[number]
        if not isinstance(part, FileText):
            return part
        if number not in self._recent:
            while len(self._recent) >= _KEPT:
                del self._recent[next(iter(self._recent))]
            self._recent[number] = part.read()
        return self._recent[number]


@runtime_checkable
class StoredText(Protocol):
    """A text that is made from something else when it is needed, sliced like a str."""

    def __len__(self) -> int:
        """Number of characters."""
        ...

    def __getitem__(self, where: slice) -> str:
        """A slice of characters, with step 1."""
        ...

    def pieces(self) -> Iterator[str]:
        """The whole text in order."""
        ...


Text = str | LongText | FileText | JoinedText | StoredText
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
    return JoinedText(texts, separator)


def in_lines(text: str, newlines: str) -> str:
    r"""The text with `\n` for `\r\n` and a lone `\r`, if `newlines` is `"lf"`."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if newlines == "lf" and "\r" in text else text


def bytes_in_lines(raw: bytes, newlines: str) -> bytes:
    """The same for UTF-8; `raw` itself if nothing changes."""
    return raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if newlines == "lf" and b"\r" in raw else raw


def hash_text(text: Text) -> str:
    """SHA-256 of the text's UTF-8, in hexadecimal.

    >>> hash_text("") == hashlib.sha256().hexdigest()
    True
    """
    if isinstance(text, LongText):
        return text.sha256
    digest = hashlib.sha256()
    for piece in pieces(text):
        digest.update(utf8(piece))
    return digest.hexdigest()


def text_counts(texts: Iterable[Text]) -> dict[str, int]:
    """The number of occurrences of each character in all texts together, sorted by code point.

    >>> text_counts(["ab", "b"])
    {'a': 1, 'b': 2}
    """
    together = Counter[str]()
    for text in texts:
        known = isinstance(text, LongText | JoinedText)
        together.update(text.counts if known else character_counts(pieces(text)))
    return dict(sorted(together.items()))
