"""Probes are asked once for each finished run, what they found is kept, and reports are made from that alone."""

import json
from pathlib import Path

import pytest

from tests.studies.conftest import PAIR
from vitral.report import study_views
from vitral.report.study import write_report
from vitral.studies import StudyResult, execution, measures, run_study
from vitral.studies.claims import Note
from vitral.studies.probe import Arms, Axis, Line, Lines, Probe, Setting, Trained, View
from vitral.training import RunConfig


class Counting:
    """Probes that count how often they are asked."""

    def __init__(self) -> None:
        """Nobody has asked."""
        self.asked: list[object] = []
        self.probes = {
            "size": Probe("size", "Size", self.of_run, more=self.show),
            "seeds": Probe("seeds", "Seeds", self.of_study, more=self.in_all, of_runs=False),
        }

    def of_run(self, trained: Trained) -> dict:
        """A number of the run that is no short decimal."""
        assert not trained.run.model.training
        self.asked.append((trained.arm, trained.seed))
        weight = trained.run.model.token_embedding.weight.detach()
        return {"norm": float(weight.norm()), "parts": len(trained.dataset.splits)}

    def of_study(self, setting: Setting) -> dict:
        """A number of the study."""
        self.asked.append(setting.seed)
        return {"sum": 7 * setting.seed}

    def in_all(self, result: StudyResult, measured: dict) -> View:
        """A paragraph and a note."""
        return View(f"{measured['sum']} in all", notes=[Note("Seeds are numbers.")])

    def show(self, result: StudyResult, arms: Arms) -> View:
        """A figure and a note."""
        curves = [Line(arm.title, [1, 2], [arm.runs[5]["norm"], arm.runs[7]["norm"]]) for arm in arms]
        figure = Lines("Norms by seed", Axis("seed"), Axis("norm"), curves)
        return View(figure=figure, notes=(Note(f"{result.study.name} has {len(arms)} arms."),))


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """Probes of the test's own in the place of Vitral's."""
    made = Counting()
    for module in (measures, study_views, execution):
        monkeypatch.setattr(module, "probe_named", made.probes.__getitem__)
    return made


STUDY = PAIR.model_copy(update={"probes": ("size", "seeds")})


def test_what_was_measured_is_kept_and_not_measured_again(tiny: RunConfig, tmp_path: Path, counting: Counting) -> None:
    first = run_study(STUDY, tiny, tmp_path, seeds=[5, 7], budget="quick")
    runs = [(arm, seed) for arm in ("pre", "post") for seed in (5, 7)]
    assert counting.asked == [*runs, 5]
    kept = json.loads((tmp_path / "measures" / "size" / "post-seed-7.json").read_text(encoding="utf-8"))
    assert kept["data"] == first.measured["size"]["post"][7]
    counting.asked.clear()
    assert run_study(STUDY, tiny, tmp_path, seeds=[5, 7], budget="quick").measured == first.measured
    assert counting.asked == []
    (tmp_path / "measures" / "size" / "pre-seed-5.json").write_text("{", encoding="utf-8")
    added = run_study(STUDY, tiny, tmp_path, seeds=[5, 7, 11], budget="quick")
    assert counting.asked == [("pre", 5), ("pre", 11), ("post", 11)]  # damaged, and new
    assert added.measured["size"]["pre"][5] == first.measured["size"]["pre"][5]


@pytest.mark.usefixtures("only_svg")
def test_views_of_probes_are_in_the_report_and_their_claims_in_the_verdict(
    tiny: RunConfig, tmp_path: Path, counting: Counting
) -> None:
    result = run_study(STUDY, tiny, tmp_path, seeds=[5, 7], budget="quick")
    report = write_report(result)
    assert report.listed[-2:] == (Note("pair has 2 arms."), Note("Seeds are numbers."))
    text = report.markdown.read_text(encoding="utf-8")
    assert "(figures/size.svg)" in text
    assert "35 in all" in text
    assert "- pair has 2 arms." in text
    assert text.index("Exploratory") < text.index("- pair has")
    figure = tmp_path / "report" / "figures" / "size.svg"
    before = figure.read_bytes()
    figure.unlink()
    write_report(result)
    assert figure.read_bytes() == before
