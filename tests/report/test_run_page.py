"""The page of a run: the text it wrote comes first; its curve is right however many evaluations there are."""

import re
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import five_words, small_config

from tests.training.conftest import at, fail
from vitral.report.lines import Line, loss_plot
from vitral.report.run import sample_sections, write_run_report
from vitral.report.sections import Preformatted
from vitral.runs import RunFolder, enter
from vitral.training import Event, train, views

Trained = Callable[..., RunFolder]
STEPS = 9


@pytest.fixture
def trained(tmp_path: Path) -> Trained:
    """`trained(evaluate_every=3)`: a run of nine tiny steps on a text of five words."""
    text = five_words(tmp_path / "words.txt")

    def make(callback: Callable[[Event], object] = lambda event: None, **training: Any) -> RunFolder:
        config = small_config(text, training={"sample_tokens": 30, **training})
        return train(config, tmp_path / "run", callback=callback)

    return make


def captions(run: RunFolder) -> list[str]:
    """The captions of its samples, in the order of the page."""
    sections = sample_sections(enter(run.path, lambda line: None))
    return [section.caption for section in sections if isinstance(section, Preformatted)]


def test_the_page_begins_with_the_text_of_the_best_checkpoint(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([2.5, 2.0, 2.25])
    monkeypatch.setattr(
        "vitral.training.loop.evaluate", lambda trainer: _measured(trainer, next(losses))
    )  # so that the best is neither first nor last
    run = trained(watch=True, evaluate_every=3)
    assert captions(run) == ["after step 6, the best checkpoint", "after step 9, the last step"]
    page = unescape(write_run_report(run.path).read_text(encoding="utf-8"))
    texts = {event["step"]: event["text"] for event in run.metrics("sample")}
    positions = [page.index(texts[step].strip("\n").splitlines()[0]) for step in (6, 9, 3)]
    assert positions == sorted(positions)
    assert positions[0] < page.index("<svg")
    assert "Earlier texts" in page
    said = re.findall(r"\d\.\d{3}", page.split('class="callout"')[1].split("</p>")[0])
    assert [said[0], said[-1]] == ["2.125", "2.375"]  # the test losses of the best checkpoint and of the last step


def _measured(trainer: Any, loss: float) -> dict[str, float]:
    trainer.count_baselines()
    return {"validation_loss": loss, "test_loss": loss + 0.125}


def test_copied_passages_are_marked(tiny_run: Path, tmp_path: Path) -> None:
    run = RunFolder.open(shutil.copytree(tiny_run, tmp_path / "run"))
    run.reseal({"event": "sample", "step": 1, "text": "<i>one two</i> three", "copied": [[3, 10]]})
    page = write_run_report(run.path).read_text(encoding="utf-8")
    assert "&lt;i&gt;<mark>one two</mark>&lt;/i&gt; three" in page


def test_a_run_that_was_stopped_before_its_first_evaluation_shows_its_losses(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "EARLY_AFTER", 0.0)
    monkeypatch.setattr(views, "EARLY_STEPPING", 0.0)

    with pytest.raises(KeyError):
        trained(at(fail, "step", 5), watch=True, evaluate_every=9)
    run = RunFolder.open(tmp_path / "run")
    page = write_run_report(run.path).read_text(encoding="utf-8")
    assert "<svg" in page
    assert unescape(page).index(run.metrics("sample")[0]["text"].split()[0]) < page.index("<svg")


def test_an_early_evaluation_is_a_hollow_dot_inside_the_frame() -> None:
    lines = [
        Line("training", list(range(1, 101)), [3.0] * 9 + [1.0] * 91, look="thin"),
        Line("", [2], [2.9], look="hollow"),
    ]
    axes = loss_plot(lines).axes[0]
    dot = next(line for line in axes.lines if np.asarray(line.get_xydata()).tolist() == [[2.0, 2.9]])
    assert dot.get_markerfacecolor() != dot.get_color()
    assert axes.get_ylim()[1] > 2.9
    assert not any(text.get_text().startswith("  ") for text in axes.texts)
