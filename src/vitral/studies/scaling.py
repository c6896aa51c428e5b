"""Scaling laws: how the loss falls with parameters, tokens and compute, fitted to runs, with intervals.

A law is L = Σ A / Π x_k^a_k over its terms; a term of no quantity is the floor E. With terms of N and D and a floor it
is Hoffmann et al. 2022, equation 2; with one quantity and no floor Kaplan et al. 2020, equations 1.1 to 1.3, where
A/x^a is written (x_c/x)^a. Laws are fitted by least squares on log L, since runs scatter by a share of their loss.
Hoffmann et al. minimise a Huber loss of the same residuals (equation 3), which matters where some runs have failed;
failed runs are left out before.

Every fitted number is a `UFloat` of the package `uncertainties`: it knows how it depends on the others of its fit, so
numbers derived from it have the error of linear propagation (the delta method). Intervals are Student's.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special, stats
from uncertainties import ufloat, umath

from vitral.core.language import _, number
from vitral.core.text import NONE, minus
from vitral.evaluation.intervals import LEVEL

DETERMINED = 0.5
"""An exponent is determined if its interval extends at most this share of its value to either side."""
EXPONENTS, LARGEST_LOG = (1e-4, 6.0), 40.0
"""Range in which exponents are searched, and that of the logarithms of coefficients."""
FIRST_EXPONENTS, FIRST_FLOORS = (0.1, 0.3, 0.7), (0.3, 0.7)
"""Where searches begin; floors as shares of the least loss."""
NO_FLOOR = 1e-3
"""A floor that is nowhere this share of the loss is none."""
SINGULAR = 1e-14
WIDEST = 30.0
"""An interval wider than this, in the number's unit or in decades, is written as not bounded."""

Terms = Sequence[tuple[str, ...]]
"""The quantities of each term."""
Uncertain = Any
"""A `UFloat`; its operators are added at run time, so type checkers do not know them."""


class Estimate(NamedTuple):
    """A number with its confidence interval; the ends are infinite where the runs do not bound it."""

    value: float
    low: float
    high: float

    @property
    def determined(self) -> bool:
        """Whether the interval extends at most the share DETERMINED of the value to either side."""
        return max(self.high - self.value, self.value - self.low) <= DETERMINED * abs(self.value)

    @property
    def span(self) -> str:
        """The ends of the interval.

        >>> Estimate(0.5, 0.25, 0.75).span, Estimate(0.5, -math.inf, math.inf).span
        ('0.250 to 0.750', 'not bounded')
        """
        if not self.high - self.low < WIDEST:
            return _("not bounded")
        return minus(_("{low:.3f} to {high:.3f}", low=self.low, high=self.high))

    @property
    def text(self) -> str:
        """The number with its interval in parentheses."""
        return minus(f"{number(self.value, '.3f')} ({self.span})")

    def exp(self) -> "Estimate":
        """The exponential of a logarithm."""
        return Estimate(*np.exp(np.clip([self.value, self.low, self.high], -700, 700)).tolist())


class Fit(NamedTuple):
    """A fitted law.

    Attributes:
        levels: log A of each term.
        exponents: a_k by name of the quantity.
        spread: standard deviation of the residuals of log L, with `freedom` as divisor.
        freedom: runs minus fitted numbers.
    """

    levels: Mapping[tuple[str, ...], Uncertain]
    exponents: Mapping[str, Uncertain]
    spread: float
    freedom: int

    def estimate(self, value: Uncertain, scatter: float = 0.0) -> Estimate:
        """The value with Student's interval of confidence 1 - LEVEL, `scatter` added to its error."""
        half = float(stats.t.ppf(1 - LEVEL / 2, self.freedom)) * math.hypot(value.s, scatter)
        return Estimate(value.n, value.n - half, value.n + half)

    def exponent(self, name: str) -> Estimate:
        """The exponent a_k; without bounds where the fit ended at the edge of the search."""
        exponent, (low, high) = self.exponents[name], EXPONENTS
        inside = 2 * low < exponent.n < high / 2
        return self.estimate(exponent) if inside else Estimate(exponent.n, -math.inf, math.inf)

    def constant(self, name: str) -> Estimate | None:
        """A of A / x^a, of a law of one quantity x_c of (x_c/x)^a; None in a product."""
        level = self.levels.get((name,))
        if level is None:
            return None
        return self.estimate(level / self.exponents[name] if len(self.exponents) == 1 else level).exp()

    @property
    def floor(self) -> Estimate | None:
        """The floor E; None where the runs show none above zero."""
        return self.estimate(self.levels[()]).exp() if () in self.levels else None

    def predict(self, at: Mapping[str, float]) -> Estimate:
        """The loss of one new run: its interval has the fit's uncertainty and the scatter of one run."""
        logs = (
            level - sum(self.exponents[name] * math.log(at[name]) for name in term)
            for term, level in self.levels.items()
        )
        total: Uncertain = sum(map(umath.exp, logs))  # pyright: ignore[reportAttributeAccessIssue]
        return self.estimate(umath.log(total), self.spread).exp()  # pyright: ignore[reportAttributeAccessIssue]


def fit_law(quantities: Mapping[str, Sequence[float]], losses: Sequence[float], terms: Terms) -> Fit | None:
    """Fit a law to runs by least squares on log L, from several starts.

    Where there are too few runs for a floor, or the best one is as good as zero, the law is fitted without one.

    Args:
        quantities: name -> its value in each run, above zero.
        losses: of the runs, above zero.
        terms: of the law.

    Returns:
        The law; None where there are not more runs than fitted numbers, or a quantity has one value.
    """
    names, has_floor = [*quantities], () in terms
    bare = [term for term in terms if term]
    few = min(len(set(values)) for values in quantities.values()) < 2 + has_floor
    if few or len(losses) <= len(terms) + len(names):
        return fit_law(quantities, losses, bare) if has_floor else None
    logs, target = np.log([*quantities.values()]).T, np.log(losses)
    centre, parts = logs.mean(axis=0), np.array([[float(name in term) for name in names] for term in terms])
    x, num = logs - centre, len(terms)

    def each(theta: np.ndarray) -> np.ndarray:
        return theta[:num] - (x * theta[num:]) @ parts.T

    def jacobian(theta: np.ndarray) -> np.ndarray:
        shares = special.softmax(each(theta), axis=1)
        return np.hstack([shares, -(shares @ parts) * x])

    tries = list[optimize.OptimizeResult]()
    bounds = np.array([(-LARGEST_LOG, LARGEST_LOG)] * num + [EXPONENTS] * len(names)).T
    for share, *exponents in itertools.product(FIRST_FLOORS if has_floor else (0.0,), *[FIRST_EXPONENTS] * len(names)):
        lowest = share * math.exp(target.min())
        rest = math.log((math.exp(target.mean()) - lowest) / len(bare))
        start = [*(rest if term else math.log(lowest) for term in terms), *exponents]
        residuals = lambda theta: special.logsumexp(each(theta), axis=1) - target  # noqa: E731
        how: dict[str, Any] = {"jac": jacobian, "bounds": (*bounds,), **dict.fromkeys(("xtol", "ftol", "gtol"), 1e-12)}
        tries.append(optimize.least_squares(residuals, start, max_nfev=200, **how))
    best = min(tries, key=lambda one: one.cost)
    if has_floor and best.jac[:, terms.index(())].max() < NO_FLOOR:
        return fit_law(quantities, losses, bare)
    freedom = len(target) - len(best.x)
    spread = math.sqrt(2 * best.cost / freedom)
    numbers = _uncertain(best.x, best.jac, spread)
    levels = numbers[:num] + parts @ (numbers[num:] * centre)
    return Fit(dict(zip(terms, levels, strict=True)), dict(zip(names, numbers[num:], strict=True)), spread, freedom)


def _uncertain(theta: np.ndarray, jacobian: np.ndarray, spread: float) -> Any:
    """Theta as correlated `UFloat`s; a direction that the runs do not determine gets a large variance, not none."""
    values, vectors = np.linalg.eigh(jacobian.T @ jacobian)
    kept = np.maximum(values, SINGULAR * max(float(values[-1]), SINGULAR))
    errors = np.maximum(spread / np.sqrt(kept), np.finfo(float).tiny)
    return theta + vectors @ np.array([ufloat(0.0, error) for error in errors.tolist()])


def law_row(law: str, symbol: str, fit: Fit, name: str) -> dict[str, str]:
    """The exponent of one quantity of a law, its constant, the floor and the misfit, by heading."""
    exponent, floor, constant = fit.exponent(name), fit.floor, fit.constant(name)
    return {
        _("law"): law,
        _("exponent"): symbol,
        _("value"): number(exponent.value, ".3f"),
        _("95% interval"): exponent.span,
        _("determined"): _("yes") if exponent.determined else _("no"),
        _("constant (interval)"): NONE if constant is None else powers(constant),
        _("floor E"): NONE if floor is None else floor.text,
        _("misfit"): number(100 * fit.spread, ".2f") + "%",
    }


def powers(constant: Estimate) -> str:
    """A constant with its interval as powers of ten, since it may lie many decades away.

    >>> powers(Estimate(1e3, 1e2, 1e4))
    '10^3.00 (10^2.00 to 10^4.00)'
    """
    value, low, high = (math.log10(max(end, 1e-300)) for end in (constant.value, constant.low, constant.high))
    if high - low > WIDEST:
        return _("not bounded")
    return minus(_("10^{value:.2f} (10^{low:.2f} to 10^{high:.2f})", value=value, low=low, high=high))
