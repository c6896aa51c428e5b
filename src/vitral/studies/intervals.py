"""Means with their confidence intervals, of Student and by the bootstrap."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitral.core.errors import UsageError
from vitral.studies.estimator import LEVEL

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
        confidence: share of such intervals that contain the true mean.
    """

    mean: float
    low: float | None
    high: float | None
    num: int
    confidence: float = 1 - LEVEL


def mean_interval(values: Sequence[float], confidence: float = 1 - LEVEL) -> Interval:
    """The mean and its Student interval, mean ± t · s / √n with n - 1 degrees of freedom (Student 1908).

    Args:
        values: at least one, all finite.
        confidence: between 0 and 1.

    Raises:
        UsageError: no value, a value that is not finite, or a confidence outside (0, 1).
    """
    if not values:
        raise UsageError("an interval needs at least one value")
    if not all(math.isfinite(value) for value in values):
        raise UsageError("an interval needs finite values")
    if not 0 < confidence < 1:
        raise UsageError("confidence must lie between 0 and 1, not {confidence}", confidence=confidence)
    mean, num = math.fsum(values) / len(values), len(values)
    if num == 1:
        return Interval(mean, None, None, 1, confidence)
    from scipy import stats

    half = float(stats.t.ppf((1 + confidence) / 2, num - 1)) * standard_error(values, mean)
    return Interval(mean, mean - half, mean + half, num, confidence)


def bootstrap_interval(values: Sequence[float], confidence: float = 1 - LEVEL) -> Interval:
    """The mean and its percentile bootstrap interval (Efron 1979), from `RESAMPLES` draws that are always the same.

    Args:
        values: such as one difference for each block of a text; at least two, all finite.
        confidence: between 0 and 1.
    """
    found = np.asarray(values)
    drawn = np.random.default_rng(0).integers(len(found), size=(RESAMPLES, len(found)))
    low, high = np.quantile(found[drawn].mean(axis=1), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(found.mean()), float(low), float(high), len(found), confidence)


def standard_error(values: Sequence[float], mean: float) -> float:
    """S / √n of at least two values."""
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
