"""`vitral continue`: a finished run trained for longer, in a new folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Once
from tests.training.conftest import Configured, at, bytes_of, fail, measured_in
from vitral.core.errors import UsageError
from vitral.doctor.folders import examine_run
from vitral.report.run import write_run_report
from vitral.runs import RunFolder, load_run
from vitral.runs.checkpoint import MANIFEST, list_checkpoints
from vitral.training import continue_run, resume, train
from vitral.training.loop import learning_rate


@pytest.fixture(scope="session")
def parents(configured: Configured, once: Once) -> Callable[[str], RunFolder]:
    """`parents("muon")`: seven steps with this optimizer."""

    def trained(optimizer: str) -> RunFolder:
        schedule = {"name": "linear", "warmup_steps": 2}
        training = {"steps": 7, "evaluate_every": 3, "optimizer": {"name": optimizer}, "schedule": schedule}
        return RunFolder.open(
            once(f"training-parent-{optimizer}", lambda path: train(configured(training=training), path))
        )

    return trained


@pytest.fixture(scope="session")
def parent(parents: Callable[[str], RunFolder]) -> RunFolder:
    return parents("adamw")


def sound(path: Path) -> bool:
    return {finding.mark for finding in examine_run(path).findings} <= {"ok", "unknown"}


def test_weights_optimizer_and_steps_go_on(parent: RunFolder, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in parent.path.rglob("*") if path.is_file()}
    notes: list[str] = []
    keep_note = lambda event: notes.append(event["text"]) if event["event"] == "note" else None  # noqa: E731
    folder = continue_run(parent.path, tmp_path / "run", steps=11, callback=keep_note)
    assert {path: path.read_bytes() for path in parent.path.rglob("*") if path.is_file()} == before
    first, last = bytes_of(folder, 7), bytes_of(parent, 7)
    assert first["model.safetensors"] == last["model.safetensors"]
    assert first["optimizer.safetensors"] == last["optimizer.safetensors"]
    run = load_run(folder.path, "last")
    assert run.step == run.sealed.config.training.steps == 18
    origin, sealed = load_run(parent.path, "last"), run.sealed.identity.parent
    assert sealed is not None
    assert (sealed.run, sealed.step, sealed.manifest) == (
        origin.sealed.identity.run,
        7,
        json.loads((parent.steps / "step-00000007" / MANIFEST).read_bytes())["sha256"],
    )
    assert run.sealed.identity.run != origin.sealed.identity.run
    steps = [event["step"] for event in folder.metrics("step")]
    assert steps == list(range(8, 19))
    evaluations = folder.metrics("evaluation")
    assert evaluations[0] == parent.metrics("evaluation")[-1]  # the curve begins where the parent's ends
    losses = {event["step"]: event["validation_loss"] for event in evaluations}
    assert [path.name for path in list_checkpoints(folder.steps)] == [f"step-{step:08d}" for step in losses]
    assert load_run(folder.path, "best").step == min(losses, key=lambda step: losses[step])
    assert folder.ngrams() == parent.ngrams()
    assert any("continue: steps 8 to 18" in note for note in notes)
    assert sound(folder.path)
    assert write_run_report(folder.path).exists()


def test_its_schedule_is_data_and_it_is_continued_again(parent: RunFolder, tmp_path: Path) -> None:
    folder = continue_run(parent.path, tmp_path / "run", steps=40)
    training, before = load_run(folder.path).sealed.config.training, load_run(parent.path).sealed.config.training
    assert training.schedule == before.schedule.model_copy(update={"begin": 7, "warmup_steps": 2})
    assert training.optimizer.learning_rate == before.optimizer.learning_rate / 2
    rates = [event["learning_rate"] for event in folder.metrics("step")]
    peak = training.optimizer.learning_rate
    assert rates == [learning_rate(training.schedule, peak, step, 47) for step in range(7, 47)]
    assert rates[:3] == [peak / 2, peak, peak]
    assert rates[-1] == pytest.approx(peak / 38)
    again = load_run(continue_run(folder.path, tmp_path / "again", steps=2, threads=1).path).sealed.config.training
    assert (again.steps, again.schedule.begin, again.threads) == (49, 47, 1)
    assert again.optimizer == training.optimizer
    assert sound(tmp_path / "again")


def test_with_a_constant_rate_it_equals_a_longer_run(configured, tmp_path: Path) -> None:
    training = {"schedule": {"name": "constant", "warmup_steps": 2}, "evaluate_every": 4}
    short = train(configured(training={**training, "steps": 5}), tmp_path / "short")
    whole = train(configured(training={**training, "steps": 13}), tmp_path / "whole")
    folder = continue_run(short.path, tmp_path / "run", steps=8)
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert bytes_of(folder, 13)[file] == bytes_of(whole, 13)[file]
    states = [json.loads(bytes_of(one, 13)["state.json"]) for one in (folder, whole)]
    assert states[0]["chain"] == states[1]["chain"]
    assert folder.metrics("evaluation")[-1] == whole.metrics("evaluation")[-1]


@pytest.mark.parametrize(
    ("optimizer", "kind", "step"), [("adamw", "start", 7), ("muon", "step", 8), ("sgd", "evaluation", 12)]
)
def test_resumed_equals_straight(optimizer: str, kind: str, step: int, parents: Any, tmp_path: Path) -> None:
    parent = parents(optimizer)
    whole = continue_run(parent.path, tmp_path / "whole", steps=8)
    with pytest.raises(KeyError):
        continue_run(parent.path, tmp_path / "run", steps=8, callback=at(fail, kind, step))
    folder = resume(tmp_path / "run")
    assert bytes_of(folder, 15) == bytes_of(whole, 15)
    assert measured_in(folder) == measured_in(whole)


def test_what_cannot_be_continued_is_refused_in_one_line(configured, parent: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        train(configured(), tmp_path / "stopped", callback=at(fail, "step", 3))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    new = tmp_path / "new"
    cases: tuple[tuple[Path, Path, dict[str, Any], str], ...] = (
        (tmp_path / "stopped", new, {"steps": 2}, "vitral resume"),
        (parent.path, new, {}, "--minutes"),
        (parent.path, new, {"steps": 2, "minutes": 1.0}, "--minutes"),
        (parent.path, new, {"steps": 0}, "steps"),
        (parent.path, new, {"minutes": -1.0}, "minutes"),
        (parent.path, parent.path, {"steps": 2}, "exists already"),
        (parent.path, tmp_path / "full", {"steps": 2}, "exists already"),
        (tmp_path, new, {"steps": 2}, "not a run"),
    )
    for path, out, how, complaint in cases:
        with pytest.raises(UsageError, match=complaint):
            continue_run(path, out, **how)
        assert not new.exists()
