"""Commands as a user types them, in an empty folder, beside a tiny run."""

import html
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from symbols import symbolic_lengths

import vitral as library
from tests.conftest import SETTINGS as SETTINGS
from vitral.app.terminal import run

COMMAND = re.compile(
    r"""(?:^(?:\$ )?|: |(?<='; )|  |[`>])vitral ([a-z]+ (?:'[^']*'|"[^"]*"|[^\s`<'";]| (?![ #]))+)""", re.MULTILINE
)


def printed_commands(printed: str) -> list[list[str]]:
    """The words of each command to be typed, without the program's name: of a terminal, a page or Markdown; each once.

    It begins a line or a column, or stands behind a colon, or is code; two spaces or a comment end it.
    """
    found = COMMAND.findall(html.unescape(printed))
    return [shlex.split(each) for each in dict.fromkeys(each.strip() for each in found)]


MODEL = {"d_model": 12, "num_layers": 2, "num_heads": 3, "context_length": 13}
TRAINING = {"steps": 4, "evaluate_every": 2, "batch_size": 5}


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def trained(tiny_run: Path) -> Path:
    """A run folder."""
    return tiny_run


@pytest.fixture(scope="session", name="run")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> library.Run:
    """A run of two blocks, trained from Python."""
    return library.train("sample", tmp_path_factory.mktemp("small") / "run", model=MODEL, training=TRAINING, seed=5)


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], str]:
    """Type a command, which must succeed, and see what it printed.

    Everything is short: steps are timed for a moment, a training with minutes ends after a part of a pass over its
    text, the trainings of a study have `SETTINGS`, and a server ends when it begins to listen.
    """
    monkeypatch.setattr("vitral.training.deadline.most_passes", lambda model, num_tokens: 0.05)
    monkeypatch.setattr("vitral.training.plans.TRIAL_SECONDS", 0.1)
    monkeypatch.setattr("vitral.page.server.serving._run", lambda listening, application: None)
    monkeypatch.setattr("webbrowser.open", lambda uri: True)

    def call(words: list[str]) -> str:
        capsys.readouterr()
        with symbolic_lengths():  # of the graph in a page
            code, printed = run([*words, *SETTINGS * (words[0] == "study")]), capsys.readouterr()
        assert code == (words[0] == "check"), (words, printed)  # of notes with a mistake
        return printed.out

    return call


@pytest.fixture
def vitral(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Outcome]:
    """Run a command in an empty folder and see what it printed."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = run(list(arguments))
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return call
