"""The progress of training: its state from its events, one display that changes in a notebook, lines elsewhere.

No failure of a display ends a training.
"""

import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from vitral.core.language import N_, _, number
from vitral.core.text import visible
from vitral.evaluation import NgramBaselines, baseline_name, rank_among_baselines
from vitral.evaluation.copying import COPIED_WORDS, copied_share
from vitral.report.notebook import ProgressView, progress_html
from vitral.report.sections import Preformatted
from vitral.runs.objectives import loss_unit, predicts_next
from vitral.training import Callback, Event, all_of, silent

REDRAWN_EVERY = 0.5
"""Seconds between two pictures."""
PRINTED_EVERY = 10.0
"""Seconds between two printed lines of progress."""
MOST_NOTES = 12
BRIEF = 70
"""Characters of a sample that a study prints."""
WORK = ("before", "during", "in_all")
"""Keys of a study's events: floating-point operations before and during this run, and in the whole study."""


class TrainingState:
    """The events so far of a training, or of a study of several.

    Attributes:
        last: the last event of each kind of this run; of a sample also of an earlier run of the study.
        baselines: the n-gram baselines, once counted.
        run: keys of a study: the run, the number of runs, the work.
        arms: test losses of a study's finished runs by arm.
        measuring: the measurement that a study makes now.
        notes: lines that stay, each once.
    """

    def __init__(self) -> None:
        """Start before the first event."""
        self.last: dict[str, dict[str, Any]] = {}
        self.baselines: NgramBaselines | None = None
        self.run: dict[str, Any] = {}
        self.arms: dict[str, list[float]] = {}
        self.measuring, self.notes = "", dict[str, None]()
        self.began, self.study_began = time.monotonic(), 0.0

    def take(self, event: Event) -> None:
        """Remember an event."""
        kind = event["event"]
        if (line := lasting(event)) is not None:
            self.notes[line] = None
        if kind in ("start", "run"):
            self.last = {"sample": self.last["sample"]} if "sample" in self.last else {}
            self.baselines, self.began = None, time.monotonic()
        self.last[kind] = dict(event)
        if kind == "lines":
            self.baselines = NgramBaselines.from_plain(event["ngrams"])
        elif kind == "decision" and event.get("steps"):
            self.last["start"]["steps"] = event["steps"]
        elif kind == "end" and event["finished"] and "arm" in event and "evaluation" in self.last:
            self.arms.setdefault(event["arm"], []).append(self.last["evaluation"]["test_loss"])
        self.measuring = ""
        if kind == "probe":
            self.measuring = _("measuring {name}: {subject}", name=event["name"], subject=event["subject"])
        self.run = {key: event[key] for key in ("arm", "seed", "run", "runs", *WORK) if key in event}
        if self.run.get("in_all"):
            self.study_began = self.study_began or time.monotonic()

    @property
    def objective(self) -> Any:
        """Of the training, as plain data."""
        return self.last.get("start", {}).get("objective", "next-token")

    @property
    def is_causal_lm(self) -> bool:
        """Whether the losses can be compared with n-gram baselines."""
        return predicts_next(self.objective)

    @property
    def steps(self) -> tuple[int, int, int]:
        """The first step of this session, the steps that are done, and those of the whole training."""
        start = self.last.get("start", {})
        first = start.get("step", 0)
        return first, self.last.get("step", {}).get("step", first), start.get("steps", 1)

    def headline(self) -> str:
        """The arm and seed, and the size of the model and of the text."""
        start = self.last.get("start")
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
        return f"{_('arm {arm}, seed {seed} (run {run} of {runs})', **self.run)} · {size}" if self.run else size

    def progress(self) -> str:
        """Step, loss, learning rate, speed and time left, of a study also of the whole, in one line."""
        step, (first, done, total) = self.last.get("step"), self.steps
        if not step:
            return _("starting")
        left = (time.monotonic() - self.began) / max(1, done - first) * (total - done)
        parts = [
            _("step {step:,}/{steps:,}", step=done, steps=total),
            _("loss {loss:.3f}", loss=step["loss"]),
            _("learning rate {rate:.2e}", rate=step["learning_rate"]),
            _("{speed:,.0f} tokens/s", speed=step["tokens_per_second"]),
            _("{time} left", time=_clock(left)),
        ]
        return " · ".join([*parts, *([_("study: {whole}", whole=self.whole())] if self.whole() else [])])

    def whole(self) -> str:
        """The progress and remaining time of a whole study; empty outside a study."""
        if not self.run.get("in_all"):
            return ""
        first, at, total = self.steps
        before, during, in_all = (self.run[key] for key in WORK)
        done = (before + during * (at - first) / max(1, total - first)) / in_all
        parts = [
            _("run {run} of {runs}", **self.run),
            _("{share:.0f}% of all training", share=100 * done),
        ]
        if done > 0:
            left = (time.monotonic() - self.study_began) * (1 - done) / done
            parts.append(_("{time} left", time=_clock(left)))
        return " · ".join(parts)

    def measured(self) -> str:
        """The last evaluation, or the early one, compared with the n-gram baselines."""
        unit = loss_unit(self.objective)
        if event := self.last.get("evaluation"):
            loss = event["test_loss"]
            text = _(
                "step {step:,}: validation {validation:.3f} · test {test:.3f} {unit}",
                step=event["step"],
                validation=event["validation_loss"],
                test=loss,
                unit=unit,
            )
        elif event := self.last.get("early"):
            loss = event["validation_loss"]
            text = _(
                "step {step:,}: {loss:.3f} {unit} on {tokens:,} tokens of the validation split",
                step=event["step"],
                loss=loss,
                unit=unit,
                tokens=event["tokens"],
            )
        else:
            return _("not evaluated yet")
        if self.baselines is None or not self.is_causal_lm:
            return text
        return f"{text}, {rank_among_baselines(loss, self.baselines.orders, self.last['lines']['problems'])}"

    def compared(self) -> str:
        """The n-gram baselines in one line; empty where they are not known or do not apply."""
        if self.baselines is None or not self.is_causal_lm:
            return ""
        named = (f"{baseline_name(order)} {number(loss, '.3f')}" for order, loss in self.baselines.orders.items())
        sentence = N_("n-gram baselines of the test split, nats per token (lower is better): {losses}")
        return _(sentence, losses=" · ".join(named))

    def view(self) -> ProgressView:
        """The state as it is shown now."""
        sample, (_first, done, total) = self.last.get("sample", {}), self.steps
        arms = [f"{arm}: {' · '.join(number(loss, '.3f') for loss in losses)}" for arm, losses in self.arms.items()]
        marks = tuple(map(tuple, sample.get("copied", ())))
        return ProgressView(
            headline=self.headline(),
            label=_("training"),
            share=min(1.0, done / max(1, total)),
            lines=tuple(filter(None, (self.progress(), self.compared(), self.measuring, *arms))),
            measured=self.measured(),
            notes=tuple(self.notes)[-MOST_NOTES:],
            sample=Preformatted(sample.get("text", ""), sample_heading(sample) if sample else "", marks),
        )


def sample_heading(sample: Mapping[str, Any]) -> str:
    """When a sample was written, and how much of it is copied from the training text, where that was measured."""
    after = _("sample after step {step:,}", step=sample["step"])
    if "arm" in sample:
        after = _("sample after step {step:,} of {arm}, seed {seed}", **sample)
    share = copied_share(sample)
    if share is None:
        return after
    sentence = N_("{share:.0%} copied ({words} or more words in a row from the text)")
    if not share:
        sentence = N_("nothing copied ({words} or more words in a row)")
    return f"{after} · {_(sentence, share=share, words=COPIED_WORDS)}"


def _clock(seconds: float) -> str:
    """A time as minutes and seconds.

    >>> _clock(75.4)
    '1:15'
    """
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def lasting(event: Event) -> str | None:
    """The line of an event that stays; None if it has none."""
    kind = event["event"]
    if kind == "note":
        return _("note: {text}", text=_(event["text"]))
    if kind == "stopped":
        return _("stopped: {reason}", reason=_(event["reason"]))
    if kind == "end" and event["finished"] and "arm" not in event:
        return _("done: {steps:,} steps in {seconds:.0f} s", steps=event["step"], seconds=event["seconds"])
    return None


def session() -> Any:
    """IPython's shell of this process; None if there is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if shell is None else shell()


def in_notebook() -> bool:
    """Whether a person works with this process in a notebook, such as Jupyter's or that of an editor."""
    return getattr(session(), "kernel", None) is not None


@contextmanager
def progress_shown(progress: bool | None, callback: Callback | None) -> Generator[Callback]:
    """A callback that also shows the progress of the training in the block.

    Args:
        progress: None: only in a notebook; True also elsewhere, as lines; False nowhere.
        callback: of the caller, if there is one; it receives every event.
    """
    callback = callback or silent
    if progress is False or (progress is None and not in_notebook()):
        yield callback
        return

    def complain(line: str) -> None:
        with suppress(Exception):
            print(f"vitral: {line}", file=sys.stderr)

    yield all_of(callback, Harmless(Display(Output()) if in_notebook() else Lines(), complain))


class Harmless:
    """A display that never ends a training: after its first error nothing is shown any more, and one line says so."""

    def __init__(
        self,
        show: Callable[[Event], None],
        complain: Callable[[str], None],
        failure: str = N_("the display of the progress failed ({kind}: {error}); training goes on without it"),
    ) -> None:
        """Show events until the first error; `failure` is the sentence about it."""
        self._show: Callable[[Event], None] | None = show
        self._complain, self._failure = complain, failure

    def __call__(self, event: Event) -> None:
        """Show an event."""
        if self._show is None:
            return
        try:
            self._show(event)
        except Exception as error:
            self._show = None
            self._complain(_(self._failure, kind=type(error).__name__, error=error))


class Lines:
    """A training in printed lines: some of the progress, every evaluation and every sample; less of a study."""

    def __init__(self) -> None:
        """Print nothing yet."""
        self.state, self._said, self._compared = TrainingState(), -PRINTED_EVERY, ""

    def __call__(self, event: Event) -> None:
        """Print an event, if it is worth a line."""
        state, kind, in_study = self.state, event["event"], "arm" in event
        state.take(event)
        line = lasting(event)
        if kind == "start":
            line = state.headline()
        elif kind == "lines" and state.compared() != self._compared:
            line = self._compared = state.compared()
        elif kind == "step" and time.monotonic() - self._said >= PRINTED_EVERY:
            self._said = time.monotonic()
            line = state.progress()
        elif kind == "early" or (kind == "evaluation" and not (in_study and event["step"] < state.steps[2])):
            line = state.measured()
        elif kind == "sample" and in_study:
            words = " ".join(event["text"].split())
            line = f"{sample_heading(event)}: {words[:BRIEF]}{'…' * (len(words) > BRIEF)}"
        elif kind == "sample":
            line = f"--- {sample_heading(event)}\n{event['text']}\n---"
        elif kind == "probe":
            line = state.measuring
        if line is not None:
            print(visible(line), flush=True)


class Display:
    """A training that is shown in one place that changes."""

    def __init__(self, draw: Callable[[ProgressView], None]) -> None:
        """Show nothing yet; `draw` shows the state in its place."""
        self.state, self._draw, self._shown = TrainingState(), draw, -REDRAWN_EVERY

    def __call__(self, event: Event) -> None:
        """Take an event, and show the state unless it was shown just now."""
        self.state.take(event)
        now = time.monotonic()
        if event["event"] != "step" or now - self._shown >= REDRAWN_EVERY:
            self._shown = now
            self._draw(self.state.view())


class Output:
    """One output of a notebook."""

    _handle: Any = None

    def __call__(self, view: ProgressView) -> None:
        """Show a state in it."""
        from IPython.display import HTML, display  # a notebook has it

        html = HTML(progress_html(view))
        if self._handle is None:
            self._handle = display(html, display_id=True)
        else:
            self._handle.update(html)
