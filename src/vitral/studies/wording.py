"""Numbers and intervals as a report writes them: the same everywhere, a real minus sign, no digit too many."""

from vitral.figures.text import MINUS, NONE, SPACE, big, capital, signed
from vitral.studies.comparison import Comparison
from vitral.studies.statistics import Interval, PairedDifference

__all__ = ["MINUS", "NONE", "SPACE", "big", "capital", "signed"]
LEAST_P = 1e-4


def nats(value: float) -> str:
    """A loss, in nats per token.

    >>> nats(1.7634)
    '1.763'
    """
    return f"{value:.3f}"


def word_of(unit: str) -> str:
    """A unit of losses as it follows a difference: `nats`, `bits per character`."""
    return "nats" if unit == "nats per token" else unit


def p_text(p: float | None) -> str:
    """A p value.

    >>> p_text(0.00001), p_text(0.0312)
    ('< 0.0001', '0.031')
    """
    if p is None:
        return NONE
    return "< 0.0001" if p < LEAST_P else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def p_clause(p: float) -> str:
    """A p value in a sentence: `p = 0.031`, `p < 0.0001`."""
    text = p_text(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def interval_text(interval: Interval | None) -> str:
    """The ends of an interval of losses, or a dash."""
    if interval is None or interval.low is None or interval.high is None:
        return NONE
    return f"{nats(interval.low)} to {nats(interval.high)}".replace(" ", SPACE)


def difference_text(paired: PairedDifference | None) -> str:
    """A difference with its interval and percentage: `+0.770 (+0.751 to +0.789), +43.7%`."""
    if paired is None:
        return NONE
    between, ends = paired.difference, ""
    if between.low is not None and between.high is not None:
        ends = f" ({signed(between.low)} to {signed(between.high)})".replace(" ", SPACE)
    return f"{signed(between.mean)}{ends}, {signed(paired.percent, 1)}%"


def mean_text(comparison: Comparison) -> str:
    """An arm's mean loss, or a dash."""
    return NONE if comparison.mean is None else nats(comparison.mean.mean)
