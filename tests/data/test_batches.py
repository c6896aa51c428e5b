from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vitral.core.errors import UsageError
from vitral.data import Batches, Split, windows
from vitral.data.batches import ShuffledBatches


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


def shuffled(part: Split, seed: int = 3, accumulation: int = 1) -> ShuffledBatches:
    return ShuffledBatches(part, context_length=5, batch_size=7, accumulation=accumulation, seed=seed)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(0, 5))
def test_each_window_of_a_pass_is_drawn_once_and_no_token_twice(lengths: list[int], seed: int):
    part = part_of(6, *lengths)
    batches = shuffled(part, seed)
    drawn = [row for step in range(2 * batches.num_windows // 7 + 1) for row in batches.batch(step)[1].tolist()]
    passes = [drawn[begin : begin + batches.num_windows] for begin in range(0, len(drawn), batches.num_windows)]
    for rows in passes[:-1]:
        targets = [token for row in rows for token in row]
        assert len(set(targets)) == len(targets)
        assert len(rows) == sum((length - 1) // 5 for length in (6, *lengths))
        for begin, end in part.segments.tolist():
            inside = [row for row in rows if begin <= row[0] < end]
            assert all(row[0] > begin and row[-1] < end for row in inside)
            assert len(inside) == (end - begin - 1) // 5


def test_a_shuffled_batch_is_a_function_of_its_step_and_accumulation_goes_on_with_the_pass():
    part = part_of(500)
    straight = [shuffled(part).batch(step)[0] for step in range(6)]
    assert all(torch.equal(shuffled(part).batch(step)[0], straight[step]) for step in reversed(range(6)))
    halves = shuffled(part, accumulation=2)
    assert all(torch.equal(halves.batch(step // 2, step % 2)[0], straight[step]) for step in range(6))
    with pytest.raises(UsageError, match="context_length = 5 needs 6"):
        shuffled(part_of(5, 4))
