"""The estimator of a study's losses: differences of arms with simultaneous intervals, from few seeds.

The model is additive on the log scale: the log loss of arm a from seed s is an arm's effect, plus an effect that the
seed has on all arms alike, plus noise whose variance may differ from arm to arm. Pure numbers in, pure numbers out.

1. The seed's effect is a mean of the residuals over the arms, weighted by 1 / max(variance, median variance), so that a
   noisy arm does not blur it. An arm's own variance is estimated from its residuals, freed of the share that the seed's
   estimated effect has in them.
2. The pool is the mean of the variances that are at most four times their median. An arm below the pool gets the pool's
   variance. An arm above it gets half as much again as its own, at most four times the pool, or its own where that is
   more: from few seeds an arm whose errors are skewed looks quieter than it is just where its mean is far off. An arm
   is never treated as quieter than the pool.
   Of three arms, the variances of two cannot be told apart beside a third that is wild, as those of two arms cannot:
   with six seeds or more both get half the variance of their difference, the third its own.
3. Each contrast has the degrees of freedom of Welch and Satterthwaite.
4. All contrasts of the family share one level: the 5 % quantile of the smallest p value of all contrasts, simulated
   under the null hypothesis with these variances, degrees of freedom and correlations (Dunnett 1955, Westfall and Young
   1993). Each interval and each p value come from that one level, so they cannot contradict each other.

`tests/studies/test_estimator_by_simulation.py` counts the errors over simulated studies; `docs/internals` has the
table. With two arms the rule is the paired t test.

Where runs have failed there is no mean to compare, and `rank_test` compares the ranks. `variance_of_trials` is the
noise of the runs in which values are tried.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vitral.evaluation.intervals import LEVEL

LEAST_SEEDS = 3
"""Seeds without which there is no test."""
FEW_SEEDS, FEW_CONTRASTS = 3, 2
"""With so few seeds the error stays at 5 % only in families of so few contrasts (by simulation)."""
WILD = 4.0
"""Times the median variance above which an arm is not in the pool."""
DOUBTFUL = 1.5
"""Times its own variance that an arm above the pool gets, up to `WILD` times the pool."""
TELLING_SEEDS = 6
"""From so many seeds on, a wild one of three arms is told from the other two."""
DRAWS = 99_999
"""Of the null hypothesis, for a family's common level."""
SAME = 1e-10
"""Standard error of log losses that rounding alone explains."""
POWER = 0.8


class Difference(NamedTuple):
    """The estimated difference of two arms' log losses.

    Attributes:
        log_ratio: mean log loss of the one arm minus that of the other.
        half: half the width of the simultaneous 95 % interval.
        p: the p value, corrected for the family.
        freedom: degrees of freedom of its variance.
        detectable: the true difference that this design finds with a probability of 0.7 to 0.8: of 0.8 if its
            variance were known.
    """

    log_ratio: float
    half: float
    p: float
    freedom: float
    detectable: float


class Variances(NamedTuple):
    """The variances of the arms' log losses over seeds, the seed's common effect left out.

    Attributes:
        used: of each arm, for the contrasts.
        alone: arms that do not use the pool.
        freedom: degrees of freedom of one arm's variance.
        of_pool: those of the pool, as many times as it has arms.
    """

    used: Float[np.ndarray, " arms"]
    alone: Bool[np.ndarray, " arms"]
    freedom: float
    of_pool: float


def enough(seeds: int, contrasts: int) -> bool:
    """Whether a family of so many contrasts from so many seeds is tested: only where the error stays at 5 %."""
    return seeds >= LEAST_SEEDS and (seeds > FEW_SEEDS or contrasts <= FEW_CONTRASTS)


def variances(values: Float[np.ndarray, "arms seeds"]) -> Variances:
    """Estimate the variances of two arms or more, from two seeds or more; see the module, steps 1 and 2."""
    arms, seeds = values.shape
    residuals = values - values.mean(axis=1, keepdims=True)
    weights = np.full(arms, 1 / arms)
    own = np.zeros(arms)
    for _ in range(3):
        left = residuals - weights @ residuals
        squares = (left**2).sum(axis=1) / (seeds - 1)
        # E[squares_a] = (1 - w_a)² σ²_a + Σ_b≠a w_b² σ²_b
        shares = np.tile(weights**2, (arms, 1))
        np.fill_diagonal(shares, (1 - weights) ** 2)
        if arms == 2:  # both residuals are half the difference: the arms cannot be told apart
            own = np.full(2, 2 * squares.mean())
        else:
            own = np.maximum(np.linalg.solve(shares, squares), squares / 1000)
        median = float(np.median(own))
        if median <= 0:
            break
        weights = 1 / np.maximum(own, median)
        weights /= weights.sum()
    median = float(np.median(own))
    tame = own <= WILD * median
    pool = float(own[tame].mean())
    alone = own > pool * (1 + 1e-9)
    beside_wild = _beside_a_wild_arm(values) if arms == 3 and seeds >= TELLING_SEEDS else None
    if beside_wild is not None:
        return beside_wild
    freedom = (seeds - 1) * (1 - 1 / arms)
    doubtful = np.maximum(own, np.minimum(DOUBTFUL * own, WILD * pool))
    return Variances(np.where(alone, doubtful, pool), alone, freedom, freedom * int(tame.sum()))


def _beside_a_wild_arm(values: Float[np.ndarray, "3 seeds"]) -> Variances | None:
    """The variances of three arms of which one is wild; None where none is.

    The two quiet ones are those whose difference varies least. As this choice is made by the values, one degree of
    freedom is taken off.
    """
    apart = [float(np.var(values[one] - values[other], ddof=1)) for one, other in ((1, 2), (0, 2), (0, 1))]
    wild = int(np.argmin(apart))
    quiet, alone = apart[wild] / 2, np.arange(3) == wild
    rest = (math.fsum(apart) - apart[wild]) / 2 - quiet
    if rest <= WILD * quiet:
        return None
    own = np.where(alone, rest, quiet)
    freedom = values.shape[1] - 2
    return Variances(own, alone, freedom, freedom)


def differences(
    values: Float[np.ndarray, "arms seeds"],
    contrasts: Sequence[tuple[int, int]],
    draws: int = DRAWS,
    share: float = 1.0,
    further: Sequence[float] | float = 0.0,
) -> tuple[Difference, ...]:
    """Estimate and test one family of contrasts.

    Args:
        values: log losses, all finite.
        contrasts: pairs of rows; the difference is the first minus the second.
        share: of the level of 5 %, where other contrasts of the family are tested by another rule.
        further: variance of each contrast beside that of the runs, such as that of a choice made before.
        draws: of the null hypothesis. Results are reproducible: the draws are the same every time.

    Raises:
        ZeroDivisionError: the values have no spread beyond rounding, so nothing is known of their errors.
    """
    seeds = values.shape[1]
    one, other = (np.array(rows) for rows in zip(*contrasts, strict=True))
    spread, means = variances(values), values.mean(axis=1)
    gaps = means[one] - means[other]
    of_runs = (spread.used[one] + spread.used[other]) / seeds
    if np.sqrt(of_runs.min()) <= SAME:
        raise ZeroDivisionError
    errors = np.sqrt(of_runs + np.asarray(further))
    freedom = _freedom(spread, one, other)
    extremes = _extremes(spread, one, other, freedom, draws)
    scores = _score(gaps / errors, freedom)
    # p < 0.05 exactly where a score exceeds the limit: the same order statistic decides both.
    limit = np.sort(extremes)[-math.ceil(share * LEVEL * (draws + 1)) + 1]
    critical = _statistic(limit, freedom)
    p = np.minimum(1.0, (1 + (extremes[:, None] >= scores[None, :]).sum(axis=0)) / (draws + 1) / share)
    detectable = (critical + _statistic(NormalDist().inv_cdf(POWER), freedom)) * errors
    columns = (gaps, critical * errors, p, freedom, detectable)
    return tuple(Difference(*map(float, row)) for row in zip(*columns, strict=True))


def _freedom(
    spread: Variances, one: Int[np.ndarray, " contrasts"], other: Int[np.ndarray, " contrasts"]
) -> Float[np.ndarray, " contrasts"]:
    """Welch and Satterthwaite: (Σ parts)² / Σ part² / freedom; two arms that use the pool share one part."""
    pooled, alone = np.where(spread.alone, 0.0, spread.used), np.where(spread.alone, spread.used, 0.0)
    of_pool = (pooled[one] + pooled[other]) ** 2 / spread.of_pool
    of_arms = (alone[one] ** 2 + alone[other] ** 2) / spread.freedom
    return (spread.used[one] + spread.used[other]) ** 2 / (of_pool + of_arms)


def _extremes(
    spread: Variances,
    one: Int[np.ndarray, " contrasts"],
    other: Int[np.ndarray, " contrasts"],
    freedom: Float[np.ndarray, " contrasts"],
    draws: int,
) -> Float[np.ndarray, " draws"]:
    """The largest score of the family in each draw of the null hypothesis."""
    arms = len(spread.used)
    noise = _normals(arms, draws) * np.sqrt(spread.used)
    pooled = spread.used * _chi_squares(1, spread.of_pool, draws)
    drawn = np.where(spread.alone, spread.used * _chi_squares(arms, spread.freedom, draws), pooled)
    statistics = (noise[:, one] - noise[:, other]) / np.sqrt(drawn[:, one] + drawn[:, other])
    return _score(statistics, freedom).max(axis=1)


@lru_cache(maxsize=8)
def _normals(arms: int, draws: int) -> Float[np.ndarray, "draws arms"]:
    return np.random.default_rng([draws, arms]).standard_normal((draws, arms))


@lru_cache(maxsize=8)
def _chi_squares(arms: int, freedom: float, draws: int) -> Float[np.ndarray, "draws arms"]:
    """Independent estimates of a variance of one, with these degrees of freedom."""
    return np.random.default_rng([draws, arms, 1]).chisquare(freedom, (draws, arms)) / freedom


def _score(statistic: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Student's statistic as a normal score of the same p value, which makes contrasts comparable (Wallace 1959)."""
    return np.sqrt(freedom * np.log1p(statistic**2 / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)


def _statistic(score: np.ndarray | float, freedom: np.ndarray) -> np.ndarray:
    """The inverse of `_score`, for positive statistics."""
    normal = np.asarray(score) * (8 * freedom + 3) / (8 * freedom + 1)
    return np.sqrt(freedom * np.expm1(normal**2 / freedom))


# ---------------------------------------------------------------- runs that failed, and trials


def rank_test(
    values: Sequence[float], others: Sequence[float], failed: int = 0, others_failed: int = 0
) -> tuple[float, float]:
    """The exact two-sided permutation test of ranks (Wilcoxon 1945, Mann and Whitney 1947); failed runs tie as last.

    The p value is the share of all ways to divide the ranks among the two arms whose rank sum is as far from its mean.

    Args:
        values: of the arm's runs that did not fail.
        others: of the other arm's.
        failed: further runs of the arm, each worse than every value.
        others_failed: of the other arm.

    Returns:
        The p value, and the share of pairs of runs in which the arm's is the higher, ties counting half.

    >>> rank_test([3.0, 3.1], [1.0, 1.1, 1.2], failed=1)
    (0.1, 1.0)
    """
    from scipy import stats

    num, rest = len(values) + failed, len(others) + others_failed
    given = [*values, *[math.inf] * failed, *others, *[math.inf] * others_failed]
    ranks = (2 * stats.rankdata(given)).astype(int)  # doubled, since ties have halves
    ways = np.zeros((num + 1, 1 + int(ranks.sum())))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank]
    rank_sum, mean = ranks[:num].sum(), num * (num + rest + 1)
    far = np.abs(np.arange(ways.shape[1]) - mean) >= abs(rank_sum - mean)
    return float(ways[num, far].sum() / ways[num].sum()), float(rank_sum / 2 - num * (num + 1) / 2) / (num * rest)


def variance_of_trials(losses: Float[np.ndarray, "trials seeds"]) -> float:
    """The variance of one run of a trial, the seed's common effect left out, from two trials and two seeds or more.

    Medians over the trials, as a few values that are tried train badly and scatter more; divided by the median of a
    variance of one, estimated from as many seeds.
    """
    from scipy import stats

    trials, seeds = losses.shape
    left = losses - losses.mean(axis=1, keepdims=True)
    squares = ((left - np.median(left, axis=0)) ** 2).sum(axis=1) / (seeds - 1) / (1 - 1 / trials)
    return float(np.median(squares) / (stats.chi2.median(seeds - 1) / (seeds - 1)))
