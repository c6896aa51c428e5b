"""The deadline of a run that has minutes: its steps are planned again while it is trained.

A step may become slower or faster than it was in the trials, because another program starts or ends. At each share of
the time or of the steps in `PLAN_AT`, and whenever the end would come too late or far too early, the number of steps is
decided again from the measured times. Where steps have become slow, another number of threads is tried, and the steps
are planned after that. The decay of the learning rate follows the number of steps, so the run always ends with its
smallest rate.
"""

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from vitral.core.language import N_
from vitral.runs.config import RunConfig
from vitral.training.plans import EVALUATING, EVALUATIONS, FORWARD, most_steps
from vitral.training.trainer import Trainer

PLAN_AT = (0.10, 0.25, 0.50, 0.75)
"""Shares of the time and of the steps at which the steps are planned again."""
LATE = 0.02
"""Share of the time by which the end may be late before the steps are planned again at once."""
EARLY = 0.10
"""The same for an end that comes early, until the last of `PLAN_AT`."""
SPARE = 0.02
"""Share of the time left that is not planned."""
WORTH_DECIDING = 0.08
"""Minimum increase of the number of steps, as a share; a decision costs a checkpoint."""
WINDOW_STEPS, WINDOW_SHARE = 8, 0.04
"""The time of a step is the mean of this many steps, and of this share of the time, whichever is longer."""
MOST_STRETCH = 1.6
"""The steps between evaluations change where their number would differ by this factor from the planned one."""
COUNTING = 0.4
"""Share of the time, from the first step on, in which no step is judged while n-grams are counted beside it."""
SLOWER = 1.5
"""One thread is tried where steps take this many times the planned time."""
TRY_AGAIN = 0.20
"""Share of the time from one trial of another number of threads to the next, and that must be left for a trial. After
each trial of one thread in vain the next one comes twice as late."""
IN_VAIN, LAST_DECAY = 2, 0.1
"""After so many evaluations without a lower validation loss the run ends, with a decay of this share of its steps."""


@dataclass(frozen=True)
class TimeFrame:
    """The time around training that counts as time of the run.

    Attributes:
        began: `time.perf_counter()` when the user's minutes began.
        after: seconds that the caller needs after training, for example for a report.
    """

    began: float = field(default_factory=time.perf_counter)
    after: float = 0.0


class Deadline:
    """A planner that keeps a run within its minutes; ask it before every step.

    Attributes:
        seconds: the time of the run, in seconds.
    """

    def __init__(self, minutes: float, frame: TimeFrame, spent: float = 0.0) -> None:
        """Measure from the beginning of a time frame.

        Args:
            minutes: time of the run.
            frame: when this session began, and what comes after it.
            spent: seconds of earlier sessions.
        """
        self.seconds = 60 * minutes
        self._frame, self._spent = frame, spent
        self._trainer: Trainer | None = None
        self._window = deque[float]()
        self._seen: tuple[int, float] | None = None
        self._expected: float | None = None
        self._evaluation: float | None = None
        self._progress: tuple[float, ...] = (0.0, 0.0)
        self._began = self._decided_at = 0.0
        self._measured_threads: int | None = None
        self._trial: tuple[int, float] | None = None  # the threads before it, and seconds of a step with them
        self._next_trial, self._gap = 0.0, TRY_AGAIN * self.seconds
        self._counted_from = 0  # the step from which on evaluations in vain count
        self._is_ending = self._is_counting = False

    def begin(self, trainer: Trainer, expected: float | None, *, measured_threads: int | None) -> None:
        """Plan for a trainer.

        Args:
            trainer: it is read, and changed only through the returned changes.
            expected: planned seconds of a step; None if unknown.
            measured_threads: the number of threads that measurement chose; None if it was given, so that it stays.
        """
        self._trainer, self._expected, self._measured_threads = trainer, expected, measured_threads
        self._began = self.used()
        self._progress = (self._began / self.seconds, _share(trainer, trainer.state.step))

    def used(self) -> float:
        """Seconds of the run's time that are over, in all sessions."""
        return self._spent + time.perf_counter() - self._frame.began

    def left(self) -> float:
        """Seconds that are left for training and evaluating."""
        return self.seconds - self.used() - self._frame.after

    def __call__(self, step: int, seconds: float) -> Mapping[str, Any] | None:
        """Changes of the configuration from the next step on, or None.

        Args:
            step: completed steps.
            seconds: seconds of this session's training.
        """
        trainer = self._trainer
        if trainer is None or not self._observe(trainer, step):
            return None
        total = trainer.config.training.steps
        if not self._is_ending and (ended := self._ended_early(trainer, step)):
            self._is_ending = True
            return ended
        to_do = min(self.left(), (total - step) * self.a_step())
        if self.used() - self._decided_at < min(WINDOW_SHARE * self.seconds, to_do / 4):
            return None  # the last decision has not been tried yet
        if other := self._tried_threads(trainer) or self._other_threads(trainer, to_do):
            return other  # the steps are planned with their speed
        progress = (self.used() / self.seconds, _share(trainer, step))
        due = [before < share <= now for share in PLAN_AT for before, now in zip(self._progress, progress, strict=True)]
        if not any(due) and not self._is_off(trainer, step):
            return None
        possible, every = self._possible(trainer, step)
        if total * (1 - LATE) <= possible < total and not self._is_off(trainer, step):
            return None
        if self._is_ending:
            possible = min(possible, total)
        self._progress = (progress[0], _share(trainer, step, possible))
        return self._decided(trainer, step, possible, every)

    def _observe(self, trainer: Trainer, step: int) -> bool:
        """Take the time of the last step and evaluation; return whether enough is known to plan."""
        clock, training = trainer.clock, trainer.config.training
        if self._seen is not None and step == self._seen[0] + 1:
            self._window.append(clock.stepping() - self._seen[1])
            if step % training.evaluate_every == 0:
                self._evaluation = max(0.0, clock.pause - trainer.waited) / self.a_step()
        self._seen = (step, clock.stepping())
        while len(self._window) > WINDOW_STEPS and sum(self._window) - self._window[0] > WINDOW_SHARE * self.seconds:
            self._window.popleft()
        # The counting of n-grams beside the first steps makes them slow for a moment.
        was_counting, self._is_counting = (
            self._is_counting,
            trainer.counting is not None and not trainer.counting.done(),
        )
        if was_counting and not self._is_counting:
            self._window.clear()
        if self._is_counting and self.used() - self._began < COUNTING * self.seconds:
            return False
        return len(self._window) >= WINDOW_STEPS or sum(self._window) > WINDOW_SHARE * self.seconds

    def a_step(self) -> float:
        """Seconds of a step, at present."""
        return sum(self._window) / len(self._window)

    def _an_evaluation(self, trainer: Trainer) -> float:
        """Seconds of an evaluation with its checkpoint: as measured in steps, estimated before the first."""
        if self._evaluation is None:
            most = trainer.config.training.evaluation_tokens
            splits = (len(trainer.dataset.splits[name].tokens) for name in ("validation", "test"))
            scored = sum(size if most is None else min(size, most) for size in splits)
            return (1 + FORWARD * scored / trainer.config.tokens_per_step) * self.a_step()
        return self._evaluation * self.a_step()

    def _evaluations(self, config: RunConfig, step: int) -> int:
        """Evaluations that are left, the last included."""
        return max(1, _count(config.training.evaluate_every, step, config.training.steps))

    def _is_off(self, trainer: Trainer, step: int) -> bool:
        """Whether the run will end too late at the present speed, or, before the last of `PLAN_AT`, far too early."""
        steps = (trainer.config.training.steps - step) * self.a_step()
        late = steps + self._evaluations(trainer.config, step) * self._an_evaluation(trainer) - self.left()
        may_grow = self.used() < PLAN_AT[-1] * self.seconds and not self._is_all(trainer)
        return late > LATE * self.seconds or (may_grow and late < -EARLY * self.seconds)

    def _is_all(self, trainer: Trainer) -> bool:
        """Whether the run has as many steps as its text allows."""
        return trainer.config.training.steps >= most_steps(trainer.config, len(trainer.dataset.splits["train"].tokens))

    def _possible(self, trainer: Trainer, step: int) -> tuple[int, int]:
        """The number of steps in all that the time allows, at least one more, and the steps between evaluations."""
        left, an_evaluation = (1 - SPARE) * self.left(), self._an_evaluation(trainer)
        last = most_steps(trainer.config, len(trainer.dataset.splits["train"].tokens))

        def steps(evaluations: int) -> int:
            more = math.floor((left - evaluations * an_evaluation) / self.a_step())
            return max(step + 1, min(step + more, last))

        affordable = _affordable(left, an_evaluation)
        planned = max(1, math.ceil(EVALUATIONS * left / self.seconds))
        evaluations, every = min(planned, affordable), trainer.config.training.evaluate_every
        written = _count(every, step, steps(evaluations))
        if planned / MOST_STRETCH <= written <= min(planned * MOST_STRETCH, affordable):
            return steps(written), every
        end = steps(evaluations)
        shortest = math.ceil((end - step) / evaluations)
        return end, next(every for every in range(shortest, end + 1) if _count(every, step, end) <= evaluations)

    def _decided(self, trainer: Trainer, step: int, steps: int, every: int) -> Mapping[str, Any] | None:
        """The change to this number of steps; None if it is not worth a checkpoint."""
        training = trainer.config.training
        changes: dict[str, Any] = {}
        written = self._evaluations(trainer.config, step)
        is_costly = written > _affordable(self.left(), self._an_evaluation(trainer))
        if is_costly or not 0 <= steps - training.steps <= WORTH_DECIDING * training.steps:
            begin = training.schedule.begin or 0
            if every != training.evaluate_every:
                changes["evaluate_every"] = every
            aligned = steps - steps % every
            if steps - aligned < min(every // 4, (steps - step) // 8) and aligned > step:
                steps = aligned  # two evaluations right after one another would tell nothing
            changes["steps"] = steps
            warmup = max(step - begin, (steps - begin) // 10)
            if step - begin < training.schedule.warmup_steps and warmup < training.schedule.warmup_steps:
                changes["schedule"] = training.schedule.model_copy(update={"warmup_steps": warmup})
            sentence = N_(
                "plan: {steps:,} steps instead of {planned:,}: a step takes {milliseconds:.0f} ms, and {left:.0f} of "
                "{seconds:.0f} s are left for training"
            )
            times = {"milliseconds": 1000 * self.a_step(), "left": self.left(), "seconds": self.seconds}
            trainer.note(sentence.format(steps=steps, planned=training.steps, **times))
            self._decided_at, self._counted_from = self.used(), step
        return changes or None

    def _other_threads(self, trainer: Trainer, to_do: float) -> Mapping[str, Any] | None:
        """A trial of another number of threads: of one where steps have become slow, or of several again."""
        several, threads = self._measured_threads or 1, trainer.config.training.threads or 1
        if several == 1 or self._is_counting or self._is_ending:
            return None
        if self.used() < self._next_trial or to_do < TRY_AGAIN * self.seconds:
            return None
        times, half = list(self._window), (len(self._window) + 1) // 2
        before, took = fmean(times[:-half] or times), fmean(times[-half:])
        if self._expected is None:
            self._expected = took
        slower = min(before, took) / self._expected  # a short disturbance makes one half slow
        if threads > 1 and slower <= SLOWER:
            return None
        self._trial = (threads, took)
        sentence = (
            N_("plan: 1 thread instead of {threads}: a step takes {times:.1f} times as long")
            if threads > 1
            else N_("plan: {threads} threads again, as a trial")
        )
        trainer.note(sentence.format(threads=several, times=slower))
        return self._with_threads(1 if threads > 1 else several)

    def _tried_threads(self, trainer: Trainer) -> Mapping[str, Any] | None:
        """The former number of threads again, if the trial of another was in vain."""
        if self._trial is None:
            return None
        (before, took), self._trial = self._trial, None
        is_vain = self.a_step() > took
        self._gap *= 2 if is_vain and before > 1 else 1
        self._next_trial = self.used() + self._gap
        if not is_vain:
            return None
        sentence = (
            N_("plan: {threads} threads again: with one a step takes {milliseconds:.0f} ms")
            if before > 1
            else N_("plan: 1 thread again: with {threads} a step takes {milliseconds:.0f} ms")
        )
        trainer.note(sentence.format(threads=self._measured_threads, milliseconds=1000 * self.a_step()))
        return self._with_threads(before)

    def _with_threads(self, threads: int) -> Mapping[str, Any]:
        self._window.clear()
        self._seen = None  # the first step with other threads also starts them
        self._decided_at = self.used()
        return {"threads": threads}

    def _ended_early(self, trainer: Trainer, step: int) -> Mapping[str, Any] | None:
        """The change that ends a run whose validation loss no longer falls; None if it still does."""
        training, best = trainer.config.training, trainer.state.best_step
        if best is None or step % training.evaluate_every:
            return None
        if step - max(best, self._counted_from) < IN_VAIN * training.evaluate_every:
            return None
        if best == training.schedule.begin:
            return None  # a continued run: its rate has risen again, so its loss is above the parent's for a while
        steps = step + max(1, math.ceil(LAST_DECAY * (step - (training.schedule.begin or 0))))
        if steps >= training.steps:
            return None
        sentence = N_("plan: ends after {steps:,} steps, since the validation loss has not fallen since step {best:,}")
        trainer.note(sentence.format(steps=steps, best=best))
        return {"steps": steps}


def _share(trainer: Trainer, step: int, steps: int | None = None) -> float:
    """The share of the run's own steps that are completed; those of a parent do not count."""
    begin = trainer.config.training.schedule.begin or 0
    return (step - begin) / ((trainer.config.training.steps if steps is None else steps) - begin)


def _count(every: int, step: int, steps: int) -> int:
    """Evaluations after `step`, the last included, if there is one every so many steps."""
    return math.ceil(steps / every) - step // every


def _affordable(seconds: float, an_evaluation: float) -> int:
    """Evaluations in a time, the last included; those before it have a small share of the time."""
    return 1 + int(EVALUATING * seconds / an_evaluation) if an_evaluation > 0 else EVALUATIONS
