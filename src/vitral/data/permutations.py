"""A random order of many things without a list of them: a permutation that is computed, place by place."""

import numpy as np
from jaxtyping import Int

from vitral.core.streams import key

_ROUNDS = 8


def permuted(places: Int[np.ndarray, " places"], size: int, seed: int, *index: int | str) -> Int[np.ndarray, " places"]:
    """Where each place goes in a random permutation of 0 … size - 1, which depends only on the key (seed, index).

    A Feistel network (Luby & Rackoff 1988) of 8 rounds on an even number of bits. It permutes at most 4 · size numbers;
    a result of `size` or more goes through it again (cycle walking, Black & Rogaway 2002), on average at most three
    times.

    Args:
        places: int64, 0 to size - 1.
        size: numbers in the permutation, at most 2^62.
        seed: the run's seed.
        index: what the permutation is for.

    >>> sorted(permuted(np.arange(5), 5, 1, "pass", 0).tolist())
    [0, 1, 2, 3, 4]
    """
    half = np.uint64(max(1, -(-(size - 1).bit_length() // 2)))
    low = (np.uint64(1) << half) - np.uint64(1)
    keys = mixed(np.uint64(key(seed, "permutation", *index)) + np.arange(_ROUNDS, dtype=np.uint64))
    found = places.astype(np.uint64)
    moving = np.ones(found.size, dtype=bool)
    while moving.any():
        left, right = found[moving] >> half, found[moving] & low
        for each in keys:
            left, right = right, left ^ (mixed(right ^ each) & low)
        found[moving] = left << half | right
        moving = found >= np.uint64(size)
    return found.astype(np.int64)


def mixed(values: np.ndarray) -> np.ndarray:
    """Each 64-bit number's bits mixed: the last step of SplitMix64 (Steele, Lea & Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
