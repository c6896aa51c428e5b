"""The table of texts: its list, the first sample on the screen, the verdicts, and what is kept."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.options import LeftOut
from benchmarks.texts import LIST, Listed, Watched, judged, read_list

SAMPLE = "The light of the window\nfell on the floor."


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
    result = judge(sample_at=12.0)
    assert result["sample_at"] == 12.0
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
