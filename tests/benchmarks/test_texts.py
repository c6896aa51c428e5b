"""The table of texts: its list, the first sample on the screen, the verdicts, and what is kept."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import texts
from benchmarks.options import LeftOut
from benchmarks.processes import python
from benchmarks.texts import BUSY, IDLE, LIST, Listed, Watched, busy, judged, markdown, read_list, watch

SAMPLE = "The light of the window\nfell on the floor."
CELL: dict[str, Any] = {
    "characters": 400_000,
    "seconds": 59.0,
    "steps": 300,
    "sample_at": 12.0,
    "test_loss": 1.5,
    "trigram": 1.9,
    "best_ngram": [5, 1.4],
    "goals": {"at most its minute": True, "within its tolerance": True, "a sample in time": True},
}


def measured(loss: float) -> dict[str, Any]:
    orders = {"1": 3.1, "2": 2.4, "3": 1.9, "4": 1.5, "5": 1.4, "6": 1.45}
    return {
        "step": 300,
        "ngrams": {"orders": orders},
        "parts": {"test": {"loss": loss, "bits_per_character": 2.0}},
    }


def judge(seconds: float = 59.0, sample_at: float = 12.0, loss: float = 1.5, characters: int = 400_000) -> Any:
    seen = Watched(seconds, 0, ((1.0, "starting\n"), (sample_at, "sample:\n  The light of\n  the win"), (50.0, "dow")))
    described = {
        "corpus": {"characters": characters, "tokenizer": "char"},
        "environment": {"plan": ["a note"]},
        "config": {"model": {"d_model": 128}, "training": {"dtype": "float32"}},
    }
    return judged(seen, [{"event": "sample", "text": SAMPLE}], described, measured(loss), 60.0)


def test_the_first_sample_is_found_in_the_output_however_it_is_wrapped() -> None:
    found = judge(sample_at=12.0)
    assert found["sample_at"] == 12.0
    assert Watched(1.0, 0, ((0.5, "other"),)).seconds_of(SAMPLE) is None
    assert Watched(1.0, 0, ((0.5, "other"),)).seconds_of("") is None


@pytest.mark.parametrize(
    ("case", "goal", "met"),
    [
        ({"seconds": 60.0}, "at most its minute", True),
        ({"seconds": 60.1}, "at most its minute", False),
        ({"seconds": 66.0}, "within its tolerance", True),  # 10 % of a minute is more than 5 s
        ({"seconds": 66.1}, "within its tolerance", False),
        ({"sample_at": 20.0}, "a sample in time", True),
        ({"sample_at": 20.1}, "a sample in time", False),
        ({"loss": 1.89}, "below the trigram", True),
        ({"loss": 1.9}, "below the trigram", False),
        ({"loss": 1.9, "characters": 299_999}, "below the trigram", None),
    ],
)
def test_every_goal_has_a_verdict(case: dict[str, Any], goal: str, met: bool | None) -> None:
    assert judge(**case)["goals"][goal] is met


def test_the_best_ngram_is_named_with_its_order() -> None:
    assert judge()["best_ngram"] == [5, 1.4]


def test_the_table_has_a_row_for_each_training_and_marks_what_was_missed() -> None:
    late = judge(seconds=70.0)
    lines = markdown({"prose": {IDLE: judge(), BUSY: late}}).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert "**70.0**" in lines[3]
    assert "**" not in lines[2]


def test_a_list_names_files_and_options(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    (tmp_path / LIST).write_text('[[text]]\nname = "A"\nfile = "a.txt"\noptions = ["--seed", "2"]\n', encoding="utf-8")
    assert read_list(tmp_path) == [Listed("A", (tmp_path / "a.txt").resolve(), ("--seed", "2"))]


@pytest.mark.parametrize(
    "content", [None, "[[text", '[[text]]\nname = "A"\n', '[[text]]\nname = "A"\nfile = "b.txt"\n']
)
def test_a_list_that_cannot_be_used_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / LIST).write_text(content, encoding="utf-8")
    with pytest.raises(LeftOut, match=r"texts\.toml|b\.txt"):
        read_list(tmp_path)


def test_busy_processes_end_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = texts.subprocess.Popen

    def starting(*given: Any) -> Any:
        started.append(popen(*given))
        return started[-1]

    monkeypatch.setattr(texts.subprocess, "Popen", starting)
    with busy(2):
        assert [process.poll() for process in started] == [None, None]
    assert all(process.poll() is not None for process in started)


def test_output_is_read_as_it_comes() -> None:
    seen = watch(python("-c", "import sys; print('é'); sys.exit(3)"), dict(os.environ))
    assert seen.code == 3
    assert "".join(piece for _, piece in seen.output).split() == ["é"]
    assert all(0 < seconds <= seen.seconds for seconds, _ in seen.output)


def test_what_was_measured_stays_when_another_text_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [f'[[text]]\nname = "{name}"\nfile = "a.txt"\n' for name in "AB"]
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    (tmp_path / LIST).write_text("".join(entries), encoding="utf-8")
    out = tmp_path / "results" / "texts.json"

    def train(text: Listed, condition: str, minutes: float) -> dict[str, Any]:
        if text.name == "B":
            raise LeftOut("no")
        return {**CELL, "steps": 1 if condition == IDLE else 2, "goals": {**CELL["goals"], "below the trigram": True}}

    monkeypatch.setattr(texts, "train", train)
    assert texts.main([str(tmp_path), "--out", str(out), "--condition", "idle"]) == 1
    assert texts.main([str(tmp_path), "--out", str(out), "--only", "A", "--condition", "busy"]) == 0
    kept = json.loads(out.read_text(encoding="utf-8"))["texts"]
    assert {name: {key: cell["steps"] for key, cell in cells.items()} for name, cells in kept.items()} == {
        "A": {"idle": 1, "busy": 2}
    }


def test_an_unknown_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / LIST).write_text("text = []\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        texts.main([str(tmp_path), "--only", "nothing"])
