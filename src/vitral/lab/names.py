"""Everything that has a name, from Python: `list_presets`, `list_texts`, `list_studies`, `list_examples`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vitral.core.checked import checked
from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import N_, _, in_language, number
from vitral.core.tables import Tabular
from vitral.figures.html import page
from vitral.figures.notebook import Shown, page_of
from vitral.figures.plain import plain_text
from vitral.figures.sections import Paragraph, Table
from vitral.studies import study_names
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


@checked
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


@checked
def list_presets() -> Names:
    """The presets with their descriptions; `vitral.presets` has their configurations."""
    from vitral.lab.configuration import presets

    return Names("presets", {name: preset.description for name, preset in presets().items()}, {})


@checked
def list_texts() -> Names:
    """The texts that have a name."""
    from vitral.data import corpus_names

    return Names("texts", corpus_names(), {})


@checked
def list_studies(*, times: bool = False) -> Names:
    """The studies with their questions.

    Args:
        times: estimate the minutes of each on this machine, from a few training steps timed now.
    """
    found: dict[str, dict[str, float]] = {name: {} for name in study_names()} if times else {}
    if times:
        from vitral.lab.study_cost import study_costs

        for cost in study_costs():
            found[cost.name][cost.budget] = cost.minutes
    with in_language("en"):
        return Names("studies", study_names(), found)


@checked
def list_examples() -> Names:
    """The worked examples of the gallery with their titles."""
    from vitral.lab.examples import find_example, gallery

    return Names("examples", {name: find_example(name).title for name in gallery()}, {})
