"""vitral resume: a run continued."""

from typing import Annotated

import typer

from vitral.cli.options import RecordedCorpusOption, RunArgument
from vitral.cli.train import finish


def resume(
    run: RunArgument,
    corpus: RecordedCorpusOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse another processor or PyTorch, with which other bits may result.")
    ] = False,
) -> None:
    """Continue a stopped run from its last checkpoint.

    The result is the same as if the run had never stopped.
    """
    from vitral.cli.progress import live_reporter
    from vitral.training import resume

    with live_reporter() as report:
        resume(run, callback=report, corpus=corpus, strict=strict)
    finish(run)
