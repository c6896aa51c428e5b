"""The report says what the runs measured: page, Markdown, table and figures from one result."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from vitral.core.files import unsealed_json
from vitral.report import study as study_page
from vitral.report.study import StudyPage, write_report
from vitral.studies import StudyResult, loss_claims


@pytest.fixture(scope="module")
def report(trained: StudyResult, only_svg: None) -> StudyPage:
    """The page of a trained study."""
    return write_report(trained, command="vitral study no-attention --out <here>")


def read(folder: Path) -> dict[str, bytes]:
    """Every file by its path in the folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def files(report: StudyPage) -> dict[str, bytes]:
    """Every file of the report."""
    return read(report.html.parent)


def test_all_files_are_there_and_figures_in_every_kind(files: dict[str, bytes]) -> None:
    names = ("differences", "curves")
    figures = {f"figures/{name}.{kind}" for name in names for kind in ("svg", "png", "pdf")}
    tables = {f"comparisons.{kind}" for kind in ("csv", "md", "tex")}
    data = {"study.csv", "results.json", "MANIFEST.json"}
    assert set(files) == {"study.html", "study.md", *data, *figures, *tables}
    assert {*unsealed_json(files["MANIFEST.json"])["files"], "MANIFEST.json"} == set(files)


def test_runs_that_all_stopped_still_make_a_report(made) -> None:
    report = write_report(made({"full": [None], "no-attention": [None]}))
    assert "the test loss is nan" in report.html.read_text(encoding="utf-8")
    rows = list(csv.DictReader(report.table.read_text(encoding="utf-8").splitlines()))
    assert [row["test_loss"] for row in rows] == ["", ""]


def test_no_page_of_a_random_study_contradicts_itself(made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences, the table of arms and their intervals agree about every contrast, over random studies."""
    monkeypatch.setattr(study_page, "curve_figure", lambda result, report: [])
    monkeypatch.setattr(study_page, "samples_section", lambda result: [])
    monkeypatch.setattr(study_page, "how_it_was_run", lambda result, command: [])
    generator, verdicts, rows = np.random.default_rng(17), set(), 0
    for _ in range(40):
        num = int(generator.integers(1, 8))
        names = ("full", "no-attention", "no-feed-forward")[: int(generator.integers(2, 4))]
        noise, shift = 10.0 ** generator.uniform(-6, -1), 10.0 ** generator.uniform(-6, 0)
        seeds = 1.6 + 0.05 * generator.normal(size=num)
        arms = {}
        for index, name in enumerate(names):
            losses = (
                seeds + shift * index * generator.choice([-1, 0, 1]) + noise * generator.normal(size=num)
            ).tolist()
            arms[name] = [None if generator.random() < 0.05 else round(loss, 6) for loss in losses]
        result = made(arms)
        text = write_report(result).markdown.read_text(encoding="utf-8").replace("\N{MINUS SIGN}", "-")
        claims = {claim.comparison.subject: claim for claim in loss_claims(result).contrasts}
        for low, high, verdict in re.findall(r"95% CI (\S+) to (\S+?), p [^:]*\): (\w+)", text):
            assert (float(low) > 0 or float(high) < 0) == (verdict in ("better", "worse")), (low, high, verdict)
            verdicts.add(verdict)
        for row in (line.split("|") for line in text.splitlines() if line.startswith("| ")):
            title, span = row[1].strip(), re.search(r"\((\S+)\sto\s(\S+)\)", row[3])
            if title in claims and span is not None and len(row) == 8:
                assert (float(span[1]) > 0 or float(span[2]) < 0) == claims[title].shown
                rows += 1
    assert verdicts == {"better", "worse", "undecided", "equivalent"}
    assert rows > 20
