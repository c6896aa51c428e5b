"""A run with minutes ends within them, whatever happens to the speed of the machine."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import EXAMPLES
from tests.training.conftest import Configured, at, bytes_of, fail
from vitral.runs import RunConfig, enter
from vitral.runs.identity import Decision, decided
from vitral.training import deadline, plans, resume, train
from vitral.training.deadline import Deadline, TimeFrame, TimeLimit

SECONDS = 60.0


class World:
    """A simulated training: time passes only in steps and evaluations."""

    def __init__(self, config: RunConfig, factor: Callable[[float], float], a_step: float, evaluation: float) -> None:
        self.now, self.config, self.factor = 0.0, config, factor
        self.a_step, self.evaluation = a_step, evaluation
        self.pause = self.pauses = 0.0
        self.decisions: list[Decision] = []
        self.spent = lambda: self.now
        sizes = {"train": 10**7, "validation": 3000, "test": 5000}
        self.dataset = SimpleNamespace(
            splits={name: SimpleNamespace(tokens=range(size)) for name, size in sizes.items()}
        )
        self.state = SimpleNamespace(best_step=None, step=0)
        self.clock, self.counting, self.waited = self, None, 0.0

    def stepping(self) -> float:
        return self.now - self.pauses

    def note(self, line: str) -> None:
        pass

    def run(self, planner: Deadline) -> int:
        """Train; the number of steps."""
        step = 0
        while step < self.config.training.steps:
            changes = planner(step)
            if changes:
                self.decisions.append(Decision.parse({**changes, "step": step}, "decision"))
                self.config = decided(self.config, self.decisions[-1])
                assert self.config.training.steps > step
            self.now += self.a_step * self.factor(self.now)
            step += 1
            training = self.config.training
            self.pause = 0.0
            if step % training.evaluate_every == 0 or step == training.steps:
                self.pause = self.evaluation * self.factor(self.now)
                self.now += self.pause
                self.pauses += self.pause
                self.state.best_step = step
        return step


def minute_planner(world: World, after: float = 0.0) -> Deadline:
    """A planner that keeps a run in this world within a minute of its clock."""
    limit = TimeLimit(SECONDS / 60, TimeFrame(0.0, after))
    limit.used = lambda: world.now
    return Deadline(world, limit)  # pyright: ignore[reportArgumentType]


def config_of(steps: int, every: int, **training: Any) -> RunConfig:
    """So many steps of short windows."""
    model = {"context_length": 10, "num_layers": 0}
    return RunConfig.parse({"model": model, "training": {"steps": steps, "evaluate_every": every, **training}}, "x")


@given(
    begins=st.floats(0, 50),
    ends=st.floats(0, 60),
    slower=st.sampled_from([0.2, 0.5, 1.0, 2.0, 5.0, 10.0]),
    planned=st.sampled_from([0.3, 1.0, 3.0]),
)
@settings(max_examples=5 * EXAMPLES)
def test_the_end_comes_in_time(begins: float, ends: float, slower: float, planned: float) -> None:
    """Other programs make steps `slower` between two times; the plan was wrong by a factor from the start."""
    config = config_of(int(55 / (0.1 * planned)), 100)
    world = World(config, lambda now: slower if begins <= now < max(begins, ends) else 1.0, 0.1, 0.5)
    steps = world.run(minute_planner(world, after=2.0))
    assert world.now <= 1.1 * (SECONDS - 2.0), world.decisions
    if slower >= 1 and ends < 25:
        assert steps >= 100
    assert len(world.decisions) < 25


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "time_steps", lambda *given, **how: 0.0001)


def test_a_run_with_minutes_goes_on_with_the_rest_and_is_a_function_of_its_decisions(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock enters only through sealed decisions."""
    quick(monkeypatch)
    monkeypatch.setattr(deadline, "most_passes", lambda model, num_tokens: 10**6)
    config = configured(training={"minutes": 0.04, "threads": 1, "log_every": 1, "plan": "as-written"})
    with pytest.raises(KeyError):
        train(config, tmp_path / "run", callback=at(fail, "decision"))
    sealed = enter(tmp_path / "run", lambda line: None)
    assert sealed.newest is not None
    spent = sealed.newest.history["seconds"]
    assert 0 < spent < 60
    folder = resume(tmp_path / "run")
    finished = enter(folder.path, lambda line: None)
    assert finished.newest is not None
    assert finished.newest.history["seconds"] >= spent
    assert folder.metrics("end")[-1]["finished"]
    decisions = {one.step: one.plain() for one in finished.identity.decisions}
    assert decisions, "24,000 steps do not fit"
    steps = finished.config.training.steps
    assert steps == folder.metrics("end")[-1]["step"]
    for decision in decisions.values():
        del decision["step"]
    again = train(finished.identity.config, tmp_path / "again", planner=decisions.get)
    assert bytes_of(again, steps)["model.safetensors"] == bytes_of(folder, steps)["model.safetensors"]


def test_a_run_whose_start_has_taken_all_its_minutes_trains_something(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    config = configured(training={"minutes": 0.04, "threads": 1})
    folder = train(config, tmp_path / "run", frame=TimeFrame(time.perf_counter() - 99.0))
    measured = folder.metrics("evaluation")[-1]
    assert 1 <= measured["step"] == folder.metrics("end")[-1]["step"] < deadline.LEAST


def test_costly_evaluations_become_fewer() -> None:
    """Five evaluations of 6 s were planned; they take a tenth of the time, and the rest is for steps."""
    world = World(config_of(500, 100, schedule={"warmup_steps": 450}), lambda now: 1.0, 0.1, 6.0)
    assert world.run(minute_planner(world)) >= 400
    assert world.now <= SECONDS
    assert world.pauses <= 3 * 6.0
    assert world.config.training.schedule.warmup_steps < 450


@pytest.mark.parametrize("begin", [0, 10_000])
def test_a_run_whose_validation_loss_rises_ends(begin: int) -> None:
    """With a decay in a tenth of its own steps; those of a parent do not count."""
    config = config_of(begin + 1150, 100, schedule={"name": "linear", "begin": begin or None})
    world = World(config, lambda now: 1.0, 0.05, 0.1)
    world.state.step = begin
    planner, result = minute_planner(world), {}
    for step in range(begin, begin + 401):
        world.state.best_step = None if step < begin + 100 else begin + min(200, step - begin - step % 100)
        result[step] = planner(step)
        world.now += 0.05
    assert {step: dict(changes) for step, changes in result.items() if changes} == {begin + 400: {"steps": begin + 440}}
