"""Commands as a user types them, in an empty folder, beside a tiny run."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import SETTINGS as SETTINGS
from vitral.app.terminal import run


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def trained(tiny_run: Path) -> Path:
    """A run folder."""
    return tiny_run


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
