"""Several ranks give the bits of one; a lost one, or one that does not fit, ends all of them with one line."""

import os
import random
import shutil
import signal
import socket
import threading
import tomllib
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from forked_ranks import PATIENCE, Forked, can_connect

import vitral
from tests.conftest import Once
from tests.training.conftest import Configured, at, bytes_of, fail, measured_in
from vitral.core.errors import StorageError, UsageError
from vitral.core.guarded import GuardedFolder
from vitral.lab.configuration import plan_run
from vitral.runs import RunFolder
from vitral.runs.loading import load_run
from vitral.training import RunConfig, followers, loop, ranks, resume, sharding, silent, train
from vitral.training.team import RankLost, current
from vitral.training.trainer import Trainer

pytestmark = [
    pytest.mark.merge,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors"),
    pytest.mark.skipif(not can_connect(), reason="PyTorch is too old for several ranks"),
]

FULL = os.environ.get("VITRAL_FULL") == "1"
Alone = Callable[[str], RunFolder]
Act = Callable[[Trainer], object]

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"name": "adamw", "learning_rate": 0.01},
    "muon": {"name": "muon", "learning_rate": 0.02},
    "sgd": {"name": "sgd", "learning_rate": 0.05, "nesterov": True},
}
QUICK = [(3, 1, "sharded", "adamw"), (4, 1, "replicated", "sgd"), (2, 3, "hybrid", "muon")]
KINDS = ("replicated", "sharded")
MACHINES = [(2, 2), (4, 2), (2, 4), (2, 3), (3, 2)]
CELLS = [
    *((size, 1, kind, name) for size in (1, 2, 3, 4, 8, 24) for kind in KINDS for name in OPTIMIZERS),
    *((*machines, "hybrid", name) for machines in MACHINES for name in ("adamw", "muon")),
    *((*machines, "hybrid", "sgd") for machines in ((4, 1), (1, 4))),
]
"""Machines, ranks of each, how they hold the weights, and the optimizer."""
BATCHES, STEPS = (24, 50) if FULL else (12, 6)


@pytest.fixture(scope="session")
def shared(configured: Configured) -> Configured:
    """`shared("muon")`: a few steps of prime sizes, with dropout and clipping; several ranks can share the batches."""

    def make(optimizer: str = "adamw", seed: int = 1, **changes: Any) -> RunConfig:
        training = {
            "steps": STEPS,
            "batch_size": 2,
            "accumulation": BATCHES,
            "optimizer": OPTIMIZERS[optimizer],
            "evaluate_every": 4,
            "evaluation_tokens": 300,
            "checkpoint_every": 1,
            "threads": 1,
        }
        return configured(seed=seed, model={"d_model": 23, "num_heads": 1}, training=training | changes)

    return make


@pytest.fixture(scope="session")
def alone(shared: Configured, once: Once) -> Alone:
    """The run of one rank with an optimizer."""
    return lambda name: RunFolder.open(once(f"training-alone-{name}", lambda path: train(shared(name), path)))


class Team:
    """Starts ranks that train in a folder of the test."""

    def __init__(self, shared: Configured, folder: Path) -> None:
        self.folder, self.path, self.shared = folder, folder / "run", shared

    def start(
        self, size: int = 2, local: int | None = None, *, work: Any = None, act: Any = None, **how: Any
    ) -> Forked:
        """So many ranks, so many on a machine.

        Args:
            size: the number of ranks.
            local: of those on a machine; None: all.
            work: what they do; None: they train.
            act: what happens in rank `who`, the last one if it is not given, before step `step`, 3 if it is not given.
            how: further keys of `[training]`, and variables of the environment in capitals.
        """
        environment = {key: how.pop(key) for key in list(how) if key.isupper()}
        before, who, step = how.pop("before", None), how.pop("who", size - 1), how.pop("step", 3)
        whole = work or partial(train, self.shared(**how), self.path)

        def acting() -> None:
            if act is not None and current().rank == who:
                before_step(step, act)
            whole()

        return Forked(size, acting, self.folder, local, before=before, **environment)

    def finish(self, *size: int, **how: Any) -> RunFolder:
        """The run that they train to the end, or until they stop for a reason that is no failure."""
        several = self.start(*size, **how)
        assert several.wait() == [0] * len(several.children)
        return RunFolder.open(self.path)

    def end(self, codes: list[int], *size: int, **how: Any) -> str:
        """The one line that is said of ranks that end with these codes."""
        return ended(self.start(*(size or (len(codes),)), **how), codes)

    def newest_step(self) -> int:
        newest = RunFolder.open(self.path).newest()
        assert newest is not None
        return newest.step

    def hold(self, kind: str) -> None:
        """Let the next ranks hold the weights in this way."""
        file = self.path / "config.toml"
        config = tomllib.loads(file.read_text(encoding="utf-8"))
        config["training"]["sharding"] = kind
        file.write_bytes(tomli_w.dumps(config).encode())


@pytest.fixture
def team(shared: Configured, tmp_path: Path) -> Team:
    return Team(shared, tmp_path)


def ended(several: Forked, codes: list[int]) -> str:
    assert several.wait() == codes
    ((line, code),) = several.said()
    assert code == max(codes)
    assert "\n" not in line
    return line


def before_step(number: int, act: Act) -> None:
    """Let something happen in a rank when it begins a step."""
    whole = loop.one_step

    def step(trainer: Trainer) -> tuple[float, float, float]:
        if trainer.state.step == number - 1:
            act(trainer)
        return whole(trainer)

    loop.one_step = followers.one_step = step


def sends(number: int) -> Act:
    """A rank that sends itself a signal."""
    return lambda trainer: os.kill(os.getpid(), number)


@pytest.mark.parametrize(("machines", "local", "kind", "optimizer"), CELLS if FULL else QUICK)
def test_ranks_give_the_bits_of_one(
    machines: int, local: int, kind: str, optimizer: str, team: Team, alone: Alone
) -> None:
    """Weights, optimizer, batch chain and every measurement.

    Two ranks of a machine add their batches there, three do not.
    """
    size = (machines * local, local) if kind == "hybrid" else (machines,)
    run, one = team.finish(*size, optimizer=optimizer, sharding=kind), alone(optimizer)
    assert bytes_of(run, STEPS) == bytes_of(one, STEPS)
    assert measured_in(run) == measured_in(one)


class TestHybrid:
    """Several machines, each of which has all weights, shared out among its ranks."""

    def test_resumed_by_ranks_that_share_in_other_ways(self, team: Team, alone: Alone) -> None:
        """One machine's ranks write parts like those of a run on it alone; alone, sharded, and hybrid again.

        Several ranks finish the step in which they are asked to stop, one rank gives it up.
        """
        first = team.finish(4, 2, sharding="hybrid", act=sends(signal.SIGTERM), step=2)
        assert sorted(part.name for part in (first.steps / "step-00000002").glob("model*")) == [
            f"model-rank-{rank}-of-2.safetensors" for rank in range(2)
        ]
        for stop, (kind, size) in enumerate((("replicated", 1), ("sharded", 2), ("hybrid", 4)), 3):
            team.hold(kind)
            go_on = partial(resume, team.path)
            team.finish(size, min(size, 2), work=go_on, act=sends(signal.SIGTERM), step=stop + (size == 1))
            assert team.newest_step() == stop
        assert bytes_of(resume(team.path), STEPS) == bytes_of(alone("adamw"), STEPS)

    def test_only_the_first_machine_writes(self, team: Team, alone: Alone) -> None:
        """The folder may be on a disk that the others do not see."""

        def refuse(self: GuardedFolder, name: str, content: bytes) -> None:
            raise StorageError("the disk is not there")

        def work() -> None:
            if current().rank >= 2:
                GuardedFolder.write_new = refuse
            train(team.shared(sharding="hybrid"), team.path)

        assert bytes_of(team.finish(4, 2, work=work), STEPS) == bytes_of(alone("adamw"), STEPS)

    def test_in_the_engines_order_the_machines_hold_the_same(self, team: Team, tmp_path: Path) -> None:
        """What they hold is compared at every checkpoint; the loss is that of one rank but for rounding."""
        how: dict[str, Any] = {"sharding": "hybrid", "reduction": "fast", "steps": 2}
        runs = team.finish(4, 2, **how), train(team.shared(**how), tmp_path / "one")
        (first, second), on_one = ([event["loss"] for event in run.metrics("step")] for run in runs)
        assert [first, second] == pytest.approx(on_one, rel=1e-5)

    @pytest.mark.full
    @pytest.mark.parametrize("call", [0, 1])
    def test_a_rank_that_ends_while_machines_connect(
        self, call: int, team: Team, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before the ranks of one machine connect, or between that and the connection of the machines."""
        whole, calls = ranks.dist.new_subgroups_by_enumeration, count()

        def connect(*given: Any, **options: Any) -> Any:
            if current().rank == 3 and next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(*given, **options)

        monkeypatch.setattr(ranks.dist, "new_subgroups_by_enumeration", connect)
        team.end([4, 4, 4, -signal.SIGKILL], 4, 2, sharding="hybrid", VITRAL_HEARTBEAT="1")

    def test_machines_with_different_numbers_of_ranks(self, team: Team) -> None:
        """Three ranks of which the launcher says that two are on one machine."""
        assert "rank 2 " in team.end([2] * 3, 3, 2, sharding="hybrid")
        assert not team.path.exists()


def test_runs_from_python_one_after_another(team: Team, alone: Alone, tmp_path: Path) -> None:
    """As a script does that torchrun starts; every rank gets the run."""

    def work() -> None:
        for name in ("muon", "adamw"):
            config = written(team.shared(name), tmp_path / f"{name}.toml")
            made = vitral.train(config, out=tmp_path / name, progress=False, training={"watch": False})
            assert made.path == tmp_path / name

    assert team.start(work=work).wait() == [0, 0]
    for name in ("muon", "adamw"):
        assert bytes_of(RunFolder.open(tmp_path / name), STEPS) == bytes_of(alone(name), STEPS)


def written(config: RunConfig, path: Path) -> str:
    """A file of this configuration."""
    path.write_bytes(tomli_w.dumps(config.plain()).encode())
    return str(path)


def go_on(config: RunConfig, path: Path) -> None:
    """The same command again, or resume where there is a run."""
    if path.exists():
        resume(path)
    else:
        train(config, path)


def is_finished(path: Path) -> bool:
    return path.exists() and any(event["finished"] for event in RunFolder.open(path).metrics("end"))


@pytest.mark.parametrize("trial", range(40 if FULL else 1))
def test_killed_on_four_goes_on_with_two_and_then_alone(trial: int, team: Team, alone: Alone) -> None:
    """One rank of four is killed, then one of two; the others end by themselves, and no checkpoint is lost."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    kind = (*KINDS, "hybrid")[trial % 3]
    draw, path = random.Random(seed), team.path
    work = partial(go_on, team.shared(sharding=kind), path)
    for size in (4, 2):
        if is_finished(path):
            break
        several, victim = team.start(size, 2, work=work), draw.randrange(size)
        if several.is_there(draw.uniform(0.3, 3.0), victim):
            several.signal(victim, signal.SIGKILL)
        codes = several.wait()
        assert set(codes) <= {0, 4, -signal.SIGKILL}, f"seed {seed}: {codes}"
        if 4 in codes:
            (line, code), *others = several.said()
            assert (code, others) == (4, []), f"seed {seed}"
            assert f"rank {victim} " in line, f"seed {seed}: {line}"
    if not is_finished(path):
        work()
    one, run = alone("adamw"), RunFolder.open(path)
    assert bytes_of(run, STEPS) == bytes_of(one, STEPS), f"seed {seed}"
    without_stops = [line for line in measured_in(run) if '"stopped"' not in line]
    assert without_stops == measured_in(one), f"seed {seed}"


def test_a_rank_that_hangs_is_named(team: Team) -> None:
    """The others miss its heartbeat, and rank 0 saves the steps so far; between two checkpoints, too."""
    several = team.start(3, act=sends(signal.SIGSTOP), who=1, checkpoint_every=5, VITRAL_HEARTBEAT="3")
    several.is_there(PATIENCE)
    several.is_there(PATIENCE, 2)
    several.signal(1, signal.SIGKILL)
    assert "rank 1 (" in ended(several, [4, -signal.SIGKILL, 4])
    assert team.newest_step() == 2


def fails(trainer: Trainer) -> None:
    raise UsageError("its disk is full")


def flips(trainer: Trainer) -> None:
    """Changes the last bits of some weights."""
    rows = next(iter(trainer.held.parameters.values())).data
    rows.copy_(rows.view(dtype=torch.int32).bitwise_xor(1).view(dtype=torch.float32))


def cannot_write(trainer: Trainer) -> None:
    def full(*_: Any) -> dict[str, Any]:
        raise StorageError("the disk is full")

    sharding.write_part = full


STILL = {"VITRAL_STANDSTILL": "5", "VITRAL_HEARTBEAT": "3"}


@pytest.mark.parametrize(
    ("kind", "size", "act", "code", "said", "environment"),
    [
        ("replicated", 2, fails, 2, "rank 1: its disk is full", {}),
        ("replicated", 2, flips, 4, "rank 1 ", {}),
        ("hybrid", 4, flips, 4, "rank 3 ", {}),
        ("sharded", 2, cannot_write, 4, "rank 1: the disk is full", {}),
        # Before the step is applied: all ranks would have the same weights afterwards.
        ("sharded", 2, lambda trainer: setattr(trainer.batches, "_seed", 7), 4, "rank 1 ", {}),
        # Its heart beats, and its main thread waits for something that never comes; its process ends, too.
        ("replicated", 2, lambda trainer: threading.Event().wait(), 4, "rank 1 (", STILL),
    ],
)
def test_a_rank_that_goes_wrong_is_named(
    kind: str, size: int, act: Act, code: int, said: str, environment: dict[str, str], team: Team
) -> None:
    """What went before is saved."""
    assert said in team.end([code] * size, size, 2, sharding=kind, act=act, **environment)
    assert team.newest_step() == 2
    assert not list((team.path / "steps").glob(".*"))
    assert resume(team.path).metrics("end")[-1]["finished"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_is_not_finite_stops_all(kind: str, team: Team) -> None:
    def spoil(trainer: Trainer) -> None:
        if kind == "replicated" or current().rank == 1:
            next(iter(trainer.held.parameters.values())).data[0, 0] = float("nan")

    def work() -> None:
        before_step(3, spoil)
        train(team.shared(sharding=kind), team.path)

    assert "rank" not in team.end([3, 3], work=work)
    assert team.newest_step() == 2


def test_a_long_evaluation_does_not_stand_still(team: Team) -> None:
    """Rank 0 evaluates for longer than a rank may stand still, and the other one waits for it."""
    whole = loop.evaluate_split

    def slow(*given: Any, **options: Any) -> Any:
        team = current()
        assert isinstance(team, ranks.Ranks)
        beats = team.heart.beats(0) + 5
        while team.heart.beats(0) < beats:
            options["tick"]()
        loop.evaluate_split = whole
        return whole(*given, **options)

    def work() -> None:
        loop.evaluate_split = slow
        train(team.shared(steps=1), team.path)

    team.finish(work=work, VITRAL_STANDSTILL="3")


@pytest.mark.parametrize("value", ["abc", "inf", "-1"])
def test_seconds_that_are_none(value: str, team: Team) -> None:
    """One rank says so, before anything is written."""
    variable = (ranks.HEARTBEAT, ranks.STANDSTILL)[len(value) % 2]
    assert variable in team.end([2, 2], **{variable: value})
    assert not team.path.exists()


@pytest.mark.full
def test_a_rank_that_ends_while_all_connect(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """After all have come together; connecting to it would have no end."""
    whole = ranks.meet

    def meet(store: Any, rank: int, *given: Any, **options: Any) -> Any:
        met = whole(store, rank, *given, **options)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return met

    monkeypatch.setattr(ranks, "meet", meet)
    team.end([4, -signal.SIGKILL, 4], VITRAL_HEARTBEAT="1")


def test_a_rank_that_never_starts_is_named(team: Team) -> None:
    assert "rank 2" in team.end([4, 4], WORLD_SIZE="3", VITRAL_HEARTBEAT="0.3")
    assert not team.path.exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_ranks_whose_launcher_serves_no_store(is_killed: bool, team: Team, alone: Alone) -> None:
    """As srun and mpirun start them: rank 0 serves it; where it is killed, one of the others says so."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        served = {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": str(found.getsockname()[1])}
    if is_killed:
        team.end([-signal.SIGKILL, 4], act=sends(signal.SIGKILL), who=0, **served)
        assert team.newest_step() == 2
    else:
        assert bytes_of(team.finish(**served), STEPS) == bytes_of(alone("adamw"), STEPS)


def test_a_signal_to_one_rank_stops_all_after_the_step(team: Team, alone: Alone) -> None:
    team.finish(act=sends(signal.SIGTERM))
    assert team.newest_step() == 3
    assert bytes_of(resume(team.path), STEPS) == bytes_of(alone("adamw"), STEPS)


def test_a_rank_lost_while_the_planner_decides_is_no_failure_of_the_planner(team: Team) -> None:
    def plan(step: int, seconds: float) -> dict[str, Any]:
        if step == 2:
            raise RankLost("rank {rank} has ended", rank=1)
        return {}

    with pytest.raises(RankLost):
        train(team.shared(), team.path, planner=plan)
    (stopped,) = RunFolder.open(team.path).metrics("stopped")
    assert "rank 1 " in str(stopped)
    assert team.newest_step() == 2


class TestSharded:
    """Checkpoints that every rank writes a part of."""

    def test_resumed_by_ranks_that_hold_everything(self, team: Team, alone: Alone) -> None:
        """And the other way round; evaluated between the two by a process alone.

        A part that is missing or was changed is named in one line, and the checkpoint before is used.
        """
        run = team.finish(sharding="sharded", act=sends(signal.SIGTERM))
        assert len([*(run.steps / "step-00000003").glob("*-rank-*")]) == 4
        for number, (part, damaged) in enumerate(
            (("model-rank-1-of-2.safetensors", b""), ("optimizer-rank-0-of-2.safetensors", None))
        ):
            path, said = shutil.copytree(team.path, team.folder / str(number)), list[str]()
            file = path / "steps" / "step-00000003" / part
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            resume(path, callback=lambda event, said=said: said.append(str(event.get("text"))))
            assert any(part in line for line in said)
            assert bytes_of(RunFolder.open(path), STEPS) == bytes_of(alone("adamw"), STEPS)
        team.hold("replicated")
        team.finish(work=partial(resume, team.path), act=sends(signal.SIGTERM), step=5)
        assert load_run(team.path, "last").step == 5
        team.hold("sharded")
        assert bytes_of(team.finish(work=partial(resume, team.path)), STEPS) == bytes_of(alone("adamw"), STEPS)

    def test_a_rank_that_sees_another_folder(self, team: Team, tmp_path: Path) -> None:
        """As on two machines whose disks have the same paths."""
        (tmp_path / "other").mkdir()

        def work() -> None:
            if current().rank == 1:
                followers.GuardedFolder = lambda path: GuardedFolder(tmp_path / "other")
            train(team.shared(sharding="sharded"), team.path)

        assert "rank 1: " in team.end([4, 4], work=work)
        assert not list((tmp_path / "other").iterdir())

    def test_killed_while_the_folder_is_tried(self, team: Team, alone: Alone) -> None:
        """Its file stays there, and prevents nothing."""
        config, whole = team.shared(sharding="sharded"), GuardedFolder.write_new

        def tried(self: GuardedFolder, name: str, content: bytes) -> None:
            whole(self, name, content)
            os.kill(os.getpid(), signal.SIGKILL)

        def work() -> None:
            if current().rank == 1:
                GuardedFolder.write_new = tried
            train(config, team.path)

        def held() -> list[Path]:
            return list((team.path / "steps").glob(".*"))

        assert set(team.start(work=work).wait()) == {4, -signal.SIGKILL}
        assert held()
        run = team.finish(work=partial(go_on, config, team.path))
        assert not held()
        assert bytes_of(run, STEPS) == bytes_of(alone("adamw"), STEPS)


class TestStartedAnew:
    """By the launcher, after a rank was lost; each machine has a folder of its own."""

    def test_rank_0_knows_the_run(self, team: Team, alone: Alone, tmp_path: Path) -> None:
        """The other has no folder, and goes on all the same; a finished run is left as it is.

        On another machine rank 0 would begin the run again, although the other has half of it.
        """
        config = written(team.shared(), tmp_path / "run.toml")
        (tmp_path / "0" / "run").mkdir(parents=True)  # an empty folder is as good as none

        def work() -> None:
            machine = tmp_path / str(current().rank)
            plan_run(config, overrides=[{"training": {"watch": False}}]).train(machine / "run", silent)

        several = team.start(work=work, act=sends(signal.SIGKILL))
        assert several.wait() == [4, -signal.SIGKILL]
        (tmp_path / "0").rename(tmp_path / "1")
        several = team.start(work=work, before=several)
        assert "rank 1 " in ended(several, [2, 2])
        assert not (tmp_path / "0").exists()
        (tmp_path / "1").rename(tmp_path / "0")
        for _ in range(2):
            several = team.start(work=work, before=several)
            assert several.wait() == [0, 0]
            assert bytes_of(RunFolder.open(tmp_path / "0" / "run"), STEPS) == bytes_of(alone("adamw"), STEPS)
        assert not (tmp_path / "1").exists()

    def test_a_run_that_was_there_before_is_not_theirs(self, team: Team, alone: Alone, tmp_path: Path) -> None:
        """It was refused when the ranks were started first, and is refused again; all ranks see one folder."""
        there, several = alone("adamw").path, None
        config = written(team.shared(), tmp_path / "run.toml")
        for _ in range(2):
            several = team.start(work=lambda: plan_run(config).train(there, silent), before=several)
            line = ended(several, [2, 2])
            assert str(there) in line
            assert "rank 1" not in line


class TestBadInput:
    """One line from rank 0, and nothing written."""

    def test_ranks_that_cannot_share_the_batches(self, team: Team) -> None:
        assert f"{BATCHES}" in team.end([2] * 5)
        assert not team.path.exists()

    def test_one_batch_in_a_step_is_told_what_sharing_costs(self, team: Team) -> None:
        line = team.end([2, 2], accumulation=1, batch_size=64)
        assert "training.accumulation = 2" in line
        assert "training.batch_size = 32" in line

    def test_another_configuration(self, team: Team) -> None:
        line = team.end([2, 2], work=lambda: train(team.shared(seed=1 + current().rank), team.path))
        assert "rank 1 " in line
        assert "seed" in line
        assert not team.path.exists()

    @pytest.mark.parametrize("key", ["versions", "NumPy", "numerics", "machine"])
    def test_another_version(self, key: str, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = ranks._json
        monkeypatch.setattr(
            ranks, "_json", lambda content: whole({**content, key: os.getpid()} if key in content else content)
        )
        line = team.end([2, 2])
        assert "rank 1 " in line
        assert key in line
        assert not team.path.exists()

    def test_another_command(self, team: Team, alone: Alone) -> None:
        there = alone("adamw").path
        work = lambda: resume(there) if current().rank else train(team.shared(), team.path)  # noqa: E731
        assert "rank 1 " in team.end([2, 2], work=work)
        assert not team.path.exists()

    def test_other_processors_and_texts_than_at_the_beginning(
        self, team: Team, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(KeyError):
            train(team.shared(), team.path, callback=at(fail, "step"))
        other = tmp_path / "other.txt"
        other.write_text("other words " * 999, encoding="utf-8")
        texts = (None, str(other))
        assert "rank 1: " in team.end([2, 2], work=lambda: resume(team.path, corpus=texts[current().rank]))
        monkeypatch.setattr(ranks, "processor", lambda: f"processor {os.getpid()}")
        assert "rank 1 " in team.end([2, 2], work=partial(resume, team.path, strict=True))
        assert team.newest_step() == 1

    def test_a_folder_that_cannot_be_written(self, team: Team, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert "file" in team.end([4, 4], work=partial(train, team.shared(), tmp_path / "file" / "run"))

    def test_a_run_of_an_earlier_version(self, team: Team) -> None:
        """Whose batches were added one after another."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vitral.training.run.with_reduction", lambda config: config)
            train(team.shared(), team.path, callback=at(lambda: signal.raise_signal(signal.SIGTERM), "start"))
        assert team.newest_step() == 0
        team.end([2, 2], work=partial(resume, team.path))
        assert resume(team.path).config["training"]["accumulation"] == BATCHES
