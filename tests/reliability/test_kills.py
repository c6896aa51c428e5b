"""A run that is killed, however often and whenever, ends with the bytes of one that was not."""

import os
import random
import select
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import tomli_w

from tests.reliability.conftest import STEPS, Tally, last_bytes, measured, scaled
from vitral.core.errors import UsageError
from vitral.runs import RunFolder
from vitral.training import RunConfig, resume, train

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors")

KILLS = scaled(100, 3000)
FINE_TUNING_KILLS = scaled(20, 200)
LONGEST = 0.12
"""Seconds after which a session is killed at the latest; a whole run takes about three times as long."""


def forked(work: Callable[[], object]) -> int:
    """A child that does its work and leaves without cleaning up; gives its number."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # newer Pythons warn of threads; the child has no use of them
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def ended_within(child: int, seconds: float) -> bool:
    """Whether a child ends by itself in that time."""
    descriptor = os.pidfd_open(child)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def go_on(config: RunConfig, path: Path, parent: Path | None = None) -> None:
    """What somebody does after a kill: the same command, or resume where there is a run."""
    if not path.exists():
        train(config, path, init_from=parent)
    elif not any(event["finished"] for event in RunFolder.open(path).metrics("end")):  # killed after its last word
        resume(path)


def test_killed_at_random_instants(config: RunConfig, straight: RunFolder, tmp_path: Path, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, kills, runs = random.Random(seed), 0, 0
    while kills < KILLS:
        path, runs = tmp_path / f"run-{runs}", runs + 1
        longest = LONGEST
        while True:
            child = forked(lambda path=path: go_on(config, path))
            if not ended_within(child, draw.uniform(0.002, longest)):
                os.kill(child, signal.SIGKILL)
                kills, longest = kills + 1, longest * 1.02  # on a slow machine a session must get somewhere some day
            _, status = os.waitpid(child, 0)
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0, f"seed {seed}, run {runs}, after {kills} kills"
                break
        folder = RunFolder.open(path)
        assert last_bytes(folder) == last_bytes(straight), f"seed {seed}, run {runs}"
        assert measured(folder) == measured(straight), f"seed {seed}, run {runs}"
    tally("kill -9 at a random instant, every run ended bit-equal", kills)


def test_fine_tuning_killed_at_random_instants(
    config: RunConfig, straight: RunFolder, tmp_path: Path, tally: Tally
) -> None:
    """Most kills come before the first checkpoint of a step; the initial weights are the parent's all the same."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, kills, runs = random.Random(seed), 0, 0
    whole = train(config, tmp_path / "whole", init_from=straight.path)
    assert last_bytes(whole) != last_bytes(straight)
    while kills < FINE_TUNING_KILLS:
        path, runs = tmp_path / f"run-{runs}", runs + 1
        longest = LONGEST / 3
        while True:
            child = forked(lambda path=path: go_on(config, path, straight.path))
            if not ended_within(child, draw.uniform(0.002, longest)):
                os.kill(child, signal.SIGKILL)
                kills, longest = kills + 1, longest * 1.1
            _, status = os.waitpid(child, 0)
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0, f"seed {seed}, run {runs}, after {kills} kills"
                break
        assert last_bytes(RunFolder.open(path)) == last_bytes(whole), f"seed {seed}, run {runs}"
        assert [left.name for left in tmp_path.iterdir() if left.name.startswith(f".{path.name}.")] == []
    tally("kill -9 of fine-tuning at a random instant, every run ended bit-equal", kills)


def test_a_fine_tuned_run_has_its_weights_before_it_has_its_name(
    config: RunConfig, straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def rename_and_die(source: Path, target: Path) -> None:
        rename(source, target)
        if target.name == "tuned":
            raise SystemExit

    monkeypatch.setattr(os, "rename", rename_and_die)
    with pytest.raises(SystemExit):
        train(config, tmp_path / "tuned", init_from=straight.path)
    monkeypatch.undo()
    assert (tmp_path / "tuned").is_dir()
    resume(tmp_path / "tuned")
    whole = train(config, tmp_path / "whole", init_from=straight.path)
    assert last_bytes(RunFolder.open(tmp_path / "tuned")) == last_bytes(whole)


PROGRAM = [sys.executable, "-m", "vitral"]
SIGNALS = {"SIGKILL": -signal.SIGKILL, "SIGTERM": 0, "SIGINT": 0, "SIGSTOP": 0}


@pytest.fixture(scope="module")
def slower(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunFolder]:
    """A run of some seconds, as a file, and the same without a stop."""
    folder = tmp_path_factory.mktemp("slower")
    plain = config.plain()
    plain["training"] |= {"steps": 600, "checkpoint_every": 7, "evaluate_every": 300, "sample_every": 300}
    (folder / "run.toml").write_text(tomli_w.dumps(plain), encoding="utf-8")
    return folder / "run.toml", train(RunConfig.parse(plain), folder / "straight")


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("again", range(scaled(1, 10)))
def test_through_the_command_line(
    name: str, again: int, slower: tuple[Path, RunFolder], tmp_path: Path, tally: Tally
) -> None:
    toml, whole = slower
    path, environment = tmp_path / "run", {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*PROGRAM, "train", str(toml), "--out", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()  # the run has begun
    assert "parameters" in first, first + process.stdout.read()
    ended_within(process.pid, random.Random(again).uniform(0.01, 0.5))
    os.killpg(process.pid, getattr(signal, name))
    if name == "SIGSTOP":
        os.killpg(process.pid, signal.SIGCONT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == SIGNALS[name], said
    assert "Traceback" not in said
    assert path.is_dir()
    if name in ("SIGTERM", "SIGINT"):
        assert f"vitral resume {path}" in said
    if name != "SIGSTOP":
        done = subprocess.run(
            [*PROGRAM, "resume", str(path)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    folder = RunFolder.open(path)
    one, other = (each.steps / "step-00000600" for each in (folder, whole))
    assert {file.name: file.read_bytes() for file in one.iterdir()} == {
        file.name: file.read_bytes() for file in other.iterdir()
    }
    assert folder.metrics("evaluation") == whole.metrics("evaluation")
    tally(f"{name} through the command line, bit-equal after resume", 1)


def test_asked_to_stop_during_an_evaluation(
    config: RunConfig, straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation is left, what was trained is saved, and the evaluation is done again after the resume."""
    from vitral.training import loop

    asked, pass_over = [], loop.evaluate_split

    def interrupted(*given, tick, **options):
        if not asked:
            asked.append(signal.raise_signal(signal.SIGTERM))
        return pass_over(*given, tick=tick, **options)

    monkeypatch.setattr(loop, "evaluate_split", interrupted)
    folder = train(config, tmp_path / "run")
    ended = folder.metrics("end")[-1]
    assert (ended["step"], ended["finished"]) == (5, False)
    assert folder.metrics("evaluation") == []
    folder = resume(tmp_path / "run")
    assert last_bytes(folder) == last_bytes(straight)
    assert measured(folder) == measured(straight)


def test_one_writer_at_a_time(config: RunConfig, tmp_path: Path) -> None:
    complaints = []

    def second(event):
        if event["event"] == "step" and event["step"] == 3:
            with pytest.raises(UsageError) as refused:
                resume(tmp_path / "run")
            complaints.append(str(refused.value))

    folder = train(config, tmp_path / "run", callback=second)
    assert len(complaints) == 1
    assert f"process {os.getpid()} on " in complaints[0]
    assert "\n" not in complaints[0]
    assert folder.metrics("end")[0]["finished"]
    assert len(folder.metrics("step")) == STEPS


def test_a_changed_configuration_is_refused_key_by_key(config: RunConfig, tmp_path: Path) -> None:
    plain = config.plain()

    def stop(event):
        if event["event"] == "step" and event["step"] == 4:
            signal.raise_signal(signal.SIGINT)

    folder = train(config, tmp_path / "run", callback=stop)
    written = (folder.path / "config.toml").read_text(encoding="utf-8")
    (folder.path / "config.toml").write_text(
        written.replace("learning_rate = 0.02", "learning_rate = 0.03").replace('scale = "sqrt"', 'scale = "linear"'),
        encoding="utf-8",
    )
    with pytest.raises(
        UsageError,
        match=r"changed since step 4 \(model\.attention\.scale: sqrt → linear; .*learning_rate: 0\.02 → 0\.03\)",
    ) as refused:
        resume(folder.path)
    assert "\n" not in str(refused.value)
    (folder.path / "config.toml").write_text(written.replace("log_every = 1", "log_every = 2"), encoding="utf-8")
    assert resume(folder.path).metrics("end")[-1]["finished"]  # what changes no number may change
    assert plain["training"]["log_every"] == 1
