"""What the statistics promise, counted over 2,000 simulated studies that go through the library's own comparison.

A study is five arms that share one base, each run from five seeds: the loss of arm a from seed s is a part that the
seed gives to all arms alike plus noise of the run's own, N(0, 1). Pairing takes the first out. The difference of an arm
to the base is then N(planted, 2) at each seed, and since all differences hold the same base run they are correlated
(1/2), as in a real study.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from jaxtyping import Float
from scipy import stats
from scipy.special import ndtr

from vitral.studies import StudyResult
from vitral.studies.comparison import compare
from vitral.studies.statistics import holm, paired_difference
from vitral.studies.verdict import LEVEL

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
    values = [paired_difference(*pair).p_value for pair in zip(arm.tolist(), base.tolist(), strict=True)]
    return [math.nan if value is None else value for value in values]


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
    corrected = np.mean([min(holm(row)) < LEVEL for row in null.tolist()])
    assert corrected <= MOST_FALSE
    assert uncorrected > 2 * MOST_FALSE  # what the correction is for


def test_a_difference_of_two_standard_deviations_is_found_at_five_seeds(planted: PValues) -> None:
    """The power is that of the noncentral t: P(|T| > c), T with 4 degrees of freedom and noncentrality 2√5 (0.91)."""
    found = (planted[:, 0] < LEVEL).mean()
    assert found >= 0.88
    assert_near(found, noncentral_power(LEVEL))


@pytest.mark.parametrize("claimed", range(ARMS))
def test_under_holm_it_is_found_as_often_as_the_noncentral_t_says(planted: PValues, claimed: int) -> None:
    """Exactly, when the other comparisons are settled in advance.

    With k of the m - 1 others sure to be claimed (p = 0) and the rest sure not to be (p = 1), Holm tests the planted
    one at LEVEL / (m - k), whatever k: its power is that of one comparison at that level.
    """
    others = [0.0] * claimed + [1.0] * (ARMS - 1 - claimed)
    found = np.mean([holm([p, *others])[0] < LEVEL for p in planted[:, 0].tolist()])
    assert_near(float(found), noncentral_power(LEVEL / (ARMS - claimed)))


def test_under_holm_it_is_found_among_four_that_do_not_differ_as_often_as_theory_says(planted: PValues) -> None:
    """Where the others too are left to chance, and correlated through the base they share."""
    found = np.mean([holm(row)[0] < LEVEL for row in planted.tolist()])
    power = holm_power()
    assert_near(float(found), power)
    # Never below the most careful test, nor above a single comparison.
    assert noncentral_power(LEVEL / ARMS) < power < noncentral_power(LEVEL)


def test_a_whole_study_claims_what_its_p_values_say(made: Callable[..., StudyResult], planted: PValues) -> None:
    """`compare` gives these p values, corrected over its arms: shown on studies enough to hold both outcomes."""
    template = made({"full": [1.0] * SEEDS, "no-attention": [1.0] * SEEDS})
    values = with_a_difference(losses())[:60]
    outcomes = set()
    for study, row in zip(values, planted.tolist(), strict=False):
        adjusted = [comparison.adjusted_p for comparison in compare(with_losses(template, study))]
        assert adjusted == [None, *holm(row)]
        outcomes.add(adjusted[1] is not None and adjusted[1] < LEVEL)
    assert outcomes == {True, False}


def with_losses(template: StudyResult, values: Float[np.ndarray, "arms seeds"]) -> StudyResult:
    """The template's study with as many arms as there are rows, and these losses."""
    arms = []
    for index, row in enumerate(values.tolist()):
        like = template.arms[min(index, 1)]
        arm = like.arm.model_copy(update={"name": f"arm-{index}"})
        runs = tuple(replace(run, test_loss=loss) for run, loss in zip(like.runs, row, strict=True))
        arms.append(replace(like, arm=arm, runs=runs))
    return replace(template, arms=tuple(arms))


def assert_near(share: float, power: float) -> None:
    """Within three standard errors of a share of so many studies."""
    assert abs(share - power) <= 3 * math.sqrt(power * (1 - power) / STUDIES), (share, power)


def noncentral_power(level: float) -> float:
    """P(p < level) of the paired t test: T = √n · mean / s is noncentral t with δ = √n · (difference / deviation)."""
    delta, freedom = 2 * math.sqrt(SEEDS), SEEDS - 1
    critical = stats.t.isf(level / 2, freedom)
    return float(stats.nct.sf(critical, freedom, delta) + stats.nct.cdf(-critical, freedom, delta))


def holm_power() -> float:
    """How often Holm finds the planted one of m = 5 comparisons when the other four are null, by integration.

    All differences share the base's n runs. Given these, the arms are independent, and the base matters only by its
    mean b ~ N(0, 1/n) and by its sum of squares about it, q ~ χ²(n - 1). An arm's difference then has

        mean ~ N(planted - b, 1/n),  sum of squares about its mean ~ noncentral χ²(n - 1; q),  independently,

    so P(p < a | b, q) is one integral over the second. Let a_i = LEVEL / (m - i + 1) and let j be the largest number
    such that the i-th smallest p of the others is below a_i for all i ≤ j. Holm claims the planted one if and only if
    its own p is below a_{j+1}. Given (b, q) the others are alike and independent, so the chance of each j follows by
    counting, level by level, how many of them lie below a_i. The mean over b and q is taken at the nodes of Gauss's
    quadrature.
    """
    levels = [LEVEL / (ARMS - i) for i in range(ARMS)]
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    means = list(zip(nodes / math.sqrt(SEEDS), weights / weights.sum(), strict=True))
    power = 0.0
    for square, share in _chi_square_nodes(24):
        spread = _noncentral_nodes(square)
        for mean, weight in means:
            of_planted = [_below(level, PLANTED - mean, spread) for level in levels]
            of_null = [_below(level, -mean, spread) for level in levels]
            power += share * weight * _claimed(of_planted, of_null)
    return power


def _chi_square_nodes(num: int) -> list[tuple[float, float]]:
    """Values of q ~ χ²(n - 1) at the middles of `num` equally likely parts, each with its share."""
    shares = (np.arange(num) + 0.5) / num
    return [(float(stats.chi2.ppf(share, SEEDS - 1)), 1 / num) for share in shares]


def _noncentral_nodes(square: float, num: int = 200) -> Float[np.ndarray, " nodes"]:
    """Standard deviations of the differences, s = √(SS/(n - 1)), at equally likely parts of SS ~ χ²(n - 1; q)."""
    shares = (np.arange(num) + 0.5) / num
    return np.sqrt(stats.ncx2.ppf(shares, SEEDS - 1, square) / (SEEDS - 1))


def _below(level: float, mean: float, spread: Float[np.ndarray, " nodes"]) -> float:
    """P(p < level | b, q): the arm's mean is N(mean, 1/n) and must lie beyond c · s / √n."""
    ends = _critical(level) * spread
    shift = mean * math.sqrt(SEEDS)
    return float(np.mean(ndtr(shift - ends) + ndtr(-shift - ends)))


@cache
def _critical(level: float) -> float:
    """Beyond which |t| has a p below the level."""
    return float(stats.t.isf(level / 2, SEEDS - 1))


def _claimed(of_planted: list[float], of_null: list[float]) -> float:
    """Σ_j P(j) P(p of the planted one < a_{j+1}), the others m - 1 independent ones with P(p < a_i) = of_null[i]."""
    others = len(of_planted) - 1
    going = {0: 1.0}  # how many of the others lie below the level before, with its chance, while all went on
    claimed, before = 0.0, 0.0
    for place, (mine, below) in enumerate(zip(of_planted, of_null, strict=True), start=1):
        step = (below - before) / (1 - before)
        then: dict[int, float] = {}
        for count, chance in going.items():
            for more in range(others - count + 1):
                binomial = math.comb(others - count, more) * step**more * (1 - step) ** (others - count - more)
                then[count + more] = then.get(count + more, 0.0) + chance * binomial
        # Fewer than `place` below this level: j = place - 1, and the planted one is tested here.
        claimed += mine * sum(chance for count, chance in then.items() if count < place)
        going = {count: chance for count, chance in then.items() if count >= place}
        before = below
    return claimed
