"""How much of the test split also occurs in the training split, found by hashes of windows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Int, UInt64

from vitral.data.alphabet import code_points
from vitral.data.in_order import in_order
from vitral.data.long_texts import Text
from vitral.data.split import Blocks

_BASES = {np.uint64: (0x9E3779B97F4A7C15, 29), np.uint32: (0x9E3779B1, 15)}
"""Base of the polynomial hashes of a width, and how far a character's number is shifted to mix it."""
_FILTER_BITS = 24
_CHUNK = 1 << 20
_MOST_WINDOWS, _CHOSEN = 1 << 20, 1 << 18
"""Test windows that are all compared; about how many are chosen of more."""
_FEW = 1000
"""With fewer distinct windows than this, those below a bound are too few to stand for all."""
_LARGEST = (1 << 64) - 1
_BEGINNING = 16
"""Characters of a window that decide whether it is compared, by a hash of 32 bits."""
_CACHED = 1 << 16
"""Characters whose hashes stay in a core's cache."""
_AT_ONCE = 1 << 13
"""Chosen windows whose characters are held at once."""

Found = TypeVar("Found")
Starts = Int[np.ndarray, " windows"]
Hashes = UInt64[np.ndarray, " windows"]


@dataclass(frozen=True)
class Duplicates:
    """Windows of the test split that also occur in the training split.

    Attributes:
        length: characters of a window.
        share: share of the test windows that occur in the training split, 0 to 1.
        example: the first such window, or empty.
    """

    length: int
    share: float
    example: str


def duplicates_across(text: Text, blocks: Mapping[str, Blocks], length: int = 60) -> Duplicates:
    """Compare the windows of the test split with those of the training split, by 64-bit hashes.

    Windows stay within runs of adjacent blocks of their split. Of a test split of more than about a million characters,
    only the windows whose beginning has a hash below a bound are compared, so that most training windows need neither a
    hash nor a search. Where a text repeats itself so much that these are few, evenly spaced windows are compared with
    all.

    Args:
        text: the whole text.
        blocks: split -> its blocks, from `split_corpus`.
        length: characters of a window.
    """
    windows = {split: _Windows(text, blocks[split], length) for split in ("train", "test")}
    test = windows["test"]
    stride = 1 if test.total <= _MOST_WINDOWS else -(-test.total // _CHOSEN)
    bound = _LARGEST // stride
    starts, hashes = test.below(bound)
    if stride > 1 and np.unique(hashes).size < _FEW:
        bound = _LARGEST
        starts, hashes = test.spaced(stride)
    distinct, inverse = np.unique(hashes, return_inverse=True)
    both = _occurring(distinct, windows["train"], bound)[inverse]
    if not both.any():
        return Duplicates(length, 0.0, "")
    first = int(starts[both.argmax()])
    return Duplicates(length, float(both.mean()), text[first : first + length])


class _Windows:
    """The windows of one split."""

    def __init__(self, text: Text, blocks: Blocks, length: int) -> None:
        self.text, self.length = text, length
        self.runs = [(run[0][0], run[-1][1]) for run in blocks.runs()]
        self.total = sum(max(0, end - begin - length + 1) for begin, end in self.runs)

    def below(self, bound: int) -> tuple[Starts, Hashes]:
        """Offsets and hashes of the windows whose beginning has a hash of at most this."""
        chosen = list(self.each(bound, lambda starts, hashes: (starts, hashes)))
        return _joint([starts for starts, _ in chosen], np.int64), _joint([hashes for _, hashes in chosen], np.uint64)

    def spaced(self, stride: int) -> tuple[Starts, Hashes]:
        """Offsets and hashes of evenly spaced windows."""
        starts, chosen, passed = list[np.ndarray](), list[np.ndarray](), 0
        for begins, hashes in self.each(_LARGEST, lambda starts, hashes: (starts, hashes)):
            first = -passed % stride
            starts.append(begins[first::stride])
            chosen.append(hashes[first::stride])
            passed += hashes.size
        return _joint(starts, np.int64), _joint(chosen, np.uint64)

    def each(self, bound: int, look: Callable[[Starts, Hashes], Found]) -> Iterator[Found]:
        """What `look` finds among the windows as of `below`, some chunks of the text at a time, in order."""

        def looked(chunks: list[tuple[int, str]]) -> Found:
            ends = np.cumsum([len(text) for _, text in chunks])
            moved = np.array([begin for begin, _ in chunks]) - ends + [len(text) for _, text in chunks]
            places, hashes = window_hashes_below(bound, "".join(text for _, text in chunks), self.length)
            chunk = np.searchsorted(ends, places, side="right")
            whole = places + self.length <= ends[chunk]  # the others begin in one chunk and end in the next
            return look((places + moved[chunk])[whole], hashes[whole])

        return in_order(looked, self._chunks())

    def _chunks(self) -> Iterator[list[tuple[int, str]]]:
        """Chunks of the runs with their offsets, about `_CHUNK` characters of them together."""
        chunks, size = list[tuple[int, str]](), 0
        for begin, end in _chunks(self.runs, self.length):
            chunks.append((begin, self.text[begin:end]))
            size += end - begin
            if size >= _CHUNK:
                yield chunks
                chunks, size = [], 0
        if chunks:
            yield chunks


def _occurring(distinct: Hashes, train: _Windows, bound: int) -> Bool[np.ndarray, " windows"]:
    """Which of these hashes are hashes of training windows."""
    maybe = np.zeros(1 << _FILTER_BITS, dtype=bool)
    maybe[_filter_index(distinct)] = True

    def found_among(_starts: Starts, hashes: Hashes) -> Int[np.ndarray, " found"]:
        hashes = hashes[maybe[_filter_index(hashes)]]  # the table rejects most; only the rest are searched for
        place = np.minimum(np.searchsorted(distinct, hashes), max(distinct.size - 1, 0))
        return place[distinct[place] == hashes]

    found = np.zeros(distinct.size, dtype=bool)
    for places in train.each(bound, found_among):
        found[places] = True
    return found


def window_hashes(text: str, length: int) -> Hashes:
    """A 64-bit polynomial hash of every window of `length` characters, indexed by first character.

    It takes O(characters · log length) operations.
    """
    return _hashes(code_points(text), length, np.uint64)


def window_hashes_below(bound: int, text: str, length: int) -> tuple[Int[np.ndarray, " chosen"], Hashes]:
    """First characters and hashes, as of `window_hashes`, of the windows whose beginning has a hash of at most this.

    Args:
        bound: of 64 bits; its upper half is compared.
        text: a text.
        length: characters of a window.
    """
    if bound == _LARGEST:
        hashes = window_hashes(text, length)
        return np.arange(hashes.size), hashes
    points, size = code_points(text), min(length, _BEGINNING)
    places = _places_below(np.uint32(bound >> 32), points[: max(0, points.size - length + size)], size)
    powers = np.array([pow(_BASES[np.uint64][0], power, 1 << 64) for power in reversed(range(length))], dtype=np.uint64)
    some = (places[at : at + _AT_ONCE, None] + np.arange(length) for at in range(0, places.size, _AT_ONCE))
    return places, _joint([_mixed(points[windows], np.uint64) @ powers for windows in some], np.uint64)


def _places_below(most: np.uint32, points: np.ndarray, size: int) -> Int[np.ndarray, " chosen"]:
    """Where the windows begin whose hash of 32 bits is at most this."""
    cuts = (range(begin, min(begin + _CACHED + size - 1, points.size)) for begin in range(0, points.size, _CACHED))
    chosen = [
        cut.start + np.flatnonzero(_hashes(points[cut.start : cut.stop], size, np.uint32) <= most) for cut in cuts
    ]
    return _joint(chosen, np.int64)


def _hashes(points: np.ndarray, length: int, width: type[np.unsignedinteger[Any]]) -> np.ndarray:
    """The polynomial hash of every window, from those of pieces whose lengths are powers of two."""
    piece, size = _mixed(points, width), 1
    whole, done = piece[:0], 0
    while True:
        if length & size:
            whole, done = _joined(whole, piece[done:], size) if done else piece, done + size
        if done == length:
            return whole[: max(0, points.size - length + 1)]
        piece, size = _joined(piece, piece[size:], size), 2 * size


def _mixed(points: np.ndarray, width: type[np.unsignedinteger[Any]]) -> np.ndarray:
    """One number for each character."""
    base, shift = _BASES[width]
    values = points.astype(width)
    values += width(1)
    values *= width(base)
    values ^= values >> width(shift)
    return values


def _joined(left: np.ndarray, right: np.ndarray, right_size: int) -> np.ndarray:
    """Hashes of windows that consist of a left piece and the right piece after it."""
    count, width = min(left.size, right.size), left.dtype.type
    joined = left[:count] * width(pow(_BASES[width][0], right_size, 1 << 8 * left.itemsize))
    joined += right[:count]
    return joined


def _filter_index(hashes: np.ndarray) -> np.ndarray:
    return hashes >> np.uint64(64 - _FILTER_BITS)


def _chunks(runs: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Runs cut into chunks of bounded size that overlap by `length` - 1 characters."""
    return [(at, min(at + _CHUNK + length - 1, end)) for begin, end in runs for at in range(begin, end, _CHUNK)]


def _joint(arrays: list[np.ndarray], dtype: type[np.generic]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=dtype)
