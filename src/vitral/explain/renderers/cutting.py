"""What of a large matrix is shown: the same rows and columns in every renderer, with honest gaps."""

import math
from dataclasses import dataclass
from itertools import groupby

from vitral.explain.notation import Equation, Number
from vitral.explain.phrases import Phrases
from vitral.explain.scripts import number
from vitral.explain.walkthrough import Arithmetic, Panel, Walkthrough
from vitral.figures.text import visible

MOST_POSITIONS, LAST_POSITIONS = 12, 8
"""Up to so many positions are all shown; of more the last so many."""
MOST_FEATURES = 8
"""Of a wider vector the first so many columns are shown."""


@dataclass(frozen=True)
class Gap:
    """Rows or columns that stand next to each other and are not shown."""

    count: int


Place = int | Gap


@dataclass(frozen=True)
class Cut:
    """A panel as it is shown.

    Attributes:
        rows: indices and gaps.
        columns: the same.
        headings: a column's label each, or how many are left out.
        lines: for each row its label and the numbers as text.
    """

    rows: tuple[Place, ...]
    columns: tuple[Place, ...]
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return not any(isinstance(place, Gap) for place in (*self.rows, *self.columns))


def cut(panel: Panel, digits: int, say: Phrases) -> Cut:
    """The rows and columns that are shown: of positions the last, of features the first; the chosen cell always."""
    digits = _enough(panel, digits)
    rows, columns = _rows(panel), _columns(panel)
    headings = tuple(_label(panel.column_labels, place, say) for place in columns)
    lines = tuple(
        (_label(panel.row_labels, line, say), *(_cell(panel, line, place, digits) for place in columns))
        for line in rows
    )
    return Cut(tuple(rows), tuple(columns), headings, lines)


def is_cut(walkthrough: Walkthrough) -> bool:
    """Whether any panel is too large to be shown whole."""
    return any(
        isinstance(place, Gap)
        for step in walkthrough.steps
        for panel in step.panels
        for place in (*_rows(panel), *_columns(panel))
    )


def opening(walkthrough: Walkthrough, say: Phrases, marked: str = "brackets") -> list[str]:
    """What is said before the steps; `marked` is how the chosen numbers are found: brackets, boxed, bright, choose."""
    how = say(f"page.{marked}")
    return [*walkthrough.intro, f"{how} {say('page.cut')}" if is_cut(walkthrough) else how]


def equation(arithmetic: Arithmetic) -> Equation:
    """The whole of a cell's arithmetic, from its name to its value."""
    return Equation((arithmetic.target, *arithmetic.stages, Number(arithmetic.value)))


def _enough(panel: Panel, digits: int) -> int:
    """As many digits as the matrix needs, if that is fewer: whole numbers are written whole."""
    values = [value for row in panel.matrix for value in row if math.isfinite(value)]
    for fewer in range(digits):
        if all(abs(round(value, fewer) - value) < 1e-9 for value in values):
            return fewer
    return digits


def _rows(panel: Panel) -> list[Place]:
    return _places(len(panel.row_labels), panel.cell[0], by_position=True)


def _columns(panel: Panel) -> list[Place]:
    return _places(len(panel.column_labels), panel.cell[1], by_position=panel.columns_are_positions)


def _places(count: int, kept: int, *, by_position: bool) -> list[Place]:
    """The indices shown of an axis, with gaps between them; one alone is shown, since a gap takes as much room."""
    if by_position:
        shown = range(count) if count <= MOST_POSITIONS else range(count - LAST_POSITIONS, count)
    else:
        shown = range(min(count, MOST_FEATURES))
    places: list[Place] = []
    for is_shown, run in groupby(range(count), lambda index: index in shown or index == kept):
        indices = list(run)
        places += indices if is_shown or len(indices) == 1 else [Gap(len(indices))]
    return places


def _label(labels: tuple[str, ...], place: Place, say: Phrases) -> str:
    return say("page.gap", count=place.count) if isinstance(place, Gap) else visible(labels[place])


def _cell(panel: Panel, row: Place, column: Place, digits: int) -> str:
    if isinstance(row, Gap) or isinstance(column, Gap):
        return "…"
    return number(panel.matrix[row][column], digits)
