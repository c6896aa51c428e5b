"""Everything that has a name: lists of presets, texts, studies and worked examples."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import N_, _, number
from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.report.html import page
from vitral.report.notebook import page_of
from vitral.report.plain import plain_text
from vitral.report.sections import Paragraph, Table
from vitral.studies.design import BUDGETS

TITLES = {
    "presets": N_("Presets"),
    "texts": N_("Texts"),
    "studies": N_("Studies"),
    "examples": N_("Worked examples"),
}
USED_BY = {
    "presets": "vitral.train(NAME)",
    "texts": "vitral.survey(NAME), vitral.train(NAME)",
    "studies": "vitral.study(NAME)",
    "examples": "vitral.explain(NAME), vitral.check(NAME)",
}


@dataclass(frozen=True, repr=False)
class Names(Shown, Tabular):
    """Names of one kind, each with a description.

    Attributes:
        kind: "presets", "texts", "studies" or "examples".
        descriptions: by name, in English; the table has them in the current language.
        minutes: of studies, by name and budget: the estimated time on this machine; empty if nobody asked.
    """

    kind: str
    descriptions: Mapping[str, str]
    minutes: Mapping[str, Mapping[str, float]]

    def __iter__(self) -> Iterator[str]:
        """The names in order."""
        return iter(self.descriptions)

    def __len__(self) -> int:
        """The number of names."""
        return len(self.descriptions)

    def __contains__(self, name: object) -> bool:
        """Whether there is such a name."""
        return name in self.descriptions

    def __getitem__(self, name: str) -> str:
        """The description of a name, in English.

        Raises:
            UsageError: there is no such name.
        """
        if name not in self.descriptions:
            raise UsageError("{name!r}: {hint}", name=name, hint=nearest(str(name), self.descriptions))
        return self.descriptions[name]

    def __str__(self) -> str:
        """A table."""
        return plain_text("", [self.table(), Paragraph(USED_BY[self.kind])])

    def table(self) -> Table:
        """The names with their descriptions, and the minutes if they were asked for."""
        budgets = [budget for budget in BUDGETS if any(budget in times for times in self.minutes.values())]
        rows = tuple(
            (name, _(description), *(_minutes(self.minutes[name].get(budget)) for budget in budgets))
            for name, description in self.descriptions.items()
        )
        return Table(_(TITLES[self.kind]), (_("name"), _("description"), *budgets), rows, prose=(1,))

    def plain(self) -> list[dict[str, Any]]:
        """The list of this kind in `vitral list --format json`, in English; the minutes if they were asked for."""
        return [
            {
                "name": name,
                "description": description,
                **({"minutes": dict(self.minutes[name])} if self.minutes else {}),
            }
            for name, description in self.descriptions.items()
        ]

    def records(self) -> list[dict[str, Any]]:
        """One row for each name."""
        return [
            {"name": name, "description": description, **self.minutes.get(name, {})}
            for name, description in self.descriptions.items()
        ]


@page_of.register
def _names_page(names: Names) -> str:
    return page(_(TITLES[names.kind]), [names.table()], lead=USED_BY[names.kind])


def _minutes(minutes: float | None) -> str:
    if minutes is None:
        return "–"
    return _("{n} min", n=max(1, round(minutes))) if minutes < 100 else _("{n} h", n=number(minutes / 60, ".1f"))
