"""Scaling laws: known constants found again, intervals that hold as often as they say, predictions and their report."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vitral.core.config import merge
from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.evaluation import NgramBaselines
from vitral.figures.sections import Table
from vitral.model import ModelConfig
from vitral.model.counts import parameter_table
from vitral.studies import ArmResult, RunResult, StudyResult, study_named
from vitral.studies.design import resolve
from vitral.studies.optimum import contrast, cost_law, optimal_exponents, optimum
from vitral.studies.probes import scaling_runs
from vitral.studies.probes.protocol import Plot
from vitral.studies.probes.scaling_fit import SCALING_FIT
from vitral.studies.scaling import Estimate, envelope, exponential, fit_law, slope
from vitral.training import RunConfig

SCALING = study_named("scaling")
TEN_TIMES = next(arm.changes["model"]["d_model"] for arm in SCALING.arms if arm.name == "ten-times")

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


def test_a_product_is_found_exactly_too():
    fit = fit_law(GRID, noisy(multiplied, 0.0), product=True)
    assert fit.exponent("N").value == pytest.approx(0.11, rel=1e-3)
    assert fit.exponent("D").value == pytest.approx(0.13, rel=1e-3)
    assert fit.loss({"N": 3e6, "D": 4e6}) == pytest.approx(multiplied(3e6, 4e6), rel=1e-3)


def test_a_pure_power_and_its_constant_by_hand():
    places = [10.0, 100.0, 1_000.0, 10_000.0]
    fit = fit_law({"C": places}, [(1e6 / place) ** 0.25 for place in places], floor=False)
    assert fit.exponent("C").value == pytest.approx(0.25)
    assert fit.constant("C").value == pytest.approx(1e6, rel=1e-6)
    assert fit.irreducible is None
    assert slope((10.0, (1e5) ** 0.25), (1000.0, (1e3) ** 0.25)) == pytest.approx(0.25)


def test_least_squares_on_logarithms_agrees_with_the_textbook():
    places = np.array([3.0, 7.0, 19.0, 53.0, 101.0])
    losses = 5 * places**-0.3 * np.exp([0.01, -0.02, 0.03, -0.01, 0.005])
    fit = fit_law({"N": places.tolist()}, losses.tolist(), floor=False)
    from scipy import stats

    x, y = np.log(places), np.log(losses)
    squares = ((x - x.mean()) ** 2).sum()
    gradient = ((x - x.mean()) * (y - y.mean())).sum() / squares
    left = y - y.mean() - gradient * (x - x.mean())
    half = stats.t.ppf(0.975, 3) * math.sqrt((left**2).sum() / 3 / squares)
    exponent = fit.exponent("N")
    assert exponent.value == pytest.approx(-gradient)
    assert (exponent.low, exponent.high) == pytest.approx((-gradient - half, -gradient + half))
    assert fit.residuals == pytest.approx(left)


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


def test_a_floor_that_is_not_there_is_not_claimed():
    fit = fit_law(GRID, [30 * n**-0.2 * 1.0 + 40 * d**-0.3 for n, d in zip(GRID["N"], GRID["D"], strict=True)])
    assert fit.irreducible is None
    assert len(fit.theta) == 4


def test_what_is_too_noisy_is_not_determined():
    assert not fit_law(GRID, noisy(added, 0.1)).exponent("N").determined
    assert fit_law(GRID, noisy(added, 0.002)).exponent("N").determined
    assert Estimate(0.4, 0.2, 0.6).determined
    assert not Estimate(0.4, 0.19, 0.6).determined


def test_an_exponent_at_the_edge_of_the_search_is_not_determined():
    """Runs that do not depend on D at all: whatever its exponent came out as, it means nothing."""
    losses = [1 + 30 * n**-0.3 * math.exp(1e-3 * z) for n, z in zip(GRID["N"], np.sin(range(16)), strict=True)]
    fit = fit_law(GRID, losses)
    assert not fit.exponent("D").determined
    flat = fit_law({"D": GRID["D"]}, [1.7 + 1e-3 * z for z in np.sin(range(16)).tolist()])
    assert not flat.exponent("D").determined


def test_the_fit_is_a_pure_function_of_its_runs():
    losses = noisy(added, 0.01)
    one, two = fit_law(GRID, losses), fit_law(GRID, losses)
    assert one.theta.tolist() == two.theta.tolist()
    assert one.residuals == two.residuals


def test_the_optimum_is_the_least_loss_along_a_line_of_equal_compute():
    fit = fit_law(GRID, noisy(added, 0.0))
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


def test_the_envelope_and_the_price_of_a_token():
    compute, losses = [1.0, 3.0, 2.0, 4.0, 3.0], [3.0, 2.0, 2.5, 2.2, 1.9]
    assert envelope(compute, losses) == [0, 2, 4]
    assert cost_law([10.0, 100.0, 1000.0], [60.0, 600.0, 6000.0]) == pytest.approx((6.0, 1.0))


@pytest.mark.parametrize(
    ("quantities", "losses", "message"),
    [
        ({"N": [1.0, 2.0, 3.0]}, [3.0, 2.0, 1.5], "needs 4 runs at least, not 3"),
        ({"N": [1.0, 2.0, 2.0, 1.0]}, [3.0, 2.0, 2.0, 3.0], "N has 2 values; its exponent needs 3"),
        ({"N": [1.0, 2.0, 3.0, 0.0]}, [3.0, 2.0, 1.5, 1.0], "one positive number"),
        ({"N": [1.0, 2.0, 3.0, 4.0]}, [3.0, 2.0, 1.5, -1.0], "losses above zero"),
        ({"N": [1.0, 2.0, 3.0, 4.0]}, [3.0, 2.0, 1.5], "one positive number of each quantity for each run"),
    ],
)
def test_what_cannot_be_fitted_is_said(quantities, losses, message):
    with pytest.raises(UsageError, match=message):
        fit_law(quantities, losses)
    with pytest.raises(UsageError, match="two sizes or more"):
        cost_law([5.0, 5.0], [1.0, 1.0])


def test_ten_times_is_ten_times_the_largest_of_the_grid():
    def blocks(width):
        model = ModelConfig.parse({"d_model": width, "num_heads": 4, "num_layers": 2, "context_length": 64})
        return sum(row.count for row in parameter_table(model, 109) if row.part not in ("embedding", "head"))

    widths = {arm.changes["model"]["d_model"] for arm in SCALING.arms[1:] if not arm.name.startswith("ten-times")}
    assert blocks(TEN_TIMES) / blocks(max(widths)) == pytest.approx(10, rel=0.02)
    assert blocks(max(widths)) / blocks(min(widths)) > 10


def test_the_interval_of_the_optimum_is_the_delta_methods():
    """The analytic derivative of log N_opt against one taken by small steps of the fitted numbers."""
    fit, compute, price = fit_law(GRID, noisy(added, 0.002)), 5e12, (40.0, 0.8)
    best = optimum(fit, compute, price).parameters

    def log_size(theta):
        return math.log(optimum(replace(fit, theta=theta), compute, price).parameters.value)

    step = 1e-5
    slopes = [
        (log_size(fit.theta + step * one) - log_size(fit.theta - step * one)) / (2 * step)
        for one in np.eye(len(fit.theta))
    ]
    expected = exponential(fit.linear(math.log(best.value), np.array(slopes)))
    assert (best.low, best.high) == pytest.approx((expected.low, expected.high), rel=1e-4)
    assert best.low < best.value < best.high


def test_what_doubling_the_size_is_worth():
    fit = fit_law(GRID, [40 * n**-0.2 * d**-0.1 for n, d in zip(GRID["N"], GRID["D"], strict=True)], product=True)
    assert fit.worth("N", "D").value == pytest.approx(4.0, rel=1e-3)
    # An exponent at the edge of the search: a number all the same, not an overflow.
    edge = replace(fit, theta=np.array([*fit.theta[:-2], 6.0, 1e-4]))
    assert math.isfinite(edge.worth("N", "D").value)


def test_a_contrast_by_hand():
    """Two fits with 7 freedoms and errors of 0.3 and 0.4: an error of 0.5 and 1 / (0.6⁴/7 + 0.8⁴/7) freedoms."""
    from scipy import stats

    t = float(stats.t.ppf(0.975, 7))
    one, two = Estimate(1.0, 1.0 - 0.3 * t, 1.0 + 0.3 * t), Estimate(2.0, 2.0 - 0.4 * t, 2.0 + 0.4 * t)
    gap, p = contrast(one, two, (7, 7))
    freedom = 7 / (0.6**4 + 0.8**4)
    assert gap.value == pytest.approx(1.0)
    assert gap.high == pytest.approx(1 + 0.5 * stats.t.ppf(0.975, freedom))
    assert p == pytest.approx(2 * stats.t.sf(2.0, freedom))


def test_the_constants_of_a_sum_have_intervals_that_hold_them():
    fit = fit_law(GRID, noisy(added, 0.002))
    for name, truth in (("N", A), ("D", B)):
        found = fit.coefficient(name)
        assert found.low < truth < found.high < 100 * truth


def made(tmp_path: Path, law, budget, spread, seeds=(1,), ten_times=1.0) -> tuple[StudyResult, dict]:
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
        kind = 0.97 if name.startswith("bpe") else ten_times if name.startswith("ten") else 1.0
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
            RunResult(seed, tmp_path, ((1, loss),), None, None, loss, 1.0)
            for seed, loss in zip(seeds, losses, strict=True)
        )
        plain = resolved.config.plain()
        arms.append(ArmResult(resolved.arm, plain, resolved.num_parameters, resolved.flops_per_token, runs))
    lines = NgramBaselines({1: 3.2, 2: 2.5, 3: 1.9}, 2.5)
    result = StudyResult(study, arms[0].config, seeds, seeds, tuple(arms), lines, lines, {}, {}, tmp_path, budget)
    return result, measured


def findings(result, measured):
    return SCALING_FIT.show(result, measured).findings


def test_the_exhibit_says_what_the_numbers_say(tmp_path):
    result, measured = made(tmp_path, added, "standard", 0.002, seeds=(1, 2))
    exhibit = SCALING_FIT.show(result, measured)
    names = [section.name for section in exhibit.sections if isinstance(section, Plot)]
    assert names == ["scaling-size", "scaling-compute", "scaling-optimum", "scaling-prediction"]
    (laws, residuals, line, predictions, tokens) = [s for s in exhibit.sections if isinstance(s, Table)]
    assert [row[0] for row in laws.rows] == [
        "L(N)",
        "L(D)",
        "L(C)",
        *["E + A/N^α + B/D^β"] * 2,
        *["E + A/(N^α D^β)"] * 2,
    ]
    assert len(residuals.rows) == 25
    # L(N) knows the five places of the largest D, L(D) those of the largest N, the joint laws all.
    offs = [[row[column] for row in residuals.rows if row[column] != "\N{EN DASH}"] for column in range(4, 9)]
    assert [len(off) for off in offs[:2] + offs[3:]] == [5, 5, 25, 25]
    assert "compute-optimal" in line.caption
    assert line.rows[0][1] == "within"
    assert line.rows[-1][1] == "beyond"
    assert len(predictions.rows) == 4
    assert tokens.columns[1:3] == ("characters", "byte pairs (512)")
    assert len(tokens.rows) == 12 + 2 * 2 + 2 * 2 + 2
    by_sum = next(f for f in exhibit.findings if f.arm == "ten-times" and "E + A/N^α + B/D^β" in f.text)
    assert by_sum.holds is True
    assert "held all of 2" in by_sum.text
    assert any("E + A/N^α + B/D^β fits as well as seeds repeat" in f.text for f in exhibit.findings)
    alike = [f for f in exhibit.findings if "no difference is seen" in f.text]
    assert [f.holds for f in alike] == [False]
    assert not any("the tokens move it" in f.text for f in exhibit.findings)


def test_a_model_that_does_not_obey_is_told_so(tmp_path):
    result, measured = made(tmp_path, added, "standard", 0.002, seeds=(1, 2), ten_times=1.4)
    by_sum = next(f for f in findings(result, measured) if f.arm == "ten-times" and "+ B/D^β" in f.text)
    assert by_sum.holds is False
    assert "held none of 2" in by_sum.text


def test_a_law_that_is_the_wrong_one_misses_systematically(tmp_path):
    result, measured = made(tmp_path, lambda n, d: 40 * n**-0.11 * d**-0.13, "standard", 0.0005, seeds=(1, 2))
    told = {
        f.text.split(" misses")[0].split(" fits")[0]: f.holds for f in findings(result, measured) if "seeds" in f.text
    }
    assert told["E + A/(N^α D^β)"] is True
    assert told["E + A/N^α + B/D^β"] is False


def test_noise_that_drowns_the_law_leaves_no_claims(tmp_path):
    result, measured = made(tmp_path, added, "quick", 0.15)
    found = findings(result, measured)
    assert any("do not determine" in f.text and "+ B/D^β in N" in f.text for f in found)
    ten = [f for f in found if f.arm == "ten-times"]
    assert all("tests nothing" in f.text and f.holds is None for f in ten)
    paragraphs = [getattr(section, "text", "") for section in SCALING_FIT.show(result, measured).sections]
    assert any("so none is given" in text for text in paragraphs)


def test_a_grid_of_one_size_shows_nothing(tmp_path):
    result, measured = made(tmp_path, added, "quick", 0.01)
    few = {name: found for name, found in measured.items() if name.startswith("d64")}
    assert SCALING_FIT.show(result, few).sections == ()


def test_as_many_places_as_numbers_leave_no_misfit_to_test(tmp_path):
    """Four places and two seeds: the sum of four numbers goes through the means, the product of three need not."""
    result, measured = made(tmp_path, added, "quick", 0.01, seeds=(1, 2))
    few = {name: measured[name] for name in ("d16-60", "d16-240", "d64-60", "d64-240")}
    text = [f.text for f in findings(result, few) if "seeds repeat" in f.text or "misses systematically" in f.text]
    assert len(text) == 1
    assert text[0].startswith("E + A/(N^α D^β)")


def test_a_lucky_run_does_not_stand_for_its_place():
    """One seed of the second place beats the third: by single runs the third would never be on the front."""

    def run(arm, compute, loss):
        return scaling_runs.Run(arm, arm, "characters", compute, compute, compute, loss)

    grid = [run("one", 1.0, 3.0), run("two", 2.0, 2.8), run("two", 2.0, 2.0), run("three", 3.0, 2.2)]
    assert [(point.arm, point.loss) for point in scaling_runs.front(grid)] == [
        ("one", 3.0),
        ("two", 2.4),
        ("three", 2.2),
    ]


def test_vocabularies_are_different_tokens(tmp_path):
    """With byte pairs as the base's tokens too, a larger vocabulary of them is other tokens."""
    result, measured = made(tmp_path, added, "standard", 0.002, seeds=(1, 2))

    def tokens(arm):
        size = 1024 if arm.arm.name.startswith("bpe") else 512
        corpus = arm.config["corpus"] | {"tokenizer": {"name": "bpe", "vocab_size": size}}
        return replace(arm, config=dict(arm.config) | {"corpus": corpus})

    pairs = replace(result, arms=tuple(tokens(arm) for arm in result.arms))
    exhibit = SCALING_FIT.show(pairs, measured)
    *_, last = [section for section in exhibit.sections if isinstance(section, Table)]
    assert last.columns[1:3] == ("byte pairs (512)", "byte pairs (1,024)")
    assert any("Between byte pairs (1,024) and byte pairs (512) no difference" in f.text for f in exhibit.findings)
    grid = [run for run in scaling_runs.gather(pairs, measured) if run.tokens == "byte pairs (512)"]
    assert len(grid) == 2 * (25 + 2)


def test_tokens_that_move_an_exponent_are_seen_to(tmp_path):
    result, measured = made(tmp_path, added, "standard", 0.002, seeds=(1, 2))
    arms = []
    for arm in result.arms:
        runs = arm.runs
        if arm.arm.name.startswith("bpe"):
            # A loss that falls more slowly with the size.
            size = measured[arm.arm.name][1]["size"]
            runs = tuple(replace(run, test_loss=(run.test_loss or 0.0) * (size / 1e4) ** 0.05) for run in runs)
        arms.append(replace(arm, runs=runs))
    found = findings(replace(result, arms=tuple(arms)), measured)
    moved = [f.text for f in found if "the tokens move it" in f.text]
    assert any(text.startswith("α of the product without a floor is") for text in moved)
    assert not any(text.startswith("β of the product without a floor") for text in moved)
    alike = next(f for f in found if "no difference is seen" in f.text)
    assert alike.holds is False
    assert "β of the product without a floor (" in alike.text
    assert all(any(name in f.text for f in found) for name in ("N_c of L(N)", "D_c of L(D)", "A of the sum"))


def test_nothing_measured_shows_nothing(tmp_path):
    result, _ = made(tmp_path, added, "quick", 0.01)
    assert SCALING_FIT.show(result, {}).sections == ()


def test_runs_of_which_one_quantity_says_nothing_have_no_worth(tmp_path):
    result, measured = made(tmp_path, lambda n, d: 1 + 30 * n**-0.3, "quick", 0.002)
    text = " ".join(getattr(section, "text", "") for section in SCALING_FIT.show(result, measured).sections)
    assert "so none is given" in text
    assert "doubling N" not in text
