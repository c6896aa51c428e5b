"""Smoothed n-grams in a process of their own: `python -m benchmarks.peers.counting ORDER`.

Prints one line of JSON: the time right after counting, the test loss, measured after it, and how many counts are kept.
"""

import json
import sys
import time

import numpy as np

from vitral.data import CorpusConfig, Split, prepare
from vitral.evaluation import WittenBell


def stored_counts(part: Split, order: int) -> int:
    """Number of distinct n-grams of orders 1 to `order` in a split, none across the border of a segment."""
    return sum(_distinct(part, length) for length in range(1, order + 1))


def _distinct(part: Split, length: int) -> int:
    rows = []
    for begin, end in part.segments.tolist():
        if end - begin >= length:
            rows.append(np.lib.stride_tricks.sliding_window_view(np.asarray(part.tokens[begin:end]), length))
    if not rows:
        return 0
    grams = np.concatenate(rows)
    base = int(part.tokens.max()) + 1
    # Up to nine characters of an alphabet below 128 fit one integer.
    if length * np.log2(base) >= 63:
        return len(np.unique(grams, axis=0))
    return len(np.unique(grams.astype(np.int64) @ (base ** np.arange(length, dtype=np.int64))))


def main() -> None:
    """Count, look at the clock, measure, print."""
    order = int(sys.argv[1])
    dataset = prepare(CorpusConfig(source="shakespeare"))
    began = time.time()
    model = WittenBell(dataset.splits["train"], dataset.tokenizer.vocab_size, order)
    ended = time.time()
    loss = float(model.nats(dataset.splits["test"])[-1].mean())
    counts = stored_counts(dataset.splits["train"], order)
    result = {"unix": ended, "test_loss": loss, "counts": counts, "counting_seconds": round(ended - began, 3)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
