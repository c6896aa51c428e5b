"""Training on a terminal: its progress, several ranks, and what to do with the run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import typer

from vitral.app.options import Threads
from vitral.core.errors import Interrupted
from vitral.core.language import _

if TYPE_CHECKING:
    from vitral.app.run import Run


@contextmanager
def training(*, ranks: int | None = None, tensorboard: bool = False, **given: Any) -> Iterator[Mapping[str, Any]]:
    """The progress on rank 0; the others are silent. A stopped run says only how to continue it."""
    from vitral.app.terminal.ranks import launch_if_several
    from vitral.app.terminal.screen import runnable, say

    launch_if_several(ranks)
    from vitral.app.terminal.progress import live_reporter, tensorboard_reporter
    from vitral.app.terminal.streams import output_is_optional
    from vitral.training import all_of
    from vitral.training.ranks import leads

    if not leads():
        output_is_optional()
        yield {}
        raise typer.Exit
    further = [tensorboard_reporter()] if tensorboard else []
    try:
        with live_reporter() as report:
            yield {"callback": all_of(report, *further)}
    except Interrupted as stopped:
        if stopped.run is None:
            raise
        where = {"step": stopped.step, "run": stopped.run}
        say(runnable(_("stopped at step {step:,}, saved; continue with: vitral resume {run}", **where)))
        raise typer.Exit from None


@contextmanager
def comparing(*, format: str, **given: Any) -> Iterator[Mapping[str, Any]]:
    """The progress of a study; standard output is for the table alone where it is to be read on."""
    from vitral.app.terminal.progress import live_reporter
    from vitral.training import silent

    with live_reporter() if format == "text" else nullcontext(silent) as report:
        yield {"callback": report}


def show_trained(run: "Run", *, ranks: Threads | None = None, tensorboard: bool = False) -> None:
    """The page of a finished run, and what to do next.

    Args:
        ranks: Processes on this machine that share the batches of a step (training.accumulation) and give the bits of
            one.  [default: 1]
        tensorboard: Also write TensorBoard events.
    """
    from vitral.app.terminal.screen import runnable, say
    from vitral.report.run import write_run_report

    say(_("report: {path}", path=write_run_report(run.path)))
    line = _('next:   vitral generate {run}    vitral evaluate {run}    vitral inspect {run} --text "…"', run=run.path)
    say(runnable(line))


def show_continued(run: "Run", *, ranks: Threads | None = None) -> None:
    """The page of a finished run, and what to do next.

    Args:
        ranks: Processes on this machine that share the batches of a step (training.accumulation) and give the bits of
            one.  [default: 1]
    """
    show_trained(run)
