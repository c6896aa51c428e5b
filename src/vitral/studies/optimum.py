"""How to spend compute, by a fitted law: the size and the amount of text with the least loss for so many operations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitral.core.errors import UsageError
from vitral.studies.scaling import Estimate, Fit, bounded_exp, exponential
from vitral.studies.statistics import CONFIDENCE

Cost = tuple[float, float]
"""κ and γ of FLOPs per token = κ N^γ, see `cost_law`."""


@dataclass(frozen=True)
class Optimum:
    """How to spend compute, by a law in N and D.

    Attributes:
        parameters: N_opt; the interval is symmetric on a logarithmic scale.
        tokens: D_opt.
        loss: predicted there.
    """

    parameters: Estimate
    tokens: float
    loss: float


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


def optimum(fit: Fit, compute: float, cost: Cost = (6.0, 1.0)) -> Optimum:
    """N and D of the least fitted loss for so many FLOPs, C = κ N^γ D.

    With E + A/N^α + B/D^β the derivative is zero at N^(α + γβ) = αA/(γβB) · (C/κ)^β; κ = 6 and γ = 1 give Hoffmann
    et al. 2022, equation 4. The interval of N is that of the delta method.

    Args:
        fit: a sum in "N" and "D".
        compute: FLOPs in all.
        cost: κ and γ, taken as exact.
    """
    kappa, gamma = cost
    alpha, beta, spent = fit.exponent("N").value, fit.exponent("D").value, math.log(compute / kappa)
    above = (
        math.log(alpha / (gamma * beta))
        + fit.log_coefficient("N").value
        - fit.log_coefficient("D").value
        + beta * spent
    )
    total = alpha + gamma * beta
    log_n = above / total
    centre_n, centre_d = (math.log(fit.centres[fit.names.index(name)]) for name in ("N", "D"))
    place_n, place_d, gradient = fit.place("N"), fit.place("D"), np.zeros(len(fit.theta))
    gradient[place_n] = (1 / alpha + centre_n - log_n) / total
    gradient[place_d] = (spent - 1 / beta - centre_d - gamma * log_n) / total
    gradient[place_n - 1], gradient[place_d - 1] = 1 / total, -1 / total
    parameters = exponential(fit.linear(log_n, gradient))
    tokens = bounded_exp(spent - gamma * log_n)
    return Optimum(parameters, tokens, fit.loss({"N": parameters.value, "D": tokens}))


def optimal_exponents(fit: Fit, cost: Cost = (6.0, 1.0)) -> tuple[Estimate, Estimate]:
    """The a and b of N_opt ∝ C^a and D_opt ∝ C^b: β/(α + γβ) and α/(α + γβ), intervals by the delta method."""
    gamma = cost[1]
    alpha, beta = fit.exponent("N").value, fit.exponent("D").value
    total = alpha + gamma * beta
    by_alpha, by_beta = np.zeros(len(fit.theta)), np.zeros(len(fit.theta))
    by_alpha[fit.place("N")] = 1
    by_beta[fit.place("D")] = 1
    size = fit.linear(beta / total, (-beta * by_alpha + alpha * by_beta) / total**2)
    tokens = fit.linear(alpha / total, gamma * (beta * by_alpha - alpha * by_beta) / total**2)
    return size, tokens


def contrast(one: Estimate, two: Estimate, freedoms: tuple[int, int]) -> tuple[Estimate, float]:
    """How far one fit's number lies above another's, runs apart: Welch 1947, with the freedom of Satterthwaite 1946.

    Args:
        one: from `Fit.linear` or `Fit.exponent`, with Student's interval of CONFIDENCE and bounds.
        two: of the other fit.
        freedoms: of both fits.

    Returns:
        `two` minus `one` with its interval, and the two-sided p value.
    """
    from scipy import stats

    level = (1 + CONFIDENCE) / 2
    errors = [
        (each.high - each.value) / float(stats.t.ppf(level, freedom))
        for each, freedom in zip((one, two), freedoms, strict=True)
    ]
    gap, error = two.value - one.value, math.hypot(*errors)
    if not error:
        return Estimate(gap, gap, gap), 0.0 if gap else 1.0
    freedom = 1 / sum((part / error) ** 4 / of for part, of in zip(errors, freedoms, strict=True))
    half = float(stats.t.ppf(level, freedom)) * error
    return Estimate(gap, gap - half, gap + half), 2 * float(stats.t.sf(abs(gap) / error, freedom))
