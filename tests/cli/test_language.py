"""The language of the command line: how it is chosen, that help and refusals follow it, and that data never does."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from typer.main import get_command

from tests.cli.conftest import SETTINGS
from tests.cli.test_commands import COMMANDS
from vitral.cli import app
from vitral.cli.help import HEADINGS, METAVARS, REFUSALS, refusal
from vitral.cli.progress import DISPLAY, Harmless
from vitral.core.language import SYSTEM_VARIABLES, VARIABLE, in_language, language
from vitral.lab.training_state import TrainingState

USAGE = {"en": "Usage: ", "pt": "Uso: "}
ENGLISH = set(
    re.findall(
        r"\w+",
        "the of and is are with from to for or not this that by it its an on at which where than each every only one "
        "if without when what have has given default env required show options arguments commands",
    )
)
"""Words that no Portuguese sentence contains."""
LITERAL = re.compile(r"To be|one-work|--[\w-]+|'[^']*'|<[^>]*>|\S*[.:_/=|]\w\S*|vitral \w+")
"""Names of options, choices, keys, files and commands, which are the same in every language."""


def words(text: str) -> set[str]:
    """The words of a text, apart from literal names."""
    return set(re.findall(r"[a-zà-ú]+", LITERAL.sub(" ", text).casefold()))


def spoken(told: str) -> str:
    """The language of a help page."""
    return next(code for code, beginning in USAGE.items() if told.startswith(beginning))


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that names no language."""
    for name in (VARIABLE, *SYSTEM_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    "command", [[], *([name] for name in COMMANDS)], ids=lambda command: "".join(command) or "vitral"
)
def test_help_in_portuguese_has_no_english_word(vitral, command: list[str]) -> None:
    told = vitral(*command, "--lang", "pt", "--help")
    assert (told.code, told.err) == (0, "")
    text = told.out
    if not command:  # the names of the commands
        text = re.sub(rf"^  ({'|'.join(COMMANDS)})\b", "", text, flags=re.MULTILINE)
    assert words(text) & ENGLISH == set()
    assert "--lang" in text
    for english in HEADINGS:
        assert f"{english}:" not in text


def test_every_word_in_capitals_of_a_command_is_known() -> None:
    group = get_command(app)
    commands = getattr(group, "commands", {})
    metavars = [getattr(each, "metavar", None) or "" for one in commands.values() for each in one.params]
    assert len(metavars) > 50
    assert {word for each in metavars for word in re.findall(r"[A-Z]{2,}", each)} <= set(METAVARS)


@pytest.mark.parametrize("command", [["train"], ["generate"], []])
def test_help_has_the_same_options_in_both_languages(vitral, command: list[str]) -> None:
    pages = [vitral(*command, "--help", "--lang", code).out for code in USAGE]
    options = [re.findall(r"^  (--[\w-]+)", page, flags=re.MULTILINE) for page in pages]
    assert options[0] == options[1]
    assert "--lang" in options[0]


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
    ("command", "name"),
    [
        ("train --nosuch", "--nosuch"),
        ("trian", "'train'"),
        ("evaluate", "'EXECUÇÃO'"),
        ("inspect x", "--text"),
        ("count --vocabulary 0", "--vocabulary"),
        ("count --vocabulary x", "--vocabulary"),
        ("train --minutes", "--minutes"),
        ("train --minutes x", "--minutes"),
        ("train --device tpu", "'cuda'"),
        ("count fast sample", "sample"),
    ],
)
def test_what_the_parser_refuses_is_told_in_portuguese(vitral, command: str, name: str) -> None:
    told = vitral("--lang", "pt", *command.split())
    assert told.code == 2
    assert told.err.count("\n") == 1
    assert name in told.err
    assert words(told.err) & ENGLISH == set()
    assert not words(told.err) & {"missing", "invalid", "such", "option", "argument", "input", "should", "did", "mean"}


def test_every_refusal_of_the_parser_is_known_with_its_values() -> None:
    for sentence in REFUSALS:
        english = re.sub(r"\{\w+\}", "'x'", sentence)
        with in_language("pt"):
            assert refusal(english + ".") != english
        with in_language("en"):
            assert refusal(english + ".") == english


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


def test_a_run_is_the_same_in_both_languages(vitral, tmp_path: Path) -> None:
    for code in USAGE:
        told = vitral("train", "sample", "--out", code, *SETTINGS, "--lang", code)
        assert told.code == 0, told.err
    for name in ("config.toml", "tokenizer.json", "corpus.json", "ngrams.json"):
        assert len({(tmp_path / code / name).read_bytes() for code in USAGE}) == 1, name
    logs = [(tmp_path / code / "metrics.jsonl").read_text(encoding="utf-8").splitlines() for code in USAGE]
    texts = [[event.get("text") for event in map(json.loads, log)] for log in logs]
    assert texts[0] == texts[1]


def test_a_damaged_run_is_told_in_portuguese_and_as_data_in_english(vitral, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "best").write_text("step-00000099\n", encoding="utf-8")
    next((tmp_path / "run" / "samples").iterdir()).write_text("other words", encoding="utf-8")
    told = vitral("doctor", "run", "--lang", "pt")
    assert (told.code, told.out.count("✗")) == (1, 2)
    assert words(told.out) & ENGLISH == set()
    os.truncate(next((tmp_path / "run" / "steps").glob("*/model.safetensors")), 100)
    data = [vitral("doctor", "run", "--lang", code, "--format", "json") for code in USAGE]
    assert data[0] == data[1]


def test_a_display_that_fails_is_told_in_portuguese_and_recorded_in_english(capsys: pytest.CaptureFixture[str]) -> None:
    def report(event: object) -> None:
        raise OverflowError("99")

    recorded = set[str | None]()
    told = set[str]()
    for code in USAGE:
        with in_language(code):
            recorded.add(Harmless(DISPLAY, report)({"event": "step", "step": 1}))
        told.add(capsys.readouterr().err)
    assert len(recorded) == 1
    assert len(told) == 2


def test_the_progress_has_a_decimal_comma() -> None:
    state = TrainingState()
    state.take({"event": "start", "steps": 2000, "step": 0})
    state.take({"event": "step", "step": 1234, "loss": 2.5, "learning_rate": 0.01, "tokens_per_second": 9e3})
    with in_language("pt"):
        told = state.progress()
    assert "1.234/2.000" in told
    assert "2,500" in told
    assert "1,00e-02" in told
