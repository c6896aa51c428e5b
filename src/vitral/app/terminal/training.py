"""Training on a terminal: a live panel, plain lines elsewhere, what to do next; one of several ranks prints."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from vitral.app import session
from vitral.app.arguments import Threads
from vitral.app.terminal.streams import complain, output_is_optional, say, say_if_lost, tell
from vitral.core.errors import Interrupted, UsageError, VitralError
from vitral.core.language import N_, _
from vitral.core.process import EXIT_CODE, launched
from vitral.core.text import visible

if TYPE_CHECKING:
    from vitral.app.demonstration import Demonstration
    from vitral.app.run import Run
    from vitral.doctor.sample import WhySample
    from vitral.report.notebook import ProgressView
    from vitral.training import Callback, Event

TENSORBOARD = "tensorboard"
SAMPLE_SHOWN, SAMPLE_LINES = 600, 8
"""Characters and lines of a sample in the panel."""
MOST_OWN = 40
"""Characters of a sample that a command repeats, at most."""
_silent = False


@contextmanager
def live_reporter() -> Iterator["Callback"]:
    """A callback that prints the progress; on a terminal, as a panel that lasts as long as the block.

    No failure of the display ends a training, and neither does the loss of standard output.
    """
    from rich.console import Console
    from rich.live import Live

    from vitral.app.progress import Display, Harmless, Lines, lasting

    def in_panel(event: "Event") -> None:
        """Show lines that stay above it."""
        if (line := lasting(event)) is not None:
            screen.print(visible(line))
        display(event)

    output_is_optional()
    screen = Console(highlight=False, markup=False, emoji=False)
    # Drawn by the callback, not by a thread of its own, so that whatever fails there fails in the callback.
    live = Live(console=screen, auto_refresh=False)
    display = Display(lambda view: live.update(panel(view), refresh=True))
    shown = Harmless(in_panel if screen.is_terminal else Lines(), complain)

    def report(event: "Event") -> None:
        shown(event)
        say_if_lost(_("; training goes on without it"))

    with suppress(Exception):
        if screen.is_terminal:
            live.start()
    try:
        yield report
    finally:
        with suppress(Exception):
            live.stop()


def panel(view: "ProgressView") -> Any:
    """The state of a training as rich draws it; what the terminal has no room for is cut."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    shown: list[Any] = [Text(view.headline, style="dim"), Padding(ProgressBar(1.0, view.share), 0)]
    shown += [*map(Text, view.lines), Text(view.measured, style="bold")]
    if view.sample.text:
        lines = visible(view.sample.text[:SAMPLE_SHOWN]).splitlines()
        shown += [Text(view.sample.caption, style="dim"), *map(Text, lines[:SAMPLE_LINES])]
    return Panel(Group(*shown))


def tensorboard_reporter() -> "Callback":
    """A callback that writes TensorBoard events into the run's folder.

    Raises:
        UsageError: TensorBoard is not installed.
    """
    from vitral.app.progress import Harmless
    from vitral.core.files import make

    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("--tensorboard: TensorBoard is not installed; pip install 'vitral[track]'") from None
    writers = list[Any]()

    def report(event: "Event") -> None:
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

    return Harmless(report, complain, N_("TensorBoard failed ({kind}: {error}); training goes on without it"))


@contextmanager
def training(*, ranks: int | None = None, tensorboard: bool = False, **given: Any) -> Iterator[Mapping[str, Any]]:
    """The progress on rank 0; the others are silent. A stopped run says only how to continue it."""
    launch_if_several(ranks)
    output_is_optional()
    if os.environ.get("RANK", "0") == "0":  # before PyTorch is loaded, which takes seconds
        sentence = N_("reading {what} …") if "run" in given else N_("reading {what}, then planning the training …")
        tell(sentence, what=given.get("corpus") or given.get("run") or given.get("start") or "sample")
    from vitral.training import all_of
    from vitral.training.ranks import leads

    if not leads():
        yield {}
        raise typer.Exit
    further = [tensorboard_reporter()] if tensorboard else []
    try:
        with live_reporter() as report:
            yield {"callback": all_of(report, *further)}
    except Interrupted as stopped:
        if stopped.run is None:
            raise
        tell("stopped at step {step:,}, saved; continue with: vitral resume {run}", step=stopped.step, run=stopped.run)
        raise typer.Exit from None


@contextmanager
def comparing(*, format: str, **given: Any) -> Iterator[Mapping[str, Any]]:
    """The progress of a study; standard output is for the table alone where it is to be read on."""
    from vitral.training import silent

    with live_reporter() if format == "text" else nullcontext(silent) as report:
        yield {"callback": report}


@contextmanager
def touring(**given: Any) -> Iterator[Mapping[str, Any]]:
    """The text and the model first, then the progress of the study."""

    def introduce(planned: "Demonstration") -> None:
        from vitral.data import corpus_names

        name = planned.config.corpus.source
        say(f"{_(corpus_names().get(name, name))}\n{planned.count.title}")

    with live_reporter() as report:
        yield {"on_plan": introduce, "callback": report}


@contextmanager
def announced(**given: Any) -> Iterator[Mapping[str, Any]]:
    """The address on the screen, of a page or with an API key, until Ctrl+C ends the server."""

    def announce(address: str, key: str | None = None) -> None:
        if key is None:
            tell("page: {address} (Ctrl+C ends it)", address=address)
        else:
            tell("for OpenAI's clients (Ctrl+C ends it):")
            say(f"export OPENAI_BASE_URL={address} OPENAI_API_KEY={key}")

    try:
        yield {"announce": announce}
    except KeyboardInterrupt:
        complain("interrupted")
        os._exit(130)  # a thread that computes for the page would keep the process


def show_trained(run: "Run", *, ranks: Threads | None = None, tensorboard: bool = False) -> None:
    """The page of a finished run, and what to do next.

    Args:
        ranks: Processes on this machine that share the batches of a step (training.accumulation) and give the bits of
            one.  [default: 1]
        tensorboard: Also write TensorBoard events.
    """
    from vitral.report.run import write_run_report

    tell("report: {path}", path=write_run_report(run.path))
    say(_("Why is my sample bad?"))
    say(str(reasons := run.why()))
    rows = [
        (_(what), "    ".join(f"vitral {command}" for command in ones)) for what, ones in next_commands(run, reasons)
    ]
    width = max(len(what) for what, _commands in rows)
    say("\n".join([_("next:"), *(f"  {what:{width}}  {commands}" for what, commands in rows)]))


def next_commands(run: "Run", why: "WhySample") -> Iterator[tuple[str, list[str]]]:
    """What fits a run of this kind: words, and its commands without the program's name."""
    from vitral.page.passages import writable
    from vitral.runs.objectives import objective_name

    model, records, path = run.model, run.config["corpus"].get("records"), shlex.quote(str(run.path))
    text = _own_words(run) or " ".join(run.tokenizer.decode(writable(model, run.tokenizer)).split()[:2])
    option, answers = f"--text {shlex.quote(text)}", model.encoder is not None or model.config.num_labels
    objective = objective_name(run.config["training"]["objective"])
    gap = N_("fill a gap"), [f"fill {path} --text {shlex.quote(text + ' [MASK]')}"]
    if objective == "masked":
        yield gap
    elif records or model.encoder is not None:
        chat = [f"chat {path}"] if records == "chats" else []
        yield N_("ask it"), [*chat, f"generate {path} --source {shlex.quote(text)}"]
    else:
        yield N_("let it write"), [f"generate {path} --prompt {shlex.quote(text)}"]
    if objective == "mixed":
        yield gap
    yield N_("your model as one page"), [f"bundle {path}"]
    source = option if model.encoder is None else f"--source {shlex.quote(text)}"
    yield N_("every number of a text"), [f"explain {path} {source}"]
    yield N_("measure and look inside"), [f"evaluate {path}", *([] if answers else [f"inspect {path} {option}"])]
    longer = next((one.command for one in why.reasons if one.command.startswith("continue")), "")
    if not why.command.startswith(("corpus", "train")):  # of a text to mend, or a model to train anew
        yield N_("train longer"), [longer or f"continue {path} --minutes 2"]


def _own_words(run: "Run") -> str:
    """The first words of a run's last sample, or the first question that it answered; empty if it cannot read them."""
    samples, model = run.sealed.metrics("sample"), run.model
    text = samples[-1]["text"] if samples else ""
    answers = run.config["corpus"].get("records") or model.encoder is not None
    words = text.partition(" → ")[0].split() if answers else text[:MOST_OWN].split()[:2]
    own = " ".join(words).lstrip("- ")  # after a dash the command would read an option
    try:
        ids = run.tokenizer.encode(own)
    except VitralError:
        return ""
    return own if len(ids) <= (model.config.source_length or model.config.context_length) else ""


def show_continued(run: "Run", *, ranks: Threads | None = None) -> None:
    """The page of a finished run, and what to do next.

    Args:
        ranks: Processes on this machine that share the batches of a step (training.accumulation) and give the bits of
            one.  [default: 1]
    """
    show_trained(run)


def launch_if_several(ranks: int | None) -> None:
    """Run this command again on several ranks, and end with their exit code.

    Raises:
        UsageError: they are started already, or PyTorch cannot connect ranks.
        typer.Exit: they have ended.
    """
    if ranks in (None, 1) or EXIT_CODE in os.environ:  # this is one of them
        return
    if launched() or "TORCHELASTIC_RUN_ID" in os.environ:
        raise UsageError(
            "--ranks {ranks}: torchrun or another launcher has started the ranks already; leave it out", ranks=ranks
        )
    from vitral.training.ranks import launch

    raise typer.Exit(launch(ranks, session.given()))


def be_silent() -> None:
    """Another rank has told the user why all of them end."""
    global _silent
    _silent = True


def leave(code: int) -> NoReturn:
    """End the process.

    One of several ranks ends at once: a connection to a rank that is lost would keep it.
    """
    if not launched():
        sys.exit(code)
    if EXIT_CODE in os.environ and not _silent and (code or os.environ.get("RANK") == "0"):
        Path(os.environ[EXIT_CODE]).write_text(str(code), encoding="ascii")
    os._exit(code)
