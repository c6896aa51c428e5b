r"""The pre-split: cutting the text of files on disk into pieces whose tokens do not depend on the cuts.

The files, without byte order marks and with a separator between them, are one stream of bytes. Piece k begins at the
first place after byte k · `piece_bytes` at which a space or the end of a line follows a character that is no white
space. GPT-2's rule, by which byte-pair encoding divides a text into words, has a border at every such place, whatever
stands before and after, and characters and bytes have one everywhere: so the tokens of the pieces, one after the other,
are those of the whole text. Where no such place follows within `piece_bytes`, the piece begins at the first character
at or after its byte; this cut is counted, since a word may be cut there. No cut is inside a special token or `\r\n`.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from vitral.data.long_texts import in_lines
from vitral.data.opening import changed, opened, stamp_of
from vitral.data.special_tokens import outside_special_tokens

RULE = "before white space"
VERSION = 1
"""Of the rule: a store names it, so that a text is never cut by two."""

_PLACE = re.compile(r"\S(?=[ \n\r])")
_MOST_BYTES = 4
"""Of a character in UTF-8."""


@dataclass(frozen=True)
class SourceFile:
    """A file of the text.

    Attributes:
        path: the file.
        stamp: its size and modification time when it was read.
        mark: bytes of its byte order mark, which is not part of the text.
    """

    path: Path
    stamp: tuple[int, int]
    mark: int = 0


@dataclass(frozen=True)
class Stream:
    """The bytes of valid UTF-8 files, one after the other with a separator between them.

    Attributes:
        files: the files; none is empty.
        separator: text between them.
        newlines: `"lf"` or `"keep"`, see `CorpusConfig`.
        specials: special tokens, which no piece divides.
        piece_bytes: bytes of a piece, about.
    """

    files: tuple[SourceFile, ...]
    separator: str
    newlines: str
    specials: tuple[str, ...]
    piece_bytes: int

    @cached_property
    def _between(self) -> bytes:
        return self.separator.encode("utf-8")

    @cached_property
    def _begins(self) -> list[int]:
        """Where each file begins in the stream; and where another one would, after the last."""
        return [0, *accumulate(file.stamp[0] - file.mark + len(self._between) for file in self.files)]

    @property
    def num_bytes(self) -> int:
        """Bytes of the stream."""
        return self._begins[-1] - len(self._between)

    @property
    def num_pieces(self) -> int:
        """Number of pieces; the last is longer by what is left."""
        return max(1, self.num_bytes // self.piece_bytes)

    def piece(self, number: int) -> str:
        """The text of a piece.

        Raises:
            UsageError: a file has changed, or cannot be read.
        """
        parts = self._parts(self.begin(number)[0], self.begin(number + 1)[0])
        return "".join(in_lines(raw.decode("utf-8"), "keep" if between else self.newlines) for raw, between in parts)

    def begin(self, number: int) -> tuple[int, bool]:
        """The byte at which a piece begins (after the last, the end), and whether a word may be cut there."""
        if number == 0:
            return 0, False
        if number >= self.num_pieces:
            return self.num_bytes, False
        return self._cut(number * self.piece_bytes)

    def _cut(self, place: int) -> tuple[int, bool]:
        around = _MOST_BYTES * max((1, *map(len, self.specials)))
        first, last = max(0, place - around), min(self.num_bytes, place + self.piece_bytes + around)
        raw = b"".join(part for part, _ in self._parts(first, last))
        while _continues(raw, place - first):
            place += 1
        skipped = next(begin for begin in range(len(raw) + 1) if not _continues(raw, begin))
        before = raw[skipped : place - first].decode("utf-8")
        text = before + raw[place - first :].decode("utf-8", "ignore")  # the last character may be cut
        for found in _PLACE.finditer(text, len(before)):
            cut = place + len(text[len(before) : found.end()].encode("utf-8"))
            if cut >= place + self.piece_bytes - _MOST_BYTES:
                break
            if outside_special_tokens(text, found.end(), self.specials) == found.end():
                return cut, False
        border = len(before) + (text[len(before) - 1 : len(before) + 1] == "\r\n")
        border = outside_special_tokens(text, border, self.specials)
        return place + len(text[len(before) : border].encode("utf-8")), True

    def _parts(self, begin: int, end: int) -> Iterator[tuple[bytes, bool]]:
        """The bytes from `begin` to `end`, and whether they are of a separator rather than of a file."""
        number = bisect_right(self._begins, begin, hi=len(self.files)) - 1
        while begin < end:
            file, start = self.files[number], self._begins[number]
            inside = start + file.stamp[0] - file.mark
            if begin < inside:
                stop = min(end, inside)
                yield _read(file, begin - start, stop - start), False
                begin = stop
            if begin < end:
                stop = min(end, inside + len(self._between))
                yield self._between[begin - inside : stop - inside], True
                begin = stop
            number += 1


def _read(file: SourceFile, begin: int, end: int) -> bytes:
    with opened(file.path) as content:
        if stamp_of(content.fileno()) != file.stamp:
            raise changed(file.path)
        content.seek(file.mark + begin)
        return content.read(end - begin)


def _continues(raw: bytes, place: int) -> bool:
    """Whether the byte at this place is inside a character."""
    return place < len(raw) and raw[place] & 0b1100_0000 == 0b1000_0000


def cut_into(pieces: int, per_shard: int) -> Sequence[range]:
    """The pieces of each shard."""
    return [range(first, min(first + per_shard, pieces)) for first in range(0, pieces, per_shard)]
