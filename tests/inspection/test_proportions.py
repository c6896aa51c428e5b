"""The Wilson interval of a share."""

import numpy as np
import pytest
from scipy import stats

from vitral.core.errors import UsageError
from vitral.inspection.proportions import wilson


@pytest.mark.parametrize(
    ("right", "num", "confidence"), [(0, 10, 0.95), (15, 20, 0.95), (7, 7, 0.95), (123, 1024, 0.99)]
)
def test_it_is_scipys_where_successes_are_whole(right: int, num: int, confidence: float) -> None:
    expected = stats.binomtest(right, num).proportion_ci(confidence, method="wilson")
    assert wilson(right / num, num, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_it_is_that_of_the_tables() -> None:
    low, high = wilson(0.0, 10)
    assert (low, high) == (pytest.approx(0.0, abs=1e-12), pytest.approx(0.2775, abs=1e-4))
    assert wilson(15 / 20, 20) == (pytest.approx(0.5313, abs=1e-4), pytest.approx(0.8881, abs=1e-4))
    assert wilson(0.5, 10, 0.99)[0] < wilson(0.5, 10)[0]


def test_it_refuses_what_has_no_interval() -> None:
    for share, num, confidence in ((0.5, 0, 0.95), (1.2, 10, 0.95), (0.5, 10, 1.0)):
        with pytest.raises(UsageError, match=f"{num} trials"):
            wilson(share, num, confidence)


def test_it_contains_the_truth_as_often_as_it_says() -> None:
    draws = np.random.default_rng(2).binomial(60, 0.3, size=2000)
    held = [low <= 0.3 <= high for low, high in (wilson(count / 60, 60) for count in draws.tolist())]
    assert 0.93 <= np.mean(held) <= 0.97
