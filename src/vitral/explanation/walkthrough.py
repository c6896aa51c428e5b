"""A walkthrough: a computation in chapters of numbered steps; its views, its plain text, and its plain data.

Large matrices are truncated: every renderer shows the same rows and columns and counts those it omits.
"""

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from vitral.core.shown import Shown
from vitral.core.text import aligned, visible
from vitral.explanation.formulas import decimals, latex, lines, number, text
from vitral.explanation.formulas.notation import Equation
from vitral.explanation.phrasebook import Phrases, phrases
from vitral.explanation.sheet import Sheet
from vitral.explanation.steps import Arithmetic, Cell, Chapter, Panel, Step

MOST_POSITIONS, LAST_POSITIONS = 12, 8
"""More positions than the first number are truncated to the last ones, as many as the second number."""
MOST_FEATURES = 8
"""A wider vector is truncated to its first columns, as many as this number."""


TEXT_WIDTH = 100
INDENT = "   "


@dataclass(frozen=True, repr=False)
class Walkthrough(Shown):
    """Chapters in order; steps are numbered across chapters.

    Attributes:
        title: of the whole.
        intro: one string for each paragraph before the steps.
        chapters: the computation.
        language: of the texts, "en" or "pt".
        sheet: of a worked example, whose given numbers can be edited on a page (`report.live`).
    """

    title: str
    intro: tuple[str, ...]
    chapters: tuple[Chapter, ...]
    language: str = "en"
    sheet: Sheet | None = field(default=None, compare=False)

    def phrases(self, **how: bool) -> Phrases:
        """The phrases of its language; `how` they are written, as `whole`."""
        return replace(phrases(self.language), **how)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all chapters."""
        return tuple(step for chapter in self.chapters for step in chapter.steps)

    def __str__(self) -> str:
        """The walkthrough as plain text."""
        return to_text(self)

    def plain(self) -> dict[str, Any]:
        """As plain data, the document of `vitral explain --format json`; its sentences are in `language`."""
        return to_plain(self)


@dataclass(frozen=True)
class Gap:
    """Adjacent rows or columns that are omitted."""

    count: int


Place = int | Gap
"""The index of a row or column that is shown, or a gap."""


@dataclass(frozen=True)
class TableView:
    """A panel as it is shown.

    Attributes:
        panel: the matrix.
        rows: indices and gaps.
        columns: indices and gaps.
        headings: the label of each column, or the number of omitted ones.
        lines: for each row, its label and the numbers as text.
    """

    panel: Panel
    rows: tuple[Place, ...]
    columns: tuple[Place, ...]
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    @property
    def chosen(self) -> list[Cell]:
        """Row and column, among those shown, of each cell whose arithmetic is written out."""
        return [(self.rows.index(row), self.columns.index(column)) for row, column in self.panel.worked]

    @cached_property
    def worked(self) -> list[Arithmetic]:
        """The arithmetic below the table; none if its numbers are given."""
        return [arithmetic for cell in self.panel.worked if (arithmetic := self.panel.working(*cell)).stages]

    @property
    def marked(self) -> list[Cell]:
        """The chosen cells, if they have arithmetic."""
        return self.chosen if self.worked else []


@dataclass(frozen=True)
class StepView:
    """A step as every form shows it.

    Attributes:
        chapter: the heading above it; empty if it is not the first of a chapter with a title.
        heading: its number and title.
        step: formula, shapes and sentence.
        tables: its matrices.
    """

    chapter: str
    heading: str
    step: Step
    tables: tuple[TableView, ...]


def truncate(panel: Panel, digits: int, say: Phrases) -> TableView:
    """The rows and columns that are shown: the last positions, the first features, and always the worked cells.

    If `say` writes everything, these are all rows and columns.
    """
    digits = decimals(digits, *(value for row in panel.matrix for value in row if math.isfinite(value)))
    rows, columns = _shown_indices(panel, say)
    headings = tuple(_label(panel.column_labels, column, say) for column in columns)
    lines = tuple(
        (_label(panel.row_labels, line, say), *(_cell(panel, line, column, digits, say) for column in columns))
        for line in rows
    )
    return TableView(panel, tuple(rows), tuple(columns), headings, lines)


def shown_cells(panel: Panel, say: Phrases) -> int:
    """The number of cells that are shown."""
    rows, columns = _shown_indices(panel, say)
    return len(rows) * len(columns)


def is_truncated(panel: Panel, say: Phrases) -> bool:
    """Whether the panel is not shown whole."""
    return any(isinstance(index, Gap) for indices in _shown_indices(panel, say) for index in indices)


def _shown_indices(panel: Panel, say: Phrases) -> tuple[list[Place], list[Place]]:
    """The visible rows and columns."""
    if say.whole:
        return list(range(len(panel.row_labels))), list(range(len(panel.column_labels)))
    rows, columns = ({cell[axis] for cell in panel.worked} for axis in (0, 1))
    return (
        _indices(len(panel.row_labels), rows, by_position=True),
        _indices(len(panel.column_labels), columns, by_position=panel.columns_are_positions),
    )


def _indices(count: int, worked: set[int], *, by_position: bool) -> list[Place]:
    """The visible indices of an axis with gaps between them; a gap of one is not worth it."""
    if by_position:
        shown = range(count) if count <= MOST_POSITIONS else range(count - LAST_POSITIONS, count)
    else:
        shown = range(min(count, MOST_FEATURES))
    axis_indices: list[Place] = []
    for is_shown, run in groupby(range(count), lambda index: index in shown or index in worked):
        indices = list(run)
        axis_indices += indices if is_shown or len(indices) == 1 else [Gap(len(indices))]
    return axis_indices


def _label(labels: tuple[str, ...], index: Place, say: Phrases) -> str:
    return say("page.gap", count=index.count) if isinstance(index, Gap) else visible(labels[index])


def _cell(panel: Panel, row: Place, column: Place, digits: int, say: Phrases) -> str:
    if isinstance(row, Gap) or isinstance(column, Gap):
        return "…"
    if panel.words:
        return visible(panel.words[row][column])
    return say.number(number(panel.matrix[row][column], digits))


def views(walkthrough: Walkthrough, digits: int, say: Phrases) -> Iterator[StepView]:
    """The steps in order, as every form shows them."""
    for chapter in walkthrough.chapters:
        for index, step in enumerate(chapter.steps):
            tables = tuple(truncate(panel, digits, say) for panel in step.panels)
            yield StepView("" if index else chapter.title, step.title, step, tables)


def opening(walkthrough: Walkthrough, say: Phrases, marked: str = "brackets") -> list[str]:
    """The paragraphs before the steps; `marked` is how chosen numbers appear: brackets, boxed, bright, choose."""
    how = say(f"page.{marked}")
    is_cut = any(is_truncated(panel, say) for step in walkthrough.steps for panel in step.panels)
    opened = say("page.cut_open" if marked == "choose" else "page.cut_all")
    return [*walkthrough.intro, f"{how} {say('page.cut')} {opened}" if is_cut else how]


def to_text(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False) -> str:
    """Plain text: each step with formula, shapes, sentence, aligned numbers and the arithmetic of one of them.

    Args:
        walkthrough: the steps.
        digits: after the point.
        whole: whether all rows, columns and terms are written.
    """
    say = walkthrough.phrases(whole=whole)
    parts = [walkthrough.title, *map(_wrapped, opening(walkthrough, say))]
    for view in views(walkthrough, digits, say):
        parts += [f"── {view.chapter} " + "─" * max(0, 60 - len(view.chapter))] if view.chapter else []
        shapes = f"{INDENT}{view.step.shapes}" if view.step.shapes else ""
        about = [*heading(view, digits, say), shapes, _wrapped(view.step.sentence, INDENT)]
        parts.append("\n".join(filter(None, about)))
        for table in view.tables:
            blocks = ["\n".join(filter(None, [table.panel.label, *_aligned(table)]))]
            blocks += ["\n".join(lines(arithmetic.equation(), digits, say)) for arithmetic in table.worked]
            parts += [textwrap.indent(block, INDENT) for block in blocks]
    return "\n\n".join(map(visible, parts))


def heading(view: StepView, digits: int, say: Phrases) -> list[str]:
    """A step's first line with its formula; further equations of the formula on lines below."""
    formula = view.step.formula
    formulas = formula.all() if isinstance(formula, Equation) else (formula,)
    first, *others = (text(equation, digits, say) for equation in formulas)
    return [f"{view.heading}: {first}" if first else view.heading, *map(INDENT.__add__, others)]


def _wrapped(paragraph: str, indent: str = "") -> str:
    return textwrap.fill(paragraph, TEXT_WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _aligned(table: TableView) -> list[str]:
    """The table in aligned columns, labels left and numbers right; the worked numbers in brackets."""
    cells = [["", *table.headings], *map(list, table.lines)]
    for row, column in table.marked:
        cells[row + 1][column + 1] = f"[{cells[row + 1][column + 1]}]"
    return aligned(cells)


def to_plain(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False) -> dict[str, Any]:
    """All contents of a walkthrough; infinite numbers as "inf" and "-inf", cells counted from 0.

    Formulas and arithmetic have decimal points in every language; sentences are in the walkthrough's.

    Args:
        walkthrough: the steps.
        digits: of the numbers written in formulas and arithmetic; the matrices are exact.
        whole: whether all terms of a sum are written; the matrices are always whole.
    """
    say = walkthrough.phrases(in_data=True, whole=whole)
    chapters = [
        {"title": chapter.title, "steps": [_plain_step(step, digits, say) for step in chapter.steps]}
        for chapter in walkthrough.chapters
    ]
    head = {"title": walkthrough.title, "language": walkthrough.language, "intro": list(walkthrough.intro)}
    return {**head, "chapters": chapters}


def _plain_step(step: Step, digits: int, say: Phrases) -> dict[str, Any]:
    return {
        "name": step.name,
        "title": step.title,
        "formula": text(step.formula, digits, say),
        "latex": latex(step.formula, digits, say),
        "shapes": step.shapes,
        "sentence": step.sentence,
        "is_share": step.is_share,
        "panels": [_plain_panel(panel, digits, say) for panel in step.panels],
    }


def _plain_panel(panel: Panel, digits: int, say: Phrases) -> dict[str, Any]:
    equations = [(cell, panel.working(*cell).equation()) for cell in panel.worked]
    first, *also = (
        {
            "cell": list(cell),
            "arithmetic": text(equation, digits, say),
            "arithmetic_latex": latex(equation, digits, say),
        }
        for cell, equation in equations
    )
    return {
        "label": panel.label,
        "quantity": panel.quantity,
        "head": panel.head,
        "rows": list(panel.row_labels),
        "columns": list(panel.column_labels),
        "matrix": [[_number(value) for value in row] for row in panel.matrix],
        **first,
        "also": also,
    }


def _number(value: float) -> float | str | None:
    """A number for JSON; NaN as null."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else "inf" if value > 0 else "-inf"
