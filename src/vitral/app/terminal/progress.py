"""The progress of training: a live panel on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.text import Text

from vitral.app.progress import lasting
from vitral.app.terminal.complaints import complain, show_traceback
from vitral.app.terminal.panel import TrainingPanel
from vitral.app.terminal.screen import console, prints_unicode, runnable, say
from vitral.app.terminal.streams import error_stream, news_of_loss, output_is_optional
from vitral.app.training_state import TrainingState, copied_note
from vitral.core.errors import UsageError
from vitral.core.files import make
from vitral.core.language import N_, _
from vitral.core.text import visible
from vitral.training import Callback, Event

TENSORBOARD = "tensorboard"
DISPLAY = N_("the display of the progress failed ({kind}: {error})")
TENSORBOARD_FAILED = N_("TensorBoard failed ({kind}: {error})")
PLAIN_EVERY = 10.0
"""Seconds between plain lines of progress."""
REDRAWN_EVERY = 0.25
"""Seconds between two pictures of the panel."""
BRIEF = 70
"""Characters of a sample that a study prints."""
RECORDED = ("step", "early", "evaluation", "sample")
"""Events with which a line is returned: those that the trainer records while it trains."""


@contextmanager
def live_reporter() -> Iterator[Callback]:
    """A callback that prints the progress; on a terminal, as a panel that lasts as long as the block.

    No failure of the display ends a training, and neither does the loss of standard output.
    """
    output_is_optional()
    screen = console()
    if screen.is_terminal:
        # Drawn by the callback, not by a thread of its own, so that whatever fails there fails in the callback.
        live = Live(console=screen, auto_refresh=False, transient=False)
        with suppress(Exception):
            live.start()
        try:
            yield Harmless(DISPLAY, _Panel(live))
        finally:
            with suppress(Exception):
                live.stop()
    else:
        yield Harmless(DISPLAY, _Lines())


class Harmless:
    """A reporter that never ends a training: its first error, and the loss of standard output, are one line each.

    The line is printed on stderr, and returned in English with the next event that the run records, so that the run
    records it as well.
    """

    def __init__(self, failure: str, report: Callable[[Event], None]) -> None:
        """Report until the first error; `failure` is the sentence about it, with the places `kind` and `error`."""
        self._failure, self._report = failure, report
        self._failed = False
        self._news: list[str] = []

    def __call__(self, event: Event) -> str | None:
        """Report an event."""
        if not self._failed:
            try:
                self._report(event)
            except Exception as error:
                self._failed = True
                show_traceback(error)
                self._say(self._failure.format(kind=type(error).__name__, error=error))
        lost = news_of_loss()
        if lost:
            self._say(lost)
        if event["event"] not in RECORDED or not self._news:
            return None
        news, self._news = " ".join(self._news), []
        return news

    def _say(self, news: str) -> None:
        without = N_("training goes on without it")
        complain(f"{_(news)}; {_(without)}", error_stream())
        self._news.append(f"{news}; {without}")


class _Panel:
    """On a terminal: a panel that changes in place; only warnings and the end stay above it."""

    def __init__(self, live: Live) -> None:
        self.live, self.state, self.drawn = live, TrainingState(), -REDRAWN_EVERY
        self.panel = TrainingPanel(self.state, unicode=prints_unicode())

    def __call__(self, event: Event) -> None:
        self.state.take(event)
        for line in [] if _is_planned(event) else _lasting(event, self.state):
            self.live.console.print(Text(visible(line)))
        if self.state.start or self.state.measuring:
            now = time.monotonic()
            due = event["event"] != "step" or now - self.drawn >= REDRAWN_EVERY
            self.drawn = now if due else self.drawn
            self.live.update(self.panel, refresh=due)


class _Lines:
    """Elsewhere: plain lines, some of the progress, every evaluation and every sample; less of a study."""

    def __init__(self) -> None:
        self.state, self.said = TrainingState(), -PLAIN_EVERY
        self.compared = ""

    def __call__(self, event: Event) -> None:
        state = self.state
        state.take(event)
        kind, in_study = event["event"], "arm" in event
        if kind == "start":
            say(state.headline())
        elif kind == "lines" and state.compared() != self.compared:
            self.compared = state.compared()
            say(self.compared)
        elif kind == "step" and time.monotonic() - self.said >= PLAIN_EVERY:
            self.said = time.monotonic()
            progress, whole = state.progress(), state.whole()
            say(_("{progress} · study: {whole}", progress=progress, whole=whole) if whole else progress)
        elif kind == "early" or (kind == "evaluation" and not (in_study and event["step"] < state.start["steps"])):
            say(state.measured())
        elif kind == "sample":
            say("\n".join(_brief(event) if in_study else _whole(event)))
        elif kind == "probe":
            say(state.measuring)
        for line in _lasting(event, state):
            say(line)


def _is_planned(event: Event) -> bool:
    """Whether an event is a note made between two steps, which the panel shows until the next."""
    return event["event"] == "note" and "step" in event


def _whole(sample: Event) -> list[str]:
    after = _("sample after step {step:,}", step=sample["step"])
    return [f"--- {' · '.join(filter(None, (after, copied_note(sample, marked=False))))}", sample["text"], "---"]


def _brief(sample: Event) -> list[str]:
    words = " ".join(sample["text"].split())
    return [f"{_('sample after step {step:,}', step=sample['step'])}: {words[:BRIEF]}{'…' * (len(words) > BRIEF)}"]


def _lasting(event: Event, state: TrainingState) -> list[str]:
    """Lines that stay on the screen."""
    if event["event"] == "end" and not event["finished"]:
        where = {"step": event["step"], "run": state.start["out"]}
        return [runnable(_("stopped after step {step:,}, saved; continue with: vitral resume {run}", **where))]
    line = lasting(event)
    return [] if line is None else [line]


def tensorboard_reporter() -> Callback:
    """A callback that writes TensorBoard events into the run's folder.

    Raises:
        UsageError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("--tensorboard: TensorBoard is not installed; pip install 'vitral[track]'") from None
    writers = list[Any]()

    def report(event: Event) -> None:
        if event["event"] == "start":
            folder = Path(event["out"]) / TENSORBOARD
            make(folder)
            writers.append(SummaryWriter(folder))
        if event["event"] in ("step", "evaluation"):
            for name, value in event.items():
                if name not in ("event", "step") and value is not None:
                    writers[0].add_scalar(f"{event['event']}/{name}", value, event["step"])
        if event["event"] == "end":
            writers[0].close()

    return Harmless(TENSORBOARD_FAILED, report)
