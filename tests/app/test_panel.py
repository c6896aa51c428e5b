"""The progress of a training: a panel that fits any terminal, plain lines elsewhere."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from vitral.app import progress
from vitral.app.progress import Lines, TrainingState, sample_heading
from vitral.app.terminal.training import panel

START = {
    "event": "start",
    "steps": 100,
    "step": 0,
    "parameters": 812_345,
    "vocab_size": 97,
    "tokens": {"train": 3_959_992},
    "device": "cpu",
    "dtype": "float32",
    "out": "runs/x",
}
LINES = {
    "event": "lines",
    "problems": [],
    "ngrams": {"orders": {"1": 3.0, "2": 2.0, "3": 1.5}, "test_bigram_entropy": 1.9},
}
EVALUATION = {"event": "evaluation", "step": 50, "validation_loss": 1.7, "test_loss": 1.75, "train_loss": 2.0}
EARLY = {"event": "early", "step": 3, "validation_loss": 2.25, "tokens": 8064}
STUDY = {"arm": "no-attention", "seed": 2, "run": 2, "runs": 6, "before": 10, "during": 10, "in_all": 60}


def step(number: int, loss: float = 2.5) -> dict[str, Any]:
    """A step event."""
    return {"event": "step", "step": number, "loss": loss, "learning_rate": 0.01, "tokens_per_second": 9e3}


def sample(text: str, *copied: tuple[int, int], at: int = 50) -> dict[str, Any]:
    """A sample event."""
    return {"event": "sample", "step": at, "text": text, "copied": [list(span) for span in copied]}


def state_of(*events: dict[str, Any], **label: Any) -> TrainingState:
    """The state after a start, the baselines and these events."""
    state = TrainingState()
    for event in (START, LINES, *events):
        state.take({**event, **label})
    return state


def screen(state: TrainingState, width: int = 80, height: int = 40) -> list[str]:
    """The lines of the panel on a terminal of this size."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    return ["".join(segment.text for segment in line) for line in console.render_lines(panel(state.view()), pad=False)]


@given(text=st.text(st.characters(codec="utf-8"), max_size=400), width=st.integers(9, 140))
def test_the_panel_fits_the_terminal_whatever_the_sample(text: str, width: int) -> None:
    lines = screen(state_of(step(60), sample(text, (0, len(text) // 2)), EVALUATION, **STUDY), width)
    assert all(cell_len(line) <= width for line in lines)
    assert not any(ord(character) < ord(" ") for line in lines for character in line)


def test_the_panel_shows_progress_baselines_and_sample() -> None:
    shown = "\n".join(screen(state_of(step(50), sample("To be or\n\nnot"), EVALUATION)))
    for word in ("bigram 2.000", "│ step 50/100", "1.750", "To be or", "not"):
        assert word in shown


def test_the_early_evaluation_is_shown_until_the_first_full_one() -> None:
    state = state_of(step(3), EARLY)
    assert "2.250" in state.measured()
    assert "8,064" in state.measured()
    state.take(EVALUATION)
    assert "2.250" not in state.measured()


def test_what_is_copied_is_said() -> None:
    assert "75% copied" in sample_heading(sample("abcd", (1, 4)))
    assert "nothing copied" in sample_heading(sample("ab"))


def test_a_study_keeps_its_finished_runs_and_the_last_sample() -> None:
    state = state_of(step(100), sample("first words", at=100), {**EVALUATION, "step": 100}, **STUDY)
    state.take({"event": "end", "step": 100, "finished": True, "seconds": 3.0, **STUDY})
    state.take({"event": "run", "state": "train", **STUDY, "seed": 3})
    state.take({**START, **STUDY, "seed": 3})
    shown = "\n".join(screen(state, 100))
    assert "no-attention: 1.750" in shown
    assert "first words" in shown


def test_a_decision_changes_the_number_of_steps() -> None:
    state = state_of(step(10))
    state.take({"event": "decision", "step": 10, "steps": 40})
    assert "10/40" in state.progress()


def test_lines_have_each_sample_once_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    report = Lines()
    for event in (START, LINES, step(1), EARLY, sample("word " * 99, at=3), sample("other"), EVALUATION):
        report(event)
    printed = capsys.readouterr().out
    assert printed.count("word " * 99) == 1
    assert printed.count("other") == 1
    assert "bigram 2.000" in printed
    assert "1.750" in printed


def test_lines_of_a_study_have_only_the_beginning_of_a_sample(capsys: pytest.CaptureFixture[str]) -> None:
    report = Lines()
    for seed in (1, 2, 3):
        for event in (START, LINES, EVALUATION, sample("word " * 99, at=100), {**EVALUATION, "step": 100}):
            report({**event, **STUDY, "seed": seed})
    assert len(capsys.readouterr().out.splitlines()) <= 3 * 4 + 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that a test sets."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_time_left_of_a_study_follows_from_the_work_done_in_this_call(clock: list[float]) -> None:
    view = TrainingState()
    one = {"arm": "a", "seed": 1, "run": 1, "runs": 3, "before": 0, "during": 30, "in_all": 120}
    view.take({"event": "run", "state": "train", **one})
    view.take({**START, "steps": 20, **one})
    clock[0] = 110.0
    view.take({**step(10), **one})
    assert view.whole() == "run 1 of 3 · 12% of all training · 1:10 left"  # an eighth in 10 s
    two = {**one, "arm": "b", "run": 2, "before": 30, "during": 30}
    view.take({"event": "run", "state": "resume", **two})
    assert view.whole().startswith("run 2 of 3 · 25% of all training")  # the step of the run before does not count
    view.take({**START, "steps": 20, **two, "step": 10})
    clock[0] = 130.0
    view.take({**step(15), **two})
    assert view.whole() == "run 2 of 3 · 38% of all training · 0:50 left"  # of a resumed run only what is left of it


def test_a_single_run_says_nothing_of_a_study() -> None:
    assert state_of(step(10)).whole() == ""


def test_a_run_that_fills_blanks_is_not_put_among_the_n_gram_lines() -> None:
    view = TrainingState()
    view.take({**START, "objective": {"name": "masked", "rate": 0.15}})
    view.take(EVALUATION)
    assert view.measured() == "step 50: validation 1.700 · test 1.750 nats per masked token"
