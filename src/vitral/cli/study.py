"""vitral study: variants compared over several seeds."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.completion import complete_preset, complete_study
from vitral.cli.options import CorpusOption, SetOption, TableFormat, TableFormatOption, ThreadsOption
from vitral.core.errors import UsageError
from vitral.core.language import _, in_language

if TYPE_CHECKING:
    from vitral.lab import StudyPage

BudgetOption = Annotated[
    str | None,
    typer.Option(
        help="quick (up to 5 minutes on 2 cores), standard (up to 30) or full.  [default: the smallest that the "
        "study has]"
    ),
]
BaseOption = Annotated[
    str | None,
    typer.Option(
        "--base",
        help="Preset or configuration of the base model.  [default: the study's own]",
        autocompletion=complete_preset,
    ),
]
ExecutorOption = Annotated[
    str | None,
    typer.Option(
        metavar="dask:ADDRESS|slurm:KEY=VALUE",
        help="Train on the workers of a dask scheduler, or as jobs of Slurm by submitit, whose parameters follow, "
        "as in slurm:slurm_partition=cpu,timeout_min=600.",
    ),
]


def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME|MY.toml|list",
            help="A study's name, a file, or list to list all names.",
            autocompletion=complete_study,
        ),
    ],
    budget: BudgetOption = None,
    start: BaseOption = None,
    text: CorpusOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the study.  [default: studies/NAME-BUDGET]")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, as in 1,2,3.  [default: the study's own]")] = None,
    threads: ThreadsOption = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Trainings at a time on this machine, each in a process of its own.  [default: 1]", min=1, max=1024
        ),
    ] = None,
    executor: ExecutorOption = None,
    settings: SetOption = None,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Compare variants over several seeds.

    The report has intervals and a verdict.
    The same command continues a study that was stopped.
    Its trainings may be shared among processes and machines; the numbers are the same.
    """
    from vitral.cli.list import Kind, print_names
    from vitral.cli.progress import live_reporter
    from vitral.core.config import assignment
    from vitral.lab import plan_study
    from vitral.training import silent

    if name == "list":
        print_names(Kind.studies)
        return
    if workers is not None and executor is not None:
        raise UsageError("--workers is for this machine, --executor for others: leave one of them out")
    overrides = [assignment(setting) for setting in settings or []]
    overrides += [] if threads is None else [{"training": {"threads": threads}}]
    plan = plan_study(name, start, budget=budget, corpus=text, seeds=_seeds(seeds), overrides=overrides, out=out)
    # Standard output is for the table alone where it is to be read on.
    with live_reporter() if format is TableFormat.text else nullcontext(silent) as report:
        done = plan.run(callback=report, executor=executor or workers)
    _show(done, format)


def _show(done: "StudyPage", format: TableFormat) -> None:
    """Print the verdict of a study, or its comparisons."""
    from vitral.cli.screen import print_form, print_json, say

    if format is TableFormat.json:
        with in_language("en"):  # data has no other language
            print_json(done.plain())
    elif format is not TableFormat.text:
        print_form(done.comparisons(as_data=format is TableFormat.csv), format.value)
    else:
        say(_("verdict:"))
        for claim in done.listed:
            say(f"  {_(claim.text)}")
        say(_("report: {path}", path=done.html))


def _seeds(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError("--seeds {text}: expected whole numbers separated by commas, as in 1,2,3", text=text) from None
