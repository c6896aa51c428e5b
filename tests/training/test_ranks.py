"""Several ranks give the bits of one, or equal numbers but for rounding; one that is lost ends all."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from forked_ranks import Forked, can_connect
from safetensors.torch import load_file

from tests.conftest import Once
from tests.training.conftest import Configured, bytes_of, measured_in
from vitral.core.errors import UsageError
from vitral.runs import RunFolder
from vitral.runs.loading import load_run
from vitral.training import RunConfig, loop, ranks, resume, silent, train
from vitral.training.configuration import plan_run
from vitral.training.trainer import Trainer

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks"),
    pytest.mark.skipif(not can_connect(), reason="PyTorch is too old for several ranks"),
]

Act = Callable[[Trainer], object]
STEPS = 6
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"name": "adamw", "learning_rate": 0.01},
    "muon": {"name": "muon", "learning_rate": 0.02},
    "sgd": {"name": "sgd", "learning_rate": 0.05, "nesterov": True},
}


@pytest.fixture(scope="session")
def shared(configured: Configured) -> Configured:
    """`shared("muon")`: a few steps of prime sizes, with dropout and clipping; several ranks can share the batches."""

    def make(optimizer: str = "adamw", seed: int = 1, **changes: Any) -> RunConfig:
        training = {
            "steps": STEPS,
            "batch_size": 2,
            "accumulation": 12,
            "optimizer": OPTIMIZERS[optimizer],
            "evaluate_every": 4,
            "evaluation_tokens": 300,
            "sample_every": 4,
            "sample_tokens": 5,
            "checkpoint_every": 1,
            "threads": 1,
        }
        return configured(seed=seed, model={"d_model": 23, "num_heads": 1}, training=training | changes)

    return make


@pytest.fixture(scope="session")
def alone(shared: Configured, once: Once) -> Callable[..., RunFolder]:
    """The run of one rank."""

    def make(optimizer: str = "adamw", accumulation: int = 12) -> RunFolder:
        config = shared(optimizer, accumulation=accumulation)
        return RunFolder.open(once(f"ranks-{optimizer}-{accumulation}", lambda path: train(config, path)))

    return make


class Team:
    """Starts ranks that train in a folder of the test."""

    def __init__(self, shared: Configured, folder: Path) -> None:
        self.folder, self.path, self.shared = folder, folder / "run", shared

    def start(self, size: int = 2, *, work: Any = None, act: Act | None = None, step: int = 3, **how: Any) -> Forked:
        """So many ranks that do something, or train; `act` happens in the last one before a step.

        Args:
            size: the number of ranks.
            work: what they do; None: they train.
            act: what happens.
            step: before which one.
            how: further keys of `[training]`, and variables of the environment in capitals.
        """
        environment = {key: how.pop(key) for key in list(how) if key.isupper()}
        whole = work or partial(train, self.shared(**how), self.path)

        def acting() -> None:
            if act is not None and ranks.rank() == size - 1:
                before_step(step, act)
            whole()

        return Forked(size, acting, self.folder, **environment)

    def finish(self, size: int = 2, **how: Any) -> RunFolder:
        """The run that they train to the end, or until they stop for a reason that is no failure."""
        assert self.start(size, **how).wait() == [0] * size
        return RunFolder.open(self.path)

    def end(self, codes: list[int], **how: Any) -> str:
        """The one line that is said of ranks that end with these codes."""
        several = self.start(len(codes), **how)
        assert several.wait() == codes
        (line,) = several.said()
        return line

    def newest_step(self) -> int:
        newest = RunFolder.open(self.path).latest()
        assert newest is not None
        return newest.step


@pytest.fixture
def team(shared: Configured, tmp_path: Path) -> Team:
    return Team(shared, tmp_path)


def before_step(number: int, act: Act) -> None:
    """Let something happen in a rank when it begins a step."""
    whole = loop.one_step

    def step(trainer: Trainer) -> tuple[float, float, float]:
        if trainer.state.step == number - 1:
            act(trainer)
        return whole(trainer)

    loop.one_step = step


def sends(number: int) -> Act:
    """A rank that sends itself a signal."""
    return lambda trainer: os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("size", "optimizer", "accumulation"),
    [
        (2, "adamw", 12),
        *(pytest.param(*cell, marks=pytest.mark.merge) for cell in ((3, "sgd", 12), (4, "muon", 12), (3, "adamw", 3))),
        *(pytest.param(size, name, 12, marks=pytest.mark.full) for size in (1, 2, 4, 6, 12) for name in OPTIMIZERS),
    ],
)
def test_ranks_give_the_bits_of_one(
    size: int, optimizer: str, accumulation: int, team: Team, alone: Callable[..., RunFolder]
) -> None:
    """Weights, optimizer, batch chain and every measurement."""
    run, one = team.finish(size, optimizer=optimizer, accumulation=accumulation), alone(optimizer, accumulation)
    assert bytes_of(run, STEPS) == bytes_of(one, STEPS)
    assert measured_in(run) == measured_in(one)


@pytest.mark.merge
@pytest.mark.parametrize(
    ("size", "how"),
    [
        (2, {"sharding": "sharded"}),
        (3, {"sharding": "sharded", "optimizer": "muon"}),
        (2, {"reduction": "fast"}),
    ],
    ids=str,
)
def test_in_the_engines_order_ranks_equal_one_up_to_rounding(
    size: int, how: dict[str, Any], team: Team, alone: Callable[..., RunFolder]
) -> None:
    """The checkpoints are ordinary ones: one process opens, resumes and finishes the run."""
    run, one = team.finish(size, act=sends(signal.SIGTERM), **how), alone(how.get("optimizer", "adamw"))
    assert team.newest_step() == 3
    assert {file.name for file in (run.steps / "step-00000003").iterdir()} == {
        file.name for file in (one.steps / "step-00000003").iterdir()
    }
    for part in ("model", "optimizer"):
        first, second = (load_file(each.steps / "step-00000003" / f"{part}.safetensors") for each in (run, one))
        assert first.keys() == second.keys()
        for name, tensor in first.items():
            torch.testing.assert_close(tensor, second[name], rtol=1e-3, atol=1e-4)
    assert load_run(team.path, "last").step == 3
    again = team.finish(size, work=partial(resume, team.path), act=sends(signal.SIGTERM), step=5)
    losses, expected = ([event["validation_loss"] for event in each.metrics("evaluation")] for each in (again, one))
    assert losses == pytest.approx(expected[:1], rel=1e-4)
    assert resume(team.path).metrics("end")[-1]["finished"]


@pytest.mark.merge
def test_a_rank_that_is_killed_costs_at_most_a_step(team: Team, alone: Callable[..., RunFolder]) -> None:
    """The others end by themselves, and the run goes on with fewer ranks, then alone."""
    several = team.start(4, act=sends(signal.SIGKILL), checkpoint_every=None)
    assert several.wait() == [4, 4, 4, -signal.SIGKILL]
    assert len(several.said()) == 1
    assert team.newest_step() == 2
    team.finish(2, work=partial(resume, team.path), act=sends(signal.SIGTERM), step=5)
    assert team.newest_step() == 5
    assert bytes_of(resume(team.path), STEPS) == bytes_of(alone(), STEPS)


@pytest.mark.parametrize(
    "kind", [pytest.param("replicated", marks=pytest.mark.merge), pytest.param("sharded", marks=pytest.mark.full)]
)
def test_a_rank_that_hangs_ends_the_others(kind: str, team: Team) -> None:
    several = team.start(act=sends(signal.SIGSTOP), sharding=kind, VITRAL_RANKS_TIMEOUT="2")
    while not several.said():
        time.sleep(0.05)
    several.signal(1, signal.SIGKILL)
    assert several.wait() == [4, -signal.SIGKILL]
    assert "imed out" in several.said()[0]
    assert team.newest_step() == 2


def fails(trainer: Trainer) -> None:
    raise UsageError("its disk is full")


def flips(trainer: Trainer) -> None:
    """Changes the last bits of some weights."""
    rows = next(iter(trainer.model.parameters())).data
    rows.copy_(rows.view(dtype=torch.int32).bitwise_xor(1).view(dtype=torch.float32))


def spoils(trainer: Trainer) -> None:
    """One rank's rows of a weight are no numbers."""
    ranks.local_rows(next(iter(trainer.model.parameters())).data)[0, 0] = float("nan")


@pytest.mark.merge
@pytest.mark.parametrize(
    ("kind", "act", "codes", "said"),
    [
        ("replicated", fails, [4, 2], "its disk is full"),
        ("replicated", flips, [4, 4], "rank 1 differs"),
        # Before the step is applied: all ranks would have the same weights afterwards.
        ("replicated", lambda trainer: setattr(trainer.batches, "seed", 7), [4, 4], "rank 1 differs"),
        ("sharded", spoils, [3, 3], "step 3"),
    ],
)
def test_a_rank_that_goes_wrong_ends_all(kind: str, act: Act, codes: list[int], said: str, team: Team) -> None:
    """In one line; what went before is saved."""
    assert said in team.end(codes, sharding=kind, act=act)
    assert team.newest_step() == 2
    assert resume(team.path).metrics("end")[-1]["finished"]


@pytest.mark.merge
def test_a_decision_of_rank_0_is_that_of_all(team: Team) -> None:
    def plan(step: int) -> dict[str, Any]:
        return {"steps": 4} if step == 2 else {}

    run = team.finish(work=lambda: train(team.shared(), team.path, planner=plan))
    assert (team.newest_step(), run.metrics("end")[-1]["finished"]) == (4, True)


@pytest.mark.merge
def test_ranks_that_are_started_anew_go_on(team: Team, alone: Callable[..., RunFolder], tmp_path: Path) -> None:
    """By the same launcher; a finished run is left as it is, and a run of another launcher is refused."""
    (tmp_path / "run.toml").write_bytes(tomli_w.dumps(team.shared().plain()).encode())

    def work() -> None:
        plan_run(str(tmp_path / "run.toml"), overrides=[{"training": {"watch": False}}]).train(team.path, silent)

    ours = {"work": work, "TORCHELASTIC_RUN_ID": "ours"}
    assert team.start(act=sends(signal.SIGKILL), **ours).wait() == [4, -signal.SIGKILL]
    for _ in range(2):
        assert bytes_of(team.finish(**ours), STEPS) == bytes_of(alone(), STEPS)
    assert str(team.path) in team.end([2, 4], **ours | {"TORCHELASTIC_RUN_ID": "theirs"})


class TestBadInput:
    """One line, and nothing written."""

    pytestmark = pytest.mark.merge

    def test_batches_that_cannot_be_shared(self, team: Team) -> None:
        line = team.end([2, 4], accumulation=1, batch_size=64)
        assert "training.accumulation = 2" in line
        assert "training.batch_size = 32" in line
        assert not team.path.exists()

    def test_another_configuration(self, team: Team) -> None:
        line = team.end([2, 2], work=lambda: train(team.shared(seed=1 + ranks.rank()), team.path))
        assert "rank 1 " in line
        assert not team.path.exists()
