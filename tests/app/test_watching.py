"""What a caller of the library sees of a training, and what an interruption leaves."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import vitral
from vitral.app import progress
from vitral.app.progress import Display
from vitral.core.errors import Interrupted, UsageError
from vitral.training import Event

MODEL = {"d_model": 12, "num_layers": 2, "num_heads": 3, "context_length": 13}
TRAINING = {"steps": 4, "evaluate_every": 2, "batch_size": 5}
SMALL: dict[str, Any] = {"model": MODEL, "training": TRAINING}


class Notebook:
    """What is displayed, as a notebook would show it: the last content of each output."""

    kernel = True

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.updates = 0

    def display(self, html: str, *, display_id: bool) -> "Handle":
        assert display_id
        self.outputs.append(html)
        return Handle(self, len(self.outputs) - 1)


class Handle:
    def __init__(self, notebook: Notebook, place: int) -> None:
        self.notebook, self.place = notebook, place

    def update(self, html: str) -> None:
        self.notebook.outputs[self.place] = html
        self.notebook.updates += 1


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """In the place of IPython's own, which `tests/notebooks` use."""
    shell, module = Notebook(), ModuleType("IPython.display")
    vars(module).update(HTML=str, display=lambda html, **options: shell.display(html, **options))
    monkeypatch.setattr(progress, "session", lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shell


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "x.txt"
    path.write_text("one line and another\n" * 800, encoding="utf-8")
    return path


def stop_at(step: int, times: int = 1) -> Callable[[Event], None]:
    """A callback that presses Ctrl-C at the first evaluation of this step."""

    def stop(event: Event) -> None:
        if event["event"] == "evaluation" and event["step"] == step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    return stop


def test_outside_notebooks_nothing_is_said_unless_asked(
    text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    vitral.train(text, tmp_path / "silent", **SMALL)
    assert capfd.readouterr() == ("", "")
    run = vitral.train(text, tmp_path / "told", progress=True, **SMALL)
    told = capfd.readouterr().out
    assert f"{run.parameters:,} parameters" in told
    assert told.count("validation") == 2


def test_a_notebook_shows_one_display_that_changes(text: Path, tmp_path: Path, notebook: Notebook) -> None:
    seen: list[str] = []
    vitral.train(text, tmp_path / "run", callback=lambda event: seen.append(event["event"]), **SMALL)
    (last,) = notebook.outputs
    assert notebook.updates > 2
    assert 'value="1.0000"' in last
    assert "<script" not in last
    assert "evaluation" in seen
    vitral.train(text, tmp_path / "silent", progress=False, **SMALL)
    assert len(notebook.outputs) == 1


def test_what_a_display_shows_is_escaped() -> None:
    shown = Display(print)
    nasty = "<script>alert(1)</script>\x1b[31m"
    start = {"event": "start", "steps": 9, "step": 0, "parameters": 1, "vocab_size": 1, "tokens": {"train": 1}}
    for event in (
        {**start, "device": nasty, "dtype": nasty},
        {"event": "note", "text": nasty},
        {"event": "sample", "step": 1, "text": nasty, "copied": [[0, 8]]},
    ):
        shown(event)
    html = progress.progress_html(shown.state.view())
    assert "<script" not in html
    assert "\x1b" not in html
    assert "<mark>&lt;script&gt;</mark>" in html


def test_a_display_that_fails_ends_no_training(
    text: Path,
    tmp_path: Path,
    notebook: Notebook,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise OSError("the browser is gone")

    monkeypatch.setattr(notebook, "display", fail)
    assert vitral.train(text, tmp_path / "run", **SMALL).step == 4
    assert capfd.readouterr().err.count("the browser is gone") == 1


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_cell_says_how_to_go_on_and_nothing_is_lost(
    times: int, text: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Once in a script, twice in a notebook."""
    if times == 2:
        request.getfixturevalue("notebook")
    whole = vitral.train(text, tmp_path / "whole", **SMALL)
    with pytest.raises(Interrupted, match=r"vitral\.resume\('.*run'\)"):
        vitral.train(text, tmp_path / "run", callback=stop_at(2, times), **SMALL)
    assert vitral.train(text, tmp_path / "another", **SMALL).step == whole.step  # the process can train again
    resumed = vitral.resume(tmp_path / "run")
    weights = dict(whole.model.named_parameters())
    assert all(torch.equal(value, weights[name]) for name, value in resumed.model.named_parameters())
    with pytest.raises(UsageError, match="finished"):
        vitral.resume(resumed)


def test_an_interruption_before_the_first_step_leaves_nothing(text: Path, tmp_path: Path, notebook: Notebook) -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="nothing to save"):
        vitral.train(text, tmp_path / "run", callback=interrupt, **SMALL)
    assert not (tmp_path / "run").exists()
    assert vitral.train(text, tmp_path / "run", **SMALL).step


def test_an_interrupted_study_goes_on_with_the_same_call(text: Path, tmp_path: Path, notebook: Notebook) -> None:
    design = 'name = "small"\ntitle = "Small"\nquestion = "?"\nbase = "demo"\nseeds = [1, 2]\n'
    arms = '[[arms]]\nname = "a"\ntitle = "A"\n[[arms]]\nname = "b"\ntitle = "B"\nchanges.model.norm = "post"\n'
    (tmp_path / "small.toml").write_text(design + arms, encoding="utf-8")
    call = {"name": tmp_path / "small.toml", "corpus": str(text), "out": tmp_path / "study", **SMALL}
    with pytest.raises(Interrupted, match="same call"):
        vitral.study(callback=stop_at(2), **call)
    done = vitral.study(**call)
    straight = vitral.study(**{**call, "out": tmp_path / "straight"})
    assert done.records() == straight.records()
    assert done.html.is_file()
    assert "<h1>" in done._repr_html_().replace("&lt;", "<").replace("&gt;", ">")


def test_a_notebook_shows_the_callers_line_and_ours() -> None:
    with pytest.raises(UsageError) as refused:
        vitral.load("nowhere")
    lines = refused.value._render_traceback_()
    assert lines[-1].startswith("UsageError: nowhere")
    assert any("vitral.load" in line for line in lines)
