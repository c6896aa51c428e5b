"""Each measured choice is made once and written into the run: threads, precision, compilation, and steps for a time."""

from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.conftest import Bench, Configured, Plan, build
from vitral.core.errors import UsageError
from vitral.model import Transformer, cost
from vitral.training import RunConfig, plans
from vitral.training.plans import LADDER, resolve_plan, time_steps

FLOAT, BRAIN = ("float32", False), ("bfloat16", False)
NO_COMPILER = "plan: cannot compile here (RuntimeError); continuing without it"
TEN_MINUTES: dict[str, Any] = {"minutes": 10, "plan": "fit", "threads": 1}


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cores whose environment asks for no number of threads."""
    for name in plans.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(plans, "cores", lambda: 2)


def test_threads_of_the_environment_are_taken_unmeasured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    result = bench.plan()
    assert result.config.training == bench.configured(training={"threads": 7}).training
    assert (result.notes, bench.asked) == ((), [])


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize(("one", "two", "chosen"), [(2.0, 1.0, 2), (1.0, 2.0, 1), (1.0, 1.0, 1)])
def test_the_faster_number_of_threads_is_chosen_and_written(one: float, two: float, chosen: int, bench: Bench) -> None:
    bench.threads({1: one, 2: two})
    before = torch.get_num_threads()
    result = bench.plan()
    assert result.config.training == bench.configured(training={"threads": chosen}).training
    assert {(threads, plan) for threads, plan, _ in bench.asked} == {(1, FLOAT), (2, FLOAT)}
    assert (len(result.notes), result.decisions) == (1, ())
    assert torch.get_num_threads() == before
    assert resolve_plan(result.config, build, 10**6).config == result.config


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("minutes", [0.1, 100])
def test_trials_get_a_twentieth_of_a_time_limit(minutes: float, bench: Bench) -> None:
    bench.threads({1: 0.01, 2: 0.01})
    bench.plan(minutes=minutes, plan="auto")
    assert sum(seconds for _, _, seconds in bench.asked) <= 0.05 * 60 * minutes


@pytest.mark.parametrize(("bfloat16", "chosen"), [(0.5, "bfloat16"), (1.25, "float32"), (7.0, "float32")])
def test_the_faster_precision_is_chosen_and_written(bfloat16: float, chosen: str, bench: Bench) -> None:
    bench.plans({FLOAT: 1.0, BRAIN: bfloat16})
    result = bench.plan(plan="auto", dtype="bfloat16", steps=20)
    assert (result.config.training.dtype, result.config.training.compile) == (chosen, False)
    assert result.config.training.plan == "as-written"
    assert list(dict.fromkeys(plan for _, plan, _ in bench.asked)) == [FLOAT, BRAIN]
    assert len(result.notes) == 1


@pytest.mark.parametrize(("seconds", "rows", "length"), [(0.0, 1, 5), (99.0, 3, 11)])
def test_a_step_is_estimated_from_a_part_of_it(
    seconds: float, rows: int, length: int, configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that counts its calls, the passes of any batch take one second, and the optimizer one."""
    monkeypatch.setattr(plans, "time", SimpleNamespace(perf_counter=partial(next, count(0.0))))
    monkeypatch.setattr(plans, "SMALL", 0.0)
    monkeypatch.setattr(plans, "FEWEST", 7)
    shapes: list[tuple[int, ...]] = []

    def watched(config: RunConfig) -> Transformer:
        model = build(config)
        model.register_forward_pre_hook(lambda module, given: shapes.append(tuple(given[0].shape)))
        return model

    config = configured()
    result = time_steps(config, watched, seconds)
    work = {n: n * cost(config.model.model_copy(update={"context_length": n}), 7).forward_flops for n in (5, 11)}
    passes = config.training.accumulation * 3 * work[11] / (rows * work[length])
    assert (set(shapes[:2]), set(shapes[2:])) == ({(1, 5)}, {(rows, length)})
    assert result == pytest.approx(passes + 1.0)


def test_a_long_run_tries_the_compiler_and_goes_on_without_it(bench: Bench) -> None:
    long = {"plan": "auto", "steps": 2000}
    seconds: dict[Plan, float | None] = {FLOAT: 2.0, BRAIN: 1.0, ("bfloat16", True): 0.5}
    bench.plans(seconds)
    assert bench.plan(**long).config.training.compile
    bench.plans({**seconds, ("bfloat16", True): None})
    result = bench.plan(**long)
    assert not result.config.training.compile
    assert result.notes[0] == NO_COMPILER


def test_minutes_become_steps(bench: Bench) -> None:
    bench.plans({FLOAT: 0.25})
    schedule = {"name": "linear", "warmup_steps": 100}
    result = bench.plan(minutes=2, schedule=schedule, evaluate_every=500).config.training
    assert (result.steps, result.evaluate_every, result.minutes, result.schedule.warmup_steps) == (480, 96, None, 48)
    with pytest.raises(UsageError, match=r"training\.minutes: 0\.01 .*; allow more time"):
        bench.plan(minutes=0.01)


@pytest.mark.parametrize(("dropout", "steps"), [(0.0, 40), (0.1, 80)])
def test_a_short_text_is_not_learned_by_heart(dropout: float, steps: int, bench: Bench) -> None:
    """Steps of 2 · 5 tokens: 4 times 100 tokens are 40 steps, however much time there is; twice that with dropout."""
    bench.plans({FLOAT: 0.25})
    config = bench.configured(
        training={"minutes": 2, "batch_size": 2, "accumulation": 1, "evaluate_every": 500},
        model={"context_length": 5, "dropout": dropout},
    )
    result = resolve_plan(config, build, 100)
    assert (result.config.training.steps, result.config.training.evaluate_every) == (steps, steps // 5)


@pytest.mark.parametrize(
    ("flops_a_second", "num_tokens", "width"), [(3e7, 10**9, 64), (1e13, 10**9, 256), (1e13, 10**6, 192)]
)
def test_the_size_fits_the_speed_and_the_text(flops_a_second: float, num_tokens: int, width: int, bench: Bench) -> None:
    """A step takes its floating-point operations divided by the speed of the processor."""
    bench.takes(lambda config, _: 3 * cost(config.model, 7).forward_flops * config.tokens_per_step / flops_a_second)
    plan = bench.plan(num_tokens, **TEN_MINUTES)
    result = plan.config
    assert (len(plan.decisions), result.model.d_model, result.training.plan) == (1, width, "as-written")
    assert result.training.steps >= next(size.least_steps for size in LADDER if size.model["d_model"] == width) * 0.9


@pytest.mark.parametrize("fitted", ["plan", "regularisation"])
def test_what_fits_a_time_needs_one(fitted: str, bench: Bench) -> None:
    with pytest.raises(UsageError, match=r"training\.minutes"):
        bench.plan(10**6, **{fitted: "fit"})
