"""A run with minutes ends within them, whatever happens to the speed of the machine."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vitral.model import Transformer, cost
from vitral.runs import RunConfig, enter
from vitral.runs.identity import Decision, decided
from vitral.training import Event, deadline, plans, resume, train
from vitral.training.deadline import Deadline, TimeFrame
from vitral.training.sizes import LADDER
from vitral.training.trials import ExecutionPlan, StepTime, TooSlow

Configured = Callable[..., RunConfig]
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
            changes = planner(step, self.now)
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


@given(
    begins=st.floats(0, 50),
    ends=st.floats(0, 60),
    slower=st.sampled_from([0.2, 0.5, 1.0, 2.0, 5.0, 10.0]),
    planned=st.sampled_from([0.3, 1.0, 3.0]),
)
@settings(max_examples=200, deadline=None)
def test_the_end_comes_in_time(begins: float, ends: float, slower: float, planned: float) -> None:
    """Other programs make steps `slower` between two times; the plan was wrong by a factor from the start."""
    config = RunConfig.parse(
        {"model": {"context_length": 10}, "training": {"steps": int(55 / (0.1 * planned)), "evaluate_every": 100}}, "x"
    )
    world = World(config, lambda now: slower if begins <= now < max(begins, ends) else 1.0, 0.1, 0.5)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deadline, "time", SimpleNamespace(perf_counter=lambda: world.now))
        planner = Deadline(SECONDS / 60, TimeFrame(0.0, after=2.0))
        planner.begin(world, 0.1 * planned, measured_threads=None)  # pyright: ignore[reportArgumentType]
        steps = world.run(planner)
    assert world.now <= 1.1 * (SECONDS - 2.0), world.decisions
    if slower >= 1 and ends < 25:
        assert steps >= 100
    assert len(world.decisions) < 25


@given(
    begins=st.floats(0, 35),
    lasts=st.floats(0, 20),
    slower=st.sampled_from([1.7, 3.0, 8.0]),
    one_thread=st.sampled_from([0.5, 0.9, 1.1, 2.0, 4.0]),
    idle_thread=st.sampled_from([1.2, 1.4, 1.8, 4.0]),
)
@example(begins=20.586, lasts=15.0, slower=8.0, one_thread=1.1, idle_thread=4.0)
@example(begins=4.659, lasts=19.449, slower=1.7, one_thread=0.5, idle_thread=1.4)
@settings(max_examples=50, deadline=None)
def test_a_disturbance_takes_no_time_beyond_itself(
    begins: float, lasts: float, slower: float, one_thread: float, idle_thread: float
) -> None:
    """Other programs slow two threads down for a while, and one thread more or less than that.

    The planner may try one thread. Then steps take the planned time again, and longer with one thread.
    """
    ends = begins + lasts
    training = {"steps": 550, "evaluate_every": 110, "threads": 2}
    config = RunConfig.parse({"model": {"context_length": 10}, "training": training}, "x")

    def factor(now: float) -> float:
        is_one = world.config.training.threads == 1
        if begins <= now < ends:
            return slower * one_thread if is_one else slower
        return idle_thread if is_one else 1.0

    world = World(config, factor, 0.1, 0.3)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deadline, "time", SimpleNamespace(perf_counter=lambda: world.now))
        planner = Deadline(SECONDS / 60, TimeFrame(0.0))
        planner.begin(world, 0.1, measured_threads=2)  # pyright: ignore[reportArgumentType]
        world.run(planner)
    changes = [decision for decision in world.decisions if decision.threads is not None]
    assert [decision.threads for decision in changes] == [1, 2, 1, 2, 1, 2, 1, 2][: len(changes)]
    assert all(decision.steps is None for decision in changes), "the steps are planned after a trial"
    assert world.now <= 1.05 * SECONDS, world.decisions
    if ends < 36:
        assert world.now >= 0.85 * SECONDS, world.decisions
    if ends < 25:
        assert world.config.training.threads == 2, world.decisions
    assert len(world.decisions) < 25


def minute_planner(world: World, monkeypatch: pytest.MonkeyPatch, measured_threads: int | None) -> Deadline:
    """A planner that keeps a run in this world within a minute."""
    monkeypatch.setattr(deadline, "time", SimpleNamespace(perf_counter=lambda: world.now))
    planner = Deadline(SECONDS / 60, TimeFrame(0.0))
    expected = None if world.state.step else world.a_step
    planner.begin(world, expected, measured_threads=measured_threads)  # pyright: ignore[reportArgumentType]
    return planner


@pytest.mark.parametrize(("measured", "slower", "threads"), [(2, 0.5, [2]), (2, 1.4, [2, 1]), (None, 0.5, [])])
def test_a_run_that_was_stopped_on_one_thread_tries_several_again(
    measured: int | None, slower: float, threads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig.parse({"training": {"steps": 580, "evaluate_every": 116, "threads": 1}}, "x")
    world = World(config, lambda now: 1.0 if world.config.training.threads == 1 else slower, 0.1, 0.1)
    world.state.step = 7
    world.run(minute_planner(world, monkeypatch, measured))
    found = [decision.threads for decision in world.decisions if decision.threads is not None]
    assert found[:2] == threads
    assert len(found) <= 4 * len(threads), "a fifth of the time lies between two trials"


def test_a_short_disturbance_changes_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig.parse({"training": {"steps": 580, "evaluate_every": 116, "threads": 2}}, "x")
    world = World(config, lambda now: 5.0 if 20 <= now < 21.2 else 1.0, 0.1, 0.1)
    world.run(minute_planner(world, monkeypatch, 2))
    assert all(decision.threads is None for decision in world.decisions)
    assert world.now >= 0.85 * SECONDS


def test_evaluations_in_vain_are_counted_anew_after_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best was at step 100. The plan changes near step 280, so step 300 is not the second evaluation in vain."""
    config = RunConfig.parse({"training": {"steps": 580, "evaluate_every": 100, "threads": 1}}, "x")
    world = World(config, lambda now: 1.0 if now < 27 else 1.5, 0.1, 0.0)
    planner = minute_planner(world, monkeypatch, None)
    last = 0
    for step in range(1, 400):
        world.now += world.a_step * world.factor(world.now)
        world.state.best_step = min(100, step - step % 100) or None
        changes = planner(step, world.now)
        if changes:
            world.config = decided(world.config, Decision.parse({**changes, "step": step}, "decision"))
            every = world.config.training.evaluate_every
            is_end = changes.keys() == {"steps"} and step % every == 0 and changes["steps"] <= 1.1 * step + 1
            if is_end:
                assert step - last >= 2 * every
                return
            last = step
    assert 200 < last < 300


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "time_steps", lambda *given, **how: StepTime(0.0001, 0.0001))


def test_a_run_with_minutes_is_sealed_and_goes_on_with_the_rest(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    monkeypatch.setattr(plans, "most_passes", lambda model, num_tokens: 10**6)
    said: list[Event] = []

    def stop(event: Event) -> None:
        said.append(event)
        if event["event"] == "decision":
            raise KeyError("stop")

    config = configured(training={"minutes": 0.1, "threads": 1, "log_every": 1, "plan": "as-written"})
    with pytest.raises(KeyError):
        train(config, tmp_path / "run", callback=stop)
    sealed = enter(tmp_path / "run", lambda line: None)
    assert sealed.newest is not None
    spent = sealed.newest.history["seconds"]
    assert 0 < spent < 60
    folder = resume(tmp_path / "run")
    finished = enter(folder.path, lambda line: None)
    assert finished.newest is not None
    assert finished.newest.history["seconds"] >= spent
    assert folder.metrics("end")[-1]["finished"]
    decisions = finished.identity.decisions
    assert decisions, "60,000 steps do not fit"
    assert finished.config.training.steps == folder.metrics("end")[-1]["step"]


def stop_at_the_first_step(event: Event) -> None:
    if event["event"] != "note":
        raise KeyError("stop")


@pytest.mark.parametrize(("changes", "measured"), [({"threads": 1}, 2), ({"steps": 70}, None)])
def test_a_resumed_run_may_change_its_threads_if_it_did_before(
    changes: dict[str, int],
    measured: int | None,
    configured: Configured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick(monkeypatch)
    begun: list[int | None] = []

    def begin(self: Deadline, trainer: Any, expected: float | None, *, measured_threads: int | None) -> None:
        begun.append(measured_threads)

    def stop(event: Event) -> None:
        if event["event"] == "decision":
            raise KeyError("stop")

    monkeypatch.setattr(Deadline, "begin", begin)
    config = configured(training={"minutes": 0.1, "threads": 2})
    with pytest.raises(KeyError):
        train(config, tmp_path / "run", callback=stop, planner=lambda step, seconds: changes if step == 3 else None)
    sealed = enter(tmp_path / "run", lambda line: None)
    assert len(sealed.identity.decisions) == 1
    with pytest.raises(KeyError):
        resume(tmp_path / "run", callback=stop_at_the_first_step)
    assert begun == [measured]


def test_a_straight_run_with_the_same_decisions_is_equal(
    configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock enters only through sealed decisions."""
    quick(monkeypatch)
    monkeypatch.setattr(plans, "most_passes", lambda model, num_tokens: 10**6)
    kept = train(configured(training={"minutes": 0.05, "threads": 1}), tmp_path / "kept")
    sealed = enter(kept.path, lambda line: None)
    taken: dict[int, dict[str, Any]] = {
        decision.step: {key: value for key, value in decision.plain().items() if key != "step"}
        for decision in sealed.identity.decisions
    }
    again = train(sealed.identity.config, tmp_path / "again", planner=lambda step, seconds: taken.get(step))
    one, other = (
        (folder.path / "steps" / f"step-{folder.metrics('end')[-1]['step']:08d}" / "model.safetensors").read_bytes()
        for folder in (kept, again)
    )
    assert one == other


def test_a_run_whose_validation_loss_rises_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunConfig.parse({"training": {"steps": 1150, "evaluate_every": 100}}, "x")
    world = World(config, lambda now: 1.0, 0.05, 0.1)
    monkeypatch.setattr(deadline, "time", SimpleNamespace(perf_counter=lambda: world.now))
    monkeypatch.setattr(deadline, "PLAN_AT", (2.0,))
    planner = Deadline(1.0, TimeFrame(0.0))
    planner.begin(world, 0.05, measured_threads=None)  # pyright: ignore[reportArgumentType]
    best = {100: 100, 200: 200, 300: 200, 400: 200}
    found = {}
    for step in range(1, 401):
        world.now += 0.05
        world.state.best_step = best.get(step - step % 100)
        found[step] = planner(step, world.now)
    assert {step: dict(changes) for step, changes in found.items() if changes} == {400: {"steps": 440}}


def test_the_wait_for_the_counting_of_n_grams_is_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first evaluation waits 20 s for them, once; the plan does not expect that of the others."""
    config = RunConfig.parse({"training": {"steps": 500, "evaluate_every": 100}}, "x")
    world = World(config, lambda now: 1.0, 0.1, 0.5)
    monkeypatch.setattr(deadline, "time", SimpleNamespace(perf_counter=lambda: world.now))
    planner = Deadline(1.0, TimeFrame(0.0))
    planner.begin(world, 0.1, measured_threads=None)  # pyright: ignore[reportArgumentType]
    for step in range(101):
        planner(step, world.now)
        world.now += 0.1
    world.pause, world.waited, world.pauses = 20.5, 20.0, 20.5
    world.now += 20.5
    changes = planner(101, world.now)
    assert changes is not None
    assert 300 < changes["steps"] < 400  # 29 s are left: 290 steps, or less for evaluations


def test_costly_evaluations_become_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five evaluations of 6 s were planned; they take a tenth of the time, and the rest is for steps."""
    config = RunConfig.parse({"training": {"steps": 500, "evaluate_every": 100}}, "x")
    world = World(config, lambda now: 1.0, 0.1, 6.0)
    monkeypatch.setattr(deadline, "time", SimpleNamespace(perf_counter=lambda: world.now))
    planner = Deadline(1.0, TimeFrame(0.0))
    planner.begin(world, 0.1, measured_threads=None)  # pyright: ignore[reportArgumentType]
    steps = world.run(planner)
    assert world.now <= SECONDS
    assert steps >= 400
    assert world.pauses <= 3 * 6.0


@pytest.mark.parametrize(("slower", "until"), [(10.0, 12.0), (40.0, 20.0)])
def test_steps_beside_the_counting_of_n_grams_decide_nothing_later(
    monkeypatch: pytest.MonkeyPatch, slower: float, until: float
) -> None:
    """A step takes many times as long until the counting is done; then it takes the planned time, with all threads."""
    config = RunConfig.parse({"training": {"steps": 550, "evaluate_every": 110, "threads": 2}}, "x")
    world = World(config, lambda now: slower if now < until else 1.0, 0.1, 0.5)
    world.counting = SimpleNamespace(done=lambda: world.now >= until)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(deadline, "time", SimpleNamespace(perf_counter=lambda: world.now))
    planner = Deadline(1.0, TimeFrame(0.0))
    planner.begin(world, 0.1, measured_threads=2)  # pyright: ignore[reportArgumentType]
    steps = world.run(planner)
    assert world.now <= SECONDS
    assert steps >= 0.8 * (SECONDS - until) / 0.1
    assert world.config.training.threads == 2


def test_trials_of_several_threads_are_stopped(configured: Configured, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a step with two threads may take fifty times as long as with one."""
    asked: list[float] = []

    def answer(config: RunConfig, build: Any, plan: Any, **how: Any) -> StepTime:
        took = 1.0 if torch.get_num_threads() == 1 else 50.0
        asked.append(min(took, how.get("limit", took)))
        if took > asked[-1]:
            raise TooSlow(asked[-1])
        return StepTime(took, took)

    for name in plans.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(plans, "cores", lambda: 2)
    monkeypatch.setattr(plans, "time_steps", answer)
    found = plans.resolve_plan(configured(), lambda config: Transformer(config.model, 7), 10**6)
    assert found.config.training.threads == 1
    assert sum(asked) <= 1 + plans.ATTEMPTS * plans.SLOW


def test_the_precision_is_chosen_at_the_size_that_is_trained(
    configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 costs the smallest size more than it saves, and makes a larger one affordable."""
    smallest = cost(LADDER[0].of(configured()).model, 1).forward_flops

    def answer(config: RunConfig, build: Any, plan: ExecutionPlan, **how: Any) -> StepTime:
        times = cost(config.model, 1).forward_flops / smallest
        took = 0.02 * times if plan.dtype == "float32" else 0.021 + 0.002 * (times - 1)
        if is_slow and plan.dtype != "float32":
            raise TooSlow(took)
        return StepTime(took, took)

    monkeypatch.setattr(plans, "time_steps", answer)
    found: dict[bool, RunConfig] = {}
    for is_slow in (False, True):
        asked = configured(training={"plan": "fit", "minutes": 10.0, "threads": 1})
        plan = plans.resolve_plan(asked, lambda config: Transformer(config.model, 7), 10**9)
        found[is_slow] = plan.config
        assert sum("not compiled" in note for note in plan.notes) == 1
    assert [found[is_slow].training.dtype for is_slow in (False, True)] == ["bfloat16", "float32"]
    assert LADDER[-1].of(found[False]).model == found[False].model
    assert found[True].model.d_model < found[False].model.d_model


def test_a_continued_run_counts_its_own_steps() -> None:
    """Ended early, it decays in a tenth of its own steps; the parent's do not count."""
    config = RunConfig.parse(
        {"training": {"steps": 11_150, "evaluate_every": 100, "schedule": {"name": "linear", "begin": 10_000}}}, "x"
    )
    world = World(config, lambda now: 1.0, 0.05, 0.1)
    world.state = SimpleNamespace(best_step=10_100, step=10_000)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deadline, "time", SimpleNamespace(perf_counter=lambda: world.now))
        patched.setattr(deadline, "PLAN_AT", (2.0,))
        planner = Deadline(1.0, TimeFrame(0.0))
        planner.begin(world, 0.05, measured_threads=None)  # pyright: ignore[reportArgumentType]
        found = {}
        for step in range(10_000, 10_301):
            found[step] = planner(step, world.now)
            world.now += 0.05
    assert found[10_300] == {"steps": 10_330}
