"""Stored notes are told in Portuguese; no byte of a run depends on the language."""

import re
from pathlib import Path
from typing import Any

import pytest

import vitral
from vitral.core.language import LANGUAGES, _, in_language
from vitral.training import Event
from vitral.training.configuration import plan_run

OTHERS = [code for code in LANGUAGES if code != "en"]
SPOKEN = re.findall(r"\w+", "o gato preto dorme e a lua clara sobe sobre o rio manso enquanto ninguém olha")
"""Words of the text, none of them English."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text with a byte order mark, Windows' line ends, rare characters and an invisible one."""
    words = (SPOKEN[n * n * n % len(SPOKEN)] for n in range(4000))
    lines = "\r\n".join(" ".join(next(words) for _word in range(8)) for _line in range(500))
    path = tmp_path_factory.mktemp("texts") / "lua.txt"
    path.write_bytes(f"\ufeff{lines}\u200b ñ\r\n".encode())
    return path


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, vitral.Run]:
    """The same run, trained in every language."""
    runs = {}
    for code in LANGUAGES:
        with in_language(code):
            plan = plan_run(str(text), overrides=[_settings()])
            runs[code] = vitral.Run(
                plan.train(tmp_path_factory.mktemp(code) / "lua", SAID.setdefault(code, []).append).path
            )
    return runs


SAID: dict[str, list[Event]] = {}
"""The events of these trainings."""


def _settings() -> dict[str, Any]:
    return {
        "model": {"context_length": 16, "d_model": 8, "num_heads": 2, "num_layers": 1},
        "training": {"steps": 6, "batch_size": 2, "evaluate_every": 3, "log_every": 2, "threads": 1},
    }


def test_no_byte_of_a_run_depends_on_the_language(trained: dict[str, vitral.Run]) -> None:
    english, *others = (run.path for run in trained.values())
    names = ["config.toml", "run.json", "corpus.json", "ngrams.json", "tokenizer.json"]
    names += [str(path.relative_to(english)) for path in english.rglob("*") if path.suffix in (".safetensors", ".txt")]
    names += [str(path.relative_to(english)) for path in english.rglob("state.json")]
    assert any(name.endswith("model.safetensors") for name in names)
    notes = {code: [event["text"] for event in SAID[code] if event["event"] == "note"] for code in SAID}
    assert len(notes["en"]) >= 4
    logs = {code: [_untimed(event) for event in run.metrics()] for code, run in trained.items()}
    for code, other in zip(OTHERS, others, strict=True):
        assert notes[code] == notes["en"]
        assert logs[code] == logs["en"]
        for name in names:
            assert (other / name).read_bytes() == (english / name).read_bytes(), name


def _untimed(event: Event) -> Event:
    return {key: value for key, value in event.items() if key not in ("stepped", "seconds", "tokens_per_second")}


@pytest.mark.parametrize("code", OTHERS)
def test_the_notes_of_a_run_are_told_in_the_readers_language(trained: dict[str, vitral.Run], code: str) -> None:
    """From what was said while it was trained, and from its files; the text's own words and numbers stay."""
    record = trained[code].sealed.document("corpus")
    notes = [event["text"] for event in SAID[code] if event["event"] == "note"] + record["notes"] + record["problems"]
    with in_language(code):
        told = [_(note) for note in notes]
    assert len(told) >= 5
    assert [one for one, note in zip(told, notes, strict=True) if one == note] == []
