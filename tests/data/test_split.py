from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.data import BLOCK, SPLITS, split_text

GOLDEN = {"validation": [12], "test": [3, 18]}
"""Blocks held out of twenty: to change them is to change what every published loss means."""


@given(st.integers(15_000, 3_000_000))
def test_blocks_cover_the_text_once(num_characters):
    parts = split_text(num_characters, "blocks")
    assert tuple(parts) == SPLITS
    blocks = sorted(block for part in parts.values() for block in part)
    assert blocks[0][0] == 0
    assert blocks[-1][1] == num_characters
    assert all(left[1] == right[0] for left, right in pairwise(blocks))
    assert all(end - begin == BLOCK for begin, end in blocks[:-1])
    assert BLOCK <= blocks[-1][1] - blocks[-1][0] < 2 * BLOCK
    assert all(list(part) == sorted(part) for part in parts.values())


def test_the_split_never_changes():
    parts = split_text(20 * BLOCK, "blocks")
    assert {part: [begin // BLOCK for begin, _ in parts[part]] for part in ("validation", "test")} == GOLDEN


@given(st.integers(20, 1_000_000))
def test_tail_is_three_runs(num_characters):
    parts = split_text(num_characters, "tail")
    ((train,), (validation,), (test,)) = (list(parts[part].runs()) for part in SPLITS)
    end, begin = num_characters - num_characters // 10, num_characters - num_characters // 10 - num_characters // 20
    assert [train, validation, test] == [(0, begin), (begin, end), (end, num_characters)]
    assert all(0 < end - begin <= BLOCK for part in parts.values() for begin, end in part)


def test_a_text_that_is_too_short_says_what_it_needs():
    with pytest.raises(UsageError, match=r'14,999 characters.*needs at least 15,000.*split = "tail"'):
        split_text(14_999, "blocks")
    with pytest.raises(UsageError, match=r"19 characters.*needs at least 20"):
        split_text(19, "tail")
