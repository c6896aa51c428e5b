"""A run with minutes: how many steps fit, decided before the first step and again while it is trained.

The rules, in full. A run makes as many steps as fit into its time, at most those after which it would only memorize
its text. There are at most five evaluations, evenly spaced; those before the last have at most a tenth of the time.
Before the first step a step's time is that of the trials (`vitral.training.plans`). Then it is the mean of the latest
steps, since other programs start and end: where the run would end too late by 2 % of its time, or, in its first three
quarters, too early by 10 %, its steps are decided again. The decay of the learning rate follows the number of steps, so
the run always ends with its smallest rate. A run whose validation loss has not fallen in two evaluations ends, with a
last decay.
"""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.runs.config import RunConfig
from vitral.training.regularisation import most_passes
from vitral.training.trainer import Trainer

EVALUATIONS, EVALUATING = 5, 0.1
"""Maximum number of evaluations, and maximum share of the time for those before the last."""
AN_EVALUATION, LEAST_EVALUATED = 0.02, 1 << 14
"""Maximum share of the time for one evaluation, and the minimum number of tokens of a split that it scores."""
LEAST = 10
"""Steps that a run plans, however little of its time the start of the program has left."""
FORWARD = 1 / 3
"""Time of a forward pass as a share of a training step."""
LATE, EARLY, GROWING = 0.02, 0.10, 0.75
"""Shares of the time by which the end may be late, or early, and in which steps are added."""
SPARE = 0.02
"""Share of the time left that is not planned."""
WINDOW, LEAST_STEPS = 0.04, 3
"""A step's time is the mean of the steps in this latest share of the time, and of at least so many."""
COUNTING = 0.4
"""Share of the time, from the first step on, in which no step is judged while n-grams are counted beside it."""
IN_VAIN, LAST_DECAY = 2, 0.1
"""After so many evaluations without a lower validation loss the run ends, with a decay of this share of its steps."""
FEWER_STEPS = N_(
    "Only {steps:,} of the {planned:,} planned steps fit into the time: a step took {milliseconds:.0f} ms, and "
    "{left:.0f} of {seconds:.0f} s were left for training. A busy machine is slower: close other programs, or give "
    "more minutes."
)
FEWER = 0.75
"""Share of the planned steps below which a note says so."""


@dataclass(frozen=True)
class TimeFrame:
    """The time around training that counts as time of the run.

    Attributes:
        began: `time.perf_counter()` when the user's minutes began.
        after: seconds that the caller needs after training, for example for a report.
    """

    began: float = field(default_factory=time.perf_counter)
    after: float = 0.0


def steps_in(
    config: RunConfig, seconds: float, allowed: float, num_tokens: int, held_out: Sequence[int], notes: list[str]
) -> dict[str, Any]:
    """The keys of `[training]` that follow from a time: steps, evaluations, and a warm-up of at most a tenth of them.

    Args:
        config: configuration of the run.
        seconds: seconds of a step.
        allowed: seconds for training and evaluations.
        num_tokens: tokens of the training split.
        held_out: tokens of the splits that an evaluation scores.
        notes: receives a line for each decision.

    Raises:
        UsageError: all the minutes would allow only a handful of steps.
    """
    training = config.training
    minutes, a_token = training.minutes or 0.0, FORWARD * seconds / config.tokens_per_step
    affordable = int(AN_EVALUATION * 60 * minutes / (a_token * max(1, len(held_out))))
    most = training.evaluation_tokens or max(held_out, default=0)
    scored = min(most, max(LEAST_EVALUATED, affordable))
    evaluations, steps = _fitting(allowed, seconds, a_token * sum(min(tokens, scored) for tokens in held_out))
    if 60 * minutes < LEAST * seconds:
        raise UsageError(
            "training.minutes: {minutes:g} are too few for {least} steps of {seconds:.2f} s; allow more time, or use a "
            "smaller model, batch or context",
            minutes=minutes,
            least=LEAST,
            seconds=seconds,
        )
    steps = min(max(LEAST, steps), most_steps(config, num_tokens))  # a busy machine may load the program for longer
    sentence = N_(
        "plan: layers {layers}, width {width}, dropout {rate:g}: {steps:,} steps of {milliseconds:.1f} ms in {time}, "
        "{passes:.1f} passes over the text"
    )
    notes.append(
        sentence.format(
            layers=config.model.num_layers,
            width=config.model.d_model,
            rate=max(config.model.dropout.plain().values()),
            steps=steps,
            milliseconds=1000 * seconds,
            time=in_minutes(minutes),
            passes=steps * config.tokens_per_step / num_tokens,
        )
    )
    warmup = min(training.schedule.warmup_steps, steps // 10)
    return {
        "minutes": None,
        "steps": steps,
        "evaluate_every": math.ceil(steps / evaluations),
        "log_every": min(training.log_every, max(1, steps // 50)),
        "schedule": training.schedule.model_copy(update={"warmup_steps": warmup}),
        **({"evaluation_tokens": scored} if scored < max(held_out, default=0) else {}),
    }


def in_minutes(minutes: float) -> str:
    """A time in English words, for stored notes.

    >>> in_minutes(1.0), in_minutes(2.5)
    ('1 minute', '2.5 minutes')
    """
    return N_("1 minute") if minutes == 1 else N_("{minutes:g} minutes").format(minutes=minutes)


def most_steps(config: RunConfig, num_tokens: int) -> int:
    """The number of steps after which more would only memorize the text; those of a parent do not count."""
    passes = most_passes(config.model, num_tokens)
    enough = max(LEAST, math.ceil(passes * num_tokens / config.tokens_per_step))
    return (config.training.schedule.begin or 0) + enough


def _fitting(seconds: float, a_step: float, an_evaluation: float, most: int = EVALUATIONS) -> tuple[int, int]:
    """Evaluations and steps in a time."""
    if an_evaluation > 0:
        most = min(most, 1 + int(EVALUATING * seconds / an_evaluation))
    return most, math.floor((seconds - most * an_evaluation) / a_step)


@dataclass
class TimeLimit:
    """The minutes of a run, in all its sessions.

    Attributes:
        minutes: all of them.
        frame: when this session began, and what comes after it.
        spent: seconds of earlier sessions.
    """

    minutes: float
    frame: TimeFrame
    spent: float = 0.0

    def used(self) -> float:
        """Seconds of the run's time that are over, in all sessions."""
        return self.spent + time.perf_counter() - self.frame.began

    def left(self) -> float:
        """Seconds that are left for training and evaluating; 0 where they are over."""
        return max(0.0, 60 * self.minutes - self.used() - self.frame.after)


class Deadline:
    """A planner that keeps a run within its minutes; ask it before every step."""

    def __init__(self, trainer: Trainer, limit: TimeLimit) -> None:
        """Plan for a trainer, which is changed only through the returned changes."""
        self._trainer, self._limit, self._seconds = trainer, limit, 60 * limit.minutes
        self._times = deque[float]()
        self._seen: tuple[int, float] | None = None
        self._began = limit.used()
        self._decided = 0  # the step of the last decision
        self._is_ending = self._is_counting = False
        most = trainer.config.training.evaluation_tokens
        splits = (len(trainer.dataset.splits[name].tokens) for name in ("validation", "test"))
        scored = sum(size if most is None else min(size, most) for size in splits)
        # An evaluation takes as long as so many steps.
        self._evaluation = 1 + FORWARD * scored / trainer.config.tokens_per_step

    def __call__(self, step: int) -> Mapping[str, Any] | None:
        """Changes of the configuration from the next step on, or None.

        Args:
            step: completed steps.
        """
        self._observe(step)
        changes = self._last_steps(step) or self._other_steps(step)
        if changes:
            self._decided = step
            self._times.clear()
        return changes

    def _observe(self, step: int) -> None:
        """Take the time of the last step, and of an evaluation after it."""
        trainer = self._trainer
        clock, counting = trainer.clock, trainer.counting
        if self._seen is not None and step == self._seen[0] + 1:
            self._times.append(clock.stepping() - self._seen[1])
            if step % trainer.config.training.evaluate_every == 0:
                self._evaluation = max(0.0, clock.pause - trainer.waited) / self._a_step()
        self._seen = (step, clock.stepping())
        while len(self._times) > LEAST_STEPS and sum(self._times) - self._times[0] > WINDOW * self._seconds:
            self._times.popleft()
        # The counting of n-grams beside the first steps makes them slow for a moment.
        was_counting, self._is_counting = self._is_counting, counting is not None and not counting.done()
        if (was_counting or self._is_counting) and self._limit.used() - self._began < COUNTING * self._seconds:
            self._times.clear()

    def _a_step(self) -> float:
        return sum(self._times) / len(self._times)

    def _last_steps(self, step: int) -> Mapping[str, Any] | None:
        """The change that ends a run whose validation loss no longer falls; None if it still does."""
        training, best = self._trainer.config.training, self._trainer.state.best_step
        if self._is_ending or best is None or step % training.evaluate_every:
            return None
        if step - max(best, self._decided) < IN_VAIN * training.evaluate_every:
            return None
        if best == training.schedule.begin:
            return None  # a continued run: its rate has risen again, so its loss is above the parent's for a while
        steps = step + max(1, math.ceil(LAST_DECAY * (step - (training.schedule.begin or 0))))
        if steps >= training.steps:
            return None
        self._is_ending = True
        sentence = N_("plan: ends after {steps:,} steps, since the validation loss has not fallen since step {best:,}")
        self._trainer.note(sentence.format(steps=steps, best=best))
        return {"steps": steps}

    def _other_steps(self, step: int) -> Mapping[str, Any] | None:
        """The change to the steps that fit; None if the run ends in time, or not enough is known yet."""
        trainer, left = self._trainer, self._limit.left()
        training = trainer.config.training
        if not self._times or sum(self._times) < min(WINDOW * self._seconds, left / 2) / 2:
            return None
        a_step, schedule = self._a_step(), training.schedule
        an_evaluation = self._evaluation * a_step
        written = max(1, _evaluations(step, training.steps, training.evaluate_every))
        late = (training.steps - step) * a_step + written * an_evaluation - left
        most = most_steps(trainer.config, len(trainer.dataset.splits["train"].tokens))
        may_grow = self._limit.used() < GROWING * self._seconds and training.steps < most and not self._is_ending
        if late <= LATE * self._seconds and not (may_grow and late < -EARLY * self._seconds):
            return None
        planned = max(1, math.ceil(EVALUATIONS * left / self._seconds))
        evaluations, more = _fitting((1 - SPARE) * left, a_step, an_evaluation, planned)
        steps = max(step + 1, min(step + more, training.steps if self._is_ending else most))
        every = _spacing(step, steps, evaluations)
        if steps % every < (steps - step) // 8 and steps - steps % every > step:
            steps -= steps % every  # two evaluations right after one another would tell nothing
        if (steps, every) == (training.steps, training.evaluate_every):
            return None
        begin = schedule.begin or 0
        warmup = min(schedule.warmup_steps, max(step - begin, (steps - begin) // 10))
        if steps < FEWER * training.steps:
            times = {"milliseconds": 1000 * a_step, "left": left, "seconds": self._seconds}
            trainer.note(FEWER_STEPS.format(steps=steps, planned=training.steps, **times))
        changes: dict[str, Any] = {"steps": steps, "evaluate_every": every}
        if warmup < schedule.warmup_steps:
            changes["schedule"] = schedule.model_copy(update={"warmup_steps": warmup})
        return changes


def _evaluations(step: int, steps: int, every: int) -> int:
    """Evaluations after `step`, the last included, if there is one every so many steps."""
    return math.ceil(steps / every) - step // every


def _spacing(step: int, steps: int, most: int) -> int:
    """The least number of steps between evaluations with which at most so many are left."""
    shortest = math.ceil((steps - step) / most)
    return next(every for every in range(shortest, steps + 1) if _evaluations(step, steps, every) <= most)
