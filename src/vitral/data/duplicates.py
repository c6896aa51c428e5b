"""How much of the test split also occurs in the training split, found by hashes of windows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Int, UInt64

from vitral.data.alphabet import code_points
from vitral.data.in_order import in_order
from vitral.data.long_texts import Text
from vitral.data.split import Blocks

_BASE = 0x9E3779B97F4A7C15
_FILTER_BITS = 24
_CHUNK = 1 << 20
_MOST_WINDOWS, _CHOSEN = 1 << 20, 1 << 18
"""Test windows that are all compared; about how many of more are, evenly spaced ones."""

Found = TypeVar("Found")
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

    Windows stay within runs of adjacent blocks of their split. Of more than about a million windows of the test split,
    evenly spaced ones are compared.

    Args:
        text: the whole text.
        blocks: split -> its blocks, from `split_corpus`.
        length: characters of a window.
    """
    starts, hashes = _test_windows(text, blocks["test"], length)
    distinct, inverse = np.unique(hashes, return_inverse=True)
    maybe = np.zeros(1 << _FILTER_BITS, dtype=bool)
    maybe[_filter_index(distinct)] = True

    def places(_begin: int, hashes: Hashes) -> Int[np.ndarray, " found"]:
        hashes = hashes[maybe[_filter_index(hashes)]]  # the table rejects most; only the rest are searched for
        place = np.minimum(np.searchsorted(distinct, hashes), distinct.size - 1)
        return place[distinct[place] == hashes]

    found = np.zeros(distinct.size, dtype=bool)
    for each in _each(text, blocks["train"], length, places) if distinct.size else ():
        found[each] = True
    both = found[inverse]
    if not both.any():
        return Duplicates(length, 0.0, "")
    first = int(starts[both.argmax()])
    return Duplicates(length, float(both.mean()), text[first : first + length])


def _test_windows(text: Text, blocks: Blocks, length: int) -> tuple[Int[np.ndarray, " windows"], Hashes]:
    """First characters and hashes of the windows that are compared."""
    total = sum(max(0, run[-1][1] - run[0][0] - length + 1) for run in blocks.runs())
    stride = 1 if total <= _MOST_WINDOWS else -(-total // _CHOSEN)
    starts, chosen, passed = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint64)], 0
    for begin, hashes in _each(text, blocks, length, lambda begin, hashes: (begin, hashes)):
        places = np.arange(-passed % stride, hashes.size, stride)
        starts.append(begin + places)
        chosen.append(hashes[places])
        passed += hashes.size
    return np.concatenate(starts), np.concatenate(chosen)


def _each(text: Text, blocks: Blocks, length: int, look: Callable[[int, Hashes], Found]) -> Iterator[Found]:
    """What `look` finds among the windows that begin at a place and after it, chunk by chunk."""

    def chunks() -> Iterator[tuple[int, str]]:
        for run in blocks.runs():
            for begin in range(run[0][0], run[-1][1], _CHUNK):
                yield begin, text[begin : min(begin + _CHUNK + length - 1, run[-1][1])]

    return in_order(lambda chunk: look(chunk[0], window_hashes(chunk[1], length)), chunks())


def window_hashes(text: str, length: int) -> Hashes:
    """A 64-bit polynomial hash of every window of `length` characters, indexed by first character.

    It takes O(characters · log length) operations: those of pieces whose lengths are powers of two are joined.
    """
    piece = (code_points(text).astype(np.uint64) + np.uint64(1)) * np.uint64(_BASE)
    piece ^= piece >> np.uint64(29)
    whole, done, size = piece[:0], 0, 1
    while True:
        if length & size:
            whole, done = _joined(whole, piece[done:], size) if done else piece, done + size
        if done == length:
            return whole[: max(0, len(text) - length + 1)]
        piece, size = _joined(piece, piece[size:], size), 2 * size


def _joined(left: Hashes, right: Hashes, right_size: int) -> Hashes:
    """Hashes of windows that consist of a left piece and the right piece after it."""
    count = min(left.size, right.size)
    joined = left[:count] * np.uint64(pow(_BASE, right_size, 1 << 64))
    joined += right[:count]
    return joined


def _filter_index(hashes: Hashes) -> np.ndarray:
    return hashes >> np.uint64(64 - _FILTER_BITS)
