"""The n-gram counts that a page carries: those of the run's training split, as few bytes as a page can have.

Each order is a level of a tree: an n-gram stands below its first n - 1 tokens, in increasing order of its last token.
Of every order there are three lists of whole numbers, in the order of the n-grams: how many n-grams stand below each
one of the order before; the last token of each, less the one before it below the same; how often each occurs, less 1.
A number is written in groups of seven bits, the lowest first; all together are compressed by zlib.
"""

import base64
import zlib
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Int

from vitral.data import Split
from vitral.evaluation.ngrams import Counts, WittenBell, counted_parts, counts_by_order

MOST_LETTERS = 100_000
"""Of the counts in base64; the page has the highest order within this."""
MOST_ORDER = 6
"""The highest order of a run's baselines."""
_LEVEL = 9
_GROUP = 7


def carried_counts(train: Split, test: Split, vocab_size: int) -> tuple[dict[str, Any], WittenBell] | None:
    """The counts of the highest order that fits into a page (`CountsData` in web/src/page/ngrams.ts).

    Args:
        train: the split that is counted.
        test: the split on which the run's baselines are scored; very long splits are counted in part, as for these.
        vocab_size: number of tokens in the vocabulary.

    Returns:
        `order`; `vocabulary`; `counted`, the number of counted tokens; `grams`, the number of n-grams of each order;
        `data`, the counts in base64; and the model of these counts. None if not even single tokens fit.
    """
    train, _, _ = counted_parts(train, test)
    kept, data = list[Counts](), b""
    packer, written = zlib.compressobj(_LEVEL), b""
    for counts in islice(counts_by_order(train, vocab_size), MOST_ORDER):
        written += packer.compress(_written(counts, vocab_size))
        packed = written + packer.copy().flush()
        if -(-len(packed) // 3) * 4 > MOST_LETTERS:
            break
        kept.append(counts)
        data = packed
    if not kept:
        return None
    found = {
        "order": len(kept),
        "vocabulary": vocab_size,
        "counted": int((train.segments[:, 1] - train.segments[:, 0]).sum()),
        "grams": [len(each.keys) for each in kept],
        "data": base64.b64encode(data).decode("ascii"),
    }
    return found, WittenBell.of_counts(kept, vocab_size)


def _written(counts: Counts, vocab_size: int) -> bytes:
    """The three lists of one order."""
    holders, tokens = np.divmod(counts.keys, vocab_size)
    is_first = np.ones(len(holders), dtype=bool)
    is_first[1:] = holders[1:] != holders[:-1]
    steps = np.where(is_first, tokens, np.diff(tokens, prepend=0))
    return b"".join(map(_groups, (counts.context_kinds, steps, counts.counts - 1)))


def _groups(numbers: Int[np.ndarray, " numbers"]) -> bytes:
    """Whole numbers, each in as many groups of seven bits as it needs; the highest bit says that another follows."""
    numbers = numbers.astype(np.int64)
    sizes = np.ones(len(numbers), dtype=np.int64)
    rest = numbers >> _GROUP
    while rest.any():
        sizes += rest > 0
        rest >>= _GROUP
    begins = np.cumsum(sizes) - sizes
    written = np.zeros(int(sizes.sum()), dtype=np.uint8)
    for place in range(int(sizes.max(initial=0))):
        has = sizes > place
        more = np.where(sizes[has] > place + 1, 1 << _GROUP, 0)
        written[begins[has] + place] = (numbers[has] >> (_GROUP * place)) & 127 | more
    return written.tobytes()
