"""Scaling laws: how the loss falls with parameters, tokens and compute, fitted to runs, and how sure that is.

One form serves them all, a floor and one falling power for each quantity: L(x, y) = E + A/x^a + B/y^b. With N and D
it is Hoffmann et al. 2022, equation 2; with one quantity and no floor it is Kaplan et al. 2020, equations 1.1 to 1.3,
where A/x^a is written (x_c/x)^a. The logarithm of the loss is fitted by least squares, since runs scatter by a share of
their loss rather than by so many nats; Hoffmann et al. minimise a Huber loss of the same residuals (equation 3), which
matters where some runs have gone wrong, and there those are left out before. Beside the sum stands the product
L = E + A/(x^a y^b), in which no quantity runs short without the other: the simplest law with an interplay of the two.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vitral.core.errors import UsageError
from vitral.studies.statistics import CONFIDENCE

DETERMINED = 0.5
"""An exponent is determined if its interval reaches no further than this share of it to either side."""
_EXPONENTS = (0.1, 0.3, 0.7)
_FLOORS = (0.3, 0.7)
_BOUNDS = (1e-4, 6.0)
_NO_FLOOR = 1e-3
_SINGULAR = 1e-14


@dataclass(frozen=True)
class Estimate:
    """A fitted number and its confidence interval.

    Attributes:
        value: of the best fit.
        low: lower end; minus infinity where the runs set none.
        high: upper end; infinity where the runs set none.
    """

    value: float
    low: float
    high: float

    @property
    def determined(self) -> bool:
        """Whether the interval is narrow enough for the number to mean something: the rule of DETERMINED."""
        return max(self.high - self.value, self.value - self.low) <= DETERMINED * abs(self.value)


@dataclass(frozen=True)
class Fit:
    """A fitted law: L = E + Σ A_k / x_k^a_k, or with one term for all, L = E + A / Π x_k^a_k.

    Attributes:
        names: of the quantities x_k, in order.
        product: whether one term holds all quantities.
        centres: geometric mean of each quantity over the runs; the fit is made about it.
        theta: log E if there is a floor; then of each term the log of its value at the centres, and its exponents.
        covariance: of theta, `[parameters, parameters]`.
        floor: whether there is an E above zero.
        spread: standard deviation of the residuals of log L, with `freedom` as divisor.
        freedom: runs minus parameters.
        residuals: measured minus fitted log L, run by run.
    """

    names: tuple[str, ...]
    product: bool
    centres: tuple[float, ...]
    theta: Float[np.ndarray, " parameters"]
    covariance: Float[np.ndarray, "parameters parameters"]
    floor: bool
    spread: float
    freedom: int
    residuals: tuple[float, ...]

    def exponent(self, name: str) -> Estimate:
        """The exponent of one quantity; without bounds where the fit ended at the edge of what was searched."""
        place = self.place(name)
        value = float(self.theta[place])
        if not 2 * _BOUNDS[0] < value < _BOUNDS[1] / 2:
            return Estimate(value, -math.inf, math.inf)
        gradient = np.zeros(len(self.theta))
        gradient[place] = 1
        return self.linear(value, gradient)

    def constant(self, name: str) -> Estimate:
        """x_c of (x_c/x)^a, the value at which this term of a sum would be one of the unit the losses are in.

        The interval is symmetric on a logarithmic scale.
        """
        return exponential(self.log_constant(name))

    def log_constant(self, name: str) -> Estimate:
        """Log x_c of (x_c/x)^a."""
        place = self.place(name)
        log_term, exponent = float(self.theta[place - 1]), float(self.theta[place])
        gradient = np.zeros(len(self.theta))
        gradient[place - 1], gradient[place] = 1 / exponent, -log_term / exponent**2
        centre = math.log(self.centres[self.names.index(name)])
        return self.linear(log_term / exponent + centre, gradient)

    def coefficient(self, name: str) -> Estimate:
        """A of A/x^a, a term of a sum; the interval is symmetric on a logarithmic scale."""
        return exponential(self.log_coefficient(name))

    def log_coefficient(self, name: str) -> Estimate:
        """Log A of A/x^a, a term of a sum."""
        place = self.place(name)
        centre = math.log(self.centres[self.names.index(name)])
        gradient = np.zeros(len(self.theta))
        gradient[place - 1], gradient[place] = 1, centre
        return self.linear(float(self.theta[place - 1] + self.theta[place] * centre), gradient)

    def worth(self, name: str, other: str) -> Estimate:
        """By how much `other` must be multiplied to do what doubling `name` does, in a product: 2^(a/b).

        The interval is symmetric on a logarithmic scale (delta method).
        """
        place, below = self.place(name), self.place(other)
        ratio = float(self.theta[place] / self.theta[below])
        gradient = np.zeros(len(self.theta))
        gradient[place], gradient[below] = 1 / self.theta[below], -ratio / self.theta[below]
        return exponential(self.linear(ratio * math.log(2), gradient * math.log(2)))

    @property
    def irreducible(self) -> Estimate | None:
        """E; None where the runs show none above zero."""
        if not self.floor:
            return None
        gradient = np.zeros(len(self.theta))
        gradient[0] = 1
        return exponential(self.linear(float(self.theta[0]), gradient))

    def loss(self, quantities: Mapping[str, float]) -> float:
        """The fitted loss at one place."""
        return bounded_exp(float(self._at(quantities)[0][0]))

    def predict(self, quantities: Mapping[str, float], confidence: float = CONFIDENCE) -> Estimate:
        """The loss of one new run, and the interval that would hold it so often if the law holds there.

        The interval is that of a new observation: the fit's own uncertainty (delta method) and one run's scatter.
        """
        logs, jacobian = self._at(quantities)
        variance = self.spread**2 + float(jacobian[0] @ self.covariance @ jacobian[0])
        half = _quantile(self.freedom, confidence) * math.sqrt(variance)
        middle = float(logs[0])
        return Estimate(bounded_exp(middle), bounded_exp(middle - half), bounded_exp(middle + half))

    def linear(self, value: float, gradient: Float[np.ndarray, " parameters"]) -> Estimate:
        """A number made of theta with Student's interval, from its derivative by theta."""
        variance = max(0.0, float(gradient @ self.covariance @ gradient))
        half = _quantile(self.freedom, CONFIDENCE) * math.sqrt(variance)
        return Estimate(value, value - half, value + half)

    def place(self, name: str) -> int:
        """Where in theta the exponent of a quantity stands."""
        index = self.names.index(name)
        return int(self.floor) + 1 + (index if self.product else 2 * index)

    def _at(
        self, quantities: Mapping[str, float]
    ) -> tuple[Float[np.ndarray, " runs"], Float[np.ndarray, "runs parameters"]]:
        """The log of the loss at one place, and its derivative."""
        pairs = zip(self.names, self.centres, strict=True)
        logs = np.array([[math.log(quantities[name] / centre) for name, centre in pairs]])
        return _log_loss(self.theta, logs, self.floor, self.product)


def fit_law(
    quantities: Mapping[str, Sequence[float]], losses: Sequence[float], *, floor: bool = True, product: bool = False
) -> Fit:
    """Fit L = E + Σ A_k / x_k^a_k to runs by least squares on log L, from several starts.

    Where the best floor is as good as zero, the law is fitted again without one.

    Args:
        quantities: name -> its value in each run, above zero.
        losses: of the runs, above zero.
        floor: whether there may be a loss that nothing gets below.
        product: one term for all quantities, E + A / Π x_k^a_k, rather than one for each.

    Raises:
        UsageError: not more runs than parameters, a quantity with fewer than two values (three with a floor), or a
            number that is not above zero.
    """
    names, logs = tuple(quantities), _checked(quantities, losses, floor, product)
    target = np.log(np.asarray(losses, dtype=np.float64))
    centres = logs.mean(axis=0)
    shifted = logs - centres
    theta = min(
        (_descend(start, shifted, target, floor, product) for start in _starts(target, len(names), floor, product)),
        key=lambda found: found[0],
    )[1]
    fitted, jacobian = _log_loss(theta, shifted, floor, product)
    if floor and float(jacobian[:, 0].max()) < _NO_FLOOR:
        return fit_law(quantities, losses, floor=False, product=product)
    residuals = target - fitted
    freedom = len(target) - len(theta)
    variance = float(residuals @ residuals) / freedom
    return Fit(
        names=names,
        product=product,
        centres=tuple(np.exp(centres).tolist()),
        theta=theta,
        covariance=variance * _inverse(jacobian.T @ jacobian),
        floor=floor,
        spread=math.sqrt(variance),
        freedom=freedom,
        residuals=tuple(residuals.tolist()),
    )


def envelope(compute: Sequence[float], losses: Sequence[float]) -> list[int]:
    """The runs that no run of as little compute beats, by rising compute.

    >>> envelope([1.0, 2.0, 3.0, 2.0], [3.0, 2.0, 2.5, 2.9])
    [0, 1]
    """
    best, found = math.inf, []
    for index in sorted(range(len(losses)), key=lambda run: (compute[run], losses[run])):
        if losses[index] < best:
            best = losses[index]
            found.append(index)
    return found


def slope(low: tuple[float, float], high: tuple[float, float]) -> float:
    """The local exponent -d log L / d log x between two (x, loss): what a power law without a floor would have.

    >>> slope((1.0, 4.0), (4.0, 2.0))
    0.5
    """
    return -math.log(high[1] / low[1]) / math.log(high[0] / low[0])


def _checked(
    quantities: Mapping[str, Sequence[float]], losses: Sequence[float], floor: bool, product: bool
) -> Float[np.ndarray, "runs quantities"]:
    """The logarithms of the quantities, run by run."""
    table = np.array([list(values) for values in quantities.values()], dtype=np.float64).T
    if table.shape[0] != len(losses) or not (np.isfinite(table).all() and (table > 0).all()):
        raise UsageError("a scaling law needs one positive number of each quantity for each run")
    if not all(math.isfinite(loss) and loss > 0 for loss in losses):
        raise UsageError("a scaling law needs losses above zero")
    needed = 1 + int(floor) + table.shape[1] + (1 if product else table.shape[1])
    if len(losses) < needed:
        raise UsageError(f"a law of {needed - 1} numbers needs {needed} runs at least, not {len(losses)}")
    for name, values in quantities.items():
        if len(set(values)) < 2 + int(floor):
            raise UsageError(f"{name} has {len(set(values))} values; its exponent needs {2 + int(floor)} at least")
    return np.log(table)


def _log_loss(
    theta: Float[np.ndarray, " parameters"], logs: Float[np.ndarray, "runs quantities"], floor: bool, product: bool
) -> tuple[Float[np.ndarray, " runs"], Float[np.ndarray, "runs parameters"]]:
    """The log of L and its derivative by theta: that of a term's logarithm is the share it has of the loss."""
    first, num_runs, rest = int(floor), len(logs), theta[int(floor) :]
    terms = rest[0] - logs @ rest[1:, None] if product else rest[::2] - rest[1::2] * logs
    if floor:
        terms = np.concatenate([np.full((num_runs, 1), theta[0]), terms], axis=1)
    top = terms.max(axis=1, keepdims=True)
    parts = np.exp(terms - top)
    total = parts.sum(axis=1, keepdims=True)
    shares = parts / total
    jacobian = np.empty((num_runs, len(theta)))
    jacobian[:, :first] = shares[:, :first]
    if product:
        jacobian[:, first] = shares[:, first]
        jacobian[:, first + 1 :] = -shares[:, first:] * logs
    else:
        jacobian[:, first::2] = shares[:, first:]
        jacobian[:, first + 1 :: 2] = -shares[:, first:] * logs
    return (top + np.log(total))[:, 0], jacobian


def _starts(
    target: Float[np.ndarray, " runs"], quantities: int, floor: bool, product: bool
) -> list[Float[np.ndarray, " parameters"]]:
    """Where to begin: a share of the least loss as floor, the rest divided evenly, exponents of every kind."""
    starts, middle, terms = [], math.exp(float(target.mean())), 1 if product else quantities
    for share, *exponents in itertools.product(_FLOORS if floor else (0.0,), *[_EXPONENTS] * quantities):
        lowest = share * math.exp(float(target.min()))
        level = math.log((middle - lowest) / terms)
        first = [math.log(lowest)] if floor else []
        rest = [level, *exponents] if product else [number for each in exponents for number in (level, each)]
        starts.append(np.array([*first, *rest]))
    return starts


def _descend(
    start: Float[np.ndarray, " parameters"],
    logs: Float[np.ndarray, "runs quantities"],
    target: Float[np.ndarray, " runs"],
    floor: bool,
    product: bool,
) -> tuple[float, Float[np.ndarray, " parameters"]]:
    """The sum of squares reached from one start, and where; exponents stay above zero."""
    from scipy.optimize import least_squares

    first = int(floor)
    exponents = np.arange(first + 1, len(start)) if product else np.arange(first + 1, len(start), 2)
    low, high = np.full(len(start), -40.0), np.full(len(start), 40.0)
    low[exponents], high[exponents] = _BOUNDS
    found = least_squares(
        lambda theta: _log_loss(theta, logs, floor, product)[0] - target,
        start,
        jac=lambda theta: _log_loss(theta, logs, floor, product)[1],  # pyright: ignore[reportArgumentType]
        bounds=(low, high),
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
        max_nfev=200,
    )
    return float(found.cost), np.asarray(found.x, dtype=np.float64)


def _inverse(information: Float[np.ndarray, "parameters parameters"]) -> Float[np.ndarray, "parameters parameters"]:
    """The inverse of a symmetric matrix; what it does not determine gets a variance beyond all others, not none."""
    values, vectors = np.linalg.eigh(information)
    kept = np.maximum(values, _SINGULAR * max(float(values[-1]), _SINGULAR))
    return (vectors / kept) @ vectors.T


def _quantile(freedom: int, confidence: float) -> float:
    from scipy import stats

    return float(stats.t.ppf((1 + confidence) / 2, freedom))


def exponential(estimate: Estimate) -> Estimate:
    """The estimate of a logarithm as one of the number itself."""
    return Estimate(bounded_exp(estimate.value), bounded_exp(estimate.low), bounded_exp(estimate.high))


def bounded_exp(value: float) -> float:
    """The exponential, kept inside the numbers a file can hold."""
    return math.exp(min(700.0, max(-700.0, value)))
