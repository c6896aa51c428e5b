"""A tiny run that the command line can use, trained once."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from vitral.cli import run

TINY = ["model.d_model=12", "model.num_layers=1", "model.num_heads=3", "model.context_length=11", "model.dropout=0.0"]
SHORT = ["training.steps=5", "training.evaluate_every=5", "training.batch_size=7", "training.sample_every=5"]
SETTINGS = [word for setting in [*TINY, *SHORT, "training.sample_tokens=13"] for word in ("--set", setting)]


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    """Keep prepared texts out of the user's cache."""
    before = os.environ.get("VITRAL_CACHE")
    os.environ["VITRAL_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["VITRAL_CACHE"]
    else:
        os.environ["VITRAL_CACHE"] = before


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """A run folder."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    assert run(["train", "sample", "--out", str(folder), *SETTINGS]) == 0
    return folder


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
