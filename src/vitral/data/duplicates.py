"""How much of the held-out text stands word for word in the training text."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vitral.data.alphabet import code_points
from vitral.data.longtext import Text
from vitral.data.split import Blocks

_BASE = 0x9E3779B97F4A7C15
_FILTER_BITS = 24
_CHUNK = 1 << 20
_MAX_WINDOWS = 1 << 20


@dataclass(frozen=True)
class Duplicates:
    """Windows of the test part that also occur in the training part.

    Attributes:
        length: characters of a window.
        share: share of the test windows that occur in the training part, 0 to 1.
        example: the first of them, empty if there is none.
    """

    length: int
    share: float
    example: str


def duplicates_across(text: Text, blocks: Mapping[str, Blocks], length: int = 60) -> Duplicates:
    """Look up every window of the test part among those of the training part, by 64-bit hashes.

    Windows stay within runs of neighbouring blocks of their part. Of a test part of more than about a million
    characters, evenly spaced windows are taken.

    Args:
        text: the whole text.
        blocks: part -> its blocks, from `split_text`.
        length: characters of a window.
    """
    runs = {part: [(run[0][0], run[-1][1]) for run in blocks[part].runs()] for part in ("train", "test")}
    starts, hashes = _spaced_windows(text, runs["test"], length)
    distinct, inverse = np.unique(hashes, return_inverse=True)
    found = np.zeros(distinct.size, dtype=bool)
    maybe = np.zeros(1 << _FILTER_BITS, dtype=bool)
    maybe[_filter_index(distinct)] = True
    for begin, end in _chunks(runs["train"], length):
        train = window_hashes(text[begin:end], length)
        # Nearly all training windows fall through this table; only the few that do not are searched for.
        train = train[maybe[_filter_index(train)]]
        place = np.minimum(np.searchsorted(distinct, train), max(distinct.size - 1, 0))
        found[place[distinct[place] == train]] = True
    both = found[inverse]
    if not both.any():
        return Duplicates(length, 0.0, "")
    first = int(starts[both.argmax()])
    return Duplicates(length, float(both.mean()), text[first : first + length])


def _spaced_windows(text: Text, runs: list[tuple[int, int]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Where windows begin, and their hashes: all windows of some runs, or evenly spaced ones of many."""
    total = sum(max(0, end - begin - length + 1) for begin, end in runs)
    stride, passed = -(-total // _MAX_WINDOWS) or 1, 0
    starts, hashes = list[np.ndarray](), list[np.ndarray]()
    for begin, end in _chunks(runs, length):
        found = window_hashes(text[begin:end], length)
        first = -passed % stride
        starts.append(np.arange(begin + first, begin + found.size, stride))
        hashes.append(found[first::stride])
        passed += found.size
    return _concatenate(starts), _concatenate(hashes).astype(np.uint64)


def window_hashes(text: str, length: int) -> np.ndarray:
    """A 64-bit polynomial hash of every window of `length` characters, 1-d uint64, by its first character.

    The hash of a window is put together from those of its pieces whose lengths are powers of two, so the work is
    O(characters · log length).
    """
    piece = (code_points(text).astype(np.uint64) + np.uint64(1)) * np.uint64(_BASE)
    piece ^= piece >> np.uint64(29)
    size, whole, done = 1, np.zeros(piece.size + 1, dtype=np.uint64), 0
    while size <= length:
        if length & size:
            whole, done = _joined(whole, done, piece, size), done + size
        piece, size = _joined(piece, size, piece, size), 2 * size
    return whole


def _joined(left: np.ndarray, left_size: int, right: np.ndarray, right_size: int) -> np.ndarray:
    """Hashes of windows made of a left piece and the right piece after it."""
    count = max(min(left.size, right.size - left_size), 0)
    shift = np.uint64(pow(_BASE, right_size, 1 << 64))
    return left[:count] * shift + right[left_size : left_size + count]


def _filter_index(hashes: np.ndarray) -> np.ndarray:
    return hashes >> np.uint64(64 - _FILTER_BITS)


def _chunks(runs: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Runs cut into pieces of bounded size that overlap by all but one character of a window."""
    return [(at, min(at + _CHUNK + length - 1, end)) for begin, end in runs for at in range(begin, end, _CHUNK)]


def _concatenate(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)
