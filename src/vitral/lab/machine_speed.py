"""The speed of training steps on this machine: all cores against one thread, bfloat16 against float32."""

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from vitral.core.language import N_
from vitral.core.machine import cores
from vitral.core.process import MOST_THREADS, using_threads
from vitral.lab.configuration import DEFAULT_PRESET, configure, presets
from vitral.training.plans import SLOW
from vitral.training.run import build_model
from vitral.training.trials import ExecutionPlan, StepTime, TooSlow, time_steps

FLOAT32, BFLOAT16 = ExecutionPlan("float32", compile=False), ExecutionPlan("bfloat16", compile=False)
ROUNDS, ROUND_SECONDS = 3, 0.25
"""Each choice is timed this often, in turn with the other, for these seconds; the fastest time counts, since other
programs are busy now and then."""


@dataclass(frozen=True)
class ComparedSpeed:
    """The time of a training step with one choice and with another.

    Attributes:
        choice: the choice.
        plain: the other.
        times: time of a step with the choice, as a multiple of that with the other.
        is_least: whether its steps were stopped at this multiple, so that it is at least this.
    """

    choice: str
    plain: str
    times: float
    is_least: bool = False


def compare_speeds() -> list[ComparedSpeed]:
    """Compare training steps of the preset `fast` on the CPU; bfloat16 with the faster number of threads."""
    most, compared = min(cores(), MOST_THREADS), []
    threads = 1
    if most > 1:
        compared.append(
            compare(N_("{n} threads").format(n=most), StepTimes(most, FLOAT32), N_("1 thread"), StepTimes(1, FLOAT32))
        )
        threads = most if compared[0].times < 1 else 1
    return [*compared, compare("bfloat16", StepTimes(threads, BFLOAT16), "float32", StepTimes(threads, FLOAT32))]


class Timed(Protocol):
    """Steps that can be timed."""

    best: float

    def measure(self, limit: float = ...) -> StepTime:
        """Time some steps; see `StepTimes.measure`."""
        ...


@dataclass
class StepTimes:
    """Seconds of training steps by one plan; `best` is the least of several measurements."""

    threads: int
    plan: ExecutionPlan
    best: float = float("inf")

    def measure(self, limit: float = float("inf")) -> StepTime:
        """Time some steps.

        Raises:
            TooSlow: the first took longer than the limit.
        """
        config = configure(DEFAULT_PRESET, overrides=[{"training": {"device": "cpu"}}])
        build = partial(build_model, vocab_size=presets()[DEFAULT_PRESET].vocabulary)
        given = {"least": ROUND_SECONDS, "most": ROUND_SECONDS, "trials": 2}
        with using_threads(self.threads):
            found = time_steps(config, build, self.plan, limit=limit, **given)
        self.best = min(self.best, found.steady)
        return found


def compare(choice: str, chosen: Timed, plain: str, other: Timed) -> ComparedSpeed:
    """Time both in turn; in a round where the first step of the choice is slow, the choice is stopped."""
    for _ in range(ROUNDS):
        limit = SLOW * other.measure().first
        with contextlib.suppress(TooSlow):
            chosen.measure(limit)
    if chosen.best == float("inf"):
        return ComparedSpeed(choice, plain, SLOW, is_least=True)
    return ComparedSpeed(choice, plain, chosen.best / other.best)
