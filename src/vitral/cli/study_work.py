"""vitral study work: a worker of a planned study, several, or a view of all of them."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.completion import complete_study_folder
from vitral.cli.options import TableFormat, TableFormatOption
from vitral.cli.study import show
from vitral.core.errors import UsageError
from vitral.core.language import _, in_language

if TYPE_CHECKING:
    from vitral.reports.crew import StudyProgress

SECONDS = 2.0
"""Between two looks at the folder."""


def work_on_jobs(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Folder of a study, from vitral study plan.", autocompletion=complete_study_folder
        ),
    ],
    workers: Annotated[
        int | None,
        typer.Option(
            help="Trainings at a time on this machine, each in a process of its own.  [default: as many as it has "
            "cores for]",
            min=1,
            max=1024,
        ),
    ] = None,
    page: Annotated[
        bool, typer.Option("--page/--no-page", help="Measure and write the page when all is trained, or leave it.")
    ] = True,
    slurm: Annotated[
        int | None,
        typer.Option(help="Submit this many workers to Slurm, by submitit, and train nothing here.", min=1, max=1000),
    ] = None,
    slurm_options: Annotated[
        list[str] | None,
        typer.Option(
            "--slurm-option",
            metavar="KEY=VALUE",
            help="Parameter of submitit, as in slurm_partition=cpu or timeout_min=600; repeatable.",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show who does what, on a terminal until all is done; train nothing.")
    ] = False,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Train the jobs of a planned study, until none is left.

    Any number of processes and machines that see the folder may do so at once; each job is trained by one of them.
    The last one measures and writes the page, which is that of vitral study.
    """
    from vitral.cli.progress import live_reporter
    from vitral.cli.screen import say
    from vitral.core.config import assignment, merge
    from vitral.lab.study_workers import study_progress, submit, work
    from vitral.training import silent

    if slurm_options and slurm is None:
        raise UsageError("--slurm-option is for --slurm")
    if slurm is not None and (watch or workers is not None):
        raise UsageError("--slurm submits workers and does nothing here: leave out --workers and --watch")
    if watch and workers is not None:
        raise UsageError("--watch trains nothing: leave out --workers")
    if watch:
        _watch(folder, format)
        return
    if slurm is not None:
        for number in submit(folder, slurm, merge(*(assignment(option) for option in slurm_options or []))):
            say(number)
        return
    with live_reporter() if format is TableFormat.text else nullcontext(silent) as report:
        done = work(folder, workers=workers, page=page, callback=report)
    if done is None:
        _print(study_progress(folder), format)
    else:
        show(done, format)


def _watch(folder: Path, format: TableFormat) -> None:
    """Print the view; on a terminal again and again, until the page is made."""
    from rich.live import Live

    from vitral.cli.screen import console, table
    from vitral.lab.study_workers import study_progress

    screen, progress = console(), study_progress(folder)
    if format is not TableFormat.text or not screen.is_terminal:
        _print(progress, format)
        return
    with Live(console=screen, auto_refresh=False) as live:
        while True:
            shown = progress.table()
            live.update(table(shown.caption, shown.labels, shown.cells), refresh=True)
            if progress.is_finished:
                return
            time.sleep(SECONDS)
            progress = study_progress(folder)


def _print(progress: "StudyProgress", format: TableFormat) -> None:
    from vitral.cli.screen import print_data, print_form, print_json, say

    if format is TableFormat.json:
        with in_language("en"):  # data has no other language
            print_json(progress.plain())
    elif format is not TableFormat.text:
        print_form(progress.table(), format.value)
    else:
        print_data(progress.table())
        if progress.html is not None:
            say(_("report: {path}", path=progress.html))
