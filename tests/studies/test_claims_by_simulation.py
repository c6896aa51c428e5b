"""The promises of the judge of probes, counted over 2,000 simulated studies; losses have a test of their own.

A study is five arms that share one base, each run from five seeds: the loss of arm a from seed s is a part that the
seed gives to all arms alike plus noise of the run's own, N(0, 1). Pairing takes the first out. The difference of an arm
to the base is then N(planted, 2) at each seed, and since all differences hold the same base run they are correlated
(1/2), as in a real study.
"""

import math

import numpy as np
import pytest
from jaxtyping import Float
from scipy import stats

from vitral.studies.claims import LEVEL, Comparison, Quantity
from vitral.studies.judging import judge

STUDIES, SEEDS, ARMS = 2000, 5, 5
PLANTED = 2 * math.sqrt(2.0)
"""Two standard deviations of the paired difference, √2 each."""
MOST_FALSE = 0.065

Losses = Float[np.ndarray, "studies arms seeds"]
PValues = Float[np.ndarray, "studies comparisons"]


def losses() -> Losses:
    """Simulated losses in which no arm differs from the base; the base first."""
    generator = np.random.default_rng(1)
    shared = generator.normal(20.0, 3.0, size=(STUDIES, 1, SEEDS))
    return shared + generator.normal(size=(STUDIES, 1 + ARMS, SEEDS))


def with_a_difference(values: Losses) -> Losses:
    """The same, the first arm's losses `PLANTED` higher."""
    shift = np.zeros((1 + ARMS, 1))
    shift[1] = PLANTED
    return values + shift


def p_values(base: Float[np.ndarray, "studies seeds"], arm: Float[np.ndarray, "studies seeds"]) -> list[float]:
    """The library's p value of one comparison in every study, not corrected."""
    loss, found = Quantity("test loss", lambda _: None), []
    for one, other in zip(arm.tolist(), base.tolist(), strict=True):
        (claim,) = judge([Comparison("arm", "base", loss, dict(enumerate(one)), dict(enumerate(other)))])
        found.append(math.nan if claim.p is None else claim.p)
    return found


@pytest.fixture(scope="module")
def null() -> PValues:
    """p values of studies in which no arm differs from the base."""
    values = losses()
    return np.array([p_values(values[:, 0], values[:, arm]) for arm in range(1, 1 + ARMS)]).T


@pytest.fixture(scope="module")
def planted(null: PValues) -> PValues:
    """p values of the same studies with a difference planted in the first arm; the other arms' are what they were."""
    values = with_a_difference(losses())
    return np.concatenate([np.array(p_values(values[:, 0], values[:, 1]))[:, None], null[:, 1:]], axis=1)


def test_one_comparison_without_a_true_difference_is_claimed_at_most_as_often_as_promised(null: PValues) -> None:
    claimed = (null < LEVEL).mean(axis=0)
    assert claimed[0] <= MOST_FALSE
    # Three standard errors of a share of 0.05 in 2,000 studies are 0.0146: not far too careful either.
    assert np.abs(claimed - LEVEL).max() < 3 * math.sqrt(LEVEL * (1 - LEVEL) / STUDIES)


def test_any_of_five_comparisons_without_a_true_difference_is_claimed_at_most_as_often(null: PValues) -> None:
    uncorrected = (null.min(axis=1) < LEVEL).mean()
    corrected = (null.min(axis=1) < LEVEL / ARMS).mean()
    assert corrected <= MOST_FALSE
    assert uncorrected > 2 * MOST_FALSE  # what the correction is for


def test_a_difference_of_two_standard_deviations_is_found_at_five_seeds(planted: PValues) -> None:
    """The power is that of the noncentral t: P(|T| > c), T with 4 degrees of freedom and noncentrality 2√5 (0.91)."""
    found = (planted[:, 0] < LEVEL).mean()
    assert found >= 0.88
    assert_near(found, noncentral_power(LEVEL))


def test_corrected_it_is_found_as_often_as_the_noncentral_t_says(planted: PValues) -> None:
    """Bonferroni tests each of m comparisons at LEVEL / m, whatever the others are."""
    found = (planted[:, 0] < LEVEL / ARMS).mean()
    assert_near(found, noncentral_power(LEVEL / ARMS))


def assert_near(share: float, power: float) -> None:
    """Within three standard errors of a share of so many studies."""
    assert abs(share - power) <= 3 * math.sqrt(power * (1 - power) / STUDIES), (share, power)


def noncentral_power(level: float) -> float:
    """P(p < level) of the paired t test: T = √n · mean / s is noncentral t with δ = √n · (difference / deviation)."""
    delta, freedom = 2 * math.sqrt(SEEDS), SEEDS - 1
    critical = stats.t.isf(level / 2, freedom)
    return float(stats.nct.sf(critical, freedom, delta) + stats.nct.cdf(-critical, freedom, delta))
