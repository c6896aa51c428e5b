"""The data of a study's page: they are what the page claims."""

import csv
import html
import json
from dataclasses import replace

import pytest

from vitral.report.study import write_report
from vitral.studies import StudyResult, loss_claims
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
    measured = made(SEEDS)
    trials = tuple(Trial(factor, {RATE: factor * 0.003}, (loss,)) for factor, loss in ((0.5, 1.8), (1, 1.7), (2, 1.75)))
    edge = tuple(
        Trial(factor, {RATE: factor * 0.003}, (loss,)) for factor, loss in ((0.5, 2.6), (1, 2.5), (2, None), (4, 2.4))
    )
    return replace(measured, tuning=(Tuned("full", trials, 1, False), Tuned("no-attention", edge, 4, True)))


def test_the_data_are_those_of_the_page(result: StudyResult, only_svg: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitral.report.study.samples_section", lambda result: [])
    monkeypatch.setattr("vitral.report.study.how_it_was_run", lambda result, command: [])
    write_report(result)
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
            assert (int(row["failed"]), int(row["all_seeds"])) == (6, 6)
    (failing,) = [one for one in data["claims"] if one["verdict"] == "fails"]
    assert (failing["rival_failed"], failing["rival_seeds"]) == (0, 6)
    assert failing["rank_p"] == pytest.approx(2 * 2 / 924)
    rows = list(csv.DictReader((report / "tuning.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["arm"], float(row["value"])) for row in rows if row["chosen"] == "true"] == [
        ("full", 0.003),
        ("no-attention", 0.012),
    ]
