"""Fitted laws as cells of a table."""

import math

from vitral.core.language import _, number
from vitral.core.text import NONE, minus
from vitral.studies.scaling import Estimate, Fit

WIDEST = 30.0
"""An interval wider than this, in the number's unit or in decades, is written as not bounded."""


def law_columns() -> tuple[str, ...]:
    """The headings in the current language."""
    return (
        _("law"),
        _("exponent"),
        _("value"),
        _("95% interval"),
        _("determined"),
        _("constant (interval)"),
        _("floor E"),
        _("misfit"),
    )


def law_row(law: str, symbol: str, fit: Fit, name: str, constant: Estimate | None) -> tuple[str, ...]:
    """The exponent of one quantity of a law, a constant, the floor and the misfit, in the order of `law_columns`.

    Args:
        law: its formula.
        symbol: of the exponent.
        fit: the fitted law.
        name: of the quantity.
        constant: shown beside the exponent; None for a dash.
    """
    exponent, floor = fit.exponent(name), fit.irreducible
    return (
        law,
        symbol,
        number(exponent.value, ".3f"),
        interval(exponent),
        _("yes") if exponent.determined else _("no"),
        NONE if constant is None else powers(constant),
        NONE if floor is None else with_interval(floor),
        number(100 * fit.spread, ".2f") + "%",
    )


def interval(estimate: Estimate) -> str:
    """The ends of an interval.

    >>> interval(Estimate(0.5, 0.25, 0.75)), interval(Estimate(0.5, -math.inf, math.inf))
    ('0.250 to 0.750', 'not bounded')
    """
    if not estimate.high - estimate.low < WIDEST:
        return _("not bounded")
    return minus(_("{low:.3f} to {high:.3f}", low=estimate.low, high=estimate.high))


def with_interval(estimate: Estimate) -> str:
    """A number with its interval in parentheses."""
    return minus(f"{number(estimate.value, '.3f')} ({interval(estimate)})")


def powers(constant: Estimate) -> str:
    """A constant with its interval as powers of ten, since it may lie many decades away.

    >>> powers(Estimate(1e3, 1e2, 1e4))
    '10^3.00 (10^2.00 to 10^4.00)'
    """
    value, low, high = (math.log10(max(end, 1e-300)) for end in (constant.value, constant.low, constant.high))
    if high - low > WIDEST:
        return _("not bounded")
    return minus(_("10^{value:.2f} (10^{low:.2f} to 10^{high:.2f})", value=value, low=low, high=high))
