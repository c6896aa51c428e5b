"""The confidence interval of a proportion."""

import math

from vitral.core.errors import UsageError


def wilson(share: float, num: int, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval of a share (Wilson 1927): (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n).

    Equal to `scipy.stats.binomtest(k, n).proportion_ci(confidence, "wilson")`, which takes whole numbers of successes
    only; here a trial may count half, as a tie does, or be itself a share over seeds.

    >>> [round(end, 3) for end in wilson(0.5, 100)]
    [0.404, 0.596]

    Args:
        share: of successes.
        num: trials.
        confidence: share of such intervals that contain the true share.

    Raises:
        UsageError: no trials, or a share or confidence outside its range.
    """
    if num < 1 or not 0 <= share <= 1 or not 0 < confidence < 1:
        raise UsageError(
            "no interval for a share of {share} from {num} trials at confidence {confidence}",
            share=share,
            num=num,
            confidence=confidence,
        )
    from scipy import stats

    z = float(stats.norm.ppf((1 + confidence) / 2))
    middle = share + z * z / (2 * num)
    half = z * math.sqrt(share * (1 - share) / num + (z / (2 * num)) ** 2)
    scale = 1 + z * z / num
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
