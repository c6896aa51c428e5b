"""The Wilson interval of a share."""

import pytest
from scipy import stats

from vitral.inspection.classification import wilson


@pytest.mark.parametrize(
    ("right", "num", "confidence"), [(0, 10, 0.95), (15, 20, 0.95), (7, 7, 0.95), (123, 1024, 0.99)]
)
def test_it_is_scipys_where_successes_are_whole(right: int, num: int, confidence: float) -> None:
    expected = stats.binomtest(right, num).proportion_ci(confidence, method="wilson")
    assert wilson(right / num, num, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)
