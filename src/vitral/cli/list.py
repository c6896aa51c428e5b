"""vitral list: everything that has a name, and the runs below a folder."""

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitral.cli.options import TableFormat, TableFormatOption
from vitral.core.errors import UsageError
from vitral.core.language import N_, _, in_language, ngettext, number, retold

if TYPE_CHECKING:
    from vitral.lab.study_cost import StudyCost


class Kind(enum.StrEnum):
    """What can be named on the command line."""

    presets = "presets"
    texts = "texts"
    studies = "studies"
    examples = "examples"
    runs = "runs"


Order = enum.StrEnum("Order", {"loss": "loss", "time": "time", "name": "name"})
"""The order of runs."""


TITLES = {
    Kind.presets: N_("Presets"),
    Kind.texts: N_("Texts"),
    Kind.studies: N_("Studies"),
    Kind.examples: N_("Examples"),
}
NO_VERDICT = "*"
"""Behind the time of a study at a budget with too few seeds for a verdict."""
USED_BY = {
    Kind.presets: N_("vitral train NAME"),
    Kind.texts: N_("vitral corpus NAME, vitral train NAME"),
    Kind.studies: N_("vitral study NAME"),
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
    format: TableFormatOption = TableFormat.text,
) -> None:
    """List presets, texts, studies and worked examples, or runs.

    Other commands accept these names. The list of studies shows their estimated times on this machine.
    """
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

        print_json({each.value: _entries(each) for each in kinds})
    elif format is not TableFormat.text:
        _print_form(kinds, format)
    elif kind is Kind.studies:
        print_studies()
    else:
        for each in kinds:
            _print(each)


def _list_runs(folder: Path, sort: Order, text: str | None, out: Path | None, format: TableFormat) -> None:
    """Print the runs below a folder; without PyTorch, whose import takes longer than reading two hundred runs."""
    from vitral.cli.screen import print_data, print_json, say
    from vitral.reports.runs import list_runs

    found = list_runs(folder, order=sort.value, text=text)
    page = None if out is None else found.write(out)  # first: the reader of a pipe may leave
    if format is TableFormat.json:
        print_json(found.plain())
    elif format is TableFormat.csv:
        say(found.data().write(format.value).rstrip("\n"))
    elif format is not TableFormat.text:
        say(found.table().write(format.value).rstrip("\n"))
    else:
        print_data(found.varied_table())
        for line in found.advice:
            say(line)
    if page is not None and format is TableFormat.text:
        say(_("page: {path}", path=page))


def _print_form(kinds: list[Kind], format: TableFormat) -> None:
    from vitral.cli.screen import say
    from vitral.figures.tables import Column, DataTable

    columns = (
        Column("kind", "kind"),
        Column("name", "name", is_prose=True),
        Column("description", "description", retold, is_prose=True),
    )
    rows = [{"kind": each.value, **entry} for each in kinds for entry in _entries(each)]
    say(DataTable("", columns, rows).write(format.value).rstrip("\n"))


@in_language("en")
def _entries(kind: Kind) -> list[dict[str, Any]]:
    """Names and descriptions, which are data: English, and translated where they are shown."""
    from vitral.data import corpus_names
    from vitral.lab import presets
    from vitral.lab.examples import find_example, gallery
    from vitral.studies import study_names

    found = {
        Kind.presets: lambda: {name: preset.description for name, preset in presets().items()},
        Kind.texts: corpus_names,
        Kind.studies: study_names,
        Kind.examples: lambda: {name: find_example(name).title for name in gallery()},
    }
    return [{"name": name, "description": description} for name, description in found[kind]().items()]


def _print(kind: Kind) -> None:
    from vitral.cli.screen import console, say, table

    rows = [(entry["name"], retold(entry["description"])) for entry in _entries(kind)]
    console().print(table(_(TITLES[kind]), (_("name"), _("description")), rows, words=2))
    say(f"{_(USED_BY[kind])}\n")


def print_studies() -> None:
    """Print every named study with its question and its estimated time on this machine at each budget."""
    from vitral.cli.screen import console, say, table
    from vitral.lab.study_cost import study_costs
    from vitral.studies import study_names
    from vitral.studies.design import BUDGETS

    with console().status(_("timing a training step of every model …")):
        costs = {(cost.name, cost.budget): cost for cost in study_costs()}
    rows = [
        (name, retold(question), *(_minutes(costs.get((name, budget))) for budget in BUDGETS))
        for name, question in study_names().items()
    ]
    console().print(table(_(TITLES[Kind.studies]), (_("name"), _("question"), *BUDGETS), rows, words=2))
    say(
        _("Times are estimates for this machine when nothing else runs, from a training step of every model timed now.")
    )
    say(
        ngettext(
            "They include tuning, evaluation and probes; trainings run one at a time, on one thread.",
            "They include tuning, evaluation and probes; trainings run one at a time, on up to {n} threads.",
            max(cost.threads for cost in costs.values()),
        )
    )
    if any(cost.verdicts is False for cost in costs.values()):
        say(
            _(
                "{mark}: too few seeds for a verdict on its contrasts of losses; a larger budget has one.",
                mark=NO_VERDICT,
            )
        )
    say(_("vitral study NAME --budget standard"))


def _minutes(cost: "StudyCost | None") -> str:
    """A time in one short phrase; a dash for a budget that the study does not have."""
    if cost is None:
        return "\N{EN DASH}"
    minutes, mark = cost.minutes, NO_VERDICT if cost.verdicts is False else ""
    return (f"{max(1, round(minutes))} min" if minutes < 100 else f"{number(minutes / 60, '.1f')} h") + mark
