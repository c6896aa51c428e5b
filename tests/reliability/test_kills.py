"""A run that is killed, however often and whenever, ends with the bytes of one that was not."""

import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from tests.reliability.conftest import STEPS, Tally, last_bytes, measured, scaled
from vitral.core.errors import UsageError
from vitral.runs import RunFolder, load_run
from vitral.runs.checkpoint import load_checkpoint
from vitral.runs.checkpoint_files import FORMAT, MANIFEST, STATE
from vitral.training import RunConfig, continue_run, loop, resume, train
from vitral.training.trainer import Planner, Trainer

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors")

KILLS = scaled(20, 3000)
FINE_TUNING_KILLS = scaled(8, 300)
DECISION_KILLS = scaled(4, 300)
LONGEST = 0.12
"""Seconds after which a session is killed at the latest; a whole run takes about three times as long."""
DECISIONS: dict[int, dict[str, Any]] = {
    0: {"threads": 1},  # of two threads there is a test in processes of their own: a forked child cannot use several
    3: {"steps": 15, "schedule": {"name": "linear", "warmup_steps": 2}},
    4: {"schedule": {"name": "constant"}},
    9: {"steps": 11},
}
NAMES = re.compile(
    r"(config\.toml|metrics\.jsonl|(run|environment|corpus|tokenizer|ngrams)\.json|best|last|\.lock"
    r"|report/(MANIFEST\.json|run\.html|losses\.(svg|png|pdf))|samples/step-\d{8}\.txt"
    r"|steps/step-\d{8}/((model|optimizer)\.safetensors|(state|history|MANIFEST)\.json))"
)
"""All files of a run."""


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


def go_on(config: RunConfig, path: Path, parent: Path | None = None, planner: Planner | None = None) -> None:
    """What somebody does after a kill: the same command, or resume where there is a run."""
    if not path.exists():
        train(config, path, init_from=parent, planner=planner)
        return
    try:
        resume(path, planner=planner)
    except UsageError:  # killed after its last word
        if not is_finished(RunFolder.open(path)):
            raise


def is_finished(folder: RunFolder) -> bool:
    return any(event["finished"] for event in folder.metrics("end"))


def killed_until_it_ends(work: Callable[[], object], draw: random.Random, longest: float, more: float = 1.02) -> int:
    """Do the work in children that are killed at random instants, until one ends by itself; gives the kills."""
    kills = 0
    while True:
        child = forked(work)
        if not ended_within(child, draw.uniform(0.002, longest)):
            os.kill(child, signal.SIGKILL)
            kills, longest = kills + 1, longest * more  # on a slow machine a session must get somewhere some day
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, f"after {kills} kills"
            return kills


def assert_nothing_is_left(folder: RunFolder) -> None:
    """Only a run's own files, three checkpoints at most, a whole log, pointers that agree; nothing beside the run."""
    path = folder.path
    beside = [left.name for left in path.parent.iterdir() if path.name in left.name and left != path]
    assert beside == []
    strange = [str(left.relative_to(path)) for left in path.rglob("*") if left.is_symlink() or left.is_file()]
    assert [name for name in strange if not NAMES.fullmatch(name)] == []
    assert {left.name for left in path.iterdir() if left.is_dir()} <= {"steps", "samples", "report"}
    kept = sorted(left.name for left in folder.steps.iterdir())
    newest = folder.newest()
    assert newest is not None
    needed = {f"step-{step:08d}" for step in (newest.step, newest.state["best_step"])}
    assert needed <= set(kept)
    assert len(kept) <= 3
    assert all(load_checkpoint(folder.steps / name).format == FORMAT for name in kept)
    raw = (path / "metrics.jsonl").read_bytes()
    assert raw.endswith(b"\n")
    assert [json.loads(line) for line in raw.splitlines()] == folder.metrics()
    for pointer, step in (("last", newest.step), ("best", newest.state["best_step"])):
        assert (path / pointer).read_text(encoding="utf-8") == f"step-{step:08d}\n"


def test_killed_at_random_instants(config: RunConfig, straight: RunFolder, tmp_path: Path, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, kills, runs = random.Random(seed), 0, 0
    while kills < KILLS:
        path, runs = tmp_path / f"run-{runs}", runs + 1
        kills += killed_until_it_ends(partial(go_on, config, path), draw, LONGEST)
        folder = RunFolder.open(path)
        assert last_bytes(folder) == last_bytes(straight), f"seed {seed}, run {runs}"
        assert measured(folder) == measured(straight), f"seed {seed}, run {runs}"
        assert_nothing_is_left(folder)
        shutil.rmtree(path)
    tally("kill -9 at a random instant, every run ended bit-equal", kills)


def test_fine_tuning_killed_at_random_instants(
    config: RunConfig, straight: RunFolder, tmp_path: Path, tally: Tally
) -> None:
    """Kills before and after the first checkpoint of a step: the initial weights are the parent's all the same."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, kills, runs = random.Random(seed), 0, 0
    rare = config.model_copy(update={"training": config.training.model_copy(update={"checkpoint_every": 4})})
    whole = train(rare, tmp_path / "whole", init_from=straight.path)
    assert last_bytes(whole) != last_bytes(straight)
    parent = load_run(straight.path)
    expected = {
        "run": parent.sealed.identity.run,
        "step": parent.step,
        "manifest": json.loads((straight.steps / f"step-{parent.step:08d}" / MANIFEST).read_bytes())["sha256"],
    }
    while kills < FINE_TUNING_KILLS:
        path, runs = tmp_path / f"run-{runs}", runs + 1
        kills += killed_until_it_ends(partial(go_on, rare, path, straight.path), draw, LONGEST / 2, 1.05)
        folder = RunFolder.open(path)
        assert last_bytes(folder) == last_bytes(whole), f"seed {seed}, run {runs}"
        assert measured(folder) == measured(whole), f"seed {seed}, run {runs}"
        assert json.loads(last_bytes(folder)[STATE])["parent"] == expected, f"seed {seed}, run {runs}"
        assert_nothing_is_left(folder)
        shutil.rmtree(path)
    tally("kill -9 of fine-tuning at a random instant, every run ended bit-equal", kills)


def test_continuing_killed_at_random_instants(
    config: RunConfig, straight: RunFolder, tmp_path: Path, tally: Tally
) -> None:
    """A kill before the folder has its name leaves nothing; any later one loses nothing."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, kills, runs = random.Random(seed), 0, 0
    whole = continue_run(straight.path, tmp_path / "whole", steps=9)

    def go_on_with(path: Path) -> None:
        if path.exists():
            go_on(config, path)
        else:
            continue_run(straight.path, path, steps=9)

    while kills < FINE_TUNING_KILLS:
        path, runs = tmp_path / f"run-{runs}", runs + 1
        kills += killed_until_it_ends(partial(go_on_with, path), draw, LONGEST / 2, 1.05)
        folder = RunFolder.open(path)
        assert last_bytes(folder, STEPS + 9) == last_bytes(whole, STEPS + 9), f"seed {seed}, run {runs}"
        assert measured(folder) == measured(whole), f"seed {seed}, run {runs}"
        assert_nothing_is_left(folder)
        shutil.rmtree(path)
    tally("kill -9 of a continued run at a random instant, every run ended bit-equal", kills)


def plan(step: int, seconds: float) -> dict[str, Any] | None:
    """The decisions of a run: a function of the step alone."""
    return DECISIONS.get(step)


def test_a_run_with_decisions_killed_at_random_instants(config: RunConfig, tmp_path: Path, tally: Tally) -> None:
    """Steps, schedule and threads change on the way; equal means equal to the straight run with the same decisions."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, kills, runs = random.Random(seed), 0, 0
    rare = config.model_copy(update={"training": config.training.model_copy(update={"checkpoint_every": 4})})
    whole = train(rare, tmp_path / "whole", planner=plan)
    newest = whole.newest()
    assert newest is not None
    assert newest.step == 11
    assert [decision["step"] for decision in newest.state["decisions"]] == [*DECISIONS]
    while kills < DECISION_KILLS:
        path, runs = tmp_path / f"run-{runs}", runs + 1
        kills += killed_until_it_ends(partial(go_on, rare, path, None, plan), draw, LONGEST)
        folder = RunFolder.open(path)
        assert last_bytes(folder, 11) == last_bytes(whole, 11), f"seed {seed}, run {runs}"
        assert measured(folder) == measured(whole), f"seed {seed}, run {runs}"
        assert_nothing_is_left(folder)
        shutil.rmtree(path)
    tally("kill -9 of a run with decisions at a random instant, every run ended bit-equal", kills)


def test_a_decision_is_on_the_disk_before_the_first_step_it_affects(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever resumes without the planner takes the same decisions, from the checkpoint."""
    whole = train(config, tmp_path / "whole", planner=plan)
    rare = config.model_copy(update={"training": config.training.model_copy(update={"checkpoint_every": None})})
    step_once = loop.one_step
    for die in DECISIONS:
        path = tmp_path / f"run-{die}"

        def dying(trainer: Trainer, die: int = die) -> tuple[float, float, float]:
            if trainer.state.step == die:
                raise SystemExit
            return step_once(trainer)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "one_step", dying)
            with pytest.raises(SystemExit):
                train(rare, path, planner=plan)
        newest = RunFolder.open(path).newest()
        assert newest is not None
        assert newest.step == die
        assert [decision["step"] for decision in newest.state["decisions"]] == [
            step for step in DECISIONS if step <= die
        ]
    resume(tmp_path / "run-9")  # every decision is known: no planner
    assert {name: raw for name, raw in last_bytes(RunFolder.open(tmp_path / "run-9"), 11).items() if name != STATE} == {
        name: raw for name, raw in last_bytes(whole, 11).items() if name != STATE
    }


TRAIN = """
import json, os, sys
from pathlib import Path
from vitral.training import RunConfig, loop, resume, train

config, path = RunConfig.parse(json.loads(sys.argv[1])), Path(sys.argv[2])
one_step = loop.one_step
plan = lambda step, seconds: {0: {"threads": 2}, 5: {"threads": 1}}.get(step)
if path.exists():
    resume(path, planner=plan)
else:
    train(config, path.parent / "whole", planner=plan)
    loop.one_step = lambda trainer: os._exit(9) if trainer.state.step == 3 else one_step(trainer)
    train(config, path, planner=plan)
"""


def test_recorded_threads_are_used_again(config: RunConfig, tmp_path: Path) -> None:
    """Two threads until step 5, then one; killed before step 4 in the same way, and resumed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TRAIN, json.dumps(config.plain()), str(tmp_path / "run")]
    for code in (9, 0):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
    whole, folder = RunFolder.open(tmp_path / "whole"), RunFolder.open(tmp_path / "run")
    assert last_bytes(folder) == last_bytes(whole)
    assert measured(folder) == measured(whole)
    decisions = json.loads(last_bytes(folder)[STATE])["decisions"]
    assert [(decision["step"], decision["threads"]) for decision in decisions] == [(0, 2), (5, 1)]


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
    assert (tmp_path / "tuned").is_dir()
    resume(tmp_path / "tuned")
    assert last_bytes(RunFolder.open(tmp_path / "tuned")) == last_bytes(whole)


def test_a_fine_tuned_run_without_its_first_checkpoint_is_refused(
    config: RunConfig, straight: RunFolder, tmp_path: Path
) -> None:
    """Its initial weights cannot be drawn again: it must not begin at zero, with others."""

    def stop(event: Mapping[str, Any]) -> None:
        if event["event"] == "start":
            signal.raise_signal(signal.SIGINT)

    folder = train(config, tmp_path / "tuned", init_from=straight.path, callback=stop)
    assert [left.name for left in folder.steps.iterdir()] == ["step-00000000"]
    shutil.rmtree(folder.steps / "step-00000000")
    before = {left: left.read_bytes() for left in folder.path.rglob("*") if left.is_file() and left.name != ".lock"}
    for name in ("load_run", "resume"):
        with pytest.raises(UsageError) as refused:
            {"load_run": load_run, "resume": resume}[name](folder.path)
        assert "\n" not in str(refused.value)
    assert before == {
        left: left.read_bytes() for left in folder.path.rglob("*") if left.is_file() and left.name != ".lock"
    }


def test_a_callback_that_fails_loses_no_step(config: RunConfig, straight: RunFolder, tmp_path: Path) -> None:
    """Its exception stops the training as Ctrl-C does, and then reaches whoever trains."""

    class Mine(Exception):
        pass

    def fail(event: Mapping[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 7:
            raise Mine

    rare = config.model_copy(update={"training": config.training.model_copy(update={"checkpoint_every": None})})
    with pytest.raises(Mine):
        train(rare, tmp_path / "run", callback=fail)
    folder = RunFolder.open(tmp_path / "run")
    assert folder.load("last", warn=pytest.fail).step == 7
    resume(folder.path)
    ended = {name: raw for name, raw in last_bytes(folder).items() if name != STATE}
    assert ended == {name: raw for name, raw in last_bytes(straight).items() if name != STATE}
    assert_nothing_is_left(folder)


PROGRAM = [sys.executable, "-m", "vitral"]
SLOWER = 100
"""Steps of a run of some seconds, which a signal in its first 0.15 s always interrupts."""
SIGNALS = {"SIGKILL": -signal.SIGKILL, "SIGTERM": 0, "SIGINT": 0, "SIGSTOP": 0}


@pytest.fixture(scope="module")
def slower(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunFolder]:
    """A run of some seconds, as a file, and the same without a stop."""
    folder = tmp_path_factory.mktemp("slower")
    plain = config.plain()
    plain["training"] |= {"steps": SLOWER, "checkpoint_every": 7, "evaluate_every": SLOWER // 2, "watch": True}
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
    ended_within(process.pid, random.Random(again).uniform(0.01, 0.15))
    os.killpg(process.pid, getattr(signal, name))
    if name == "SIGSTOP":
        os.killpg(process.pid, signal.SIGCONT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == SIGNALS[name], said
    assert "Traceback" not in said
    assert path.is_dir()
    if name in ("SIGTERM", "SIGINT"):
        assert f"vitral resume {path}" in said
    if name == "SIGINT":
        resume(path)  # the same in this process
    elif name != "SIGSTOP":
        done = subprocess.run(
            [*PROGRAM, "resume", str(path)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    folder = RunFolder.open(path)
    assert last_bytes(folder, SLOWER) == last_bytes(whole, SLOWER)
    assert_nothing_is_left(folder)
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
        match=r"changed since the run began \(model\.attention\.scale: sqrt → linear; .*learning_rate: 0\.02 → 0\.03\)",
    ) as refused:
        resume(folder.path)
    assert "\n" not in str(refused.value)
    (folder.path / "config.toml").write_text(written.replace("log_every = 1", "log_every = 2"), encoding="utf-8")
    assert resume(folder.path).metrics("end")[-1]["finished"]  # what changes no number may change
    assert plain["training"]["log_every"] == 1
