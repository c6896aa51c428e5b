"""Scaling laws: known constants recovered, coverage of intervals, predictions, and the view of a study."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats
from text_studies import resolved, result_of, shown

from tests.studies.conftest import measures, tables
from vitral.core.streams import numpy_stream
from vitral.core.text import p_clause
from vitral.model.counts import parameter_table
from vitral.studies import StudyResult, study_named
from vitral.studies.judging import judge
from vitral.studies.probes import probe_named
from vitral.studies.probes.scaling import PRODUCT, SUM, fitted, misfit
from vitral.studies.resolution import tokens_trained
from vitral.studies.scaling import fit_law

TERMS = [(), ("N",), ("D",)]
SCALING, FIT = study_named("scaling"), probe_named("scaling-fit")
E, A, ALPHA, B, BETA = 1.2, 30.0, 0.40, 120.0, 0.42
SIZES, AMOUNTS = (7e3, 2e4, 5e4, 1.3e5), (1.1e5, 2.3e5, 4.7e5, 1.1e6)
GRID = {
    "N": [size for size in SIZES for _ in AMOUNTS],
    "D": [amount for _ in SIZES for amount in AMOUNTS],
}


def added(n, d):
    return E + A * n**-ALPHA + B * d**-BETA


def noisy(law, spread, *index):
    noise = numpy_stream(11, "scaling test", *index).standard_normal(len(GRID["N"]))
    return [law(n, d) * math.exp(spread * z) for n, d, z in zip(GRID["N"], GRID["D"], noise, strict=True)]


def test_without_noise_the_constants_are_found_exactly():
    fit = fit_law(GRID, noisy(added, 0.0), TERMS)
    assert fit is not None
    assert fit.exponent("N").value == pytest.approx(ALPHA, rel=1e-4)
    assert fit.exponent("D").value == pytest.approx(BETA, rel=1e-4)
    constants = [fit.constant("N"), fit.constant("D"), fit.floor]
    assert [one and one.value for one in constants] == pytest.approx([A, B, E], rel=1e-3)
    assert fit.predict({"N": 3e6, "D": 4e6}).value == pytest.approx(added(3e6, 4e6), rel=1e-4)
    assert fit.freedom == 16 - 5


def test_a_pure_power_and_its_constant_by_hand():
    amounts = [10.0, 100.0, 1_000.0, 10_000.0]
    fit = fit_law({"C": amounts}, [(1e6 / compute) ** 0.25 for compute in amounts], [("C",)])
    assert fit is not None
    assert fit.exponent("C").value == pytest.approx(0.25)
    constant = fit.constant("C")
    assert constant is not None
    assert constant.value == pytest.approx(1e6, rel=1e-6)
    assert fit.floor is None


@pytest.mark.merge
def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """40 studies of 16 runs: of 40 intervals of 95 % at least 34 hold (fewer: 1 in 1,000 by chance)."""
    held = {"N": 0, "D": 0, "prediction": 0}
    for study in range(40):
        fit = fit_law(GRID, noisy(added, 0.004, study), TERMS)
        assert fit is not None
        for name, truth in (("N", ALPHA), ("D", BETA)):
            measured = fit.exponent(name)
            held[name] += measured.low <= truth <= measured.high
        later = added(1.3e6, 1.1e6) * math.exp(0.004 * numpy_stream(13, "later", study).standard_normal())
        predicted = fit.predict({"N": 1.3e6, "D": 1.1e6})
        held["prediction"] += predicted.low <= later <= predicted.high
    assert min(held.values()) >= 34


def test_what_cannot_be_fitted_is_none_and_a_floor_that_cannot_be_is_left_out():
    assert fit_law({"N": [1.0, 2.0]}, [3.0, 2.0], [("N",)]) is None
    assert fit_law({"N": [2.0, 2.0, 2.0]}, [3.0, 2.0, 1.5], [("N",)]) is None
    bare = fit_law({"N": [1.0, 2.0, 2.0, 1.0]}, [3.0, 2.0, 2.1, 3.1], [(), ("N",)])
    assert bare is not None
    assert bare.floor is None


def made(law, budget, spread, seeds=(1,)) -> tuple[StudyResult, dict]:
    """The study's result if the loss in bits per character followed a law of N and D, and its probe's measurements."""
    measured, losses = {}, {}
    for number, arm in enumerate(resolved(SCALING, budget)):
        name, model = arm.arm.name, arm.config.model
        size = sum(row.count for row in parameter_table(model, 109) if row.part not in ("embedding", "head"))
        amount, noise = tokens_trained(arm.config.plain()), numpy_stream(3, "made", number).standard_normal(len(seeds))
        kind = 0.97 if name.startswith("bpe") else 1.0
        losses[name] = [law(size, amount) * kind * math.exp(spread * z) / math.log(2) for z in noise]
        measured[name] = {
            seed: {
                "size": size,
                "amount": amount,
                "compute": arm.flops,
                "characters_per_token": 1.0,
            }
            for seed in seeds
        }
    return result_of(SCALING, budget, losses, seeds, Path()), measured


@pytest.fixture(scope="module")
def obeying() -> tuple[StudyResult, dict]:
    """A study that obeys the sum."""
    return made(added, "full", 0.002, seeds=(1, 2, 3))


def test_a_study_that_obeys_the_sum(obeying):
    result, measured = obeying
    view = shown(FIT, result, measured)
    laws, predicted = tables(view)
    assert [row[0] for row in laws.cells] == ["L(N)", "L(D)", "L(C)", SUM, SUM, PRODUCT, PRODUCT]
    assert len(predicted.cells) == 6  # a larger model twice, more tokens once, by two laws
    by_sum = [check.shown for check in view.checks if check.arm and SUM in check.what]
    assert by_sum == [True] * 3
    assert next(check for check in view.checks if check.subject == SUM).shown is True
    # Losses with byte pairs are the same share lower everywhere, so no exponent is another.
    claims = judge(view.comparisons)
    assert [(one.comparison.subject, one.comparison.against) for one in claims] == [
        ("byte pairs (512)", "characters")
    ] * 2
    assert not any(claim.shown for claim in claims)
    # The same numbers by hand.
    runs = [
        (measured[arm.arm.name][seed], loss)
        for arm in result.arms
        for seed, loss in arm.losses.items()
        if arm.arm.name.startswith("d")
    ]
    quantities = {"N": [run["size"] for run, _ in runs], "D": [run["amount"] for run, _ in runs]}
    fit = fit_law(quantities, [loss * math.log(2) for _, loss in runs], TERMS)
    assert fit is not None
    assert [row[2] for row in laws.cells[3:5]] == [f"{fit.exponent(name).value:.3f}" for name in "ND"]
    assert laws.cells[3][7] == f"{100 * fit.spread:.2f}%"
    ten = measured["ten-times"][1]
    loss = fit.predict({"N": ten["size"], "D": ten["amount"]})
    assert predicted.cells[0][3].startswith(f"{loss.value:.3f} ({loss.low:.3f} to {loss.high:.3f}")


def test_exponents_that_other_tokens_change_are_told():
    """With byte pairs the loss falls as D^-0.2 instead of D^-0.1, at every N."""

    def law(n, d):
        return n**-0.08 * d**-0.1

    result, measured = made(law, "standard", 0.002, seeds=(1, 2, 3))

    def other(arm):
        if not arm.arm.name.startswith("bpe"):
            return arm
        factor = measured[arm.arm.name][1]["amount"] ** -0.1
        return replace(arm, runs=tuple(replace(run, test_loss=run.test_loss * factor) for run in arm.runs))

    view = shown(FIT, replace(result, arms=tuple(map(other, result.arms))), measured)
    of_size, of_amount = judge(view.comparisons)
    assert of_size.shown is False
    assert (of_amount.verdict, of_amount.difference) == ("higher", pytest.approx(0.1, abs=0.01))


def test_the_lack_of_fit_by_hand():
    """Three sizes and two runs each of a line in logarithms: F with 1 and 3 freedoms.

    Means 1.1, 0.6, 0.7: the line 1.0 - 0.2 x leaves 0.1, -0.2, 0.1, twice each.
    """
    logs = {1.0: (1.0, 1.2), math.e: (0.5, 0.7), math.e**2: (0.6, 0.8)}
    arms = measures(
        {
            str(n): {seed: {"size": n, "nats_per_character": math.exp(log)} for seed, log in enumerate(pair)}
            for n, pair in logs.items()
        }
    )
    (law,) = fitted("L(N)", arms, [("N",)])
    check = misfit(law)
    assert check is not None
    assert check.value == pytest.approx(2 * 0.06 / (6 * 0.01 / 3))
    assert check.high == pytest.approx(stats.f.isf(0.05, 1, 3))
    assert f"{100 * math.sqrt(0.02):.2f}% between seeds" in check.expected
    assert p_clause(float(stats.f.sf(6.0, 1, 3))) in check.expected
