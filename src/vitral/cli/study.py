"""vitral study: variants compared over several seeds."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.completion import complete_preset, complete_study
from vitral.cli.options import CorpusOption, SetOption, TableFormat, TableFormatOption, ThreadsOption
from vitral.core.errors import UsageError
from vitral.core.language import _, in_language, retold

if TYPE_CHECKING:
    from vitral.lab import StudyPage, StudyPlan


NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME|MY.toml", help="A study's name or a file.", autocompletion=complete_study),
]
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
StudyOutOption = Annotated[Path | None, typer.Option(help="Folder of the study.  [default: studies/NAME-BUDGET]")]
SeedsOption = Annotated[str | None, typer.Option(help="Seeds, as in 1,2,3.  [default: the study's own]")]


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
    out: StudyOutOption = None,
    seeds: SeedsOption = None,
    threads: ThreadsOption = None,
    settings: SetOption = None,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Compare variants over several seeds.

    The report has intervals and a verdict.
    The same command continues a study that was stopped.
    vitral study plan and vitral study work share its trainings among processes and machines.
    """
    from vitral.cli.list import Kind, print_names
    from vitral.cli.progress import live_reporter
    from vitral.training import silent

    if name == "list":
        print_names(Kind.studies)
        return
    plan = planned(name, start, budget, text, out, seeds, threads, settings)
    # Standard output is for the table alone where it is to be read on.
    with live_reporter() if format is TableFormat.text else nullcontext(silent) as report:
        done = plan.run(callback=report)
    show(done, format)


def planned(
    name: str,
    start: str | None,
    budget: str | None,
    text: str | None,
    out: Path | None,
    seeds: str | None,
    threads: int | None,
    settings: list[str] | None,
) -> "StudyPlan":
    """The study that the options ask for."""
    from vitral.core.config import assignment
    from vitral.lab import plan_study

    overrides = [assignment(setting) for setting in settings or []]
    if threads is not None:
        overrides.append({"training": {"threads": threads}})
    return plan_study(name, start, budget=budget, corpus=text, seeds=_seeds(seeds), overrides=overrides, out=out)


def show(done: "StudyPage", format: TableFormat) -> None:
    """Print the verdict of a study, or its comparisons."""
    from vitral.cli.screen import print_form, print_json, say

    if format is TableFormat.json:
        with in_language("en"):  # data has no other language
            print_json(done.plain())
        return
    if format is not TableFormat.text:
        print_form(done.comparisons(as_data=format is TableFormat.csv), format.value)
        return
    say(_("verdict:"))
    for claim in done.listed:
        say(f"  {retold(claim.text)}")
    say(_("report: {path}", path=done.html))


def _seeds(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError("--seeds {text}: expected whole numbers separated by commas, as in 1,2,3", text=text) from None
