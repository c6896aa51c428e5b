from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vitral.core.errors import UsageError
from vitral.data import Batches, Split, windows


def part_of(*lengths: int) -> Split:
    """A part whose stretches have these lengths and whose tokens are their own indices."""
    ends = np.cumsum([0, *lengths])
    return Split(np.arange(ends[-1], dtype=np.uint16), np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64))


def make(part: Split, seed: int = 3) -> Batches:
    return Batches(part, context_length=5, batch_size=7, seed=seed)


def test_targets_are_the_tokens_after_the_inputs():
    inputs, targets = make(part_of(11, 13)).batch(0)
    assert inputs.shape == targets.shape == (7, 5)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_windows_are_counted_and_never_cross_a_stretch():
    batches = make(part_of(11, 5, 6, 13))
    assert batches.num_windows == (11 - 5) + 0 + 1 + (13 - 5)
    starts = {int(start) for step in range(200) for start in batches.batch(step)[0][:, 0]}
    assert starts == {*range(6), 16, *range(22, 30)}


def test_every_window_is_equally_likely():
    batches = make(part_of(11, 6, 13))
    drawn = Counter(int(start) for step in range(2_000) for start in batches.batch(step)[0][:, 0])
    assert len(drawn) == batches.num_windows
    assert stats.chisquare(list(drawn.values())).pvalue > 1e-4


def test_a_batch_is_a_function_of_seed_step_and_micro():
    part = part_of(500)
    forward = [make(part).batch(step)[0] for step in range(5)]
    backward = make(part)
    for step in reversed(range(5)):
        assert torch.equal(backward.batch(step)[0], forward[step])
    assert torch.equal(backward.batch(2, 0)[0], forward[2])
    different = [forward[2], forward[3], make(part).batch(2, 1)[0], make(part, seed=4).batch(2)[0]]
    assert len({tuple(batch.flatten().tolist()) for batch in different}) == 4


def test_a_part_without_a_window_says_what_it_needs():
    with pytest.raises(UsageError, match=r"context_length = 5 needs 6 tokens in a row, this split .* at most 5"):
        make(part_of(5, 4))
    assert make(part_of(6)).num_windows == 1


@pytest.mark.parametrize(("context_length", "batch_size"), [(0, 1), (1, 0), (-3, 2)])
def test_sizes_must_be_positive(context_length, batch_size):
    with pytest.raises(UsageError, match=r"(context_length|batch_size): "):
        Batches(part_of(9), context_length=context_length, batch_size=batch_size, seed=0)
    with pytest.raises(UsageError, match=r"(context_length|batch_size): "):
        next(windows(part_of(9), context_length, batch_size))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=7), st.integers(1, 11), st.integers(1, 5))
def test_every_token_but_the_first_of_a_stretch_is_a_target_once(lengths, context_length, batch_size):
    part = part_of(*lengths)
    seen: list[int] = []
    widths = []
    for inputs, targets in windows(part, context_length, batch_size):
        assert torch.equal(targets, inputs + 1)
        assert inputs.shape[0] <= batch_size
        widths.append(inputs.shape[1])
        seen += targets.flatten().tolist()
    firsts = set(part.segments[:, 0].tolist())
    assert sorted(seen) == [token for token in range(part.tokens.size) if token not in firsts]
    assert widths == sorted(widths, reverse=True)
    assert all(width <= context_length for width in widths)


def test_windows_worked_by_hand():
    batches = [inputs.tolist() for inputs, _ in windows(part_of(8, 6), 3, 2)]
    assert batches == [[[0, 1, 2], [3, 4, 5]], [[8, 9, 10]], [[11, 12]], [[6]]]
