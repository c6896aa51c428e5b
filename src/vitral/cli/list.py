"""vitral list: everything that has a name."""

import enum
from typing import Annotated, Any

import typer

from vitral.cli.options import Format, FormatOption
from vitral.core.language import N_, _, in_language, number, retold


class Kind(enum.StrEnum):
    """What can be named on the command line."""

    presets = "presets"
    texts = "texts"
    studies = "studies"
    examples = "examples"


TITLES = {
    Kind.presets: N_("Presets"),
    Kind.texts: N_("Texts"),
    Kind.studies: N_("Studies"),
    Kind.examples: N_("Examples"),
}
USED_BY = {
    Kind.presets: N_("vitral train NAME"),
    Kind.texts: N_("vitral corpus NAME, vitral train NAME"),
    Kind.studies: N_("vitral study NAME"),
    Kind.examples: N_("vitral explain NAME, vitral check NAME"),
}


def list_names(
    kind: Annotated[Kind | None, typer.Argument(metavar="KIND", help="Kind of names.  [default: all kinds]")] = None,
    format: FormatOption = Format.text,
) -> None:
    """List presets, texts, studies and worked examples.

    Other commands accept these names. The list of studies shows their estimated times on this machine.
    """
    from vitral.cli.screen import print_json

    if format is Format.json:
        print_json({each.value: _entries(each) for each in ([kind] if kind else Kind)})
    elif kind is Kind.studies:
        print_studies()
    else:
        for each in [kind] if kind else Kind:
            _print(each)


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
    from vitral.lab.study_plan import study_costs
    from vitral.studies import study_names
    from vitral.studies.design import BUDGETS

    costs = {(cost.name, cost.budget): cost for cost in study_costs()}
    rows = [
        (name, retold(question), *(_minutes(costs[name, budget].minutes) for budget in BUDGETS))
        for name, question in study_names().items()
    ]
    console().print(table(_(TITLES[Kind.studies]), (_("name"), _("question"), *BUDGETS), rows, words=2))
    say(_("Times are estimates for this machine, from a few training steps timed now."))
    say(_("vitral study NAME --budget standard"))


def _minutes(minutes: float) -> str:
    """A time in one short phrase.

    >>> _minutes(0.4), _minutes(7.2), _minutes(200.0)
    ('1 min', '7 min', '3.3 h')
    """
    return f"{max(1, round(minutes))} min" if minutes < 100 else f"{number(minutes / 60, '.1f')} h"
