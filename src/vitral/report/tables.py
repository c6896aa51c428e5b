"""The table: rows of plain data with columns declared once, and every form in which it is written.

Data (CSV, JSON) have the values themselves, in full precision and in English form, under the columns' keys. What people
read (pages, Markdown, LaTeX, text) has the shown cells under the columns' labels, in the current language.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vitral.core.files import as_json
from vitral.core.language import _, number
from vitral.core.latex import escape as latex_escape
from vitral.core.shown import as_csv, in_spreadsheet
from vitral.core.text import NONE, minus, visible

ENDINGS = {"json": "json", "csv": "csv", "markdown": "md", "latex": "tex"}
"""Written forms of a table besides text, and the endings of their files."""
_SPECIAL = re.compile(r"([\\`*_\[\]<>&|~$])")
_BLOCK_START = re.compile(r"^([ \t]*(?:\d+(?=[.)]))?)((?<=\d)[.)]|#{1,6}|[+-]|=+|-+)(?=\s|$)", re.MULTILINE)
_TABLE = r"""\begin{table}
\centering
\caption{%s}
\begin{tabular}{%s}
\toprule
%s
\midrule
%s\bottomrule
\end{tabular}
\end{table}
"""


def escape(text: str) -> str:
    r"""Plain text escaped so that Markdown shows exactly it.

    >>> escape("a_b <i> 1*2")
    'a\\_b \\<i\\> 1\\*2'
    """
    return _BLOCK_START.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", visible(text)))


def one_line(text: str) -> str:
    """Plain text escaped for a line of Markdown."""
    return " ".join(escape(text).split())


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
        sort: key of the values that a page sorts by; its own if empty.
    """

    key: str
    label: str
    show: Callable[[Any], str] = as_text
    is_prose: bool = False
    is_name: bool = False
    sort: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows.

    Attributes:
        caption: in the current language.
        columns: in order; a text is the heading of a column of cells that are shown as they are.
        rows: values by the columns' keys, other keys are left out; or one cell for each column.
        prose: indices of left-aligned columns whose heading is a text.
        is_sortable: whether a page sorts it by any column.
    """

    caption: str
    columns: Sequence[Column | str]
    rows: Sequence[Mapping[str, Any] | Sequence[str]]
    prose: Sequence[int] = ()
    is_sortable: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The headings for people."""
        return tuple(
            one if isinstance(one, str) else one.label if one.is_name else _(one.label) for one in self.columns
        )

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The rows as people read them."""
        return tuple(
            tuple(as_text(row.get(one)) if isinstance(one, str) else one.show(row.get(one.key)) for one in self.columns)
            if isinstance(row, Mapping)
            else tuple(row)
            for row in self.rows
        )

    @property
    def words(self) -> tuple[int, ...]:
        """Indices of the left-aligned columns besides the first."""
        kinds = enumerate(self.columns)
        return tuple(i for i, one in kinds if i and (i in self.prose or (isinstance(one, Column) and one.is_prose)))

    @property
    def sort_keys(self) -> list[list[Any]]:
        """Of each cell, the value that it is sorted by; None stays at the end."""
        by = [one.sort or one.key for one in self.columns if isinstance(one, Column)]
        return [[row.get(one) for one in by] for row in self.rows if isinstance(row, Mapping)]

    def varied(self, kept: Collection[str]) -> "Table":
        """The table without the columns in which all rows are the same, which the caption says instead.

        Args:
            kept: keys of columns that stay in any case.
        """
        labels, cells = self.labels, list(zip(*self.cells, strict=True))
        same = [i for i, cell in enumerate(cells) if len({*cell}) == 1 and self.keys[i] not in kept]
        facts = "; ".join(f"{labels[i]} {cells[i][0]}" for i in same if cells[i][0] != NONE)
        if not facts:
            return self
        caption = _("{caption}. The same in all: {facts}.", caption=self.caption, facts=facts)
        return replace(self, caption=caption, columns=[one for i, one in enumerate(self.columns) if i not in same])

    @property
    def keys(self) -> list[str]:
        """The key of each column in the rows."""
        return [one if isinstance(one, str) else one.key for one in self.columns]

    def plain(self) -> list[dict[str, Any]]:
        """The rows as plain data, with the columns' keys only; a number that is not finite is None."""

        def finite(value: Any) -> Any:
            return None if isinstance(value, float) and not math.isfinite(value) else value

        keys = self.keys
        pairs = (row if isinstance(row, Mapping) else dict(zip(keys, row, strict=True)) for row in self.rows)
        return [{key: finite(row.get(key)) for key in keys} for row in pairs]

    def write(self, form: str) -> str:
        """One of the forms of `ENDINGS`, ending in a newline; Markdown has no caption, LaTeX needs booktabs."""
        if form == "json":
            return as_json(self.plain()).decode()
        if form == "csv":
            rows = [[_in_csv(value) for value in row.values()] for row in self.plain()]
            return as_csv([self.keys, *rows])
        if form == "markdown":
            return "\n".join(self.markdown_lines) + "\n"
        aligned = "".join("l" if not i or i in self.words else "r" for i in range(len(self.columns)))
        body = "".join(f"{_in_latex(cells)}\n" for cells in self.cells)
        return _TABLE % (latex_escape(self.caption), aligned, _in_latex(self.labels), body)

    @property
    def markdown_lines(self) -> list[str]:
        """The lines of a table of GitHub's Markdown."""
        marks = ["---" if not i or i in self.words else "---:" for i in range(len(self.columns))]
        lines = [list(map(one_line, self.labels)), marks, *(list(map(one_line, row)) for row in self.cells)]
        return [f"| {' | '.join(cells)} |" for cells in lines]


def data_table(caption: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of data with a column for every key of its rows."""
    return Table(caption, list(dict.fromkeys(key for row in rows for key in row)), rows)


def _in_csv(value: Any) -> str:
    if value is None or isinstance(value, str):
        return in_spreadsheet(value or "")
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _in_latex(cells: Sequence[str]) -> str:
    line = " & ".join(map(latex_escape, cells)) + r" \\"
    # After the end of a row LaTeX would read a bracket or a star as an argument.
    return re.sub(r"^(\s*)([\[*])", r"\1{\2}", line)
