"""Whether a run is generated in C, and why not, is said by `vitral generate --stats`."""

from pathlib import Path

import pytest
import torch

import vitral as library
from tests.conftest import SETTINGS
from vitral.app.terminal import run
from vitral.model.native import build, described, native

pytestmark = pytest.mark.usefixtures("used")


@pytest.mark.parametrize("switch", ["1", "0"])
def test_the_instructions_are_said_or_that_it_is_turned_off(
    switch: str, tiny_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(build.SWITCH, switch)
    capsys.readouterr()
    assert run(["generate", str(tiny_run), "--max-tokens", "5", "--stats"]) == 0
    assert native().detail in capsys.readouterr().err


def test_it_is_said_what_the_model_is_made_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library.register("activation", "sine", lambda: torch.sin)
    path = tmp_path / "run"
    assert run(["train", "sample", *SETTINGS, "--set", "model.feed_forward=sine", "--out", str(path)]) == 0
    reason = described.why_not(library.load(path).model)
    assert reason is not None
    capsys.readouterr()
    assert run(["generate", str(path), "--max-tokens", "5", "--stats"]) == 0
    assert reason in capsys.readouterr().err
