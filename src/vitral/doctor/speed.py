"""The speed of training steps on this machine: all cores against one thread, bfloat16 against float32."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from vitral.core.language import N_
from vitral.core.machine import cores
from vitral.core.process import MOST_THREADS, using_threads
from vitral.doctor.health import HealthCheck
from vitral.training.configuration import DEFAULT_PRESET, configure, presets
from vitral.training.plans import SLOW
from vitral.training.run import build_model
from vitral.training.trials import ExecutionPlan, StepTime, TooSlow, time_steps

ROUNDS, ROUND_SECONDS = 3, 0.25
"""Each choice is timed this often, in turn with the other, for these seconds; the fastest time counts, since other
programs are busy now and then."""
DIFFERENCE = 0.05
"""A choice that changes the time of a training step by less than this share makes no difference."""

Timer = Callable[[float], StepTime]
"""Times some steps; raises TooSlow if the first takes longer than a limit in seconds."""


def examine_speed() -> Iterator[HealthCheck]:
    """Compare training steps of the preset `fast` on the CPU; bfloat16 with the faster number of threads."""
    most = threads = min(cores(), MOST_THREADS)
    if most > 1:
        times = times_as_long(step_timer(most, "float32"), step_timer(1, "float32"))
        threads = most if times < 1 else 1
        yield judge_speed(N_("{n} threads").format(n=most), times, N_("1 thread"))
    times = times_as_long(step_timer(threads, "bfloat16"), step_timer(threads, "float32"))
    yield judge_speed("bfloat16", times, "float32")


def step_timer(threads: int, dtype: str) -> Timer:
    """The timer of steps with these threads in this precision."""
    config = configure(DEFAULT_PRESET, overrides=[{"training": {"device": "cpu"}}])
    build = partial(build_model, vocab_size=presets()[DEFAULT_PRESET].vocabulary)
    given = {"least": ROUND_SECONDS, "most": ROUND_SECONDS, "trials": 2}

    def timed(limit: float) -> StepTime:
        with using_threads(threads):
            return time_steps(config, build, ExecutionPlan(dtype, compile=False), limit=limit, **given)

    return timed


def times_as_long(chosen: Timer, other: Timer) -> float:
    """The fastest step of a choice as a multiple of the other's; infinite if its first step was slow in every round."""
    best = least = math.inf
    for _ in range(ROUNDS):
        beside = other(math.inf)
        least = min(least, beside.steady)
        with suppress(TooSlow):
            best = min(best, chosen(SLOW * beside.first).steady)
    return best / least


def judge_speed(choice: str, times: float, plain: str) -> HealthCheck:
    """Whether a choice makes training faster than the plain one."""
    if times == math.inf:
        times = SLOW
        found = N_("a training step takes at least {times:.2f} times as long as with {plain}: slower here, use {plain}")
    elif times >= 1 + DIFFERENCE:
        found = N_("a training step takes {times:.2f} times as long as with {plain}: slower here, use {plain}")
    elif times > 1 - DIFFERENCE:
        found = N_("a training step takes {times:.2f} times as long as with {plain}: no difference here")
    else:
        found = N_("a training step takes {times:.2f} times as long as with {plain}: faster here")
    mark = "slower" if times >= 1 + DIFFERENCE else "same" if times > 1 - DIFFERENCE else "ok"
    return HealthCheck(mark, choice, found.format(times=times, plain=plain))
