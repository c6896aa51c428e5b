"""What a caller of the library sees of a training, and what an interruption leaves."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import vitral
from tests.app.conftest import MODEL, TRAINING
from tests.training.conftest import at, interrupt
from vitral.app import progress
from vitral.app.progress import Display
from vitral.core.errors import Interrupted, UsageError
from vitral.training import Event

SMALL: dict[str, Any] = {"model": MODEL, "training": TRAINING}


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Displays as IPython's own, which `tests/notebooks` use: each has a handle that updates it."""
    module = Mock(HTML=str)
    monkeypatch.setattr(progress, "session", lambda: Mock(kernel=True))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return module.display


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "x.txt"
    path.write_text("one line and another\n" * 800, encoding="utf-8")
    return path


def test_outside_notebooks_nothing_is_said_unless_asked(
    text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    vitral.train(text, tmp_path / "silent", **SMALL)
    assert capfd.readouterr() == ("", "")
    run = vitral.train(text, tmp_path / "told", progress=True, **SMALL)
    told = capfd.readouterr().out
    assert f"{run.parameters:,} parameters" in told
    assert told.count("validation") == 2


def test_a_notebook_shows_one_display_that_changes(text: Path, tmp_path: Path, notebook: Mock) -> None:
    seen: list[str] = []
    vitral.train(text, tmp_path / "run", callback=lambda event: seen.append(event["event"]), **SMALL)
    notebook.assert_called_once()
    updated = notebook.return_value.update
    (last,) = updated.call_args.args
    assert updated.call_count > 2
    assert 'value="1.0000"' in last
    assert "<script" not in last
    assert "evaluation" in seen
    vitral.train(text, tmp_path / "silent", progress=False, **SMALL)
    notebook.assert_called_once()


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
    notebook: Mock,
    capfd: pytest.CaptureFixture[str],
) -> None:
    notebook.side_effect = OSError("the browser is gone")
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
    stop = at(lambda: [interrupt() for _ in range(times)], "evaluation", 2)
    with pytest.raises(Interrupted, match=r"vitral\.resume\('.*run'\)"):
        vitral.train(text, tmp_path / "run", callback=stop, **SMALL)
    assert vitral.train(text, tmp_path / "another", **SMALL).step == whole.step  # the process can train again
    resumed = vitral.resume(tmp_path / "run")
    weights = dict(whole.model.named_parameters())
    assert all(torch.equal(value, weights[name]) for name, value in resumed.model.named_parameters())
    with pytest.raises(UsageError, match="finished"):
        vitral.resume(resumed)


def test_an_interruption_before_the_first_step_leaves_nothing(text: Path, tmp_path: Path, notebook: Mock) -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="nothing to save"):
        vitral.train(text, tmp_path / "run", callback=interrupt, **SMALL)
    assert not (tmp_path / "run").exists()
    assert vitral.train(text, tmp_path / "run", **SMALL).step


def test_an_interrupted_study_goes_on_with_the_same_call(text: Path, tmp_path: Path, notebook: Mock) -> None:
    design = 'name = "small"\ntitle = "Small"\nquestion = "?"\nbase = "demo"\nseeds = [1, 2]\n'
    arms = '[[arms]]\nname = "a"\ntitle = "A"\n[[arms]]\nname = "b"\ntitle = "B"\nchanges.model.norm = "post"\n'
    (tmp_path / "small.toml").write_text(design + arms, encoding="utf-8")
    call = {"name": tmp_path / "small.toml", "corpus": str(text), "out": tmp_path / "study", **SMALL}
    with pytest.raises(Interrupted, match="same call"):
        vitral.study(callback=at(interrupt, "evaluation", 2), **call)
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
