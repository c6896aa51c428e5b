"""vitral continue: more training for a finished run."""

from typing import Annotated

import typer

from vitral.cli.options import RecordedCorpusOption, RunArgument, RunFolderOption
from vitral.cli.ranks import RanksOption, launch_if_several, reporting
from vitral.cli.train import finish


def continue_run(
    run: RunArgument,
    minutes: Annotated[float | None, typer.Option(help="Train for this many more minutes.")] = None,
    steps: Annotated[int | None, typer.Option(help="Train for this many more steps.", min=1)] = None,
    out: RunFolderOption = None,
    corpus: RecordedCorpusOption = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of the processor.  [default: those of the run]", min=1, max=1024)
    ] = None,
    ranks: RanksOption = None,
) -> None:
    """Train a finished run for longer, in a new folder.

    Weights, optimizer and step numbers go on; the run itself does not change.
    """
    launch_if_several(ranks)
    from vitral.cli.session import time_frame
    from vitral.lab import free_folder
    from vitral.training import continue_run
    from vitral.training.ranks import joined, leads

    folder = out or free_folder(str(run))
    with joined(), reporting() as report:
        how = {"minutes": minutes, "steps": steps, "threads": threads, "corpus": corpus}
        continue_run(run, folder, **how, callback=report, frame=time_frame())
    if leads():
        finish(folder)
