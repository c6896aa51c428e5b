"""Scaling laws: known constants recovered, coverage of intervals, predictions, and the view of a study."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from uncertainties import ufloat

from tests.studies.conftest import tables
from vitral.core.config import merge
from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.evaluation import NgramBaselines
from vitral.model.counts import parameter_table
from vitral.studies import ArmResult, RunResult, StudyResult, study_named
from vitral.studies.probe import ArmMeasures, View
from vitral.studies.probes import probe_named
from vitral.studies.resolution import resolve
from vitral.studies.scaling import contrast, cost_law, fit_law, optimal_exponents, optimum
from vitral.studies.scaling_grid import (
    PRODUCT,
    SUM,
    Point,
    lack_of_fit,
    single_law,
)
from vitral.training import RunConfig

SCALING = study_named("scaling")
E, A, ALPHA, B, BETA = 1.2, 30.0, 0.40, 120.0, 0.42
SIZES, AMOUNTS = (7e3, 2e4, 5e4, 1.3e5), (1.1e5, 2.3e5, 4.7e5, 1.1e6)
GRID = {
    "N": [size for size in SIZES for _ in AMOUNTS],
    "D": [amount for _ in SIZES for amount in AMOUNTS],
}


def added(n, d):
    return E + A * n**-ALPHA + B * d**-BETA


def multiplied(n, d):
    return E + 40 * n**-0.11 * d**-0.13


def noisy(law, spread, *index):
    noise = numpy_stream(11, "scaling test", *index).standard_normal(len(GRID["N"]))
    return [law(n, d) * math.exp(spread * z) for n, d, z in zip(GRID["N"], GRID["D"], noise, strict=True)]


def test_without_noise_the_constants_are_found_exactly():
    fit = fit_law(GRID, noisy(added, 0.0))
    assert fit.exponent("N").value == pytest.approx(ALPHA, rel=1e-4)
    assert fit.exponent("D").value == pytest.approx(BETA, rel=1e-4)
    assert fit.coefficient("N").value == pytest.approx(A, rel=1e-3)
    assert fit.coefficient("D").value == pytest.approx(B, rel=1e-3)
    floor = fit.irreducible
    assert floor is not None
    assert floor.value == pytest.approx(E, rel=1e-4)
    assert fit.loss({"N": 3e6, "D": 4e6}) == pytest.approx(added(3e6, 4e6), rel=1e-4)
    assert fit.freedom == 16 - 5


def test_a_pure_power_and_its_constant_by_hand():
    places = [10.0, 100.0, 1_000.0, 10_000.0]
    fit = fit_law({"C": places}, [(1e6 / place) ** 0.25 for place in places], floor=False)
    assert fit.exponent("C").value == pytest.approx(0.25)
    assert fit.constant("C").value == pytest.approx(1e6, rel=1e-6)
    assert fit.irreducible is None


@pytest.mark.merge
def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """40 studies of 16 runs: of 40 intervals of 95 % at least 34 hold (fewer: 1 in 1,000 by chance)."""
    held = {"N": 0, "D": 0, "prediction": 0}
    for study in range(40):
        fit = fit_law(GRID, noisy(added, 0.004, study))
        for name, truth in (("N", ALPHA), ("D", BETA)):
            found = fit.exponent(name)
            held[name] += found.low <= truth <= found.high
        later = added(1.3e6, 1.1e6) * math.exp(0.004 * numpy_stream(13, "later", study).standard_normal())
        predicted = fit.predict({"N": 1.3e6, "D": 1.1e6})
        held["prediction"] += predicted.low <= later <= predicted.high
    assert min(held.values()) >= 34


def test_the_optimum_is_the_least_loss_along_a_line_of_equal_compute():
    fit = fit_law(GRID, noisy(added, 0.0))
    assert cost_law([10.0, 100.0, 1000.0], [60.0, 600.0, 6000.0]) == pytest.approx((6.0, 1.0))
    for price in ((6.0, 1.0), (40.0, 0.8)):
        compute = 5e12
        best = optimum(fit, compute, price)
        assert price[0] * best.parameters.value ** price[1] * best.tokens == pytest.approx(compute)
        sizes = np.geomspace(1e2, 1e8, 20_001)
        losses = [fit.loss({"N": n, "D": compute / (price[0] * n ** price[1])}) for n in sizes.tolist()]
        assert best.parameters.value == pytest.approx(sizes[int(np.argmin(losses))], rel=2e-3)
        assert best.loss == pytest.approx(min(losses), rel=1e-8)
        size, amount = optimal_exponents(fit, price)
        larger = optimum(fit, 10 * compute, price)
        assert math.log10(larger.parameters.value / best.parameters.value) == pytest.approx(size.value)
        assert math.log10(larger.tokens / best.tokens) == pytest.approx(amount.value)


@pytest.mark.parametrize(
    ("quantities", "losses", "message"),
    [
        ({"N": [1.0, 2.0, 3.0]}, [3.0, 2.0, 1.5], "needs 4 runs at least, not 3"),
        ({"N": [1.0, 2.0, 2.0, 1.0]}, [3.0, 2.0, 2.0, 3.0], "N has 2 values; its exponent needs 3"),
        ({"N": [1.0, 2.0, 3.0, 0.0]}, [3.0, 2.0, 1.5, 1.0], "one positive number"),
        ({"N": [1.0, 2.0, 3.0, 4.0]}, [3.0, 2.0, 1.5, -1.0], "losses above zero"),
    ],
)
def test_what_cannot_be_fitted_is_said(quantities, losses, message):
    with pytest.raises(UsageError, match=message):
        fit_law(quantities, losses)
    with pytest.raises(UsageError, match="two sizes or more"):
        cost_law([5.0, 5.0], [1.0, 1.0])


def test_a_contrast_by_hand():
    """Two fits with 7 freedoms and errors of 0.3 and 0.4: an error of 0.5 and 1 / (0.6⁴/7 + 0.8⁴/7) freedoms."""
    one, two = ufloat(1.0, 0.3), ufloat(2.0, 0.4)
    gap, p = contrast(one, two, (7, 7))
    freedom = 7 / (0.6**4 + 0.8**4)
    assert gap.value == pytest.approx(1.0)
    assert gap.high == pytest.approx(1 + 0.5 * stats.t.ppf(0.975, freedom))
    assert p == pytest.approx(2 * stats.t.sf(2.0, freedom))
    wider, same = contrast(one, two, (7, 7), 0.995)
    assert same == p
    assert wider.high == pytest.approx(1 + 0.5 * stats.t.ppf(0.9975, freedom))


def made(law, budget, spread, seeds=(1,)) -> tuple[StudyResult, dict]:
    """The study's result if the loss in bits per character followed a law of N and D, and its probe's measurements."""
    study = SCALING.at(budget)
    base = RunConfig.parse(
        merge({"model": {"context_length": 64, "num_layers": 2, "num_heads": 4}}, SCALING.budgets[budget].changes)
    )
    measured, arms = {}, []
    for number, resolved in enumerate(
        resolve(study, base, lambda corpus: getattr(corpus.tokenizer, "vocab_size", 109))
    ):
        name, model = resolved.arm.name, resolved.config.model
        size = sum(row.count for row in parameter_table(model, 109) if row.part not in ("embedding", "head"))
        noise = numpy_stream(3, "made", number).standard_normal(len(seeds))
        kind = 0.97 if name.startswith("bpe") else 1.0
        losses = [law(size, resolved.num_tokens) * kind * math.exp(spread * z) / math.log(2) for z in noise]
        measured[name] = {
            seed: {
                "size": size,
                "amount": resolved.num_tokens,
                "compute": resolved.flops,
                "characters_per_token": 1.0,
            }
            for seed in seeds
        }
        runs = tuple(
            RunResult(seed, Path(), ((1, loss),), None, None, loss, 1.0)
            for seed, loss in zip(seeds, losses, strict=True)
        )
        plain = resolved.config.plain()
        arms.append(ArmResult(resolved.arm, plain, resolved.num_parameters, resolved.flops_per_token, runs))
    lines = NgramBaselines({1: 3.2, 2: 2.5, 3: 1.9}, 2.5)
    result = StudyResult(study, arms[0].config, seeds, seeds, tuple(arms), lines, lines, {}, {}, Path(), budget)
    return result, measured


def shown(result: StudyResult, measured: dict) -> View:
    arms = [
        ArmMeasures(arm.arm.name, arm.arm.title, arm.config, measured[arm.arm.name])
        for arm in result.arms
        if measured.get(arm.arm.name)
    ]
    return probe_named("scaling-fit").view(result, arms)


def predictions(view: View, formula: str, arm: str = "ten-times") -> list[bool | None]:
    """What the checks and notes about a larger model say by one law."""
    return [one.shown for one in (*view.checks, *view.notes) if one.arm == arm and formula in one.text]


def changed(view: View) -> list[str]:
    return [note.text for note in view.notes if note.shown]


@pytest.fixture(scope="module")
def obeying() -> tuple[StudyResult, dict]:
    """A study that obeys the sum."""
    return made(added, "full", 0.002, seeds=(1, 2))


def test_a_study_that_obeys_the_sum(obeying):
    result, measured = obeying
    view = shown(result, measured)
    laws, line, predicted, tokens = tables(view)
    assert [row[0] for row in laws.rows] == ["L(N)", "L(D)", "L(C)", SUM, SUM, PRODUCT, PRODUCT]
    assert [row[1] for row in line.rows][0::5] == ["within", "beyond"]
    assert len(predicted.rows) == 6  # a larger model twice, more tokens once, by two laws
    assert tokens.columns[1:3] == ("characters", "byte pairs (512)")
    assert len(tokens.rows) == 12 + 2 * 2 + 2 * 2 + 2
    assert predictions(view, SUM) == predictions(view, SUM, "more-tokens") == [True]
    assert next(check for check in view.checks if check.subject == SUM).shown is True
    assert changed(view) == []
    # The same numbers by hand.
    runs = [
        (measured[arm.arm.name][seed], loss)
        for arm in result.arms
        for seed, loss in arm.losses.items()
        if arm.arm.name.startswith("d")
    ]
    quantities = {"N": [run["size"] for run, _ in runs], "D": [run["amount"] for run, _ in runs]}
    fit = fit_law(quantities, [loss * math.log(2) for _, loss in runs])
    assert [row[2] for row in laws.rows[3:5]] == [f"{fit.exponent(name).value:.3f}" for name in "ND"]
    assert laws.rows[3][7] == f"{100 * fit.spread:.2f}%"
    ten = measured["ten-times"][1]
    told = fit.predict({"N": ten["size"], "D": ten["amount"]})
    assert predicted.rows[0][3].startswith(f"{told.value:.3f} ({told.low:.3f} to {told.high:.3f}")
    price = cost_law(quantities["N"], [run["compute"] / run["amount"] for run, _ in runs])
    assert f"{optimal_exponents(fit, price)[0].value:.3f}" in line.caption


def point(arm: str, loss: float, tokens: str = "characters", **place: float) -> Point:
    return Point(arm, arm, tokens, {"N": 1.0, "D": 1.0, "C": 1.0} | place, loss)


def test_the_lack_of_fit_by_hand():
    """Three sizes and two runs each of a line in logarithms: F with 1 and 3 freedoms."""
    logs = {1.0: (1.0, 1.2), math.e: (0.5, 0.7), math.e**2: (0.6, 0.8)}
    points = [point(str(n), math.exp(log), N=n) for n, pair in logs.items() for log in pair]
    law = single_law("N", points)
    assert law is not None
    found = lack_of_fit(law)
    assert found is not None
    # Means 1.1, 0.6, 0.7: the line 1.0 - 0.2 x leaves 0.1, -0.2, 0.1, twice each.
    assert found.ratio == pytest.approx(2 * 0.06 / (6 * 0.01 / 3))
    assert found.scatter == pytest.approx(math.sqrt(0.02))
    assert found.p == pytest.approx(stats.f.sf(6.0, 1, 3))
    assert found.critical == pytest.approx(stats.f.isf(0.05, 1, 3))
