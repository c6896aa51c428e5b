"""Truncation of large matrices: every renderer shows the same rows and columns and counts those it omits."""

import math
from dataclasses import dataclass
from itertools import groupby

from vitral.core.text import visible
from vitral.explanation.formulas import number
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.steps import Panel

MOST_POSITIONS, LAST_POSITIONS = 12, 8
"""More positions than the first number are truncated to the last ones, as many as the second number."""
MOST_FEATURES = 8
"""A wider vector is truncated to its first columns, as many as this number."""


@dataclass(frozen=True)
class Gap:
    """Adjacent rows or columns that are omitted."""

    count: int


Shown = int | Gap
"""The index of a row or column that is shown, or a gap."""


@dataclass(frozen=True)
class ShownPanel:
    """The visible part of a panel.

    Attributes:
        rows: indices and gaps.
        columns: indices and gaps.
        headings: the label of each column, or the number of omitted ones.
        lines: for each row, its label and the numbers as text.
    """

    rows: tuple[Shown, ...]
    columns: tuple[Shown, ...]
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def chosen(self, panel: Panel) -> tuple[int, int]:
        """Row and column of the panel's chosen cell, among those shown."""
        return self.worked(panel)[0]

    def worked(self, panel: Panel) -> list[tuple[int, int]]:
        """Row and column of each cell whose arithmetic is written out, among those shown."""
        return [(self.rows.index(row), self.columns.index(column)) for row, column in panel.worked]


def truncate(panel: Panel, digits: int, say: Phrases) -> ShownPanel:
    """The rows and columns that are shown: the last positions, the first features, and always the worked cells.

    If `say` writes everything, these are all rows and columns.
    """
    digits = _enough(panel, digits)
    rows, columns = _places(panel, say)
    headings = tuple(_label(panel.column_labels, place, say) for place in columns)
    lines = tuple(
        (_label(panel.row_labels, line, say), *(_cell(panel, line, place, digits, say) for place in columns))
        for line in rows
    )
    return ShownPanel(tuple(rows), tuple(columns), headings, lines)


def shown_cells(panel: Panel, say: Phrases) -> int:
    """The number of cells that are shown."""
    rows, columns = _places(panel, say)
    return len(rows) * len(columns)


def is_truncated(panel: Panel, say: Phrases) -> bool:
    """Whether the panel is not shown whole."""
    return any(isinstance(place, Gap) for places in _places(panel, say) for place in places)


def _enough(panel: Panel, digits: int) -> int:
    """The number of digits that the matrix needs, at most `digits`: whole numbers need none."""
    values = [value for row in panel.matrix for value in row if math.isfinite(value)]
    for fewer in range(digits):
        if all(abs(round(value, fewer) - value) < 1e-9 for value in values):
            return fewer
    return digits


def _places(panel: Panel, say: Phrases) -> tuple[list[Shown], list[Shown]]:
    """The visible rows and columns."""
    if say.whole:
        return list(range(len(panel.row_labels))), list(range(len(panel.column_labels)))
    rows, columns = ({cell[axis] for cell in panel.worked} for axis in (0, 1))
    return (
        _indices(len(panel.row_labels), rows, by_position=True),
        _indices(len(panel.column_labels), columns, by_position=panel.columns_are_positions),
    )


def _indices(count: int, kept: set[int], *, by_position: bool) -> list[Shown]:
    """The visible indices of an axis with gaps between them; a gap of one is not worth it."""
    if by_position:
        shown = range(count) if count <= MOST_POSITIONS else range(count - LAST_POSITIONS, count)
    else:
        shown = range(min(count, MOST_FEATURES))
    places: list[Shown] = []
    for is_shown, run in groupby(range(count), lambda index: index in shown or index in kept):
        indices = list(run)
        places += indices if is_shown or len(indices) == 1 else [Gap(len(indices))]
    return places


def _label(labels: tuple[str, ...], place: Shown, say: Phrases) -> str:
    return say("page.gap", count=place.count) if isinstance(place, Gap) else visible(labels[place])


def _cell(panel: Panel, row: Shown, column: Shown, digits: int, say: Phrases) -> str:
    if isinstance(row, Gap) or isinstance(column, Gap):
        return "…"
    if panel.words:
        return visible(panel.words[row][column])
    return say.number(number(panel.matrix[row][column], digits))
