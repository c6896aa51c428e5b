"""Windows of whole contexts with their targets."""

import numpy as np
import pytest
import torch

from vitral.core.errors import UsageError
from vitral.data import Split
from vitral.inspection import scored_windows


def test_scored_windows_are_whole_and_within_a_segment() -> None:
    part = Split(np.arange(100, dtype=np.uint8), np.array([[0, 9], [9, 60], [60, 100]]))
    inputs, targets = scored_windows(part, 7, 5)
    assert inputs.shape == (5, 7)
    assert torch.equal(inputs + 1, targets)
    borders = torch.tensor([8, 59])
    assert not torch.isin(inputs, borders).any()
    with pytest.raises(UsageError, match="a window of context_length = 53 needs 54"):
        scored_windows(part, 53, 5)
