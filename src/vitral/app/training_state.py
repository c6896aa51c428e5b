"""The state of a training in progress, from its events, and the sentences about it."""

import time
from collections.abc import Mapping
from typing import Any

from vitral.core.language import N_, _, number
from vitral.evaluation import NgramBaselines, baseline_name, rank_among_baselines
from vitral.evaluation.copying import COPIED_WORDS
from vitral.training import Event

NATS = {True: N_("nats per token"), False: N_("nats per masked token")}
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
        self.measuring = (
            _("measuring {name}: {subject}", name=event["name"], subject=event["subject"]) if kind == "probe" else ""
        )
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
        size = _(
            "{parameters:,} parameters · vocabulary of {vocabulary:,} · {tokens:,} training tokens · {device}, {dtype}",
            parameters=start["parameters"],
            vocabulary=start["vocab_size"],
            tokens=start["tokens"]["train"],
            device=start["device"],
            dtype=start["dtype"],
        )
        run = {key: self.run[key] for key in ("arm", "seed", "run", "runs")} if self.run else {}
        return f"{_('arm {arm}, seed {seed} (run {run} of {runs})', **run)} · {size}" if run else size

    def progress(self) -> str:
        """Step, loss, learning rate, speed and time left, in one line."""
        if not self.step:
            return _("starting")
        done, total = self.step["step"], self.start["steps"]
        parts = [
            _("step {step:,}/{steps:,}", step=done, steps=total),
            _("loss {loss:.3f}", loss=self.step["loss"]),
            _("learning rate {rate:.2e}", rate=self.step["learning_rate"]),
            _("{speed:,.0f} tokens/s", speed=self.step["tokens_per_second"]),
            _("{time} left", time=self._left(done, total)),
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
        parts = [
            _("run {run} of {runs}", run=self.run["run"], runs=self.run["runs"]),
            _("{share:.0f}% of all training", share=100 * done),
        ]
        if done > 0:
            left = _clock((time.monotonic() - self.study_began) * (1 - done) / done)
            parts.append(_("{time} left", time=left))
        return " · ".join(parts)

    def measured(self) -> str:
        """The last evaluation, or the early one, compared with the n-gram baselines."""
        unit, found = _(NATS[self.is_causal_lm]), self.evaluation
        if found:
            losses = _(
                "step {step:,}: validation {validation:.3f} · test {test:.3f} {unit}",
                step=found["step"],
                validation=found["validation_loss"],
                test=found["test_loss"],
                unit=unit,
            )
            return f"{losses}{self._rank(found['test_loss'])}"
        if self.early:
            loss = self.early["validation_loss"]
            where = {"step": self.early["step"], "tokens": self.early["tokens"], "loss": loss, "unit": unit}
            told = _("step {step:,}: {loss:.3f} {unit} on {tokens:,} tokens of the validation split", **where)
            return f"{told}{self._rank(loss)}"
        return _("not evaluated yet")

    def compared(self) -> str:
        """The n-gram baselines in one line; empty where they are not known or do not apply."""
        if self.lines is None or not self.is_causal_lm:
            return ""
        named = (f"{baseline_name(order)} {number(loss, '.3f')}" for order, loss in self.lines.orders.items())
        return _("n-gram baselines, nats per token: {losses}", losses=" · ".join(named))

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
    if not copied:
        return _("nothing copied ({words} or more words in a row)", words=COPIED_WORDS)
    found = {"share": copied / len(sample["text"]), "words": COPIED_WORDS}
    if marked:
        return _("{share:.0%} copied (underlined: {words} or more words in a row from the text)", **found)
    return _("{share:.0%} copied ({words} or more words in a row from the text)", **found)


def _clock(seconds: float) -> str:
    """A time as minutes and seconds.

    >>> _clock(75.4)
    '1:15'
    """
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"
