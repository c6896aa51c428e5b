"""How sure a difference is: means with t intervals, paired differences, and Holm's correction for several of them.

Seeds are the sample: every arm is trained once per seed, on the same batches in the same order, so arms are compared
seed by seed. Pairing takes out what the seed does to all arms alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vitral.core.errors import UsageError

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and how far it can be trusted.

    Attributes:
        mean: of the values.
        low: lower end of the confidence interval; None from a single value, which says nothing of its own spread.
        high: upper end, or None.
        num: how many values.
        confidence: how often such an interval holds the true mean.
    """

    mean: float
    low: float | None
    high: float | None
    num: int
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class PairedDifference:
    """What an arm's values are above (or below) the base's, seed by seed.

    Attributes:
        difference: arm minus base, in the values' unit; negative is better for a loss.
        percent: the mean difference as a percentage of the base's mean.
        p_value: two-sided, of the paired t test; None from a single pair.
    """

    difference: Interval
    percent: float
    p_value: float | None


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The mean and its Student interval: mean ± t · s / √n with n - 1 degrees of freedom (Student 1908).

    Args:
        values: at least one, finite.
        confidence: between 0 and 1.

    Raises:
        UsageError: no values, a value that is not finite, or a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must lie between 0 and 1, not {confidence}")
    mean, error = _mean_and_error(values)
    if error is None:
        return Interval(mean, None, None, 1, confidence)
    from scipy import stats

    half = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return Interval(mean, mean - half, mean + half, len(values), confidence)


def paired_difference(arm: Sequence[float], base: Sequence[float], confidence: float = CONFIDENCE) -> PairedDifference:
    """The paired t test of `arm` against `base`: t = mean(d) / (s_d / √n) with n - 1 degrees of freedom.

    Differences that are all the same have no spread: then p is 1 if they are zero and 0 if they are not.

    Args:
        arm: one value for each seed.
        base: of the same seeds in the same order.
        confidence: of the interval.

    Raises:
        UsageError: not as many values on both sides, none at all, or one that is not finite.
    """
    if len(arm) != len(base):
        raise UsageError(f"paired values must be as many on both sides, not {len(arm)} and {len(base)}")
    differences = [one - other for one, other in zip(arm, base, strict=True)]
    interval = mean_interval(differences, confidence)
    base_mean, _ = _mean_and_error(base)
    percent = 100 * interval.mean / base_mean if base_mean else math.nan
    return PairedDifference(interval, percent, _p_value(differences))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values that keep the chance of any false claim among them at the level (Holm 1979).

    In rising order the k-th of m is multiplied by m - k + 1, and none may be smaller than the one before or above 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def _p_value(differences: Sequence[float]) -> float | None:
    mean, error = _mean_and_error(differences)
    if error is None:
        return None
    if error == 0:
        return 0.0 if mean else 1.0
    from scipy import stats

    return float(2 * stats.t.sf(abs(mean) / error, len(differences) - 1))


def _mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error; no error from a single value."""
    if not values:
        raise UsageError("there are no values to take the mean of")
    if not all(math.isfinite(value) for value in values):
        raise UsageError("a value is not finite, so there is no mean")
    num = len(values)
    mean = math.fsum(values) / num
    if num == 1:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (num - 1)
    return mean, math.sqrt(variance / num)
