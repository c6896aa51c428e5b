"""The figures and tables of a study's page, and its data: what is drawn is what was claimed."""

import csv
import html
import json
from dataclasses import replace

import numpy as np
import pytest

from vitral.figures import forest, panels
from vitral.reports import study_figures as drawn
from vitral.reports import study_views
from vitral.reports.study import write_report
from vitral.reports.study_tables import contrasts_section, tuning_section
from vitral.reports.study_views import JudgedView, paired_forests
from vitral.studies import StudyResult, loss_claims
from vitral.studies.claims import Comparison, Quantity, at
from vitral.studies.judging import judge
from vitral.studies.probe import View
from vitral.studies.results import RunResult
from vitral.studies.tuning import Trial, Tuned

SEEDS = {
    "full": [1.700, 1.712, 1.695, 1.706, 1.701, 1.709],
    "no-attention": [2.480, 2.503, 2.471, 2.488, 2.482, 2.495],
    "no-feed-forward": [3.26, 3.27, 3.26, 3.25, 3.26, 3.27],
}
RATE = "training.optimizer.learning_rate"


@pytest.fixture
def result(made) -> StudyResult:
    """Three arms, one of which fails: its loss is above the bigram baseline."""
    found = made(SEEDS)
    trials = tuple(Trial(factor, {RATE: factor * 0.003}, loss) for factor, loss in ((0.5, 1.8), (1, 1.7), (2, 1.75)))
    edge = tuple(
        Trial(factor, {RATE: factor * 0.003}, loss) for factor, loss in ((0.5, 2.6), (1, 2.5), (2, None), (4, 2.4))
    )
    return replace(found, tuning=(Tuned("full", trials, 1, False), Tuned("no-attention", edge, 4, True)))


@pytest.fixture
def figures(result: StudyResult, only_svg: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, list]:
    """The rows and panels that the page's figures are drawn from."""
    seen: dict[str, list] = {"forest": [], "panels": []}

    def forest_plot(rows, **told):
        seen["forest"] += rows
        return forest.forest_plot(rows, **told)

    def panel_plot(shown, *axes, **told):
        seen["panels"].append(list(shown))
        return panels.panel_plot(shown, *axes, **told)

    monkeypatch.setattr(drawn, "forest_plot", forest_plot)
    monkeypatch.setattr(drawn, "panel_plot", panel_plot)
    monkeypatch.setattr("vitral.reports.study.samples_section", lambda result: [])
    monkeypatch.setattr("vitral.reports.study.how_it_was_run", lambda result, command: [])
    write_report(result)
    return seen


def test_the_forest_has_the_claims_in_percent_of_the_rival(result: StudyResult, figures: dict[str, list]) -> None:
    claims = {claim.comparison.subject: claim for claim in loss_claims(result).contrasts}
    rows = {row.label: row for row in figures["forest"]}
    assert set(rows) == set(claims)
    for name, row in rows.items():
        claim = claims[name]
        assert row.word == claim.verdict
        if claim.failures is not None:
            assert "6 of 6" in row.clipped
            assert "3.262" in row.clipped
            continue
        assert row.estimate == pytest.approx(claim.percent)
        assert row.low == pytest.approx(100 * (claim.low or 0.0) / claim.reference)
        assert sorted(row.dots)[0] == pytest.approx(
            100 * min(a / b - 1 for a, b in zip(SEEDS["no-attention"], SEEDS["full"], strict=True))
        )
    assert {row.word for row in figures["forest"]} == {"worse", "fails"}


def test_gaps_are_paired_by_seed_and_step(made) -> None:
    found = made({"full": [1.5, 1.7], "no-attention": [2.0, 1.9]})
    full, other = found.arms[:2]
    curves = {1: ((5, 3.0), (10, 2.0)), 2: ((5, 4.0), (10, 2.5), (15, 2.0))}
    shifted = {1: ((5, 3.5), (10, 2.1)), 2: ((5, 4.5), (10, 2.8))}
    arms = [
        replace(arm, runs=tuple(replace(run, training_curve=points[run.seed]) for run in arm.runs))
        for arm, points in ((full, curves), (other, shifted))
    ]
    plots = drawn._gaps(replace(found, arms=tuple(arms)))
    assert plots is not None
    lines = {line.get_linewidth(): [] for line in plots.figure.axes[0].lines}
    for line in plots.figure.axes[0].lines:
        lines[line.get_linewidth()].append(np.asarray(line.get_ydata()).tolist())
    assert lines[0.8] == [pytest.approx([0.5, 0.1]), pytest.approx([0.5, 0.3])]
    assert lines[2.2] == [pytest.approx([0.5, 0.2])]


def test_tuning_shows_every_value_and_flags_an_edge(result: StudyResult, figures: dict[str, list]) -> None:
    full, other = figures["panels"][-1]
    assert [(mark.x, mark.y, mark.hollow) for mark in (*full.marks, *other.marks)] == [(1, 1.7, False), (4, 2.4, True)]
    assert other.context[0].y == full.lines[0].y
    assert (table := tuning_section(result)[0]).columns[1:5] == ("×0.5", "×1", "×2", "×4")
    assert table.rows[1][1:5] == ("2.600", "2.500", "not finite", "2.400")
    assert "edge" in table.rows[1][5]
    assert table.rows[0][5] == "0.003"


def test_longer_runs_stand_beside_the_usual_ones_of_the_same_seeds_without_those_that_diverge(
    result: StudyResult,
) -> None:
    """Losses of the tokens measured while training: that of the whole test part, 9, plays no role."""
    one = RunResult(1, result.folder, ((10, 3.0),), None, None, 9.0, 1.0)
    dead = RunResult(2, result.folder, ((5, 3.0),), None, None, None, 1.0, "the test loss is nan")
    (table,) = tuning_section(replace(result, tuning=(), longer={"no-feed-forward": (one, dead)}))
    assert table.rows[0][1:] == ("1", "3.260", "3.000")
    both = (replace(dead, seed=1), dead)
    (table,) = tuning_section(replace(result, tuning=(), longer={"no-feed-forward": both}))
    assert table.rows[0][1:] == ("2", "3.265", "not finite")


def test_the_table_of_contrasts_says_fails_where_the_claim_does(result: StudyResult) -> None:
    (table,) = contrasts_section(loss_claims(result))
    (row,) = [row for row in table.rows if "fails" in row[-1]]
    assert row[2:4] == ("–", "–")
    assert "6 of 6" in row[-1]


def judged_view(quantities: int, rows: int, seeds: int = 4) -> JudgedView:
    """A probe with as many comparisons of each quantity."""
    generator = np.random.default_rng(3)
    comparisons = []
    for which in range(quantities):
        quantity = Quantity(f"number {which}", at("x"), better="higher", digits=2)
        for row in range(rows):
            values = dict(enumerate((3 * (row == 1) + generator.normal(0, 0.1, seeds)).tolist()))
            comparisons.append(Comparison(f"arm {row}", "the base", quantity, values, dict.fromkeys(values, 1.0)))
    return JudgedView(View(comparisons=tuple(comparisons)), judge(comparisons), "probe")


@pytest.mark.parametrize(
    ("quantities", "rows", "seeds", "plots"), [(1, 2, 4, 0), (1, 3, 4, 1), (9, 3, 4, 3), (1, 5, 2, 0)]
)
def test_a_probe_of_enough_tested_comparisons_has_a_forest_of_each_quantity(
    quantities: int, rows: int, seeds: int, plots: int
) -> None:
    found = paired_forests(judged_view(quantities, rows, seeds))
    assert len({plot.name for plot in found}) == len(found) == plots


def test_the_forest_of_a_probe_has_the_intervals_of_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """More is better here: the arm above the base points up and is called better."""
    judged, seen = judged_view(1, 3), []
    monkeypatch.setattr(
        study_views, "forest_plot", lambda rows, **told: seen.extend(rows) or forest.forest_plot(rows, **told)
    )
    (plot,) = paired_forests(judged)
    assert [(row.low, row.high, row.estimate) for row in seen] == [
        (claim.low, claim.high, claim.difference) for claim in judged.claims
    ]
    assert [(row.word, row.told) for row in seen] == [("lower", "worse"), ("higher", "better"), ("lower", "worse")]
    assert sorted(seen[1].dots) == sorted(judged.claims[1].comparison.differences)
    assert plot.alt.count(".") >= 1
    assert "arm 1" in plot.alt


def test_the_data_are_those_of_the_page(result: StudyResult, figures: dict[str, list]) -> None:
    report = result.folder / "report"
    data = json.loads((report / "results.json").read_text(encoding="utf-8"))
    assert {arm["name"]: [run["test_loss"] for run in arm["runs"]] for arm in data["arms"]} == SEEDS
    claims = loss_claims(result).contrasts
    assert [one["low"] for one in data["claims"] if one["of"] == "losses"] == [claim.low for claim in claims]
    assert [one["failed"] for one in data["claims"]] == [
        None if claim.failures is None else claim.failures.failed for claim in claims
    ]
    markdown = (report / "study.md").read_text(encoding="utf-8").replace("\n> ", "\n")
    assert data["headline"] in html.unescape(markdown).replace("\\", "")
    for row in (*data["claims"], *csv.DictReader((report / "comparisons.csv").read_text().splitlines())):
        if row["verdict"] == "fails":
            assert not any(
                row[key] for key in ("difference", "low", "high", "p", "percent", "percent_low", "detectable")
            )
            assert (int(row["failed"]), int(row["seeds"])) == (6, 6)
    (failing,) = [one for one in data["claims"] if one["verdict"] == "fails"]
    assert (failing["rival_failed"], failing["rival_seeds"]) == (0, 6)
    assert failing["fisher_p"] == pytest.approx(2 * 2 / 924)
    rows = list(csv.DictReader((report / "tuning.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["arm"], float(row["value"])) for row in rows if row["chosen"] == "true"] == [
        ("full", 0.003),
        ("no-attention", 0.012),
    ]
