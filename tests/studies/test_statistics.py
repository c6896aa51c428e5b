"""Intervals, paired tests and Holm's correction: by hand, against scipy, and by what they promise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vitral.core.errors import UsageError
from vitral.studies.statistics import holm, mean_interval, paired_difference

p_values = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=7)


def test_an_interval_worked_by_hand() -> None:
    # mean 5, deviations -2 0 2, s = 2, s/sqrt(3) = 1.1547, t(0.975, 2) = 4.3027
    interval = mean_interval([3.0, 5.0, 7.0])
    assert interval.mean == 5.0
    assert interval.low == pytest.approx(5 - 4.968, abs=5e-4)
    assert interval.high == pytest.approx(5 + 4.968, abs=5e-4)
    assert interval.num == 3


def test_a_paired_difference_worked_by_hand() -> None:
    # differences 1, 2, 3: mean 2, s = 1, t = 2/(1/sqrt(3)) = 3.4641, p = 1 - t/sqrt(t^2+2) = 0.0742 for two degrees
    paired = paired_difference([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert paired.difference.mean == 2.0
    assert paired.percent == pytest.approx(100.0)
    assert paired.p_value == pytest.approx(1 - math.sqrt(12 / 14), abs=1e-12)
    assert paired.difference.low == pytest.approx(2 - 4.3027 / math.sqrt(3), abs=1e-4)


@pytest.mark.parametrize("num", [2, 3, 5, 7, 11])
def test_agrees_with_scipy(num: int) -> None:
    generator = np.random.default_rng(num)
    base = generator.uniform(0.5, 5.0, size=num).tolist()
    arm = [value + generator.normal(0.1, 0.3) for value in base]
    paired = paired_difference(arm, base)
    reference = stats.ttest_rel(arm, base)
    ends = reference.confidence_interval(0.95)
    assert paired.p_value == pytest.approx(reference.pvalue, rel=1e-6, abs=1e-12)
    assert paired.difference.low == pytest.approx(ends.low, rel=1e-6, abs=1e-9)
    assert paired.difference.high == pytest.approx(ends.high, rel=1e-6, abs=1e-9)


def test_the_interval_excludes_zero_exactly_where_p_is_below_the_level() -> None:
    generator = np.random.default_rng(11)
    for _ in range(200):
        base = generator.normal(size=5)
        paired = paired_difference(list(base + generator.normal(0.5, 0.5, size=5)), list(base))
        assert paired.difference.low is not None
        assert paired.difference.high is not None
        assert paired.p_value is not None
        assert (paired.p_value < 0.05) == (paired.difference.low > 0 or paired.difference.high < 0)


def test_one_seed_gives_no_interval_and_no_p_value() -> None:
    paired = paired_difference([2.0], [1.0])
    assert (paired.difference.low, paired.difference.high, paired.p_value) == (None, None, None)
    assert paired.difference.mean == 1.0


def test_differences_without_spread() -> None:
    assert paired_difference([2.0, 3.0], [1.0, 2.0]).p_value == 0.0
    assert paired_difference([2.0, 3.0], [2.0, 3.0]).p_value == 1.0


def test_without_a_true_difference_about_one_in_twenty_is_claimed() -> None:
    generator = np.random.default_rng(5)
    tries, claimed, covered = 2000, 0, 0
    for _ in range(tries):
        seeds = generator.normal(2.0, 0.5, size=3)
        base, arm = (seeds + generator.normal(0, 0.1, size=3) for _ in range(2))
        paired = paired_difference(list(arm), list(base))
        assert paired.p_value is not None
        assert paired.difference.low is not None
        assert paired.difference.high is not None
        claimed += paired.p_value < 0.05
        covered += paired.difference.low <= 0 <= paired.difference.high
    # Three standard deviations of a share of 0.05 in 2000 tries are 0.015.
    assert abs(claimed / tries - 0.05) < 0.015
    assert claimed + covered == tries


def test_holm_worked_by_hand() -> None:
    # In order 0.01, 0.03, 0.04: times 3, 2, 1 gives 0.03, 0.06, 0.04, and none may fall below the one before.
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.7, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(p_values)
def test_holm_never_lowers_a_p_value_nor_changes_their_order(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(
        value <= new <= min(1.0, len(values) * value) + 1e-12 for value, new in zip(values, adjusted, strict=True)
    )
    for a in range(len(values)):
        for b in range(len(values)):
            if values[a] < values[b]:
                assert adjusted[a] <= adjusted[b]


@pytest.mark.parametrize(
    ("arm", "base", "complaint"),
    [
        ([1.0], [1.0, 2.0], "not 1 and 2"),
        ([], [], "no values"),
        ([float("nan")], [1.0], "not finite"),
        ([float("inf"), 1.0], [1.0, 1.0], "not finite"),
    ],
)
def test_what_cannot_be_compared_is_refused(arm: list[float], base: list[float], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        paired_difference(arm, base)


def test_a_confidence_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        mean_interval([1.0, 2.0], confidence=1.0)
