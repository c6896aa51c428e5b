"""The state of a training in progress, from its events, and the sentences about it."""

import time
from collections.abc import Mapping
from typing import Any

from vitral.evaluation import NgramBaselines, baseline_name, rank_among_baselines
from vitral.evaluation.copying import COPIED_WORDS
from vitral.training import Event

WORK = ("before", "during", "in_all")
"""Keys of a study's events: floating-point operations before and during this run, and in the whole study."""


class TrainingState:
    """The events so far of a training, or of a study of several.

    Attributes:
        start: the event that began the training; empty before.
        step: the last step event.
        evaluation: the last evaluation.
        early: the early evaluation.
        sample: the last sample, of an earlier run of the study if this one has none yet.
        lines: the n-gram baselines, once counted.
        points: (step, training loss) of every logged step.
        validation: (step, validation loss) of every evaluation.
        first_step: the step at which this session began.
        run: keys of a study: the run, the number of runs, the work.
        arms: test losses of a study's finished runs by arm.
        measuring: the measurement that a study makes now.
        planned: the last note that was made between two steps, as of a plan that has changed.
    """

    def __init__(self) -> None:
        """Start before the first event."""
        self.study_began: float | None = None
        self.run: dict[str, Any] = {}
        self.arms: dict[str, list[float]] = {}
        self.sample: dict[str, Any] = {}
        self.measuring = ""
        self._begin({})

    def _begin(self, start: Event) -> None:
        self.start, self.first_step, self.began = dict(start), start.get("step", 0), time.monotonic()
        self.step: dict[str, Any] = {}
        self.evaluation: dict[str, Any] = {}
        self.early: dict[str, Any] = {}
        self.lines: NgramBaselines | None = None
        self.points: list[tuple[int, float]] = []
        self.planned = ""
        self.validation: list[tuple[int, float]] = []

    def take(self, event: Event) -> None:
        """Remember an event."""
        kind = event["event"]
        if kind in ("start", "run"):
            self._begin(event if kind == "start" else {})
        elif kind == "lines":
            self.lines = NgramBaselines.from_plain(event["ngrams"])
        elif kind in ("step", "early", "sample", "evaluation"):
            setattr(self, kind, dict(event))
        if kind == "step":
            self.points.append((event["step"], event["loss"]))
        elif kind == "evaluation":
            self.validation.append((event["step"], event["validation_loss"]))
        elif kind == "note" and "step" in event:
            self.planned = event["text"]
        elif kind == "decision" and event.get("steps"):
            self.start["steps"] = event["steps"]
        elif kind == "end" and event["finished"] and "arm" in event and self.evaluation:
            self.arms.setdefault(event["arm"], []).append(self.evaluation["test_loss"])
        self.measuring = f"measuring {event['name']}: {event['subject']}" if kind == "probe" else ""
        self.run = {key: event[key] for key in ("arm", "seed", "run", "runs", *WORK) if key in event}
        if self.run.get("in_all") and self.study_began is None:
            self.study_began = time.monotonic()

    @property
    def is_causal_lm(self) -> bool:
        """Whether the losses can be compared with n-gram baselines."""
        return self.start.get("objective", "next-token") == "next-token"

    @property
    def early_points(self) -> list[tuple[int, float]]:
        """(step, validation loss) of the early evaluation."""
        return [(self.early["step"], self.early["validation_loss"])] if self.early else []

    def headline(self) -> str:
        """The arm and seed, and the size of the model and of the text."""
        start = self.start
        if not start:
            return ""
        which = (
            f"arm {self.run['arm']}, seed {self.run['seed']} (run {self.run['run']} of {self.run['runs']}) · "
            if self.run
            else ""
        )
        return (
            f"{which}{start['parameters']:,} parameters · vocabulary of {start['vocab_size']:,} · "
            f"{start['tokens']['train']:,} training tokens · {start['device']}, {start['dtype']}"
        )

    def progress(self) -> str:
        """Step, loss, learning rate, speed and time left, in one line."""
        if not self.step:
            return "starting"
        done, total = self.step["step"], self.start["steps"]
        parts = [
            f"step {done:,}/{total:,}",
            f"loss {self.step['loss']:.3f}",
            f"learning rate {self.step['learning_rate']:.2e}",
            f"{self.step['tokens_per_second']:,.0f} tokens/s",
            f"{self._left(done, total)} left",
        ]
        return " · ".join(parts)

    def whole(self) -> str:
        """The progress and remaining time of a whole study; empty outside a study."""
        if not self.run.get("in_all") or self.study_began is None:
            return ""
        to_do = self.start["steps"] - self.first_step if self.start else 0
        share = (self.step.get("step", self.first_step) - self.first_step) / to_do if to_do else 0.0
        before, during, in_all = (self.run[key] for key in WORK)
        done = (before + share * during) / in_all
        parts = [f"run {self.run['run']} of {self.run['runs']}", f"{100 * done:.0f}% of all training"]
        if done > 0:
            parts.append(f"{_clock((time.monotonic() - self.study_began) * (1 - done) / done)} left")
        return " · ".join(parts)

    def measured(self) -> str:
        """The last evaluation, or the early one, compared with the n-gram baselines."""
        unit = "token" if self.is_causal_lm else "masked token"
        if self.evaluation:
            found = self.evaluation
            losses = f"validation {found['validation_loss']:.3f} · test {found['test_loss']:.3f} nats per {unit}"
            return f"step {found['step']:,}: {losses}{self._rank(found['test_loss'])}"
        if self.early:
            loss, tokens = self.early["validation_loss"], self.early["tokens"]
            where = f"on {tokens:,} tokens of the validation split"
            return f"step {self.early['step']:,}: {loss:.3f} nats per {unit} {where}{self._rank(loss)}"
        return "not evaluated yet"

    def compared(self) -> str:
        """The n-gram baselines in one line; empty where they are not known or do not apply."""
        if self.lines is None or not self.is_causal_lm:
            return ""
        named = (f"{baseline_name(order)} {loss:.3f}" for order, loss in self.lines.orders.items())
        return f"n-gram baselines, nats per token: {' · '.join(named)}"

    def _rank(self, loss: float) -> str:
        if self.lines is None or not self.is_causal_lm:
            return ""
        return f", {rank_among_baselines(loss, self.lines)}"

    def _left(self, done: int, total: int) -> str:
        elapsed, steps = time.monotonic() - self.began, done - self.first_step
        return _clock(elapsed / max(1, steps) * (total - done))


def copied_note(sample: Mapping[str, Any], *, marked: bool = True) -> str:
    """How much of a sample is copied from the training text; empty where that was not measured.

    Args:
        sample: the event.
        marked: whether the copied passages are marked where it is shown.
    """
    if "copied" not in sample:
        return ""
    copied = sum(end - begin for begin, end in sample["copied"])
    long = f"{COPIED_WORDS} or more words in a row"
    if not copied:
        return f"nothing copied ({long})"
    return f"{copied / len(sample['text']):.0%} copied ({'underlined: ' * marked}{long} from the text)"


def _clock(seconds: float) -> str:
    """A time as minutes and seconds.

    >>> _clock(75.4)
    '1:15'
    """
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"
