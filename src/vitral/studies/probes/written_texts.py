"""Measures of a text a model wrote: how much it repeats itself, how varied it is, and what it copies."""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt64

from vitral.evaluation import longest_copy

WORD = re.compile(r"\w+(?:['\N{RIGHT SINGLE QUOTATION MARK}]\w+)*")
LEAST_COPY = 6
"""Characters of a run worth following; texts that copy no run of so many are searched one by one."""
_BASE = np.uint64(0x9E3779B97F4A7C15)


def words(text: str) -> list[str]:
    """Runs of letters and digits in small letters, apostrophes inside them included.

    >>> words("O, 'tis THE king's!")
    ['o', 'tis', 'the', "king's"]
    """
    return WORD.findall(text.lower())


def distinct(items: Sequence[Hashable], n: int) -> float | None:
    """Different n-grams over all n-grams: distinct-n (Li et al. 2016, §5.2); None where there is no n-gram.

    >>> distinct("abab", 2)  # ab ba ab
    0.6666666666666666
    """
    grams = [tuple(items[begin : begin + n]) for begin in range(len(items) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None


def repeated_share(items: Sequence[Hashable], n: int) -> float:
    """The share of items that lie in an n-gram which has stood earlier in the same sequence.

    >>> repeated_share("abcdabc", 3)  # the second abc
    0.42857142857142855
    """
    seen: set[tuple[Hashable, ...]] = set()
    repeated = [False] * len(items)
    for begin in range(len(items) - n + 1):
        gram = tuple(items[begin : begin + n])
        if gram in seen:
            repeated[begin : begin + n] = [True] * n
        seen.add(gram)
    return sum(repeated) / len(items) if items else 0.0


def longest_loop(items: Sequence[Hashable]) -> int:
    """Items of the longest stretch that says the same thing at least twice in a row; 0 where there is none.

    A stretch loops with period p where every item equals the one p before it and at least two whole periods stand
    there.

    >>> longest_loop("xabcabcabd")  # abcabcab
    8
    """
    ids = np.unique([hash(item) for item in items], return_inverse=True)[1] if items else np.empty(0, np.int64)
    longest = 0
    for period in range(1, len(ids) // 2 + 1):
        run = _longest_run(ids[period:] == ids[:-period])
        if run >= period:
            longest = max(longest, run + period)
    return longest


@dataclass(frozen=True)
class Copied:
    """What one text copies.

    Attributes:
        longest: characters of its longest run that stands in the training text, as `longest_copy` finds it.
        novel: the share of its n-grams of characters that do not, as `novel_share` gives it; None for a text of fewer
            than n characters.
    """

    longest: int
    novel: float | None


def copied(texts: Sequence[str], training_text: str, n: int) -> list[Copied]:
    """What each of many texts copies, all found in one pass over the training text.

    Runs of LEAST_COPY characters, then longer and longer ones, are looked for by a 64-bit hash; those of the training
    text that no sample shares are dropped at each length, so that little is left to look at after the first. Two
    different runs have the same hash once in some 10¹⁰ searches.

    Args:
        texts: the samples.
        training_text: see `vitral.evaluation.training_text`.
        n: length of the novel pieces, in characters; at least LEAST_COPY.
    """
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    owner = np.repeat(np.arange(len(texts)), np.maximum(lengths - LEAST_COPY + 1, 0))
    offsets = np.concatenate([np.arange(max(length - LEAST_COPY + 1, 0)) for length in lengths.tolist()] or [[]])
    firsts = np.cumsum(lengths) - lengths
    samples, places = _codes("".join(texts)), (firsts[owner] + offsets).astype(np.int64)
    train = _codes(training_text)
    there = np.arange(max(len(train) - LEAST_COPY + 1, 0))
    size, found_at, old = LEAST_COPY, np.zeros(len(texts), dtype=np.int64), np.zeros(len(texts), dtype=np.int64)
    hashes, others = _hashes(samples, places, size), _hashes(train, there, size)
    while len(places) and len(there):
        kept, kept_there = _shared(hashes, others)
        owner, places, there = owner[kept], places[kept], there[kept_there]
        found_at[owner] = size
        if size == n:
            old = np.bincount(owner, minlength=len(texts))
        # One character more, where text and sample have one.
        room, room_there = places + size < (firsts + lengths)[owner], there + size < len(train)
        owner, places, there = owner[room], places[room], there[room_there]
        hashes = hashes[kept][room] * _BASE + samples[places + size]
        others = others[kept_there][room_there] * _BASE + train[there + size]
        size += 1
    results = []
    for text, longest, known in zip(texts, found_at.tolist(), old.tolist(), strict=True):
        grams = len(text) - n + 1
        novel = 1 - known / grams if grams > 0 else None
        results.append(Copied(longest or longest_copy(text, training_text).length, novel))
    return results


def _codes(text: str) -> UInt64[np.ndarray, " characters"]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64) + np.uint64(1)


def _hashes(
    codes: UInt64[np.ndarray, " characters"], places: Int[np.ndarray, " places"], size: int
) -> UInt64[np.ndarray, " places"]:
    """A polynomial hash, modulo 2^64, of the `size` characters at every place."""
    hashes = np.zeros(len(places), dtype=np.uint64)
    for offset in range(size):
        hashes = hashes * _BASE + codes[places + offset]
    return hashes


def _shared(
    few: UInt64[np.ndarray, " few"], many: UInt64[np.ndarray, " many"]
) -> tuple[Int[np.ndarray, " kept_few"], Int[np.ndarray, " kept_many"]]:
    """The places on either side whose hash stands on the other side too."""
    kinds, kind = np.unique(few, return_inverse=True)
    nearest = np.minimum(np.searchsorted(kinds, many), len(kinds) - 1)
    hit = kinds[nearest] == many
    there = np.zeros(len(kinds), dtype=bool)
    there[nearest[hit]] = True
    return np.flatnonzero(there[kind]), np.flatnonzero(hit)


def _longest_run(equal: np.ndarray) -> int:
    """The longest stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))
