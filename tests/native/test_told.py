"""Whether a run is generated in C, and why not, is told by `vitral doctor RUN` and by `vitral generate --stats`."""

from pathlib import Path

import pytest
import torch

import vitral as library
from tests.conftest import SETTINGS
from vitral.app.terminal import run
from vitral.core import parts
from vitral.doctor.health import HealthCheck, Mark
from vitral.doctor.run import examine_run
from vitral.model.native import build, described, native

pytestmark = pytest.mark.usefixtures("used", "own_cache")


def doctors(path: Path) -> HealthCheck:
    """The finding on generation."""
    return next(finding for finding in examine_run(path, replay=False).findings if finding.what == "generation in C")


@pytest.mark.parametrize(("switch", "mark"), [("1", "ok"), ("0", "unknown")])
def test_both_tell_the_instructions_or_that_it_is_turned_off(
    switch: str, mark: Mark, tiny_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(build.SWITCH, switch)
    assert doctors(tiny_run) == HealthCheck(mark, "generation in C", native().found)
    capsys.readouterr()
    assert run(["generate", str(tiny_run), "--max-tokens", "5", "--stats"]) == 0
    assert native().found in capsys.readouterr().err


def test_both_tell_what_the_model_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library.register("activation", "sine", lambda: torch.sin)
    path = tmp_path / "run"
    assert run(["train", "sample", *SETTINGS, "--set", "model.feed_forward=sine", "--out", str(path)]) == 0
    reason = described.why_not(library.load(path).model)
    assert reason is not None
    assert doctors(path) == HealthCheck("unknown", "generation in C", reason)
    capsys.readouterr()
    assert run(["generate", str(path), "--max-tokens", "5", "--stats"]) == 0
    assert reason in capsys.readouterr().err
    monkeypatch.setattr(parts, "_parts", {})  # a model that cannot be made is not judged
    assert "generation in C" not in [finding.what for finding in examine_run(path, replay=False).findings]
