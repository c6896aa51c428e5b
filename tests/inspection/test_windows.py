"""Test windows stay in their segment, are spread evenly and read the right tokens."""

import numpy as np
import pytest
import torch

from vitral.core.errors import UsageError
from vitral.data import Split
from vitral.inspection.targets import scored_windows, window_starts


def part(num: int, segments: int = 1) -> Split:
    """Random tokens in segments of equal length."""
    tokens = np.random.default_rng(num).integers(7, size=num).astype(np.uint8)
    ends = np.linspace(0, num, segments + 1).astype(np.int64)
    return Split(tokens, np.stack([ends[:-1], ends[1:]], axis=1))


def test_windows_stay_in_their_segment_and_are_spread() -> None:
    text = part(60, segments=3)
    assert window_starts(text, 9, 100, stride=8).tolist() == [0, 8, 20, 28, 40, 48]
    assert window_starts(text, 9, 3, stride=8).tolist() == [0, 20, 40]
    assert window_starts(text, 9, None, stride=5).tolist() == [0, 5, 10, 20, 25, 30, 40, 45, 50]
    assert len(window_starts(part(8), 9, 3, stride=8)) == 0


def test_scored_windows_are_whole_and_followed_by_their_targets() -> None:
    text = Split(np.arange(100, dtype=np.uint8), np.array([[0, 9], [9, 60], [60, 100]]))
    inputs, targets = scored_windows(text, 7, 5)
    assert inputs.shape == (5, 7)
    assert torch.equal(inputs + 1, targets)
    assert not torch.isin(inputs, torch.tensor([8, 59])).any()
    with pytest.raises(UsageError, match="a window of context_length = 53 needs 54"):
        scored_windows(text, 53, 5)
