"""The doctor: says what is wrong with a run, and finds nothing wrong with a healthy one."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TINY
from tests.reliability.conftest import last_bytes
from tests.training.conftest import at, interrupt
from vitral.app.terminal import run as command
from vitral.core.errors import UsageError
from vitral.core.files import sha256
from vitral.doctor import Diagnosis, examine_machine
from vitral.doctor.folders import examine_run, repair_run
from vitral.runs.checkpoint import list_checkpoints, load_checkpoint, reseal
from vitral.training import RunConfig, resume, train

STEPS = 8


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run."""
    path = tmp_path_factory.mktemp("doctor") / "run"
    settings = [
        *TINY,
        f"training.steps={STEPS}",
        "training.evaluate_every=4",
        "training.batch_size=7",
        "training.sample_every=4",
        "training.sample_tokens=9",
    ]
    assert command(["train", "sample", "--out", str(path), *(w for s in settings for w in ("--set", s))]) == 0
    return path


def marks(diagnosis: Diagnosis) -> dict[str, str]:
    return {finding.what: finding.mark for finding in diagnosis.findings}


def test_a_healthy_run(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in healthy.rglob("*") if path.is_file()}
    found = examine_run(healthy)
    assert found.healthy
    told = marks(found)
    assert set(told.values()) == {"ok"}
    assert told.keys() >= {"step-00000004", "step-00000008", "recomputed step", "progress"}
    again = next(finding.found for finding in found.findings if finding.what == "recomputed step")
    assert again.startswith("step 5: loss ")
    assert again.endswith("bit-equal to the logged loss")
    assert command(["doctor", str(healthy)]) == 0
    assert capsys.readouterr().out.count("✓") == [finding.mark for finding in found.findings].count("ok")
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


def _log_another_loss(run: Path) -> None:
    """Every hash agrees, as if it had been measured so."""
    _tell_another_loss(run)
    for checkpoint in list_checkpoints(run / "steps"):
        history = load_checkpoint(checkpoint).history
        kept = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)[: history["metrics"]["lines"]]
        raw = b"".join(kept)
        seal = {"lines": len(kept), "bytes": len(raw), "sha256": sha256(raw)}
        reseal(checkpoint, {**history, "metrics": seal})


def _none_whole(run: Path) -> None:
    for path in (run / "steps").iterdir():
        (path / "state.json").unlink()


def _write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes(content)


def _lose(name: str) -> Callable[[Path], object]:
    return lambda run: (run / name).unlink()


@pytest.mark.parametrize(
    ("harm", "where"),
    [
        (_flip, "step-00000008"),
        (_tell_another_loss, "metrics.jsonl"),
        (_log_another_loss, "recomputed step"),
        (_none_whole, "steps"),
    ],
)
def test_what_is_wrong_is_named(
    harm: Callable[[Path], object], where: str, healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(healthy, tmp_path / "run")
    harm(tmp_path / "run")
    found = examine_run(tmp_path / "run")
    assert not found.healthy
    assert marks(found)[where] == "wrong"
    assert command(["doctor", str(tmp_path / "run")]) == 1
    assert "✗" in capsys.readouterr().out


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A run that was stopped after step 6 of 8, and the last bytes of the same without a stop."""
    # Every step is logged: the step event after which the run stops.
    settings = {"steps": STEPS, "evaluate_every": 4, "batch_size": 7, "checkpoint_every": 2, "keep_checkpoints": 3}
    sizes = {"d_model": 12, "num_layers": 1, "num_heads": 3, "context_length": 11}
    training = settings | {"log_every": 1}
    config = RunConfig.parse({"corpus": {"source": "sample"}, "model": sizes, "training": training})

    folder = tmp_path_factory.mktemp("repair")
    whole = train(config, folder / "whole")
    return train(config, folder / "run", callback=at(interrupt, "step", 6)).path, last_bytes(whole, STEPS)


def _edit(run: Path) -> None:
    path = run / "config.toml"
    text = path.read_text(encoding="utf-8")
    assert "learning_rate = " in text
    path.write_text(re.sub(r"learning_rate = \S+", "learning_rate = 0.5", text), encoding="utf-8")


def _damage_log(at: float) -> Callable[[Path], object]:
    def damage(run: Path) -> None:
        raw = bytearray((run / "metrics.jsonl").read_bytes())
        raw[int(at * (len(raw) - 2))] ^= 1
        (run / "metrics.jsonl").write_bytes(bytes(raw))

    return damage


def _cut_log(run: Path) -> None:
    raw = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(raw[: len(raw) // 2])


def _link_log(run: Path) -> None:
    (run / "metrics.jsonl").rename(run.parent / "elsewhere.jsonl")
    (run / "metrics.jsonl").symlink_to(run.parent / "elsewhere.jsonl")


def _several(run: Path) -> None:
    for harm in (_edit, _lose("run.json"), _damage_log(0.5)):
        harm(run)


HARMS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a configuration that was edited": ("config.toml", _edit),
    "a configuration that cannot be read": ("config.toml", _write("config.toml", b"\xff[")),
    "a damaged run.json": ("run.json", _write("run.json", b"{")),
    "a log damaged at its beginning": ("metrics.jsonl", _damage_log(0)),
    "half a log": ("metrics.jsonl", _cut_log),
    "no log": ("metrics.jsonl", _lose("metrics.jsonl")),
    "a log that is a link": ("metrics.jsonl", _link_log),
    "much at once": ("run.json", _several),
}


@pytest.mark.parametrize("name", HARMS)
def test_what_is_sealed_is_repaired(
    name: str, stopped: tuple[Path, dict[str, bytes]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Afterwards the doctor is content, a resume ends with the straight run's bytes, and no content is lost."""
    (source, straight), run = stopped, tmp_path / "run"
    shutil.copytree(source, run)
    where, harm = HARMS[name]
    harm(run)
    found = examine_run(run)
    assert marks(found)[where] == "wrong"
    before = {path.read_bytes() for path in run.rglob("*") if path.is_file() and not path.is_symlink()}
    before -= {path.read_bytes() for path in [run / ".lock"] if path.is_file()}
    log = (run / "metrics.jsonl").read_bytes() if (run / "metrics.jsonl").exists() else b""
    assert command(["doctor", str(run), "--repair"]) == 0, capsys.readouterr().out
    assert "✗" not in capsys.readouterr().out
    after = {path.read_bytes() for path in run.rglob("*") if path.is_file()}
    lost = before - after
    # History is sealed again: the only file of a checkpoint that a repair writes.
    assert all(b'"metrics"' in raw or b'"files"' in raw for raw in lost), [raw[:60] for raw in lost]
    assert log in after or name == "a log that is a link" or not log
    assert repair_run(run) == ()  # nothing more to do
    assert last_bytes(resume(run), STEPS) == straight
    assert examine_run(run).healthy


def test_what_nothing_seals_is_not_repaired(healthy: Path, tmp_path: Path) -> None:
    shutil.copytree(healthy, tmp_path / "run")
    _none_whole(tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(UsageError):
        repair_run(tmp_path / "run")
    assert before == {
        path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"
    }


@pytest.mark.merge
def test_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = examine_machine()
    assert marks(found)["float32"] == "ok"
    assert any("bfloat16" in one.found for one in found.findings if one.what == "training")
    assert command(["doctor"]) in (0, 1)
    assert "PyTorch" in capsys.readouterr().out


def test_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["doctor", str(tmp_path)]) == 2
    assert "not a run" in capsys.readouterr().err
