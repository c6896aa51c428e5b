"""The language of the command line: how it is chosen, that help and refusals follow it, and that data never does."""

import json
import os
import shutil
from pathlib import Path

import pytest

from vitral.core.language import SYSTEM_VARIABLES, VARIABLE, in_language, language

USAGE = {"en": "Usage: ", "pt": "Uso: "}


def spoken(told: str) -> str:
    """The language of a help page."""
    return next(code for code, beginning in USAGE.items() if told.startswith(beginning))


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that names no language."""
    for name in (VARIABLE, *SYSTEM_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_the_option_is_stronger_than_the_variable_than_the_system_than_english(vitral, system) -> None:
    assert spoken(vitral("--help").out) == "en"
    system.setenv("LANG", "pt_BR.UTF-8")
    assert spoken(vitral("--help").out) == "pt"
    system.setenv("LC_ALL", "C")
    assert spoken(vitral("--help").out) == "en"
    system.setenv(VARIABLE, "pt")
    assert spoken(vitral("--help").out) == "pt"
    assert spoken(vitral("--lang", "en", "--help").out) == "en"
    assert spoken(vitral("list", "--lang=en", "--help").out) == "en"


def test_the_option_stands_before_or_after_the_command_and_the_last_one_counts(vitral) -> None:
    for before, after in ((["--lang", "pt"], []), ([], ["--lang", "pt"]), (["--lang", "en"], ["--lang=pt"])):
        assert spoken(vitral(*before, "count", *after, "--help").out) == "pt"
        assert "Parâmetros" in vitral(*before, "count", *after).out
    assert "Parâmetros" not in vitral("--lang", "pt", "count", "--lang", "en").out


def test_every_call_has_its_own_language_and_leaves_the_program_as_it_was(vitral) -> None:
    assert language() == "en"
    assert spoken(vitral("--lang", "pt", "--help").out) == "pt"
    assert language() == "en"
    assert spoken(vitral("--help").out) == "en"
    with in_language("pt"):
        assert spoken(vitral("--lang", "en", "--help").out) == "en"
        assert language() == "pt"


def test_an_unknown_language_is_english_with_a_note(vitral, system) -> None:
    english = vitral("list", "texts")
    assert english.err == ""
    for options, variable in ((["--lang", "tlh"], None), ([], "tlh"), (["--lang", ""], None)):
        if variable:
            system.setenv(VARIABLE, variable)
        told = vitral("list", "texts", *options)
        assert (told.code, told.out) == (0, english.out)
        assert told.err.count("\n") == 1
        assert ("--lang" if options else VARIABLE) in told.err
    assert vitral("list", "texts", "--lang", "en").err == ""  # the option is stronger than the unknown variable
    system.delenv(VARIABLE)
    system.setenv("LANG", "de_DE.UTF-8")
    assert vitral("list", "texts") == english


def test_text_that_looks_like_the_option_is_text(vitral, trained: Path) -> None:
    told = vitral("generate", str(trained), "--prompt", "--lang", "--max-tokens", "0")
    assert (told.code, told.out) == (0, "--lang\n")


@pytest.mark.parametrize(
    "command",
    [
        "list --format json",
        "corpus sample --format json",
        "count shakespeare --format json",
        "evaluate RUN --no-copying --format json",
        "generate RUN --samples 2 --max-tokens 5 --format json",
        "inspect RUN --text To --format json",
        "doctor RUN --format json",
    ],
)
def test_data_is_the_same_in_both_languages(vitral, trained: Path, command: str) -> None:
    given = [str(trained) if word == "RUN" else word for word in command.split()]
    english, portuguese = (vitral("--lang", code, *given) for code in USAGE)
    assert english.code == 0
    assert portuguese == english
    json.loads(english.out)


def test_a_check_is_data_in_english_and_complains_in_the_language(vitral) -> None:
    line = ["check", "causal-mask", "o-gato-preto", "no-such", "--format", "json"]
    english, portuguese = (vitral("--lang", code, *line) for code in USAGE)
    assert english.code == portuguese.code == 2
    assert portuguese.out == english.out
    assert len(json.loads(english.out)) == 3
    assert portuguese.err != english.err


def test_a_damaged_run_is_told_in_portuguese_and_as_data_in_english(vitral, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("{}", encoding="utf-8")
    next((tmp_path / "run" / "samples").iterdir()).write_text("other words", encoding="utf-8")
    told = vitral("doctor", "run", "--lang", "pt")
    assert (told.code, told.out.count("✗")) == (1, 2)
    os.truncate(next((tmp_path / "run" / "steps").glob("*/model.safetensors")), 100)
    data = [vitral("doctor", "run", "--lang", code, "--format", "json") for code in USAGE]
    assert data[0] == data[1]
