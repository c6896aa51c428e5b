"""vitral study plan: the trainings of a study as jobs in a folder, for workers on any machine that sees it."""

import typer

from vitral.cli.options import CorpusOption, SetOption, TableFormat, TableFormatOption, ThreadsOption
from vitral.cli.study import BaseOption, BudgetOption, NameArgument, SeedsOption, StudyOutOption, planned
from vitral.core.language import _, in_language


def plan_jobs(
    name: NameArgument,
    budget: BudgetOption = None,
    start: BaseOption = None,
    text: CorpusOption = None,
    out: StudyOutOption = None,
    seeds: SeedsOption = None,
    threads: ThreadsOption = None,
    settings: SetOption = None,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Write the trainings of a study into a folder, as jobs for vitral study work.

    Every machine that works on them must see the folder and the text at the same paths. Nothing is trained.
    """
    from vitral.cli.screen import print_data, print_form, print_json, say

    written = planned(name, start, budget, text, out, seeds, threads, settings).write(
        callback=lambda event: typer.echo(event["text"], err=True) if event["event"] == "note" else None
    )
    if format is TableFormat.json:
        with in_language("en"):  # data has no other language
            print_json(written.plain())
    elif format is not TableFormat.text:
        print_form(written.table(), format.value)
    else:
        print_data(written.table())
        say(_("here: vitral study work {folder}", folder=written.folder))
        say(_("with Slurm: sbatch {path}", path=written.folder / "jobs" / "work.sbatch"))
