"""Tables of plain data, and their written forms: CSV, Markdown, LaTeX, JSON, and a section of a page or of plain text.

A table has the values themselves and says how each column is shown. Data (CSV, JSON) have the values, in full precision
and in English form, under the columns' keys. What people read (Markdown, LaTeX, pages, text) has the shown cells under
the columns' labels, in the current language.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vitral.core.language import _, number
from vitral.core.latex import escape
from vitral.core.tables import as_csv, in_spreadsheet
from vitral.core.text import NONE, minus
from vitral.report import sections
from vitral.report.markdown import table_lines

FORMS = ("json", "csv", "markdown", "latex")
"""Written forms of a table besides text."""
ENDINGS = {"csv": "csv", "markdown": "md", "latex": "tex", "json": "json"}
"""The endings of their files."""


def as_text(value: Any) -> str:
    """A value of words as a table shows it; a dash for None."""
    return NONE if value is None or value == "" else str(value)


def decimals(digits: int, *, sign: bool = False) -> Callable[[Any], str]:
    """A column of numbers with this many digits after the point; a dash where there is none."""

    def show(value: Any) -> str:
        if value is None or not math.isfinite(value):
            return NONE
        return minus(number(value, f"{'+' if sign else ''},.{digits}f"))

    return show


def whole(value: Any) -> str:
    """A whole number with separated thousands; a dash for None."""
    return NONE if value is None else minus(number(value, ","))


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        key: of its values in the rows; heading in data.
        label: heading for people, a marked sentence.
        show: a value as people read it.
        is_prose: whether it has words, which are left-aligned.
        is_name: whether the label is a name, such as that of a run, which is not translated.
        is_long: whether its cells may be long and are broken where a table is too wide.
    """

    key: str
    label: str
    show: Callable[[Any], str] = as_text
    is_prose: bool = False
    is_name: bool = False
    is_long: bool = False


@dataclass(frozen=True)
class DataTable:
    """A table of plain data.

    Attributes:
        caption: in the current language.
        columns: in order; the first names the rows.
        rows: values by the columns' keys; other keys are left out.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]

    @property
    def labels(self) -> tuple[str, ...]:
        """The headings for people."""
        return tuple(column.label if column.is_name or not column.label else _(column.label) for column in self.columns)

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The rows as people read them."""
        return tuple(tuple(column.show(row.get(column.key)) for column in self.columns) for row in self.rows)

    @property
    def words(self) -> tuple[int, ...]:
        """Indices of the left-aligned columns besides the first."""
        return tuple(index for index, column in enumerate(self.columns) if index and column.is_prose)

    def varied(self, kept: Collection[str]) -> "DataTable":
        """The table without the columns in which all rows are the same, which the caption says instead.

        Args:
            kept: keys of columns that stay in any case.
        """
        if not self.rows:
            return self
        cells = list(zip(*self.cells, strict=True))
        stay = [i for i, column in enumerate(self.columns) if column.key in kept or len({*cells[i]}) > 1]
        facts = [f"{self.labels[i]} {cells[i][0]}" for i in range(len(cells)) if i not in stay and cells[i][0] != NONE]
        if not facts:
            return self
        places = {"caption": self.caption, "facts": "; ".join(facts)}
        several = len(self.rows) > 1
        caption = _("{caption}. The same in all: {facts}.", **places) if several else _("{caption}. {facts}.", **places)
        return DataTable(caption, tuple(self.columns[i] for i in stay), self.rows)

    def plain(self) -> list[dict[str, Any]]:
        """The rows as plain data, with the columns' keys only; a number that is not finite is None."""
        return [{column.key: _plain(row.get(column.key)) for column in self.columns} for row in self.rows]

    def section(self) -> sections.Table:
        """As a section of a page."""
        return sections.Table(self.caption, self.labels, self.cells, self.words)

    def write(self, form: str) -> str:
        """One of the `FORMS`, ending in a newline."""
        forms = {"json": self.json, "csv": self.csv, "markdown": self.markdown, "latex": self.latex}
        return forms[form]()

    def json(self) -> str:
        """A list of objects."""
        return json.dumps(self.plain(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def csv(self) -> str:
        """Comma-separated values with a line of keys; an empty cell for None."""
        rows = [[_in_csv(value) for value in row.values()] for row in self.plain()]
        return as_csv([[column.key for column in self.columns], *rows])

    def markdown(self) -> str:
        """A table of GitHub's Markdown, without the caption."""
        return "\n".join(table_lines(self.labels, self.cells, self.words)) + "\n"

    def latex(self) -> str:
        """A `table` for LaTeX with the package booktabs."""
        aligned = "".join("l" if not index or index in self.words else "r" for index in range(len(self.columns)))
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(self.caption)}}}",
            rf"\begin{{tabular}}{{{aligned}}}",
            r"\toprule",
            *(_row(cells) for cells in (self.labels,)),
            r"\midrule",
            *(_row(cells) for cells in self.cells),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _in_csv(value: Any) -> str:
    if value is None or isinstance(value, str):
        return in_spreadsheet(value or "")
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _row(cells: Sequence[str]) -> str:
    line = " & ".join(map(escape, cells)) + r" \\"
    # After the end of a row LaTeX would read a bracket or a star as an argument.
    return re.sub(r"^(\s*)([\[*])", r"\1{\2}", line)
