"""How much one text repeats itself: distinct n-grams, repeated n-grams, loops."""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

WORD = re.compile(r"\w+(?:['\N{RIGHT SINGLE QUOTATION MARK}]\w+)*")


def split_words(text: str) -> list[str]:
    """Runs of letters and digits in lower case, with the apostrophes inside them.

    >>> split_words("O, 'tis THE king's!")
    ['o', 'tis', 'the', "king's"]
    """
    return WORD.findall(text.lower())


def distinct(items: Sequence[Hashable], n: int) -> float:
    """Distinct-n, different n-grams over all n-grams (Li et al. 2016, §5.2); 0 where there is no n-gram.

    A text that has fallen into blanks has no words. Were its diversity undefined, a mean over texts would leave out
    the least varied of them.

    >>> distinct("abab", 2)  # ab ba ab
    0.6666666666666666
    """
    grams = [tuple(items[begin : begin + n]) for begin in range(len(items) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 0.0


def repeated_share(items: Sequence[Hashable], n: int) -> float:
    """The share of items in an n-gram that occurred earlier in the same sequence.

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


@dataclass(frozen=True)
class Loop:
    """A stretch that is one piece repeated at least twice in a row.

    Attributes:
        length: items of the stretch; 0 where there is none.
        begin: index of its first item.
        period: items of the piece.
    """

    length: int = 0
    begin: int = 0
    period: int = 0


def find_loop(items: Sequence[Hashable]) -> Loop:
    """The longest loop; of equally long ones that of the shortest piece, then the first.

    A stretch loops with period p where every item equals the one p before it, over at least two whole periods.

    >>> find_loop("xabcabcabd")  # abcabcab
    Loop(length=8, begin=1, period=3)
    """
    ids = np.unique([hash(item) for item in items], return_inverse=True)[1] if items else np.empty(0, np.int64)
    longest = Loop()
    for period in range(1, len(ids) // 2 + 1):
        begin, run = _longest_run(ids[period:] == ids[:-period])
        if run >= period and run + period > longest.length:
            longest = Loop(run + period, begin, period)
    return longest


def _longest_run(equal: np.ndarray) -> tuple[int, int]:
    """Begin and length of the longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]]).astype(np.int8)))
    begins, lengths = edges[::2], edges[1::2] - edges[::2]
    if not len(lengths):
        return 0, 0
    place = int(lengths.argmax())
    return int(begins[place]), int(lengths[place])
