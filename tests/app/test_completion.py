"""Completion in the shell: every name, runs and files, and never an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitral.app import completion, presets
from vitral.data import corpus_names
from vitral.explanation.examples.by_name import gallery
from vitral.studies import study_names


def completed(*words: str) -> list[str]:
    """What the program answers a bash that completes the last word."""
    line = {"_VITRAL_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    asked = [sys.executable, "-m", "vitral"]
    done = subprocess.run(asked, env={**os.environ, **line}, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with runs, a study, texts and a configuration."""
    for run in ("runs/first", "runs/second", "elsewhere/third"):
        (tmp_path / run / "steps").mkdir(parents=True)
        (tmp_path / run / "config.toml").touch()
    (tmp_path / "runs/no-run").mkdir()
    (tmp_path / "studies/mask-quick").mkdir(parents=True)
    (tmp_path / "studies/mask-quick/study.json").touch()
    (tmp_path / "texts").mkdir()
    for name in ("mine.txt", "mine.toml", ".hidden", "two words.txt", "$(touch x)", "texts/one.txt", "texts/other.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VITRAL_CORPORA", raising=False)
    return tmp_path


def test_every_name_is_offered(here: Path) -> None:
    assert sorted(completion.presets("")) == sorted(presets())
    assert sorted(completion.texts("")) == sorted(corpus_names())
    assert sorted(completion.studies("")) == sorted(study_names())
    assert sorted(completion.examples("")) == sorted(gallery())


def test_own_texts_are_offered(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAL_CORPORA", str(here / "texts"))
    assert sorted(completion.texts("")) == sorted(corpus_names())
    assert completion.complete_text("oth") == ["other"]


@pytest.mark.parametrize(
    ("callback", "typed", "offered"),
    [
        (completion.complete_run, "", ["runs/first", "runs/second"]),
        (completion.complete_run, "runs/s", ["runs/second"]),
        (completion.complete_run, "./runs/f", ["./runs/first"]),
        (completion.complete_run, "elsewhere/", ["elsewhere/third"]),
        (completion.complete_run, "nowhere/at/all/", []),
        (completion.complete_checkup, "", ["runs/first", "runs/second", "studies/mask-quick"]),
        (completion.complete_start, "mi", ["mine.toml", "mine.txt"]),
        (completion.complete_start, "te", ["texts/one.txt", "texts/other.txt"]),
        (completion.complete_start, "shakespeare-", ["shakespeare-fast"]),
        (completion.complete_preset, "mi", ["mine.toml"]),
        (completion.complete_text, ".", [".hidden"]),
        (completion.complete_text, "two", []),
        (completion.complete_text, "$", []),
        (completion.complete_study, "no-", ["no-attention"]),
        (completion.complete_example, "the-", ["the-cat-sat"]),
        (completion.complete_explained, "elsewhere/t", ["elsewhere/third"]),
    ],
)
def test_offers(here: Path, callback, typed: str, offered: list[str]) -> None:
    assert callback(typed) == offered
    assert completion.complete_run(f"{here}/runs/f") == [f"{here}/runs/first"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("vitral", "generate", "runs/f"), ["runs/first"]),
        (("vitral", "study", "mask", "--base", "fas"), ["fast"]),
    ],
)
def test_the_shell_asks_the_program(here: Path, words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(*words) == offered


def test_a_removed_current_folder_offers_names_only(here: Path) -> None:
    gone = here / "gone"
    gone.mkdir()
    os.chdir(gone)
    try:
        gone.rmdir()
    except OSError:
        pytest.skip("the current folder cannot be removed here")
    finally:
        if gone.exists():
            os.chdir(here)
    assert completion.complete_start("shakespeare-") == ["shakespeare-fast"]
    assert completion.complete_run("") == []


def test_completion_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom vitral.app import completion\nfor name, offer in vars(completion).items():\n"
        "    if name.startswith('complete_'): offer('')\n"
        "print({'torch', 'numpy', 'pydantic', 'rich.console'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
