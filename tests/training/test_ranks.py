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
from vitral.core.errors import StorageError, UsageError
from vitral.core.guarded import GuardedFolder
from vitral.data import CorpusConfig
from vitral.data.making_shards import make_shards
from vitral.lab.configuration import plan_run
from vitral.runs import RunFolder
from vitral.runs.loading import load_run
from vitral.training import RunConfig, followers, loop, ranks, resume, sharding, silent, train
from vitral.training.team import RankLost, current
from vitral.training.trainer import Trainer

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors"),
    pytest.mark.skipif(not can_connect(), reason="PyTorch is too old for several ranks"),
]

FULL = os.environ.get("VITRAL_FULL") == "1"
Configured = Callable[..., RunConfig]
BytesOf = Callable[[RunFolder, int], dict[str, bytes]]
MeasuredIn = Callable[[RunFolder], list[str]]
Alone = Callable[[str], RunFolder]

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"name": "adamw", "learning_rate": 0.01},
    "muon": {"name": "muon", "learning_rate": 0.02},
    "sgd": {"name": "sgd", "learning_rate": 0.05, "nesterov": True},
}
QUICK = [(2, "sharded", "muon"), (3, "sharded", "adamw"), (4, "replicated", "sgd"), (2, "replicated", "muon")]
KINDS = ("replicated", "sharded")
CELLS = [(size, kind, name) for size in (1, 2, 3, 4, 8, 24) for kind in KINDS for name in OPTIMIZERS] if FULL else QUICK
DAMAGES = [
    (f"{kind}.safetensors", damaged)
    for kind in ("model-rank-1-of-2", "optimizer-rank-0-of-2")
    for damaged in (b"", None)
]
BATCHES, STEPS = (24, 50) if FULL else (12, 6)
MACHINES = [(2, 2), (4, 2), (2, 4), (2, 3), (3, 2)]
"""Machines, and ranks of each."""
WITH = [(*machines, name) for machines in MACHINES for name in ("adamw", "muon")] + [(4, 1, "sgd"), (1, 4, "sgd")]
SEVERAL = WITH if FULL else [(2, 2, "adamw"), (2, 3, "muon")]


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
def alone(shared: Configured, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """The run of one rank with an optimizer."""
    made: dict[str, RunFolder] = {}

    def run(optimizer: str) -> RunFolder:
        if optimizer not in made:
            made[optimizer] = train(shared(optimizer), tmp_path_factory.mktemp("alone") / "run")
        return made[optimizer]

    return run


@pytest.mark.parametrize(("size", "sharding", "optimizer"), CELLS)
def test_ranks_give_the_bits_of_one(
    size: int,
    sharding: str,
    optimizer: str,
    shared: Configured,
    alone: Alone,
    bytes_of: BytesOf,
    measured_in: MeasuredIn,
    tmp_path: Path,
) -> None:
    """Weights, optimizer, batch chain and every measurement."""
    one = alone(optimizer)
    several = Forked(size, partial(train, shared(optimizer, sharding=sharding), tmp_path / "run"), tmp_path)
    assert several.wait() == [0] * size
    run = RunFolder.open(tmp_path / "run")
    assert bytes_of(run, STEPS) == bytes_of(one, STEPS)
    assert measured_in(run) == measured_in(one)


class TestHybrid:
    """Several machines, each of which has all weights, shared out among its ranks."""

    @pytest.mark.parametrize(("machines", "local", "optimizer"), SEVERAL)
    def test_the_bits_of_one_rank(
        self,
        machines: int,
        local: int,
        optimizer: str,
        shared: Configured,
        alone: Alone,
        bytes_of: BytesOf,
        measured_in: MeasuredIn,
        tmp_path: Path,
    ) -> None:
        """Two ranks of a machine add their batches there, three do not."""
        one, config, size = alone(optimizer), shared(optimizer, sharding="hybrid"), machines * local
        several = Forked(size, partial(train, config, tmp_path / "run"), tmp_path, local)
        assert several.wait() == [0] * size
        run = RunFolder.open(tmp_path / "run")
        assert bytes_of(run, STEPS) == bytes_of(one, STEPS)
        assert measured_in(run) == measured_in(one)

    def test_resumed_by_ranks_that_share_in_other_ways(
        self, shared: Configured, alone: Alone, bytes_of: BytesOf, tmp_path: Path
    ) -> None:
        """One machine's ranks write parts like those of a run on it alone; alone, sharded, and hybrid again."""
        path = tmp_path / "run"

        def until(step: int, work: Callable[[], object]) -> None:
            """Several ranks finish the step in which they are asked to stop, one rank gives it up."""
            before_step(step + (current().size == 1), lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
            work()

        first = partial(until, 2, partial(train, shared(sharding="hybrid"), path))
        assert Forked(4, first, tmp_path, 2).wait() == [0] * 4
        assert sorted(part.name for part in (path / "steps" / "step-00000002").glob("model*")) == [
            f"model-rank-{rank}-of-2.safetensors" for rank in range(2)
        ]
        for stop, (kind, size) in enumerate((("replicated", 1), ("sharded", 2), ("hybrid", 4)), 3):
            hold(path, kind)
            several = Forked(size, partial(until, stop, partial(resume, path)), tmp_path, min(size, 2))
            assert several.wait() == [0] * size
            assert newest_step(path) == stop
        assert bytes_of(resume(path), STEPS) == bytes_of(alone("adamw"), STEPS)

    def test_machines_that_drift_apart_are_not_saved(self, shared: Configured, tmp_path: Path) -> None:
        """The last bits of some rows of the second rank of the second machine."""

        def flip(trainer: Trainer) -> None:
            rows = next(iter(trainer.held.parameters.values())).data
            rows.copy_(rows.view(dtype=torch.int32).bitwise_xor(1).view(dtype=torch.float32))

        def work() -> None:
            if current().rank == 3:
                before_step(3, flip)
            train(shared(sharding="hybrid"), tmp_path / "run")

        line = ended(Forked(4, work, tmp_path, 2), [4] * 4)
        assert "rank 3 " in line
        assert "rank 1" in line
        assert newest_step(tmp_path / "run") == 2

    def test_only_the_first_machine_writes(
        self, shared: Configured, alone: Alone, bytes_of: BytesOf, tmp_path: Path
    ) -> None:
        """The folder may be on a disk that the others do not see."""

        def refuse(self: GuardedFolder, name: str, content: bytes) -> None:
            raise StorageError("the disk is not there")

        def work() -> None:
            if current().rank >= 2:
                GuardedFolder.write_new = refuse
            train(shared(sharding="hybrid"), tmp_path / "run")

        assert Forked(4, work, tmp_path, 2).wait() == [0] * 4
        assert bytes_of(RunFolder.open(tmp_path / "run"), STEPS) == bytes_of(alone("adamw"), STEPS)

    def test_in_the_engines_order_the_machines_hold_the_same(self, shared: Configured, tmp_path: Path) -> None:
        """What they hold is compared at every checkpoint; the loss is that of one rank but for rounding."""
        config = shared(sharding="hybrid", reduction="fast", steps=2)
        assert Forked(4, partial(train, config, tmp_path / "run"), tmp_path, 2).wait() == [0] * 4
        runs = RunFolder.open(tmp_path / "run"), train(config, tmp_path / "one")
        (first, second), on_one = ([event["loss"] for event in run.metrics("step")] for run in runs)
        assert [first, second] == pytest.approx(on_one, rel=1e-5)

    @pytest.mark.parametrize("call", [0, 1])
    def test_a_rank_that_ends_while_machines_connect(
        self, call: int, shared: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before the ranks of one machine connect, or between that and the connection of the machines."""
        whole, calls = ranks.dist.new_subgroups_by_enumeration, count()

        def connect(*given: Any, **options: Any) -> Any:
            if current().rank == 3 and next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(*given, **options)

        monkeypatch.setattr(ranks.dist, "new_subgroups_by_enumeration", connect)
        work = partial(train, shared(sharding="hybrid"), tmp_path / "run")
        several = Forked(4, work, tmp_path, 2, VITRAL_HEARTBEAT="1")
        assert several.wait() == [4, 4, 4, -signal.SIGKILL]
        ((line, code),) = several.said()
        assert "\n" not in line
        assert code == 4

    def test_machines_with_different_numbers_of_ranks(self, shared: Configured, tmp_path: Path) -> None:
        """Three ranks of which the launcher says that two are on one machine."""
        config = shared(sharding="hybrid")
        line = ended(Forked(3, partial(train, config, tmp_path / "run"), tmp_path, 2), [2] * 3)
        assert "rank 2 " in line
        assert not (tmp_path / "run").exists()


def test_runs_from_python_one_after_another(
    shared: Configured, alone: Alone, bytes_of: BytesOf, tmp_path: Path
) -> None:
    """As a script does that torchrun starts; every rank gets the run."""

    def work() -> None:
        for name in ("muon", "adamw"):
            plain = shared(name).plain()
            config = tmp_path / f"{name}.toml"
            config.write_bytes(tomli_w.dumps(plain).encode())
            made = vitral.train(str(config), out=tmp_path / name, progress=False, training={"watch": False})
            assert made.path == tmp_path / name

    assert Forked(2, work, tmp_path).wait() == [0, 0]
    for name in ("muon", "adamw"):
        run = RunFolder.open(tmp_path / name)
        assert bytes_of(run, STEPS) == bytes_of(alone(name), STEPS)


def go_on(config: RunConfig, path: Path) -> None:
    """The same command again, or resume where there is a run."""
    if path.exists():
        resume(path)
    else:
        train(config, path)


def is_finished(path: Path) -> bool:
    return path.exists() and any(event["finished"] for event in RunFolder.open(path).metrics("end"))


def without_stops(measured: list[str]) -> list[str]:
    return [line for line in measured if '"stopped"' not in line]


@pytest.mark.parametrize("trial", range(40 if FULL else 2))
def test_killed_on_four_goes_on_with_two_and_then_alone(
    trial: int, shared: Configured, alone: Alone, bytes_of: BytesOf, measured_in: MeasuredIn, tmp_path: Path
) -> None:
    """One rank of four is killed, then one of two; the others end by themselves, and no checkpoint is lost."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    kind = (*KINDS, "hybrid")[trial % 3]
    draw, path, config = random.Random(seed), tmp_path / "run", shared(sharding=kind)
    for size in (4, 2):
        if is_finished(path):
            break
        several, victim = Forked(size, partial(go_on, config, path), tmp_path, 2), draw.randrange(size)
        if several.is_there(draw.uniform(0.3, 3.0), victim):
            several.signal(victim, signal.SIGKILL)
        codes = several.wait()
        assert set(codes) <= {0, 4, -signal.SIGKILL}, f"seed {seed}: {codes}"
        if 4 in codes:
            (line, code), *others = several.said()
            assert (code, others) == (4, []), f"seed {seed}"
            assert f"rank {victim} " in line, f"seed {seed}: {line}"
    if not is_finished(path):
        go_on(config, path)
    one, run = alone("adamw"), RunFolder.open(path)
    assert bytes_of(run, STEPS) == bytes_of(one, STEPS), f"seed {seed}"
    assert without_stops(measured_in(run)) == measured_in(one), f"seed {seed}"


def ended(several: Forked, codes: list[int]) -> str:
    """The one line that is said of ranks that end with these codes."""
    assert several.wait() == codes
    ((line, code),) = several.said()
    assert code == codes[0]
    assert "\n" not in line
    return line


def before_step(number: int, act: Callable[[Trainer], object]) -> None:
    """Let something happen in a rank when it begins a step."""
    whole = loop.one_step

    def step(trainer: Trainer) -> tuple[float, float, float]:
        if trainer.state.step == number - 1:
            act(trainer)
        return whole(trainer)

    loop.one_step = followers.one_step = step


def newest_step(path: Path) -> int:
    newest = RunFolder.open(path).newest()
    assert newest is not None
    return newest.step


def test_a_rank_that_hangs_is_named(shared: Configured, tmp_path: Path) -> None:
    """The others miss its heartbeat, and rank 0 saves the steps so far; between two checkpoints, too."""

    def work() -> None:
        if current().rank == 1:
            before_step(3, lambda trainer: os.kill(os.getpid(), signal.SIGSTOP))
        train(shared(checkpoint_every=5), tmp_path / "run")

    several = Forked(3, work, tmp_path, VITRAL_HEARTBEAT="6")
    several.is_there(PATIENCE)
    several.is_there(PATIENCE, 2)
    several.signal(1, signal.SIGKILL)
    assert "rank 1 (" in ended(several, [4, -signal.SIGKILL, 4])
    assert newest_step(tmp_path / "run") == 2


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_stands_still_is_named(victim: int, shared: Configured, tmp_path: Path) -> None:
    """Its heart beats, and its main thread waits for something that never comes; its process ends, too."""

    def work() -> None:
        if current().rank == victim:
            before_step(3, lambda trainer: threading.Event().wait())
        train(shared(), tmp_path / "run")

    several = Forked(2, work, tmp_path, VITRAL_STANDSTILL="5", VITRAL_HEARTBEAT="3")
    assert f"rank {victim} (" in ended(several, [4, 4])
    assert newest_step(tmp_path / "run") == 2


def test_a_long_evaluation_does_not_stand_still(shared: Configured, tmp_path: Path) -> None:
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
        train(shared(steps=1), tmp_path / "run")

    assert Forked(2, work, tmp_path, VITRAL_STANDSTILL="3").wait() == [0, 0]


@pytest.mark.parametrize("value", ["abc", "inf", "nan", "0", "-1", "1e9"])
def test_seconds_that_are_none(value: str, shared: Configured, tmp_path: Path) -> None:
    """One rank says so, before anything is written."""
    variable = (ranks.HEARTBEAT, ranks.STANDSTILL)[len(value) % 2]
    several = Forked(2, partial(train, shared(), tmp_path / "run"), tmp_path, before=None, **{variable: value})
    assert variable in ended(several, [2, 2])
    assert not (tmp_path / "run").exists()


def test_a_rank_that_ends_while_all_connect(
    shared: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all have come together; connecting to it would have no end."""
    whole = ranks.meet

    def meet(store: Any, rank: int, *given: Any, **options: Any) -> Any:
        met = whole(store, rank, *given, **options)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return met

    monkeypatch.setattr(ranks, "meet", meet)
    several = Forked(3, partial(train, shared(), tmp_path / "run"), tmp_path, VITRAL_HEARTBEAT="1")
    assert several.wait() == [4, -signal.SIGKILL, 4]
    ((line, code),) = several.said()
    assert "\n" not in line
    assert code == 4


def test_a_rank_that_never_starts_is_named(shared: Configured, tmp_path: Path) -> None:
    several = Forked(2, partial(train, shared(), tmp_path / "run"), tmp_path, WORLD_SIZE="3", VITRAL_HEARTBEAT="0.3")
    assert several.wait() == [4, 4]
    [(line, code)] = several.said()
    assert "rank 2" in line
    assert code == 4
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("victim", [None, 0, 1])
def test_ranks_whose_launcher_serves_no_store(
    victim: int | None, shared: Configured, alone: Alone, bytes_of: BytesOf, tmp_path: Path
) -> None:
    """As srun and mpirun start them: rank 0 serves it; where one is killed, one of the others says so."""

    def work() -> None:
        if current().rank == victim:
            before_step(3, lambda trainer: os.kill(os.getpid(), signal.SIGKILL))
        train(shared(), tmp_path / "run")

    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = str(found.getsockname()[1])
    several = Forked(2, work, tmp_path, TORCHELASTIC_USE_AGENT_STORE="False", MASTER_PORT=port)
    if victim is None:
        assert several.wait() == [0, 0]
        assert bytes_of(RunFolder.open(tmp_path / "run"), STEPS) == bytes_of(alone("adamw"), STEPS)
        return
    codes = [4, 4]
    codes[victim] = -signal.SIGKILL
    assert several.wait() == codes
    assert len(several.said()) == 1
    assert newest_step(tmp_path / "run") == 2


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_rank_stops_all_after_the_step(
    rank: int, shared: Configured, alone: Alone, bytes_of: BytesOf, tmp_path: Path
) -> None:
    def work() -> None:
        if current().rank == rank:
            before_step(3, lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
        train(shared(), tmp_path / "run")

    assert Forked(2, work, tmp_path).wait() == [0, 0]
    assert newest_step(tmp_path / "run") == 3
    assert bytes_of(resume(tmp_path / "run"), STEPS) == bytes_of(alone("adamw"), STEPS)


def test_a_rank_lost_while_the_planner_decides_is_no_failure_of_the_planner(shared: Configured, tmp_path: Path) -> None:
    def plan(step: int, seconds: float) -> dict[str, Any]:
        if step == 2:
            raise RankLost("rank {rank} has ended", rank=1)
        return {}

    with pytest.raises(RankLost):
        train(shared(), tmp_path / "run", planner=plan)
    (stopped,) = RunFolder.open(tmp_path / "run").metrics("stopped")
    assert "rank 1 " in str(stopped)
    assert newest_step(tmp_path / "run") == 2


def test_a_rank_that_fails_says_why(shared: Configured, tmp_path: Path) -> None:
    def fail(trainer: Trainer) -> None:
        raise UsageError("its disk is full")

    def work() -> None:
        if current().rank == 1:
            before_step(2, fail)
        train(shared(), tmp_path / "run")

    assert "rank 1: its disk is full" in ended(Forked(2, work, tmp_path), [2, 2])
    assert newest_step(tmp_path / "run") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_is_not_finite_stops_all(kind: str, shared: Configured, tmp_path: Path) -> None:
    def spoil(trainer: Trainer) -> None:
        if kind == "replicated" or current().rank == 1:
            next(iter(trainer.held.parameters.values())).data[0, 0] = float("nan")

    def work() -> None:
        before_step(3, spoil)
        train(shared(sharding=kind), tmp_path / "run")

    line = ended(Forked(2, work, tmp_path), [3, 3])
    assert "rank" not in line
    assert newest_step(tmp_path / "run") == 2


def test_weights_that_drift_apart_are_not_saved(shared: Configured, tmp_path: Path) -> None:
    """One bit of one weight of one rank."""

    def flip(trainer: Trainer) -> None:
        weight = trainer.model.token_embedding.weight.data.view(-1)[:1]
        weight.copy_(weight.view(dtype=torch.int32).bitwise_xor(1).view(dtype=torch.float32))

    def work() -> None:
        if current().rank == 1:
            before_step(3, flip)
        train(shared(), tmp_path / "run")

    assert "rank 1 " in ended(Forked(2, work, tmp_path), [4, 4])
    assert newest_step(tmp_path / "run") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_draws_other_batches_is_named(kind: str, shared: Configured, tmp_path: Path) -> None:
    """Before the step is applied: all ranks would have the same weights afterwards."""

    def work() -> None:
        if current().rank == 1:
            before_step(3, lambda trainer: setattr(trainer.batches, "_seed", 7))
        train(shared(sharding=kind), tmp_path / "run")

    assert "rank 1 " in ended(Forked(2, work, tmp_path), [4, 4])
    run = RunFolder.open(tmp_path / "run")
    assert newest_step(run.path) == 2
    assert resume(run.path).metrics("end")[-1]["finished"]


class TestSharded:
    """Checkpoints that every rank writes a part of."""

    @pytest.fixture(scope="class")
    @staticmethod
    def stopped(shared: Configured, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A run of two ranks that was asked to stop after its third step."""
        folder = tmp_path_factory.mktemp("stopped")

        def work() -> None:
            before_step(3, lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
            train(shared(sharding="sharded"), folder / "run")

        assert Forked(2, work, folder).wait() == [0, 0]
        return folder / "run"

    def test_resumed_by_ranks_that_hold_everything(
        self, stopped: Path, alone: Alone, bytes_of: BytesOf, tmp_path: Path
    ) -> None:
        """And the other way round; evaluated between the two by a process alone."""
        path = shutil.copytree(stopped, tmp_path / "run")
        parts = [one.name for one in (RunFolder.open(path).steps / "step-00000003").glob("*-rank-*")]
        assert len(parts) == 4
        hold(path, "replicated")

        def work() -> None:
            before_step(5, lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
            resume(path)

        assert Forked(2, work, tmp_path).wait() == [0, 0]
        assert load_run(path, "last").step == 5
        hold(path, "sharded")
        assert Forked(2, partial(resume, path), tmp_path).wait() == [0, 0]
        assert bytes_of(RunFolder.open(path), STEPS) == bytes_of(alone("adamw"), STEPS)

    @pytest.mark.parametrize(("name", "damaged"), DAMAGES if FULL else DAMAGES[::3])
    def test_a_part_missing_or_changed(
        self, name: str, damaged: bytes | None, stopped: Path, alone: Alone, bytes_of: BytesOf, tmp_path: Path
    ) -> None:
        """One line names it, and the checkpoint before is used."""
        path, said = shutil.copytree(stopped, tmp_path / "run"), list[str]()
        part = path / "steps" / "step-00000003" / name
        part.unlink()
        if damaged is not None:
            part.write_bytes(damaged)
        resume(path, callback=lambda event: said.append(str(event.get("text"))))
        assert any(name in line for line in said)
        assert bytes_of(RunFolder.open(path), STEPS) == bytes_of(alone("adamw"), STEPS)

    def test_a_rank_that_sees_another_folder(self, shared: Configured, tmp_path: Path) -> None:
        """As on two machines whose disks have the same paths."""
        (tmp_path / "other").mkdir()

        def work() -> None:
            if current().rank == 1:
                followers.GuardedFolder = lambda path: GuardedFolder(tmp_path / "other")
            train(shared(sharding="sharded"), tmp_path / "run")

        assert "rank 1: " in ended(Forked(2, work, tmp_path), [4, 4])
        assert not list((tmp_path / "other").iterdir())

    @pytest.mark.parametrize("victim", [0, 1])
    def test_killed_while_the_folder_is_tried(
        self, victim: int, shared: Configured, alone: Alone, bytes_of: BytesOf, tmp_path: Path
    ) -> None:
        """Its file stays there, and prevents nothing."""
        path, config = tmp_path / "run", shared(sharding="sharded")

        def written(self: GuardedFolder, name: str, content: bytes) -> None:
            whole(self, name, content)
            os.kill(os.getpid(), signal.SIGKILL)

        whole = GuardedFolder.write_new

        def work() -> None:
            if current().rank == victim:
                GuardedFolder.write_new = written
            train(config, path)

        def held() -> list[Path]:
            return list((path / "steps").glob(".*"))

        assert set(Forked(2, work, tmp_path).wait()) == {4, -signal.SIGKILL}
        assert held()
        assert Forked(2, partial(go_on, config, path), tmp_path).wait() == [0, 0]
        assert not held()
        assert bytes_of(RunFolder.open(path), STEPS) == bytes_of(alone("adamw"), STEPS)

    def test_a_rank_that_cannot_write_its_part(self, shared: Configured, tmp_path: Path) -> None:
        def full(*_: Any) -> dict[str, Any]:
            raise StorageError("the disk is full")

        def act(trainer: Trainer) -> None:
            if current().rank == 1:
                sharding.write_part = full

        def work() -> None:
            before_step(2, act)
            train(shared(sharding="sharded"), tmp_path / "run")

        assert "rank 1: the disk is full" in ended(Forked(2, work, tmp_path), [4, 4])
        assert newest_step(tmp_path / "run") == 1
        assert not list((tmp_path / "run" / "steps").glob(".*"))

    def test_a_long_save_is_no_death(self, shared: Configured, tmp_path: Path) -> None:
        """A rank writes for longer than the silence after which it would be lost."""
        whole = sharding.write_part

        def slow(*given: Any) -> dict[str, Any]:
            team = current()
            assert isinstance(team, ranks.Ranks)
            beats = team.heart.beats(1) + 5
            while team.heart.beats(1) < beats:
                pass
            sharding.write_part = whole
            return whole(*given)

        def work() -> None:
            if current().rank == 1:
                sharding.write_part = slow
            train(shared(sharding="sharded", steps=1), tmp_path / "run")

        assert Forked(2, work, tmp_path, VITRAL_HEARTBEAT="3").wait() == [0, 0]


def hold(path: Path, kind: str) -> None:
    """Let the next ranks hold the weights in this way."""
    file = path / "config.toml"
    config = tomllib.loads(file.read_text(encoding="utf-8"))
    config["training"]["sharding"] = kind
    file.write_bytes(tomli_w.dumps(config).encode())


def started(config: RunConfig, path: Path) -> None:
    """A run that one rank stops after its first step."""

    def stop(event: Any) -> None:
        if event["event"] == "step":
            raise UsageError("enough")

    with pytest.raises(UsageError, match="enough"):
        train(config, path, callback=stop)


class TestStartedAnew:
    """By the launcher, after a rank was lost; each machine has a folder of its own."""

    @pytest.fixture
    @staticmethod
    def killed(shared: Configured, tmp_path: Path) -> tuple[Callable[[], object], Forked]:
        """What a rank does, and ranks of which one was killed in their third step."""
        config = tmp_path / "run.toml"
        config.write_bytes(tomli_w.dumps(shared().plain()).encode())
        (tmp_path / "0" / "run").mkdir(parents=True)  # an empty folder is as good as none

        def work() -> None:
            machine = tmp_path / str(current().rank)
            plan_run(str(config), overrides=[{"training": {"watch": False}}]).train(machine / "run", silent)

        def dying() -> None:
            if current().rank == 1:
                before_step(3, lambda trainer: os.kill(os.getpid(), signal.SIGKILL))
            work()

        several = Forked(2, dying, tmp_path)
        assert several.wait() == [4, -signal.SIGKILL]
        return work, several

    def test_rank_0_knows_the_run(
        self, killed: tuple[Callable[[], object], Forked], alone: Alone, bytes_of: BytesOf, tmp_path: Path
    ) -> None:
        """The other has no folder, and goes on all the same; a finished run is left as it is."""
        work, before = killed
        for _ in range(2):
            assert Forked(2, work, tmp_path, before=before).wait() == [0, 0]
            assert bytes_of(RunFolder.open(tmp_path / "0" / "run"), STEPS) == bytes_of(alone("adamw"), STEPS)
        assert not (tmp_path / "1").exists()

    def test_rank_0_on_another_machine(self, killed: tuple[Callable[[], object], Forked], tmp_path: Path) -> None:
        """It would begin the run again, although the other has half of it."""
        work, before = killed
        (tmp_path / "0").rename(tmp_path / "1")
        assert "rank 1 " in ended(Forked(2, work, tmp_path, before=before), [2, 2])
        assert not (tmp_path / "0").exists()

    def test_a_run_that_was_there_before_is_not_theirs(self, shared: Configured, alone: Alone, tmp_path: Path) -> None:
        """It was refused when the ranks were started first, and is refused again; all ranks see one folder."""
        there, several = alone("adamw").path, None
        config = tmp_path / "run.toml"
        config.write_bytes(tomli_w.dumps(shared().plain()).encode())

        def work() -> None:
            plan_run(str(config)).train(there, silent)

        for _ in range(2):
            several = Forked(2, work, tmp_path, before=several)
            line = ended(several, [2, 2])
            assert str(there) in line
            assert "rank 1" not in line


class TestBadInput:
    """One line from rank 0, and nothing written."""

    def test_ranks_that_cannot_share_the_batches(self, shared: Configured, tmp_path: Path) -> None:
        line = ended(Forked(5, partial(train, shared(), tmp_path / "run"), tmp_path), [2] * 5)
        assert f"{BATCHES}" in line
        assert not (tmp_path / "run").exists()

    def test_one_batch_in_a_step_is_told_what_sharing_costs(self, shared: Configured, tmp_path: Path) -> None:
        config = shared(accumulation=1, batch_size=64)
        line = ended(Forked(2, partial(train, config, tmp_path / "run"), tmp_path), [2, 2])
        assert "training.accumulation = 2" in line
        assert "training.batch_size = 32" in line

    def test_another_configuration(self, shared: Configured, tmp_path: Path) -> None:
        def work() -> None:
            train(shared(seed=1 + current().rank), tmp_path / "run")

        line = ended(Forked(2, work, tmp_path), [2, 2])
        assert "rank 1 " in line
        assert "seed" in line
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("key", ["versions", "NumPy", "numerics", "machine"])
    def test_another_version(
        self, key: str, shared: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = ranks._json
        monkeypatch.setattr(
            ranks, "_json", lambda content: whole({**content, key: os.getpid()} if key in content else content)
        )
        line = ended(Forked(2, partial(train, shared(), tmp_path / "run"), tmp_path), [2, 2])
        assert "rank 1 " in line
        assert key in line
        assert not (tmp_path / "run").exists()

    def test_another_command(self, shared: Configured, alone: Alone, tmp_path: Path) -> None:
        there = alone("adamw").path

        def work() -> None:
            if current().rank == 1:
                resume(there)
            train(shared(), tmp_path / "run")

        assert "rank 1 " in ended(Forked(2, work, tmp_path), [2, 2])
        assert not (tmp_path / "run").exists()

    def test_strict_ranks_on_different_processors(
        self, shared: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started(shared(), tmp_path / "run")
        monkeypatch.setattr(ranks, "processor", lambda: f"processor {os.getpid()}")
        assert "rank 1 " in ended(Forked(2, partial(resume, tmp_path / "run", strict=True), tmp_path), [2, 2])
        assert newest_step(tmp_path / "run") == 1

    def test_a_shard_that_was_changed_on_one_machine(self, shared: Configured, tmp_path: Path) -> None:
        """At equal size, so that opening it finds nothing."""
        text, whole, changed = tmp_path / "words.txt", tmp_path / "shards", tmp_path / "changed"
        text.write_text("the cat saw a bird and the dog sang to me of it " * 999, encoding="utf-8")
        make_shards(CorpusConfig.parse({"source": str(text), "tokenizer": "char"}), whole, piece_bytes=1009)
        shutil.copytree(whole, changed)
        for file in changed.glob("shards/*.bin"):
            file.write_bytes(bytes(file.stat().st_size))
        config = shared().plain()
        config["corpus"] = {"source": str(whole)}
        started(RunConfig.parse(config), tmp_path / "run")

        def work() -> None:
            resume(tmp_path / "run", corpus=str(changed) if current().rank else None)

        assert "rank 1 " in ended(Forked(2, work, tmp_path), [4, 4])
        assert newest_step(tmp_path / "run") == 1

    def test_another_text(self, shared: Configured, tmp_path: Path) -> None:
        started(shared(), tmp_path / "run")
        other = tmp_path / "other.txt"
        other.write_text("other words " * 999, encoding="utf-8")

        def work() -> None:
            resume(tmp_path / "run", corpus=str(other) if current().rank else None)

        assert "rank 1: " in ended(Forked(2, work, tmp_path), [2, 2])
        assert newest_step(tmp_path / "run") == 1

    def test_a_folder_that_cannot_be_written(self, shared: Configured, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        line = ended(Forked(2, partial(train, shared(), tmp_path / "file" / "run"), tmp_path), [4, 4])
        assert "file" in line

    def test_two_runs_in_one_folder(self, shared: Configured, alone: Alone, tmp_path: Path) -> None:
        there = alone("adamw").path
        assert str(there) in ended(Forked(2, partial(train, shared(), there), tmp_path), [2, 2])

    def test_a_run_of_an_earlier_version(self, shared: Configured, tmp_path: Path) -> None:
        """Whose batches were added one after another."""
        config = shared()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("vitral.training.run.with_reduction", lambda config: config)
            patch.setattr(
                "vitral.training.run.note_excess", lambda trainer: trainer.request.__call__(signal.SIGTERM, None)
            )
            train(config, tmp_path / "run")
        assert newest_step(tmp_path / "run") == 0
        ended(Forked(2, partial(resume, tmp_path / "run"), tmp_path), [2, 2])
        assert resume(tmp_path / "run").config["training"]["accumulation"] == BATCHES
