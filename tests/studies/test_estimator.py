"""The estimator of losses: worked by hand, against scipy, and by its properties."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vitral.evaluation.intervals import LEVEL
from vitral.studies.estimator import DRAWS, differences, variances

SEEDS = 5


def table(arms: int, seeds: int, key: int = 1) -> np.ndarray:
    """Log losses of arms that share the seeds' effects."""
    generator = np.random.default_rng(key)
    return 0.5 + 0.1 * generator.standard_normal(seeds) + 0.01 * generator.standard_normal((arms, seeds))


@pytest.mark.parametrize("seeds", [3, 5, 7])
def test_two_arms_are_the_paired_t_test(seeds: int) -> None:
    values = table(2, seeds)
    (measured,) = differences(values, [(1, 0)])
    expected = stats.ttest_rel(values[1], values[0])
    low, high = expected.confidence_interval(0.95)
    assert measured.log_ratio == pytest.approx(np.mean(values[1] - values[0]))
    assert measured.freedom == pytest.approx(seeds - 1)
    assert measured.p == pytest.approx(expected.pvalue, abs=4 * math.sqrt(0.25 / DRAWS))
    assert measured.half == pytest.approx((high - low) / 2, rel=0.02)


@pytest.mark.parametrize("wild", [0, 1, 2])
@pytest.mark.parametrize("key", range(1, 6))
def test_of_three_arms_a_wild_one_leaves_the_others_what_their_difference_varies(wild: int, key: int) -> None:
    """Their variance is half that of their difference, the wild one keeps its own; by hand."""
    values = table(3, 6, key)
    values[wild] *= 20
    one, other = (arm for arm in range(3) if arm != wild)
    quiet = np.var(values[one] - values[other], ddof=1) / 2
    both = sum(np.var(values[arm] - values[wild], ddof=1) for arm in (one, other)) / 2
    measured = variances(values)
    assert measured.used[[one, other]] == pytest.approx(quiet)
    assert measured.used[wild] == pytest.approx(both - quiet)
    (beside,) = differences(values, [(one, other)])
    (alone,) = differences(values[[one, other]], [(0, 1)])
    assert beside.half < 1.2 * alone.half


def test_the_seed_has_no_part_in_a_difference() -> None:
    values = table(5, SEEDS)
    shifted = values + np.array([10.0, -7.0, 3.0, 0.0, 5.0])
    pairs = [(arm, 0) for arm in range(1, 5)]
    for one, other in zip(differences(values, pairs), differences(shifted, pairs), strict=True):
        assert one.log_ratio == pytest.approx(other.log_ratio)
        assert one.half == pytest.approx(other.half, rel=1e-6)
        assert one.p == pytest.approx(other.p, abs=1e-4)


def test_arms_without_any_spread_have_no_estimate() -> None:
    with pytest.raises(ZeroDivisionError):
        differences(np.repeat([[0.5], [0.7]], 3, axis=1), [(1, 0)])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 7),
    st.integers(3, 7),
    st.integers(0, 10_000),
    st.lists(st.floats(-0.2, 0.2), min_size=7, max_size=7),
    st.integers(0, 6),
)
def test_an_interval_excludes_zero_exactly_where_p_is_small(
    arms: int, seeds: int, key: int, shifts: list[float], rival: int
) -> None:
    """Also for contrasts with another rival than the first arm, and in any order of the family."""
    values = table(arms, seeds, key) + np.array(shifts[:arms])[:, None]
    rival %= arms
    pairs = [(arm, rival) for arm in range(arms) if arm != rival]
    judged = differences(values, pairs, 1999)
    for one in judged:
        assert (abs(one.log_ratio) > one.half) == (one.p < LEVEL)
        assert 0 < one.p <= 1
        assert one.detectable > one.half > 0
        assert seeds - 2 < 2 * one.freedom <= 2 * (seeds - 1) * arms
    mirrored = differences(values, [(other, one) for one, other in pairs], 1999)
    for one, other in zip(judged, mirrored, strict=True):
        assert one.log_ratio == -other.log_ratio
        assert one.half == pytest.approx(other.half)
