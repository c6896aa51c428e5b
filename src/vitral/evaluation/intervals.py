"""Means with their confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from vitral.core.errors import UsageError

LEVEL = 0.05
"""Chance of any false claim in one family."""
RESAMPLES = 9999
"""Of a bootstrap."""


@dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval.

    Attributes:
        mean: of the values.
        low: lower end; None where there is no estimate of spread (a single value).
        high: upper end, or None.
        num: number of values.
    """

    mean: float
    low: float | None
    high: float | None
    num: int


def mean_interval(values: Sequence[float], confidence: float = 1 - LEVEL) -> Interval:
    """The mean and its Student interval, mean ± t · s / √n with n - 1 degrees of freedom (Student 1908).

    Args:
        values: at least one, all finite.
        confidence: between 0 and 1.

    Raises:
        UsageError: a value is not finite.
    """
    if not all(map(math.isfinite, values)):
        raise UsageError("an interval needs finite values")
    mean, num = fmean(values), len(values)
    if num == 1:
        return Interval(mean, None, None, 1)
    from scipy import stats

    half = float(stats.t.ppf((1 + confidence) / 2, num - 1) * stats.sem(values))
    return Interval(mean, mean - half, mean + half, num)


def bootstrap_interval(values: Sequence[float]) -> Interval:
    """The mean and its percentile bootstrap interval (Efron 1979), from `RESAMPLES` draws that are always the same.

    Args:
        values: such as one difference for each block of a text; at least two, all finite.
    """
    sample = np.asarray(values)
    drawn = np.random.default_rng(0).integers(len(sample), size=(RESAMPLES, len(sample)))
    low, high = np.quantile(sample[drawn].mean(axis=1), [LEVEL / 2, 1 - LEVEL / 2])
    return Interval(float(sample.mean()), float(low), float(high), len(sample))
