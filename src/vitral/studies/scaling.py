"""Scaling laws: how the loss falls with parameters, tokens and compute, fitted to runs, with intervals.

The sum is L = E + Σ A_k / x_k^a_k: with N and D it is Hoffmann et al. 2022, equation 2; with one quantity and no floor
it is Kaplan et al. 2020, equations 1.1 to 1.3, where A/x^a is written (x_c/x)^a. The product is L = E + A / Π x_k^a_k.
Both are fitted by least squares on log L, since runs scatter by a share of their loss. Hoffmann et al. minimise a Huber
loss of the same residuals (equation 3), which matters where some runs have failed; failed runs are left out before.

Every fitted number is a `UFloat` of the package `uncertainties`: it knows how it depends on the others of its fit, so
numbers derived from it have the error of linear propagation (the delta method). Intervals are Student's.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats
from uncertainties import ufloat, umath

from vitral.core.errors import UsageError
from vitral.studies.claims import LEVEL

DETERMINED = 0.5
"""An exponent is determined if its interval extends at most this share of its value to either side."""
EXPONENTS = (1e-4, 6.0)
"""Range in which exponents are searched."""
_FIRST_EXPONENTS = (0.1, 0.3, 0.7)
_FIRST_FLOORS = (0.3, 0.7)
_LARGEST_LOG = 40.0
_NO_FLOOR = 1e-3
_SINGULAR = 1e-14

Cost = tuple[float, float]
"""κ and γ of FLOPs per token = κ N^γ, see `cost_law`."""
Runs = Mapping[str, Sequence[float]]
Uncertain = Any
"""A `UFloat`; its operators are added at run time, so type checkers do not know them."""


@dataclass(frozen=True)
class Estimate:
    """A number with its confidence interval; the ends are infinite where the runs do not bound it."""

    value: float
    low: float
    high: float

    @property
    def determined(self) -> bool:
        """Whether the interval extends at most the share DETERMINED of the value to either side."""
        return max(self.high - self.value, self.value - self.low) <= DETERMINED * abs(self.value)

    def exp(self) -> "Estimate":
        """The exponential of a logarithm, within the range of a float."""
        return Estimate(*(math.exp(min(700.0, max(-700.0, end))) for end in (self.value, self.low, self.high)))


def student(value: Uncertain, freedom: int, scatter: float = 0.0) -> Estimate:
    """The value with Student's interval of confidence 1 - LEVEL, `scatter` added to its error."""
    half = float(stats.t.ppf(1 - LEVEL / 2, freedom)) * math.hypot(value.s, scatter)
    return Estimate(value.n, value.n - half, value.n + half)


@dataclass(frozen=True)
class Fit:
    """A fitted law.

    Attributes:
        product: whether one term contains all quantities.
        exponents: a_k by name of the quantity.
        log_coefficients: log A_k by name; in a product the same number for all.
        log_floor: log E; None without a floor.
        spread: standard deviation of the residuals of log L, with `freedom` as divisor.
        freedom: runs minus fitted numbers.
        residuals: measured minus fitted log L, by run.
    """

    product: bool
    exponents: Mapping[str, Uncertain]
    log_coefficients: Mapping[str, Uncertain]
    log_floor: Uncertain | None
    spread: float
    freedom: int
    residuals: tuple[float, ...]

    def exponent(self, name: str) -> Estimate:
        """The exponent a_k; without bounds where the fit ended at the edge of the search."""
        exponent, (low, high) = self.exponents[name], EXPONENTS
        at_edge = not 2 * low < exponent.n < high / 2
        return Estimate(exponent.n, -math.inf, math.inf) if at_edge else self.estimate(exponent)

    def coefficient(self, name: str) -> Estimate:
        """A_k of A_k / x^a_k; the interval is symmetric on a logarithmic scale."""
        return self.estimate(self.log_coefficients[name]).exp()

    def constant(self, name: str) -> Estimate:
        """x_c of (x_c/x)^a, a term of a sum; the interval is symmetric on a logarithmic scale."""
        return self.estimate(self.log_constant(name)).exp()

    def log_constant(self, name: str) -> Uncertain:
        """Log x_c of (x_c/x)^a."""
        return self.log_coefficients[name] / self.exponents[name]

    def worth(self, name: str, other: str) -> Estimate:
        """The factor of `other` that lowers a product as much as doubling `name`: 2^(a/b)."""
        return self.estimate(self.exponents[name] / self.exponents[other] * math.log(2)).exp()

    @property
    def irreducible(self) -> Estimate | None:
        """The floor E; None where the runs show none above zero."""
        return None if self.log_floor is None else self.estimate(self.log_floor).exp()

    def log_loss(self, at: Mapping[str, float]) -> Uncertain:
        """The log of the fitted loss at one value of each quantity."""
        drops = {name: exponent * math.log(at[name]) for name, exponent in self.exponents.items()}
        if self.product:
            terms = [next(iter(self.log_coefficients.values())) - sum(drops.values())]
        else:
            terms = [self.log_coefficients[name] - drop for name, drop in drops.items()]
        terms += [] if self.log_floor is None else [self.log_floor]
        top = max(term.n for term in terms)
        total: Uncertain = sum(umath.exp(term - top) for term in terms)  # pyright: ignore[reportAttributeAccessIssue]
        return umath.log(total) + top  # pyright: ignore[reportAttributeAccessIssue]

    def loss(self, at: Mapping[str, float]) -> float:
        """The fitted loss at one value of each quantity."""
        return math.exp(self.log_loss(at).n)

    def predict(self, at: Mapping[str, float]) -> Estimate:
        """The loss of one new run: its interval has the fit's uncertainty and the scatter of one run."""
        return self.estimate(self.log_loss(at), self.spread).exp()

    def estimate(self, value: Uncertain, scatter: float = 0.0) -> Estimate:
        """The value with Student's interval of confidence 1 - LEVEL, `scatter` added to its error."""
        return student(value, self.freedom, scatter)


def fit_law(quantities: Runs, losses: Sequence[float], *, floor: bool = True, product: bool = False) -> Fit:
    """Fit a law to runs by least squares on log L, from several starts.

    Where the best floor is as good as zero, the law is fitted again without one.

    Args:
        quantities: name -> its value in each run, above zero.
        losses: of the runs, above zero.
        floor: whether the law may have a floor E.
        product: one term for all quantities, E + A / Π x_k^a_k, rather than one for each.

    Raises:
        UsageError: not more runs than fitted numbers, a quantity with fewer than two values (three with a floor), or a
            number that is not above zero.
    """
    names, logs = tuple(quantities), _checked(quantities, losses, floor, product)
    target, centre = np.log(np.asarray(losses, dtype=np.float64)), logs.mean(axis=0)
    law = _Law(logs - centre, floor, product)
    found = law.fit(target)
    if floor and float(found.jac[:, 0].max()) < _NO_FLOOR:  # the floor's share of the losses
        return fit_law(quantities, losses, floor=False, product=product)
    residuals, freedom = -found.fun, len(target) - len(found.x)
    spread = math.sqrt(float(residuals @ residuals) / freedom)
    numbers = _uncertain(found.x, found.jac, spread)
    exponents = numbers[law.exponents]
    levels = numbers[law.levels] + law.parts.T @ (exponents * centre)
    return Fit(
        product=product,
        exponents=dict(zip(names, exponents, strict=True)),
        log_coefficients=dict(zip(names, law.parts @ levels, strict=True)),
        log_floor=numbers[0] if floor else None,
        spread=spread,
        freedom=freedom,
        residuals=tuple(residuals.tolist()),
    )


class _Law:
    """The log of L as a function of theta: log E if there is a floor, then of each term its log and its exponents."""

    def __init__(self, logs: Float[np.ndarray, "runs names"], floor: bool, product: bool) -> None:
        num, first = logs.shape[1], int(floor)
        self.logs, self.first = logs, first
        self.parts = np.ones((num, 1)) if product else np.eye(num)
        self.levels = np.array([first] if product else range(first, first + 2 * num, 2))
        self.exponents = np.arange(first + 1, first + 1 + num) if product else self.levels + 1

    def __call__(self, theta: np.ndarray) -> np.ndarray:
        """Log L of every run; of complex numbers too, by which SciPy differentiates it exactly."""
        terms = theta[self.levels] - (self.logs * theta[self.exponents]) @ self.parts
        floors = np.tile(theta[: self.first], (len(terms), 1))
        return _log_sum(np.concatenate([floors, terms], axis=1))

    def fit(self, target: Float[np.ndarray, " runs"]) -> optimize.OptimizeResult:
        """The least sum of squares over all starts."""
        num_names, num_terms = self.parts.shape
        start = np.zeros(self.first + num_terms + num_names)
        high = np.full(len(start), _LARGEST_LOG)
        low = -high
        low[self.exponents], high[self.exponents] = EXPONENTS
        tries = list[optimize.OptimizeResult]()
        floors = _FIRST_FLOORS if self.first else (0.0,)
        for share, *exponents in itertools.product(floors, *[_FIRST_EXPONENTS] * num_names):
            lowest = share * math.exp(float(target.min()))
            start[: self.first] = math.log(lowest or 1.0)
            start[self.levels] = math.log((math.exp(float(target.mean())) - lowest) / num_terms)
            start[self.exponents] = exponents
            exact = {"xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12, "max_nfev": 200}
            tries.append(
                optimize.least_squares(lambda x: self(x) - target, start, jac="cs", bounds=(low, high), **exact)
            )
        return min(tries, key=lambda one: one.cost)


def _log_sum(terms: Any) -> np.ndarray:
    """The log of the sum of exponentials, row by row."""
    top = terms.real.max(axis=1, keepdims=True)
    return (top + np.log(np.exp(terms - top).sum(axis=1, keepdims=True)))[:, 0]


def _uncertain(theta: Float[np.ndarray, " numbers"], jacobian: Float[np.ndarray, "runs numbers"], spread: float) -> Any:
    """Theta as correlated `UFloat`s; a direction that the runs do not determine gets a large variance, not none."""
    values, vectors = np.linalg.eigh(jacobian.T @ jacobian)
    kept = np.maximum(values, _SINGULAR * max(float(values[-1]), _SINGULAR))
    errors = np.maximum(spread / np.sqrt(kept), np.finfo(float).tiny)
    return theta + vectors @ np.array([ufloat(0.0, error) for error in errors.tolist()])


def _checked(quantities: Runs, losses: Sequence[float], floor: bool, product: bool) -> Float[np.ndarray, "runs names"]:
    """The logarithms of the quantities."""
    table = np.array([list(values) for values in quantities.values()], dtype=np.float64).T
    if table.shape[0] != len(losses) or not (np.isfinite(table).all() and (table > 0).all()):
        raise UsageError("a scaling law needs one positive number of each quantity for each run")
    if not all(math.isfinite(loss) and loss > 0 for loss in losses):
        raise UsageError("a scaling law needs losses above zero")
    numbers = int(floor) + table.shape[1] + (1 if product else table.shape[1])
    if len(losses) <= numbers:
        raise UsageError(
            "a law of {numbers} numbers needs {needed} runs at least, not {losses}",
            numbers=numbers,
            needed=numbers + 1,
            losses=len(losses),
        )
    for name, values in quantities.items():
        if len(set(values)) < 2 + int(floor):
            raise UsageError(
                "{name} has {values} values; its exponent needs {floor} at least",
                name=name,
                values=len(set(values)),
                floor=2 + int(floor),
            )
    return np.log(table)


def cost_law(parameters: Sequence[float], flops_per_token: Sequence[float]) -> Cost:
    """κ and γ of FLOPs per token = κ N^γ, by least squares on logarithms.

    Large models have κ = 6 and γ = 1 (Kaplan et al. 2020, equation 2.2); in small ones head and attention weigh more.

    Raises:
        UsageError: fewer than two sizes.
    """
    if len(set(parameters)) < 2:
        raise UsageError("the cost of a token can be fitted to two sizes or more, not to one")
    slope, level = np.polyfit(np.log(parameters), np.log(flops_per_token), 1).tolist()
    return math.exp(level), slope


class Optimum(NamedTuple):
    """The best use of some compute by a law: parameters N_opt (with interval), tokens D_opt, and the loss there."""

    parameters: Estimate
    tokens: float
    loss: float


def optimum(fit: Fit, compute: float, cost: Cost = (6.0, 1.0)) -> Optimum:
    """N and D of the least fitted loss for so many FLOPs, C = κ N^γ D.

    With E + A/N^α + B/D^β the derivative is zero at N^(α + γβ) = αA/(γβB) · (C/κ)^β; κ = 6 and γ = 1 give Hoffmann
    et al. 2022, equation 4.

    Args:
        fit: a sum in "N" and "D".
        compute: FLOPs in all.
        cost: κ and γ, taken as exact.
    """
    kappa, gamma = cost
    alpha, beta, spent = fit.exponents["N"], fit.exponents["D"], math.log(compute / kappa)
    ratio = umath.log(alpha / (gamma * beta))  # pyright: ignore[reportAttributeAccessIssue]
    log_n = (ratio + fit.log_coefficients["N"] - fit.log_coefficients["D"] + beta * spent) / (alpha + gamma * beta)
    parameters = fit.estimate(log_n).exp()
    log_d = spent - gamma * log_n.n
    tokens = Estimate(log_d, log_d, log_d).exp().value
    return Optimum(parameters, tokens, fit.loss({"N": parameters.value, "D": tokens}))


def optimal_exponents(fit: Fit, cost: Cost = (6.0, 1.0)) -> tuple[Estimate, Estimate]:
    """The a and b of N_opt ∝ C^a and D_opt ∝ C^b: β/(α + γβ) and α/(α + γβ)."""
    alpha, beta = fit.exponents["N"], fit.exponents["D"]
    total = alpha + cost[1] * beta
    return fit.estimate(beta / total), fit.estimate(alpha / total)


def contrast(
    one: Uncertain, two: Uncertain, freedoms: tuple[int, int], confidence: float = 1 - LEVEL
) -> tuple[Estimate, float]:
    """A number of one fit against the same of another: Welch 1947, with the freedom of Satterthwaite 1946.

    Args:
        one: of the first fit.
        two: of the other fit, made of other runs.
        freedoms: of both fits.
        confidence: of the interval.

    Returns:
        `two` minus `one` with its interval, and the two-sided p value.
    """
    gap, errors = two.n - one.n, (one.s, two.s)
    error = math.hypot(*errors)
    if not error:
        return Estimate(gap, gap, gap), 0.0 if gap else 1.0
    freedom = 1 / sum((part / error) ** 4 / of for part, of in zip(errors, freedoms, strict=True))
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    return Estimate(gap, gap - half, gap + half), 2 * float(stats.t.sf(abs(gap) / error, freedom))
