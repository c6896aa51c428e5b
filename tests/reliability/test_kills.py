"""A run that is killed, however often and whenever, ends with the bytes of one that was not."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.reliability.children import ON_LINUX, ended_within, killed_until_it_ends
from tests.reliability.conftest import (
    STEPS,
    Tally,
    changed,
    files_of,
    last_bytes,
    measured,
    trials,
)
from tests.training.conftest import at, interrupt
from vitral.core.errors import UsageError
from vitral.runs import RunFolder, load_run
from vitral.runs.checkpoint import MANIFEST, load_checkpoint
from vitral.training import RunConfig, continue_run, resume, train

pytestmark = ON_LINUX

LONGEST = 0.12
"""Seconds after which a session is killed at the latest; a whole run takes several times as long."""
DECISIONS: dict[int, dict[str, Any]] = {
    0: {"threads": 1},  # of two threads there is a test in processes of their own: a forked child cannot use several
    3: {"steps": 15, "schedule": {"name": "linear", "warmup_steps": 2}},
    4: {"schedule": {"name": "constant"}},
    9: {"steps": 11},
}
NAMES = re.compile(
    r"(config\.toml|metrics\.jsonl|(run|environment|corpus|tokenizer|ngrams)\.json|\.lock"
    r"|report/(MANIFEST\.json|run\.html|losses\.(svg|png|pdf))|samples/step-\d{8}\.txt"
    r"|steps/step-\d{8}/((model|optimizer)\.safetensors|(state|history|MANIFEST)\.json))"
)
"""All files of a run."""


def plan(step: int) -> dict[str, Any] | None:
    """The decisions of a run: a function of the step alone."""
    return DECISIONS.get(step)


def assert_nothing_is_left(folder: RunFolder) -> None:
    """Only a run's own files, three checkpoints at most, a whole log; nothing beside the run."""
    path = folder.path
    assert [left.name for left in path.parent.iterdir() if path.name in left.name and left != path] == []
    strange = [str(left.relative_to(path)) for left in path.rglob("*") if left.is_symlink() or left.is_file()]
    assert [name for name in strange if not NAMES.fullmatch(name)] == []
    assert {left.name for left in path.iterdir() if left.is_dir()} <= {"steps", "samples", "report"}
    kept = sorted(left.name for left in folder.steps.iterdir())
    newest = folder.latest()
    assert newest is not None
    assert {f"step-{step:08d}" for step in (newest.step, newest.state["best_step"])} <= set(kept)
    assert len(kept) <= 3
    assert [load_checkpoint(folder.steps / name).step for name in kept] == [int(name[5:]) for name in kept]
    raw = (path / "metrics.jsonl").read_bytes()
    assert raw.endswith(b"\n")
    assert [json.loads(line) for line in raw.splitlines()] == folder.metrics()


KINDS = ("", " of fine-tuning", " of a continued run", " of a run with changes while training")


@trials(2, 0, 750)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_instants(
    kind: str,
    trials: int,
    config: RunConfig,
    straight: RunFolder,
    draw: random.Random,
    tmp_path: Path,
    tally: Tally,
) -> None:
    """Before and after the first checkpoint of a step; then the same call again, or resume where there is a run."""
    rare = changed(config, checkpoint_every=4)
    planner = plan if kind == KINDS[3] else None
    begin: dict[str, Callable[[Path], RunFolder]] = {
        KINDS[0]: lambda path: train(config, path),
        KINDS[1]: lambda path: train(rare, path, init_from=straight.path),
        KINDS[2]: lambda path: continue_run(straight.path, path, steps=9),
        KINDS[3]: lambda path: train(rare, path, planner=planner),
    }
    whole, kills = begin[kind](tmp_path / "whole"), 0
    newest = whole.latest()
    assert newest is not None
    assert newest.step == {KINDS[2]: STEPS + 9, KINDS[3]: 11}.get(kind, STEPS)
    if kind == KINDS[3]:
        assert [decision["step"] for decision in newest.state["decisions"]] == [*DECISIONS]
    if kind == KINDS[1]:
        parent = load_run(straight.path)
        manifest = json.loads((straight.steps / f"step-{parent.step:08d}" / MANIFEST).read_bytes())["sha256"]
        told = {"run": parent.sealed.identity.run, "step": parent.step, "manifest": manifest}
        assert newest.state["parent"] == told
    path = tmp_path / "run"

    def go_on() -> None:
        if not path.exists():
            begin[kind](path)
            return
        try:
            resume(path, planner=planner)
        except UsageError:  # killed after its last word
            if not any(event["finished"] for event in RunFolder.open(path).metrics("end")):
                raise

    while kills < trials:
        kills += killed_until_it_ends(go_on, draw, LONGEST if kind in KINDS[::3] else LONGEST / 2, 1.05)
        folder = RunFolder.open(path)
        assert last_bytes(folder, newest.step) == last_bytes(whole, newest.step)
        assert measured(folder) == measured(whole)
        assert_nothing_is_left(folder)
        shutil.rmtree(path)
    tally(f"kill -9{kind} at a random instant, every run ended bit-equal", kills)


def test_a_fine_tuned_run_has_its_weights_before_it_has_its_name(
    config: RunConfig, straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, rename = train(config, tmp_path / "whole", init_from=straight.path), os.rename

    def rename_and_die(source: str, target: str, **folders: Any) -> None:
        rename(source, target, **folders)
        if os.path.basename(target) == "tuned":
            raise SystemExit

    monkeypatch.setattr(os, "rename", rename_and_die)
    with pytest.raises(SystemExit):
        train(config, tmp_path / "tuned", init_from=straight.path)
    monkeypatch.undo()
    assert last_bytes(resume(tmp_path / "tuned")) == last_bytes(whole)


def test_a_fine_tuned_run_without_its_first_checkpoint_is_refused(
    config: RunConfig, straight: RunFolder, tmp_path: Path
) -> None:
    """Its initial weights cannot be drawn again: it must not begin at zero, with others."""
    folder = train(config, tmp_path / "tuned", init_from=straight.path, callback=at(interrupt, "start"))
    (first,) = folder.steps.iterdir()
    assert first.name == "step-00000000"
    shutil.rmtree(first)

    before = files_of(folder.path)
    for act in (load_run, resume):
        with pytest.raises(UsageError):
            act(folder.path)
    assert before == files_of(folder.path)


SLOWER = 100
"""Steps of a run of some seconds, which a signal in its first 0.15 s always interrupts."""
SIGNALS = {"SIGKILL": -signal.SIGKILL, "SIGTERM": 0, "SIGINT": 0, "SIGSTOP": 0}


@pytest.fixture(scope="module")
def slower(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunFolder]:
    """A run of some seconds, as a file, and the same without a stop."""
    folder = tmp_path_factory.mktemp("slower")
    plain = changed(config, steps=SLOWER, checkpoint_every=7, evaluate_every=SLOWER // 2, watch=True).plain()
    (folder / "run.toml").write_text(tomli_w.dumps(plain), encoding="utf-8")
    return folder / "run.toml", train(RunConfig.parse(plain), folder / "straight")


@pytest.mark.parametrize(
    ("name", "trials"),
    [
        *(pytest.param(name, 1, marks=pytest.mark.merge) for name in ("SIGKILL", "SIGTERM")),
        *(pytest.param(name, 10, marks=pytest.mark.full) for name in SIGNALS),
    ],
)
def test_through_the_command_line(
    name: str, trials: int, slower: tuple[Path, RunFolder], draw: random.Random, tmp_path: Path, tally: Tally
) -> None:
    toml, whole = slower
    for number in range(trials):
        path = tmp_path / f"run-{number}"
        process = subprocess.Popen(
            [sys.executable, "-m", "vitral", "train", str(toml), "--out", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert any("parameters" in line for line in process.stdout)  # the run has begun
        ended_within(process.pid, draw.uniform(0.01, 0.15))
        os.killpg(process.pid, getattr(signal, name))
        if name == "SIGSTOP":
            os.killpg(process.pid, signal.SIGCONT)
        said, _ = process.communicate(timeout=120)
        assert process.returncode == SIGNALS[name], said
        assert "Traceback" not in said
        if name in ("SIGTERM", "SIGINT"):
            assert f"vitral resume {path}" in said
        if name != "SIGSTOP":
            resume(path)
        folder = RunFolder.open(path)
        assert last_bytes(folder, SLOWER) == last_bytes(whole, SLOWER)
        assert_nothing_is_left(folder)
        assert folder.metrics("evaluation") == whole.metrics("evaluation")
    tally(f"{name} through the command line, bit-equal after resume", trials)


def test_one_writer_at_a_time(config: RunConfig, tmp_path: Path) -> None:
    complaints = []

    def second(event):
        if event["event"] == "step" and event["step"] == 3:
            with pytest.raises(UsageError) as refused:
                resume(tmp_path / "run")
            complaints.append(str(refused.value))

    folder = train(config, tmp_path / "run", callback=second)
    (complaint,) = complaints
    assert f"process {os.getpid()} on " in complaint
    assert "\n" not in complaint
    assert len(folder.metrics("step")) == STEPS
