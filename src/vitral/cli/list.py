"""vitral list: everything that has a name, and the runs below a folder."""

import enum
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.options import TableFormat, TableFormatOption
from vitral.core.errors import UsageError
from vitral.core.language import N_, _, in_language

if TYPE_CHECKING:
    from vitral.lab import Names


class Kind(enum.StrEnum):
    """What can be named on the command line."""

    presets = "presets"
    texts = "texts"
    studies = "studies"
    examples = "examples"
    runs = "runs"


Order = enum.StrEnum("Order", {"loss": "loss", "time": "time", "name": "name"})
"""The order of runs."""


USED_BY = {
    Kind.presets: N_("vitral train NAME"),
    Kind.texts: N_("vitral corpus NAME, vitral train NAME"),
    Kind.studies: N_("vitral study NAME, vitral list studies --times"),
    Kind.examples: N_("vitral explain NAME, vitral check NAME"),
}


def list_names(
    kind: Annotated[
        Kind | None, typer.Argument(metavar="KIND", help="Kind of names.  [default: all kinds but runs]")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="Of runs: where to look, also in nested folders.  [default: runs]"),
    ] = None,
    sort: Annotated[
        Order | None,
        typer.Option(help="Of runs: best loss first (loss), newest first (time), or by name.  [default: loss]"),
    ] = None,
    text: Annotated[str | None, typer.Option(help="Of runs: only those on texts whose name contains this.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Of runs: folder for a page with curves, tables and figures.  [default: none]")
    ] = None,
    times: Annotated[
        bool, typer.Option("--times", help="Of studies: also the times that each budget takes on this machine.")
    ] = False,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """List presets, texts, studies and worked examples, or runs.

    Other commands accept these names.
    """
    if times and kind is not Kind.studies:
        raise UsageError("--times is for vitral list studies")
    if kind is Kind.runs:
        _list_runs(folder or Path("runs"), sort or Order.loss, text, out, format)
        return
    options = {"FOLDER": folder, "--sort": sort, "--text": text, "--out": out}
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UsageError("{option} is for vitral list runs", option=given[0])
    kinds = [kind] if kind else [each for each in Kind if each is not Kind.runs]
    if format is TableFormat.json:
        from vitral.cli.screen import print_json

        print_json({each.value: _names(each, times=times).plain() for each in kinds})
    elif format is not TableFormat.text:
        _print_form(kinds, format)
    else:
        for each in kinds:
            print_names(each, times=times)


def _list_runs(folder: Path, sort: Order, text: str | None, out: Path | None, format: TableFormat) -> None:
    """Print the runs below a folder; without PyTorch, whose import takes longer than reading two hundred runs."""
    from vitral.cli.screen import print_data, print_form, print_json, say
    from vitral.reports.runs import list_runs

    found = list_runs(folder, order=sort.value, text=text)
    page = None if out is None else found.write(out)  # first: the reader of a pipe may leave
    if format is TableFormat.json:
        print_json(found.plain())
    elif format is not TableFormat.text:
        print_form(found.data() if format is TableFormat.csv else found.table(), format.value)
    else:
        print_data(found.varied_table())
        for line in found.advice:
            say(line)
    if page is not None and format is TableFormat.text:
        say(_("page: {path}", path=page))


def _print_form(kinds: list[Kind], format: TableFormat) -> None:
    from vitral.cli.screen import print_form
    from vitral.figures.tables import Column, DataTable

    columns = (
        Column("kind", "kind"),
        Column("name", "name", is_prose=True),
        Column("description", "description", _, is_prose=True),
    )
    rows = [{"kind": each.value, **entry} for each in kinds for entry in _names(each).plain()]
    print_form(DataTable("", columns, rows), format.value)


@in_language("en")
def _names(kind: Kind, *, times: bool = False) -> "Names":
    """Names and descriptions, which are data: English, and translated where they are shown."""
    from vitral.lab import names

    return names.list_studies(times=times) if kind is Kind.studies else getattr(names, f"list_{kind.value}")()


def print_names(kind: Kind, *, times: bool = False) -> None:
    """Print the names of a kind, each with its description."""
    from vitral.cli.screen import console, print_sections, say

    with console().status(_("timing a training step of every model …")) if times else nullcontext():
        found = _names(kind, times=times)
    print_sections([found.table()])
    say(f"{_(USED_BY[kind])}\n")
