"""vitral compare: runs side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.completion import complete_run
from vitral.cli.options import RecordedCorpusOption, TableFormat, TableFormatOption
from vitral.core.language import _

if TYPE_CHECKING:
    from vitral.reports.side_by_side import RunComparison


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Two or more runs, or a folder of runs.", autocompletion=complete_run),
    ],
    prompt: Annotated[str, typer.Option(help="Text that every run continues.  [default: an empty one]")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the samples.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each sample at most.")] = 200,
    losses: Annotated[bool, typer.Option(help="Measure the losses on the whole test split.")] = True,
    corpus: RecordedCorpusOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for a page, tables and figures (SVG, PNG, PDF).  [default: none]")
    ] = None,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Compare runs: what may be compared, losses with paired intervals, configurations, curves, samples.

    Losses are compared only on the same test text: in nats per token if the tokens are the same, else in bits per
    character.
    """
    from vitral.cli.screen import print_form, print_json, say
    from vitral.lab import compare as compare_runs

    found = compare_runs(*runs, prompt=prompt, seed=seed, max_tokens=max_tokens, corpus=corpus, losses=losses)
    page = None if out is None else found.write(out)  # first: the reader of a pipe may leave
    if format is TableFormat.json:
        print_json(found.plain())
    elif format is TableFormat.text:
        print_comparison(found)
    else:
        print_form(found.data() if format is TableFormat.csv else found.table(), format.value)
    if page is not None and format is TableFormat.text:
        say(_("page: {path}", path=page))


def print_comparison(found: "RunComparison") -> None:
    """Print the tables, the sentences and the samples."""
    from vitral.cli.screen import print_data, say
    from vitral.reports.relations import OVER_THE_TEXT

    print_data(found.varied_table())
    for one in found.relations:
        say(one.text)
    if any(one.difference for one in found.relations):
        say(_(OVER_THE_TEXT))
    say()
    print_data(found.relation_table())
    if found.changed:
        print_data(found.configuration_table())
    for run in found.runs:
        if run.sample is not None:
            say(f"--- {run.name}")
            say(run.sample)
    for line in found.lacking_samples:
        say(line)
    for line in found.notes:
        say(_(line))
