"""vitral resume: a run continued."""

from typing import Annotated

import typer

from vitral.cli.options import RecordedCorpusOption, RunArgument
from vitral.cli.ranks import RanksOption, launch_if_several, reporting
from vitral.cli.train import finish


def resume(
    run: RunArgument,
    corpus: RecordedCorpusOption = None,
    ranks: RanksOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse another processor or PyTorch, with which other bits may result.")
    ] = False,
    changed_parts: Annotated[
        bool,
        typer.Option(
            "--changed-parts", help="Go on although the source of a part of your own has changed, and record it."
        ),
    ] = False,
) -> None:
    """Continue a stopped run from its last checkpoint.

    The result is the same as if the run had never stopped.
    """
    launch_if_several(ranks)
    from vitral.cli.session import time_frame
    from vitral.reports.run import require_run_report
    from vitral.training import resume
    from vitral.training.ranks import joined, leads
    from vitral.training.resumption import FinishedRun

    with joined():
        try:
            with reporting() as report:
                how = {"corpus": corpus, "strict": strict, "changed_parts": changed_parts}
                resume(run, callback=report, **how, frame=time_frame())
        except FinishedRun:
            require_run_report(run)  # it may have been killed while it was written
            raise
    if leads():
        finish(run)
