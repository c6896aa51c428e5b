"""The progress of training for callers of the library: one display that changes in a notebook, lines elsewhere.

Outside notebooks nothing is shown unless it is asked for. No failure of a display ends a training.
"""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from vitral.app.training_state import TrainingState, copied_note
from vitral.core.language import _
from vitral.core.text import visible
from vitral.report.progress import ProgressView, progress_html
from vitral.report.sections import Preformatted
from vitral.training import Callback, Event, all_of

REDRAWN_EVERY = 0.5
"""Seconds between two pictures in a notebook."""
PRINTED_EVERY = 10.0
"""Seconds between two printed lines of progress."""
MOST_NOTES = 12
DRAWN = ("step", "evaluation", "early")
"""Events that are points of the curve."""


def session() -> Any:
    """IPython's shell of this process; None if there is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if shell is None else shell()


def in_notebook() -> bool:
    """Whether a person works with this process in a notebook, such as Jupyter's or that of an editor."""
    return getattr(session(), "kernel", None) is not None


@contextmanager
def progress_shown(progress: bool | None, callback: Callback) -> Generator[Callback]:
    """A callback that also shows the progress of the training in the block.

    Args:
        progress: None: only in a notebook; True also elsewhere, as lines; False nowhere.
        callback: of the caller; it receives every event.
    """
    if progress is False or (progress is None and not in_notebook()):
        yield callback
        return
    shown = SafeDisplay(NotebookDisplay() if in_notebook() else PrintedLines())
    yield all_of(callback, shown)


class SafeDisplay:
    """A display that never ends a training: after its first error nothing is shown any more, and one line says so."""

    def __init__(self, show: Callable[[Event], None]) -> None:
        """Show events until the first error."""
        self._show: Callable[[Event], None] | None = show

    def __call__(self, event: Event) -> None:
        """Show an event."""
        if self._show is None:
            return
        try:
            self._show(event)
        except Exception as error:
            self._show = None
            line = _(
                "the display of the progress failed ({kind}: {error}); training goes on without it",
                kind=type(error).__name__,
                error=error,
            )
            with suppress(Exception):
                print(f"vitral: {line}", file=sys.stderr)


class PrintedLines:
    """A training in printed lines: some of the progress, every evaluation, notes and the end."""

    def __init__(self) -> None:
        """Print nothing yet."""
        self._state, self._said = TrainingState(), -PRINTED_EVERY

    def __call__(self, event: Event) -> None:
        """Print an event, if it is worth a line."""
        state, kind = self._state, event["event"]
        state.take(event)
        told = [] if (line := lasting(event)) is None else [line]
        if kind == "start":
            told = [state.headline()]
        elif kind == "step" and time.monotonic() - self._said >= PRINTED_EVERY:
            self._said = time.monotonic()
            told = [" · ".join(filter(None, (state.progress(), state.whole())))]
        elif kind in ("early", "evaluation"):
            told = [state.measured()]
        elif kind == "probe":
            told = [state.measuring]
        for line in told:
            print(visible(line), flush=True)


class NotebookDisplay:
    """A training in one output of a notebook that changes in place."""

    def __init__(self) -> None:
        """Show nothing before the first event."""
        self._state = TrainingState()
        self._events: dict[str, list[Event]] = {kind: [] for kind in DRAWN}
        self._notes: list[str] = []
        self._curve, self._shown = "", -REDRAWN_EVERY
        self._handle: Any = None

    def __call__(self, event: Event) -> None:
        """Take an event, and show the state unless it was shown just now."""
        kind = event["event"]
        self._state.take(event)
        if kind in ("start", "run"):
            self._events, self._curve = {each: [] for each in DRAWN}, ""
        if kind in DRAWN:
            self._events[kind].append(event)
        if kind in ("evaluation", "early", "lines"):
            self._curve = self._drawn()
        if (line := lasting(event)) is not None and line not in self._notes:
            self._notes.append(line)
        now = time.monotonic()
        if kind != "step" or now - self._shown >= REDRAWN_EVERY:
            self._shown = now
            self._show()

    def _drawn(self) -> str:
        from vitral.report.run import loss_curve
        from vitral.report.style import svg_bytes

        is_causal_lm = self._state.is_causal_lm
        unit = _("nats per token") if is_causal_lm else _("nats per masked token")
        drawn = loss_curve(self._events, self._state.lines if is_causal_lm else None, unit)
        return "" if drawn is None else svg_bytes(drawn).decode()

    def _show(self) -> None:
        from IPython.display import HTML, display  # a notebook has it

        html = HTML(progress_html(self.view()))
        if self._handle is None:
            self._handle = display(html, display_id=True)
        else:
            self._handle.update(html)

    def view(self) -> ProgressView:
        """The state as it is shown now."""
        state = self._state
        steps, done = max(1, state.start.get("steps", 1)), state.step.get("step", state.first_step)
        arms = [f"{arm}: {' · '.join(f'{loss:.3f}' for loss in losses)}" for arm, losses in state.arms.items()]
        sample = state.sample
        heading = ""
        if sample:
            after = _("sample after step {step:,}", step=sample["step"])
            heading = " · ".join(filter(None, (after, copied_note(sample))))
        marks = tuple((begin, end) for begin, end in sample.get("copied", ()))
        return ProgressView(
            headline=state.headline(),
            label=_("training"),
            share=min(1.0, done / steps),
            lines=tuple(filter(None, (state.progress(), state.whole(), state.measuring, *arms))),
            measured=state.measured(),
            notes=tuple(self._notes[-MOST_NOTES:]),
            sample=Preformatted(sample.get("text", ""), heading, marks),
            curve=self._curve,
        )


def lasting(event: Event) -> str | None:
    """The line of an event that stays; None if it has none."""
    kind = event["event"]
    if kind == "note":
        return _("note: {text}", text=_(event["text"]))
    if kind == "stopped":
        return _("stopped: {reason}", reason=_(event["reason"]))
    if kind == "end" and not event["finished"]:
        return _("stopped after step {step:,}, saved", step=event["step"])
    if kind == "end" and "arm" not in event:
        return _("done: {steps:,} steps in {seconds:.0f} s", steps=event["step"], seconds=event["seconds"])
    return None
