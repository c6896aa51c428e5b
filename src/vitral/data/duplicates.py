"""How much of the test split also occurs in the training split, found by hashes of windows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt64

from vitral.data.alphabet import code_points
from vitral.data.in_order import in_order
from vitral.data.long_texts import Text
from vitral.data.split import Blocks

_MOST = 1 << 20
"""Characters of the test split that are compared; of a longer one, evenly spaced blocks."""
_CHUNK = 1 << 20
_BASE, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)
_FILTER_SHIFT = np.uint64(64 - 24)


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

    Windows stay within runs of adjacent blocks of their split.

    Args:
        text: the whole text.
        blocks: split -> its blocks, from `split_corpus`.
        length: characters of a window.
    """
    stride = -(-blocks["test"].num_characters // _MOST)
    test = list(_stretches(text, blocks["test"].chosen(slice(None, None, stride)), length))
    starts = np.concatenate([np.arange(begin, begin + len(piece) - length + 1) for begin, piece in test])
    hashes = np.concatenate([window_hashes(piece, length) for _, piece in test])
    distinct, inverse = np.unique(hashes, return_inverse=True)
    maybe = np.zeros(1 << 24, dtype=bool)
    maybe[distinct >> _FILTER_SHIFT] = True

    def found_among(stretch: tuple[int, str]) -> Int[np.ndarray, " found"]:
        some = window_hashes(stretch[1], length)
        some = some[maybe[some >> _FILTER_SHIFT]]  # the table rejects most; only the rest are searched for
        place = np.minimum(np.searchsorted(distinct, some), distinct.size - 1)
        return place[distinct[place] == some]

    is_found = np.zeros(distinct.size, dtype=bool)
    for places in in_order(found_among, _stretches(text, blocks["train"], length)):
        is_found[places] = True
    both = is_found[inverse]
    if not both.any():
        return Duplicates(length, 0.0, "")
    first = int(starts[both.argmax()])
    return Duplicates(length, float(both.mean()), text[first : first + length])


def _stretches(text: Text, blocks: Blocks, length: int) -> Iterator[tuple[int, str]]:
    """The runs of blocks, each with its place, cut so that every window lies in one of the pieces."""
    for begin, end in blocks.runs():
        for at in range(begin, end, _CHUNK):
            yield at, text[at : min(at + _CHUNK + length - 1, end)]


def window_hashes(text: str, length: int) -> UInt64[np.ndarray, " windows"]:
    """A 64-bit hash of every window of `length` characters, indexed by first character.

    A window is hashed as two shorter ones that cover it: O(characters · log length) operations.
    """
    hashes, size = _mixed(code_points(text).astype(np.uint64)), 1
    while size < length:
        step = min(size, length - size)
        hashes, size = _mixed(hashes[:-step] * _BASE + hashes[step:]), size + step
    return hashes


def _mixed(values: np.ndarray) -> np.ndarray:
    values = (values + np.uint64(1)) * _BASE
    return values ^ (values >> _SHIFT)
