"""A run seen from inside on one text, as a result."""

from dataclasses import dataclass
from typing import Any

from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.report.inspection import inspection_page, summary, tables
from vitral.report.notebook import page_of
from vitral.report.plain import plain_text


@dataclass(frozen=True, repr=False)
class Inspection(Shown, Tabular):
    """Attention maps, kinds of heads, ablations, logit lens and norms of a run on one text.

    Attributes:
        found: everything as plain data; `docs/inspect.md` documents it.
    """

    found: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """A part of `found`, such as "lens"."""
        return self.found[name]

    def __str__(self) -> str:
        """A summary, what edits change, and what each sublayer and each head is worth."""
        return plain_text(summary(self.found), tables(self.found))

    def plain(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        return self.found

    def page(self) -> str:
        """The page of `vitral inspect --format html`: one self-contained document."""
        return inspection_page(self.found)

    def records(self) -> list[dict[str, Any]]:
        """One row for each head: its kind, the weight on that kind of key, and the loss increase without the head."""
        kinds, blocks = self.found["kinds"], (self.found["ablation"] or {}).get("blocks")
        made = []
        for layer, heads in enumerate(kinds["layers"]):
            for head, seen in enumerate(heads):
                worth = blocks[layer]["heads"][head] if blocks else {}
                lost = {f"without_{way}": effect["increase"] for way, effect in worth.items()}
                weight = seen["share"].get(seen["kind"])
                told = {"kind": seen["kind"], "weight": weight, "distance": seen["distance"]}
                made.append({"block": layer, "head": head, **told, **lost})
        return made


@page_of.register
def _inspected_page(inspected: Inspection) -> str:
    return inspected.page()
