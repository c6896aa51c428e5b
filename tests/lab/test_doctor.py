"""The doctor: says what is wrong with a run, and finds nothing wrong with a healthy one."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import TINY
from vitral.cli import run as command
from vitral.lab.health import Diagnosis, examine_machine
from vitral.lab.run_health import examine_run

STEPS = 8


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run."""
    path = tmp_path_factory.mktemp("doctor") / "run"
    settings = [*TINY, f"training.steps={STEPS}", "training.evaluate_every=4", "training.batch_size=7"]
    assert command(["train", "sample", "--out", str(path), *(w for s in settings for w in ("--set", s))]) == 0
    return path


def marks(diagnosis: Diagnosis) -> dict[str, str]:
    return {finding.what: finding.mark for finding in diagnosis.findings}


def test_a_healthy_run(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in healthy.rglob("*") if path.is_file()}
    found = examine_run(healthy)
    assert found.healthy
    assert set(marks(found).values()) == {"ok"}
    assert marks(found).keys() >= {"step-00000004", "step-00000008", "best", "last", "recomputed step", "progress"}
    again = next(finding.found for finding in found.findings if finding.what == "recomputed step")
    assert again.startswith("step 5: loss ")
    assert again.endswith("bit-equal to the logged loss")
    assert command(["doctor", str(healthy)]) == 0
    assert capsys.readouterr().out.count("✓") == len(found.findings)
    assert before == {path: path.read_bytes() for path in healthy.rglob("*") if path.is_file()}


def _flip(run: Path) -> None:
    path = run / "steps" / "step-00000008" / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def _tell_another_loss(run: Path) -> None:
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if '"event": "step", "step": 5,' in line)
    lines[place] = lines[place].replace('"loss": ', '"loss": 1', 1)
    path.write_text("".join(lines), encoding="utf-8")


def _point_nowhere(run: Path) -> None:
    (run / "last").write_text("step-00000099\n", encoding="utf-8")


def _no_tokenizer(run: Path) -> None:
    (run / "tokenizer.json").unlink()


def _none_whole(run: Path) -> None:
    for path in (run / "steps").iterdir():
        (path / "state.json").unlink()


@pytest.mark.parametrize(
    ("harm", "where"),
    [
        (_flip, "step-00000008"),
        (_tell_another_loss, "recomputed step"),
        (_point_nowhere, "last"),
        (_no_tokenizer, "documents"),
        (_none_whole, "checkpoints"),
    ],
)
def test_what_is_wrong_is_named(
    harm: Callable[[Path], None], where: str, healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(healthy, tmp_path / "run")
    harm(tmp_path / "run")
    found = examine_run(tmp_path / "run")
    assert not found.healthy
    assert marks(found)[where] == "wrong"
    assert command(["doctor", str(tmp_path / "run")]) == 1
    assert "✗" in capsys.readouterr().out


def test_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = examine_machine()
    assert marks(found)["float32"] == "ok"
    assert command(["doctor"]) in (0, 1)
    assert "PyTorch" in capsys.readouterr().out


def test_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["doctor", str(tmp_path)]) == 2
    assert "not a run" in capsys.readouterr().err
