"""A trained model fills gaps of held-out text better than tables that count both sides of a gap."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import vitral
from vitral.evaluation import fill

SIDES = [(), (-1,), (-1, 1), (-2, -1, 1), (-2, -1, 1, 2), (-3, -2, -1, 1, 2), (-3, -2, -1, 1, 2, 3)]
"""Places around a gap, each a table that the next one backs off to."""
WINDOWS = 40


def table_nats(
    train: np.ndarray, test: np.ndarray, vocab: int, sides: Sequence[tuple[int, ...]]
) -> Iterator[np.ndarray]:
    """-log p(x | the tokens at its sides) of every token of a text by each table, smoothed after Witten and Bell."""
    probabilities = np.full(len(test), 1 / vocab)
    for positions in sides:
        seen, asked = (np.zeros(len(tokens), dtype=np.int64) for tokens in (train, test))
        for position in positions:
            seen, asked = seen * vocab + np.roll(train, -position), asked * vocab + np.roll(test, -position)
        grams, counts = np.unique(seen * vocab + train, return_counts=True)
        contexts, totals = np.unique(seen, return_counts=True)
        _, kinds = np.unique(grams // vocab, return_counts=True)
        count = _looked_up(grams, counts, asked * vocab + test)
        total, different = (_looked_up(contexts, each, asked) for each in (totals, kinds))
        smoothed = (count + different * probabilities) / np.maximum(total + different, 1)
        probabilities = np.where(total > 0, smoothed, probabilities)
        yield -np.log(probabilities)


def _looked_up(keys: np.ndarray, values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[at] == asked, values[at], 0)


def test_a_table_of_both_sides_by_hand() -> None:
    train, test = np.array([0, 1, 0, 1, 1, 0]), np.array([0, 1, 0])
    alone, between = table_nats(train, test, 2, [(), (-1, 1)])
    assert np.exp(-alone) == pytest.approx([(3 + 2 / 2) / (6 + 2)] * 3)
    assert np.exp(-between[1]) == pytest.approx((1 + 1 * 0.5) / (1 + 1))  # 0 x 0: once, x = 1


@pytest.mark.merge
@pytest.mark.parametrize(("steps", "sides"), [(400, 3), pytest.param(2500, 7, marks=pytest.mark.full)])
def test_a_model_fills_better_than_a_table_of_both_sides(steps: int, sides: int, tmp_path: Path) -> None:
    run = vitral.train(
        "fast",
        tmp_path / "run",
        corpus="sample",
        threads=1,
        training={"steps": steps, "evaluate_every": steps, "objective": {"name": "masked", "rate": 0.25}},
        model={"attention": {"mask": "bidirectional"}},
    )
    parts, length, masking = run.dataset().splits, run.model.config.context_length, run.masking
    assert masking is not None
    train, test = (
        np.concatenate([part.tokens[begin:end] for begin, end in part.segments]).astype(np.int64)
        for part in (parts["train"], parts["test"])
    )
    begins = np.linspace(0, len(test) - length, WINDOWS).astype(int)
    read = [run.tokenizer.decode(test[begin : begin + length]) for begin in begins]
    ours = np.mean([math.log(fill(run.model, run.tokenizer, text, masking).pseudo_perplexity) for text in read])
    counted = [*table_nats(train, test, run.tokenizer.vocab_size, SIDES[:sides])]
    theirs = [np.mean([table[begin : begin + length] for begin in begins]) for table in counted]
    print(f"model {ours:.3f}, tables", *(f"{each:.3f}" for each in theirs))
    assert ours < min(theirs)
