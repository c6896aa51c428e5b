"""A study's runs as points of a scaling law, and the laws fitted to them.

Losses are in nats per character for any tokens. N is the number of parameters in the blocks, without embeddings and
head (Kaplan et al. 2020, §1.3); D the tokens trained on; C the operations of the training.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import N_, _, number
from vitral.model import ModelConfig
from vitral.model.counts import parameter_table
from vitral.studies.claims import LEVEL
from vitral.studies.scaling import Fit, Uncertain, fit_law

KINDS_OF_TOKENS = {"char": N_("characters"), "byte": N_("bytes"), "bpe": N_("byte pairs")}
"""By name of the tokenizer, as `_` translates them."""
SUM, PRODUCT = "E + A/N^α + B/D^β", "E + A/(N^α D^β)"
PREDICTED = ("ten-times", "more-tokens")
"""Arms whose name begins with one of these are left out of the fits and predicted by them."""
TOO_WIDE = 0.25
"""A predicted interval wider than this share of the loss is no test of the law."""


@dataclass(frozen=True)
class Point:
    """One run.

    Attributes:
        arm: its name.
        title: of the arm.
        tokens: name of its kind of tokens.
        place: N, D and C by name.
        loss: nats per character.
        seed: of the run.
    """

    arm: str
    title: str
    tokens: str
    place: Mapping[str, float]
    loss: float
    seed: int = 0

    @property
    def node(self) -> tuple[float, float]:
        """N and D: its place in the grid."""
        return self.place["N"], self.place["D"]


@dataclass(frozen=True)
class Law:
    """A fitted law.

    Attributes:
        formula: as it is written.
        fit: its numbers.
        points: in the order of the fit's residuals.
        symbols: of its exponents, by quantity.
    """

    formula: str
    fit: Fit
    points: tuple[Point, ...]
    symbols: Mapping[str, str]


@dataclass(frozen=True)
class Constant:
    """A constant of one law, fitted with two kinds of tokens at the same places.

    Attributes:
        name: of the constant.
        log: whether the numbers are logarithms.
        numbers: with either kind.
        freedoms: of either fit.
    """

    name: str
    log: bool
    numbers: tuple[Uncertain, Uncertain]
    freedoms: tuple[int, int]


def block_parameters(model: ModelConfig, vocab_size: int) -> int:
    """N of a model."""
    return sum(row.count for row in parameter_table(model, vocab_size) if row.part not in ("embedding", "head"))


def loss_per_character(loss: float, unit: str, measured: Mapping[str, Any]) -> float:
    """A loss in a study's unit as nats per character.

    Args:
        loss: of a run.
        unit: of the study.
        measured: what the probe `scaling-fit` measured of the run.
    """
    return loss * (math.log(2) if unit == "bits per character" else 1 / measured["characters_per_token"])


def place_of(measured: Mapping[str, Any]) -> dict[str, float]:
    """N, D and C of a run, as the probe `scaling-fit` measured them."""
    return {"N": float(measured["size"]), "D": float(measured["amount"]), "C": float(measured["compute"])}


def grid_of(points: Sequence[Point], tokens: str) -> list[Point]:
    """The points that laws are fitted to: of these tokens, without those that are predicted."""
    return [point for point in points if point.tokens == tokens and not point.arm.startswith(PREDICTED)]


def by_arm(points: Sequence[Point], values: Sequence[float]) -> dict[str, list[float]]:
    """The values of these points, by arm."""
    found: dict[str, list[float]] = {}
    for point, value in zip(points, values, strict=True):
        found.setdefault(point.arm, []).append(value)
    return found


def means(points: Sequence[Point]) -> list[Point]:
    """One point for each arm, with the mean loss over its seeds."""
    losses = by_arm(points, [point.loss for point in points])
    first = {point.arm: point for point in reversed(points)}
    return [replace(first[arm], loss=fmean(each)) for arm, each in losses.items()]


def front(grid: Sequence[Point]) -> list[Point]:
    """The arms that no arm of as little compute beats, by their means: single runs would select lucky ones."""
    found: list[Point] = []
    for point in sorted(means(grid), key=lambda point: (point.place["C"], point.loss)):
        if not found or point.loss < found[-1].loss:
            found.append(point)
    return found


def single_laws(grid: Sequence[Point]) -> list[Law]:
    """L(N) at the largest D, L(D) at the largest N, L(C) through the front: (x_c/x)^α each, where runs suffice."""
    chosen = {"N": at_most(grid, "D"), "D": at_most(grid, "N"), "C": front(grid)}
    return [law for name, points in chosen.items() if (law := single_law(name, points)) is not None]


def at_most(grid: Sequence[Point], name: str) -> list[Point]:
    """The points with the largest value of a quantity."""
    most = max(point.place[name] for point in grid)
    return [point for point in grid if point.place[name] == most]


def single_law(name: str, points: Sequence[Point]) -> Law | None:
    """(x_c/x)^α through these points; None where they are too few."""
    fit = _fit((name,), points, floor=False)
    return None if fit is None else Law(f"L({name})", fit, tuple(points), {name: f"α_{name}"})


def joint_laws(points: Sequence[Point]) -> list[Law]:
    """The sum and the product of N and D, with a floor if the runs allow one, where there are runs enough."""
    laws = ((formula, joint_fit(points, product=formula == PRODUCT)) for formula in (SUM, PRODUCT))
    return [Law(formula, fit, tuple(points), {"N": "α", "D": "β"}) for formula, fit in laws if fit is not None]


def joint_fit(points: Sequence[Point], *, product: bool) -> Fit | None:
    """One law of N and D, with a floor if the runs allow one; None where they are too few."""
    found = (_fit(("N", "D"), points, floor=floor, product=product) for floor in (True, False))
    return next((fit for fit in found if fit is not None), None)


def _fit(names: Sequence[str], points: Sequence[Point], *, floor: bool, product: bool = False) -> Fit | None:
    quantities = {name: [point.place[name] for point in points] for name in names}
    try:
        return fit_law(quantities, [point.loss for point in points], floor=floor, product=product)
    except UsageError:
        return None


@dataclass(frozen=True)
class LackOfFit:
    """The F test of lack of fit (Fisher 1922): whether a law leaves more than the scatter between seeds.

    Attributes:
        ratio: F, the variance that the law leaves among the means of arms over the variance between seeds.
        critical: the value that F exceeds with probability LEVEL if the law is right.
        p: of the test.
        scatter: standard deviation of log L between seeds.
    """

    ratio: float
    critical: float
    p: float
    scatter: float


def lack_of_fit(law: Law) -> LackOfFit | None:
    """The test; None where the seeds show no scatter, or the law has as many numbers as there are arms."""
    from scipy import stats

    groups = by_arm(law.points, [math.log(point.loss) for point in law.points]).values()
    freedom = sum(len(group) - 1 for group in groups)
    pure = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    freedoms = law.fit.freedom - freedom, freedom
    if not pure or min(freedoms) < 1:
        return None
    ratio = max(0.0, law.fit.spread**2 * law.fit.freedom - pure) / freedoms[0] / (pure / freedom)
    critical, p = float(stats.f.isf(LEVEL, *freedoms)), float(stats.f.sf(ratio, *freedoms))
    return LackOfFit(ratio, critical, p, math.sqrt(pure / freedom))


def same_places(grid: Sequence[Point], others: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """The points of both kinds of tokens at the N and D that both have."""
    one, two = ({point.node for point in points} for points in (grid, others))
    own, other = ([point for point in points if point.node in one & two] for points in (grid, others))
    return own, other


def constants(own: Sequence[Point], other: Sequence[Point]) -> list[Constant]:
    """The constants of L(N), L(D), the sum and the product without a floor, where both fits exist and bound them."""
    found: list[Constant] = []

    def add(fits: Sequence[Fit | None], quantity: str, exponent: str, level: str = "", single: bool = False) -> None:
        one, two = fits
        if one is None or two is None or any(math.isinf(fit.exponent(quantity).high) for fit in (one, two)):
            return
        freedoms = one.freedom, two.freedom
        found.append(Constant(exponent, False, (one.exponents[quantity], two.exponents[quantity]), freedoms))
        if level:
            logs = [fit.log_constant(quantity) if single else fit.log_coefficients[quantity] for fit in (one, two)]
            found.append(Constant(level, True, (logs[0], logs[1]), freedoms))

    if not own:
        return found
    for name, fixed in (("N", "D"), ("D", "N")):
        fits = [_fit((name,), at_most(points, fixed), floor=False) for points in (own, other)]
        exponent, level = (
            _("{constant} of {law}", constant=one, law=f"L({name})") for one in (f"α_{name}", f"{name}_c")
        )
        add(fits, name, exponent, level, single=True)
    sums = [joint_fit(points, product=False) for points in (own, other)]
    add(sums, "N", _("α of the sum"), _("A of the sum"))
    add(sums, "D", _("β of the sum"), _("B of the sum"))
    products = [_fit(("N", "D"), points, floor=False, product=True) for points in (own, other)]
    add(products, "N", _("α of the product without a floor"))
    add(products, "D", _("β of the product without a floor"))
    return found


def token_name(table: Mapping[str, Any]) -> str:
    """The name of a tokenizer's tokens in the current language; other settings have other names.

    >>> token_name({"name": "bpe", "vocab_size": 512})
    'byte pairs (512)'
    """
    details = [number(table["vocab_size"], ",")] if "vocab_size" in table else []
    details += [
        f"{key} {json.dumps(value)}" for key, value in sorted(table.items()) if key not in ("name", "vocab_size")
    ]
    name = _(KINDS_OF_TOKENS.get(table["name"], str(table["name"])))
    return f"{name} ({', '.join(details)})" if details else name
