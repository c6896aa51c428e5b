"""The progress of training: a live panel on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vitral.cli.complaints import complain, show_traceback
from vitral.cli.screen import console, say
from vitral.cli.streams import error_stream, news_of_loss, output_is_optional
from vitral.core.errors import UsageError
from vitral.core.guarded import GuardedFolder
from vitral.evaluation import NgramBaselines, rank_among_baselines
from vitral.figures.text import visible
from vitral.training import Callback, Event

SPARKS = "▁▂▃▄▅▆▇█"
WORK = ("before", "during", "in_all")
"""Keys of a study's events: floating-point operations before and during this run, and in the whole study."""
TENSORBOARD = "tensorboard"
PLAIN_EVERY = 10.0
"""Seconds between plain lines of progress."""
REDRAWN_EVERY = 0.25
"""Seconds between two pictures of the panel."""
RECORDED = ("step", "evaluation", "sample")
"""Events with which a line is returned: those that the trainer records while it trains."""


class TrainingState:
    """The latest event of each kind, of a training in progress."""

    def __init__(self, study_began: float | None = None) -> None:
        """Start before the first event; `study_began` is the time at which a study began."""
        self.study_began = study_began
        self.start: dict[str, Any] = {}
        self.step: dict[str, Any] = {}
        self.evaluation: dict[str, Any] = {}
        self.losses: list[float] = []
        self.began = time.monotonic()
        self.first_step = 0
        self.run: dict[str, Any] = {}

    def take(self, event: Event) -> None:
        """Remember an event."""
        kind = event["event"]
        if kind == "start":
            self.__init__(self.study_began)
            self.start, self.first_step = dict(event), event["step"]
        elif kind == "lines":
            self.lines = NgramBaselines.from_plain(event["ngrams"])
        elif kind == "run":
            self.start, self.step, self.evaluation = {}, {}, {}
        elif kind == "step":
            self.step = dict(event)
            self.losses.append(event["loss"])
        elif kind == "evaluation":
            self.evaluation = dict(event)
        self.run = {key: event[key] for key in ("arm", "seed", "run", "runs", *WORK) if key in event}
        if self.run.get("in_all") and self.study_began is None:
            self.study_began = time.monotonic()

    def headline(self) -> str:
        """The arm and seed, and the size of the model and of the text."""
        start = self.start
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
        """The last evaluation, compared with the n-gram baselines."""
        if not self.evaluation:
            return "not evaluated yet"
        evaluation = self.evaluation
        is_causal_lm = self.start.get("objective", "next-token") == "next-token"
        where = (
            f"token, {rank_among_baselines(evaluation['test_loss'], self.lines)}" if is_causal_lm else "masked token"
        )
        return (
            f"step {evaluation['step']:,}: validation {evaluation['validation_loss']:.3f} · "
            f"test {evaluation['test_loss']:.3f} nats per {where}"
        )

    def curve(self, width: int = 60) -> str:
        """The training losses so far as a line of bars."""
        if len(self.losses) < 2:
            return ""
        stride = max(1, -(-len(self.losses) // width))
        means = [sum(c) / len(c) for c in (self.losses[i : i + stride] for i in range(0, len(self.losses), stride))]
        low, high = min(means), max(means)
        levels = [round((mean - low) / ((high - low) or 1) * (len(SPARKS) - 1)) for mean in means]
        return f"{high:.2f} " + "".join(SPARKS[level] for level in levels) + f" {means[-1]:.2f}"

    def _left(self, done: int, total: int) -> str:
        elapsed, steps = time.monotonic() - self.began, done - self.first_step
        return _clock(elapsed / max(1, steps) * (total - done))


def _clock(seconds: float) -> str:
    """A time as minutes and seconds.

    >>> _clock(75.4)
    '1:15'
    """
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"


def drawn(view: TrainingState) -> Panel:
    """The live panel."""
    rows = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=view.start["steps"], completed=view.step.get("step", view.first_step), width=60)
    rows.add_row(Text("progress", style="bold"), bar)
    rows.add_row(Text("training", style="bold"), Text(view.progress()))
    rows.add_row(Text("losses", style="bold"), Text(view.curve(), style="cyan"))
    rows.add_row(Text("measured", style="bold"), Text(view.measured()))
    if view.whole():
        rows.add_row(Text("study", style="bold"), Text(view.whole()))
    return Panel(rows, title=Text(view.headline()), title_align="left")


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
            yield Harmless("the display of the progress", _Panel(live))
        finally:
            with suppress(Exception):
                live.stop()
    else:
        yield Harmless("the display of the progress", _Lines())


class Harmless:
    """A reporter that never ends a training: its first error, and the loss of standard output, are one line each.

    The line is printed on stderr, and returned with the next event that the run records, so that the run records it
    as well.
    """

    def __init__(self, name: str, report: Callable[[Event], None]) -> None:
        """Report until the first error, which names the reporter by `name`."""
        self._name, self._report = name, report
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
                self._say(f"{self._name} failed ({type(error).__name__}: {error})")
        lost = news_of_loss()
        if lost:
            self._say(lost)
        if event["event"] not in RECORDED or not self._news:
            return None
        news, self._news = " ".join(self._news), []
        return news

    def _say(self, news: str) -> None:
        line = f"{news}; training goes on without it"
        complain(line, error_stream())
        self._news.append(line)


class _Panel:
    """On a terminal: a panel that changes in place, with lasting lines above it."""

    def __init__(self, live: Live) -> None:
        self.live, self.view, self.drawn = live, TrainingState(), -REDRAWN_EVERY

    def __call__(self, event: Event) -> None:
        self.view.take(event)
        for line in _lasting(event, self.view.start):
            self.live.console.print(Text(visible(line)))
        if self.view.start:
            now = time.monotonic()
            due = now - self.drawn >= REDRAWN_EVERY
            self.drawn = now if due else self.drawn
            self.live.update(drawn(self.view), refresh=due)


class _Lines:
    """Elsewhere: plain lines, some of the progress and every evaluation."""

    def __init__(self) -> None:
        self.view, self.said = TrainingState(), -PLAIN_EVERY

    def __call__(self, event: Event) -> None:
        self.view.take(event)
        kind = event["event"]
        if kind == "start":
            say(self.view.headline())
        elif kind == "step" and time.monotonic() - self.said >= PLAIN_EVERY:
            self.said = time.monotonic()
            say(" · study: ".join(filter(None, (self.view.progress(), self.view.whole()))))
        elif kind == "evaluation":
            say(self.view.measured())
        for line in _lasting(event, self.view.start):
            say(line)


def _lasting(event: Event, start: Mapping[str, Any]) -> list[str]:
    """Lines that stay on the screen; `start` is the first event of the training."""
    kind = event["event"]
    if kind == "sample":
        return [f"--- sample after step {event['step']:,}", event["text"], "---"]
    if kind == "note":
        return [f"note: {event['text']}"]
    if kind == "probe":
        return [f"measuring {event['name']}: {event['subject']}"]
    if kind == "stopped":
        return [f"stopped: {event['reason']}"]
    if kind == "end" and event["finished"]:
        return [f"done: {event['step']:,} steps in {event['seconds']:.0f} s"]
    if kind == "end":
        return [f"stopped after step {event['step']:,}, saved; continue with: vitral resume {start['out']}"]
    return []


def tensorboard_reporter(folder: Path) -> Callback:
    """A callback that writes TensorBoard events into the run's folder.

    Raises:
        UsageError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("--tensorboard: TensorBoard is not installed; pip install 'vitral[track]'") from None
    files, opened, writers = GuardedFolder(folder), ExitStack(), list[Any]()

    def report(event: Event) -> None:
        if event["event"] == "start":
            files.make(TENSORBOARD)
            writers.append(SummaryWriter(opened.enter_context(files.lent(TENSORBOARD))))
        if event["event"] in ("step", "evaluation"):
            for name, value in event.items():
                if name not in ("event", "step") and value is not None:
                    writers[0].add_scalar(f"{event['event']}/{name}", value, event["step"])
        if event["event"] == "end":
            writers[0].close()
            opened.close()

    return Harmless("TensorBoard", report)
