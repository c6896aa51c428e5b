"""The screen of a training in progress: it fits any terminal, and nothing in a sample moves a cursor."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from vitral.app.terminal import progress
from vitral.app.terminal.chart import MARGIN, Chart, drawn
from vitral.app.terminal.panel import TrainingPanel, sample_text
from vitral.app.training_state import TrainingState

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
LINES = {"event": "lines", "ngrams": {"orders": {"1": 3.0, "2": 2.0, "3": 1.5}, "test_bigram_entropy": 1.9}}
EVALUATION = {"event": "evaluation", "step": 50, "validation_loss": 1.7, "test_loss": 1.75, "train_loss": 2.0}
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


def screen(state: TrainingState, width: int = 80, height: int = 24, *, unicode: bool = True) -> list[str]:
    """The lines of the panel on a terminal of this size."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    return [
        "".join(segment.text for segment in line)
        for line in console.render_lines(TrainingPanel(state, unicode=unicode), pad=False)
    ]


@given(
    text=st.text(st.characters(codec="utf-8"), max_size=400),
    width=st.integers(1, 140),
    height=st.integers(1, 60),
    label=st.sampled_from([{}, STUDY]),
)
def test_the_panel_fits_the_terminal_whatever_the_sample(
    text: str, width: int, height: int, label: dict[str, Any]
) -> None:
    state = state_of(*(step(number) for number in range(1, 60)), sample(text, (0, len(text) // 2)), EVALUATION, **label)
    lines = screen(state, width, height)
    assert all(cell_len(line) <= width for line in lines)
    if width >= 60 and height >= 20:
        assert len(lines) < height
    assert not any(ord(character) < ord(" ") for line in lines for character in line)


def test_the_panel_shows_curve_baselines_and_sample() -> None:
    state = state_of(*(step(number, 4 - number / 20) for number in range(1, 51)), sample("To be or\n\nnot"), EVALUATION)
    shown = "\n".join(screen(state))
    for word in ("unigram", "bigram", "step 50/100", "1.750", "To be or", "not", "•", "◆"):
        assert word in shown
    assert "•" not in "".join(screen(state, unicode=False))


def test_the_early_evaluation_is_shown_until_the_first_full_one() -> None:
    early = {"event": "early", "step": 3, "validation_loss": 2.25, "tokens": 8064}
    state = state_of(step(3), early)
    assert "2.250" in state.measured()
    assert "8,064" in state.measured()
    assert "◇" in "\n".join(screen(state))
    state.take(EVALUATION)
    assert "2.250" not in state.measured()


def test_copied_passages_are_underlined_and_control_characters_shown() -> None:
    heading, text = sample_text(sample("ab\x1b[31mcd", (1, 4)))
    assert text.plain == "ab␛[31mcd"
    assert [(span.start, span.end) for span in text.spans if "underline" in str(span.style)] == [(1, 4)]
    assert "underlined" in heading
    assert "underlined" not in sample_text(sample("ab"))[0]


def test_a_study_keeps_its_finished_runs_and_the_last_sample() -> None:
    state = state_of(step(100), sample("first words", at=100), {**EVALUATION, "step": 100}, **STUDY)
    state.take({"event": "end", "step": 100, "finished": True, "seconds": 3.0, **STUDY})
    state.take({"event": "run", "state": "train", **STUDY, "seed": 3})
    state.take({**START, **STUDY, "seed": 3})
    shown = "\n".join(screen(state, 100, 40))
    assert "no-attention: 1.750" in shown
    assert "first words" in shown


def test_the_dots_stand_at_their_step_and_loss() -> None:
    chart = Chart([(1, 3.0), (50, 2.0), (100, 1.0)], [(100, 1.0)], [], {1: 4.0, 2: 2.0}, steps=100)
    width = 6 + 50 + MARGIN
    rows = [line.plain for line in drawn(chart, width, 5)]
    assert [row.find("•") for row in rows] == [6, -1, 6 + 24, -1, -1]
    assert rows[4][6 + 49] == "◆"  # an evaluation covers the step
    assert "bigram" in rows[2]
    assert not any("unigram" in row for row in rows)  # above every loss
    assert drawn(chart, 10, 5) == drawn(Chart([], [], [], {}, 9), 80, 5) == []


def test_a_decision_changes_the_number_of_steps() -> None:
    state = state_of(step(10))
    state.take({"event": "decision", "step": 10, "steps": 40})
    assert "10/40" in state.progress()


def test_notes_made_between_steps_take_the_place_of_one_another() -> None:
    state = state_of(step(10), {"event": "note", "step": 10, "text": "plan: 40 steps"})
    state.take({"event": "note", "step": 20, "text": "plan: 50 steps"})
    shown = "\n".join(screen(state))
    assert "plan: 50 steps" in shown
    assert "plan: 40 steps" not in shown


class TestOnAPipe:
    """Plain lines: each sample once and whole, of a study only the beginning of it."""

    @pytest.fixture
    def said(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What is printed."""
        lines: list[str] = []
        monkeypatch.setattr(progress, "say", lines.append)
        return lines

    def test_of_a_run(self, said: list[str]) -> None:
        report = progress._Lines()
        early = {"event": "early", "step": 3, "validation_loss": 2.25, "tokens": 8064}
        for event in (START, LINES, step(1), early, sample("word " * 99, at=3), sample("other"), EVALUATION):
            report(event)
        printed = "\n".join(said)
        assert printed.count("word " * 99) == 1
        assert printed.count("other") == 1
        assert "bigram 2.000" in printed
        assert "1.750" in printed

    def test_of_a_study(self, said: list[str]) -> None:
        report = progress._Lines()
        for seed in (1, 2, 3):
            label = {**STUDY, "seed": seed}
            last = [sample("word " * 99, at=100), {**EVALUATION, "step": 100}]
            for event in (START, LINES, EVALUATION, *last):
                report({**event, **label})
        assert len("\n".join(said).splitlines()) <= 3 * 4 + 1
