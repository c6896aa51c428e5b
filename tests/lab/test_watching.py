"""What a caller of the library sees of a training, and what an interruption leaves."""

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import IPython.display
import pytest
import torch
from symbols import symbolic_lengths

import vitral
from vitral.core.errors import Interrupted, UsageError
from vitral.core.language import in_language
from vitral.lab import progress
from vitral.lab.progress import NotebookDisplay
from vitral.training import Event

MODEL = {"d_model": 12, "num_layers": 2, "num_heads": 3, "context_length": 13}
TRAINING = {"steps": 4, "evaluate_every": 2, "batch_size": 5}
SMALL: dict[str, Any] = {"model": MODEL, "training": TRAINING}
SMALLER: dict[str, Any] = {"model": {**MODEL, "num_layers": 1}, "training": TRAINING}
"""Of studies and demonstrations, which train several."""


class Notebook:
    """What is displayed, as a notebook would show it: the last content of each output."""

    kernel = True

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.updates = 0

    def display(self, html: IPython.display.HTML, *, display_id: bool) -> "Handle":
        assert display_id
        self.outputs.append(str(html.data))
        return Handle(self, len(self.outputs) - 1)


class Handle:
    def __init__(self, notebook: Notebook, place: int) -> None:
        self.notebook, self.place = notebook, place

    def update(self, html: IPython.display.HTML) -> None:
        self.notebook.outputs[self.place] = str(html.data)
        self.notebook.updates += 1


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    shell = Notebook()
    monkeypatch.setattr(progress, "session", lambda: shell)
    monkeypatch.setattr(IPython.display, "display", shell.display)
    return shell


pytestmark = pytest.mark.usefixtures("own_cache")


def stop_at(step: int, times: int = 1) -> Callable[[Event], None]:
    """A callback that presses Ctrl-C at the first evaluation of this step."""

    def stop(event: Event) -> None:
        if event["event"] == "evaluation" and event["step"] == step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    return stop


def test_outside_notebooks_nothing_is_said_unless_asked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    vitral.train("sample", tmp_path / "silent", **SMALL)
    assert capfd.readouterr() == ("", "")
    vitral.train("sample", tmp_path / "told", progress=True, **SMALL)
    told = capfd.readouterr().out
    assert "15,824 parameters" in told
    assert told.count("nats per token") == 2


def test_a_notebook_shows_one_display_that_changes(tmp_path: Path, notebook: Notebook) -> None:
    seen: list[str] = []
    vitral.train("sample", tmp_path / "run", callback=lambda event: seen.append(event["event"]), **SMALL)
    assert len(notebook.outputs) == 1
    assert notebook.updates > 2
    last = notebook.outputs[0]
    assert "<svg" in last
    assert 'value="1.0000"' in last
    assert "<script" not in last
    assert "evaluation" in seen
    vitral.train("sample", tmp_path / "silent", progress=False, **SMALL)
    assert len(notebook.outputs) == 1


def test_what_a_display_shows_is_escaped() -> None:
    shown = NotebookDisplay()
    shown._show = lambda: None
    nasty = "<script>alert(1)</script>\x1b[31m"
    start = {"event": "start", "steps": 9, "step": 0, "parameters": 1, "vocab_size": 1, "tokens": {"train": 1}}
    for event in (
        {**start, "device": nasty, "dtype": nasty},
        {"event": "note", "text": nasty},
        {"event": "sample", "step": 1, "text": nasty, "copied": [[0, 8]]},
    ):
        shown(event)
    html = progress.progress_html(shown.view())
    assert "<script" not in html
    assert "\x1b" not in html
    assert "<mark>&lt;script&gt;</mark>" in html


def test_a_display_that_fails_ends_no_training(
    tmp_path: Path, notebook: Notebook, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise OSError("the browser is gone")

    monkeypatch.setattr(IPython.display, "display", fail)
    assert vitral.train("sample", tmp_path / "run", **SMALL).step == 4
    assert capfd.readouterr().err.count("the browser is gone") == 1


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_cell_says_how_to_go_on_and_nothing_is_lost(
    times: int, tmp_path: Path, notebook: Notebook
) -> None:
    whole = vitral.train("sample", tmp_path / "whole", **SMALL)
    with pytest.raises(Interrupted, match=r"vitral\.resume\('.*run'\)"):
        vitral.train("sample", tmp_path / "run", callback=stop_at(2, times), **SMALL)
    assert vitral.train("sample", tmp_path / "another", **SMALL).step == whole.step  # the process can train again
    resumed = vitral.resume(tmp_path / "run")
    weights = dict(whole.model.named_parameters())
    assert all(torch.equal(value, weights[name]) for name, value in resumed.model.named_parameters())
    with pytest.raises(UsageError, match="finished"):
        vitral.resume(resumed)


def test_a_script_does_not_go_on_with_an_interrupted_run(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        vitral.train("sample", tmp_path / "run", callback=stop_at(2, 1), **SMALL)
    assert vitral.resume(tmp_path / "run").step == 4


def test_an_interruption_before_the_first_step_leaves_nothing(tmp_path: Path, notebook: Notebook) -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    (tmp_path / "x.txt").write_text("one line and another\n" * 400, encoding="utf-8")
    with pytest.raises(Interrupted, match="nothing to save"):
        vitral.train(tmp_path / "x.txt", tmp_path / "run", callback=interrupt, **SMALL)
    assert not (tmp_path / "run").exists()
    assert vitral.train(tmp_path / "x.txt", tmp_path / "run", **SMALL).step


def test_an_interrupted_study_goes_on_with_the_same_call(tmp_path: Path, notebook: Notebook) -> None:
    design = 'name = "small"\ntitle = "Small"\nquestion = "?"\nbase = "demo"\nseeds = [1, 2]\n'
    arms = '[[arms]]\nname = "a"\ntitle = "A"\n[[arms]]\nname = "b"\ntitle = "B"\nchanges.model.norm = "post"\n'
    (tmp_path / "small.toml").write_text(design + arms, encoding="utf-8")
    call = {"name": tmp_path / "small.toml", "out": tmp_path / "study", **SMALLER}
    with pytest.raises(Interrupted, match="same call"):
        vitral.study(callback=stop_at(2), **call)
    done = vitral.study(**call)
    straight = vitral.study(**{**call, "out": tmp_path / "straight"})
    assert [claim.text for claim in done.claims] == [claim.text for claim in straight.claims]
    assert done.to_pandas()["subject"].tolist() == straight.to_pandas()["subject"].tolist()
    assert "<h1>" in done._repr_html_().replace("&lt;", "<").replace("&gt;", ">")


def test_an_interrupted_demonstration_goes_on_with_the_same_call(tmp_path: Path, notebook: Notebook) -> None:
    with pytest.raises(Interrupted, match="same call"):
        vitral.demo(tmp_path / "demo", callback=stop_at(2), **SMALLER)
    with symbolic_lengths():
        shown = vitral.demo(tmp_path / "demo", **SMALLER)
    assert shown.plain()["verdicts"] == list(shown.verdicts)
    assert shown.html.is_file()
    assert vitral.load(shown.run).step
    assert shown.sample in str(shown)


def test_the_verdicts_of_a_demonstration_are_told_and_as_data_english(tmp_path: Path) -> None:
    with in_language("pt"), symbolic_lengths():
        shown = vitral.demo(tmp_path / "demo", **SMALLER)
        english = shown.plain()["verdicts"]
        assert set(english).isdisjoint(shown.verdicts)
        assert all(re.search(r"\d\.\d{3}", verdict) and not re.search(r"\d,\d", verdict) for verdict in english)
        assert all(re.search(r"\d,\d{3}", verdict) for verdict in shown.verdicts)
    assert shown.plain()["verdicts"] == english


def test_a_notebook_shows_the_callers_line_and_ours(run_line: list[str]) -> None:
    assert run_line[-1].startswith("UsageError: nowhere")
    assert any("vitral.load" in line for line in run_line)
    assert not any("checked.py" in line for line in run_line)


@pytest.fixture
def run_line() -> list[str]:
    try:
        vitral.load("nowhere")
    except UsageError as error:
        return error._render_traceback_()
    raise AssertionError
