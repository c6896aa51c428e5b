"""A walkthrough as text for a terminal and as sections for a page."""

import textwrap
import unicodedata
from dataclasses import dataclass
from itertools import groupby

from vitral.explain.arithmetic import Arithmetic, number
from vitral.explain.walkthrough import Step, Walkthrough
from vitral.figures.sections import Details, Paragraph, Preformatted, Section, Table
from vitral.figures.text import visible

MOST_POSITIONS, LAST_POSITIONS = 12, 8
"""Up to so many positions are all shown; of more the last so many."""
MOST_FEATURES = 6
"""Of a wider vector the first so many columns are shown."""
TEXT_WIDTH = 100
INDENT = "   "


@dataclass(frozen=True)
class Gap:
    """Rows or columns that stand next to each other and are not shown."""

    count: int


Place = int | Gap


def to_text(walkthrough: Walkthrough, *, digits: int = 3) -> str:
    """Plain text: each step with formula, shapes, sentence, aligned numbers and the arithmetic of one of them.

    Args:
        walkthrough: what is shown.
        digits: after the point.
    """
    parts = [walkthrough.title, *(_wrapped(text, "") for text in _opening(walkthrough))]
    for index, step in enumerate(walkthrough.steps, start=1):
        heading = f"{index}. {step.title}: {step.formula}"
        table, working = "\n".join(_aligned(step, digits)), "\n".join(_stacked(step.arithmetic, digits))
        told = f"{heading}\n{INDENT}{step.shapes}\n{_wrapped(step.sentence, INDENT)}"
        parts += [told, textwrap.indent(table, INDENT), textwrap.indent(working, INDENT)]
    return "\n\n".join(visible(part) for part in parts)


def to_sections(walkthrough: Walkthrough, *, digits: int = 3) -> list[Section]:
    """Sections of a page: each step folds.

    Args:
        walkthrough: what is shown.
        digits: after the point.
    """
    sections: list[Section] = [Paragraph(text) for text in _opening(walkthrough)]
    for index, step in enumerate(walkthrough.steps, start=1):
        columns, *rows = _cells(step, digits)
        table = Table(f"{step.formula}; {step.shapes}", columns, tuple(rows))
        inside = (Paragraph(step.sentence), table, Preformatted("\n".join(_stacked(step.arithmetic, digits))))
        sections.append(Details(f"{index}. {step.title}: {step.formula}", inside))
    return sections


def _opening(walkthrough: Walkthrough) -> list[str]:
    """What is said before the steps."""
    opening = [walkthrough.intro, "In each table the number in [brackets] is worked out below it."]
    if any(isinstance(place, Gap) for step in walkthrough.steps for axis in _axes(step) for place in axis):
        opening[1] += " Where a table would be too large, … and a count stand for the rows and columns left out; "
        opening[1] += "the computation leaves out none."
    return opening


def _axes(step: Step) -> tuple[list[Place], list[Place]]:
    """The rows and columns shown. Rows are positions, of which the last tell most; the worked-out ones always stay."""
    row, column = step.cell
    by_position = step.column_labels == step.row_labels
    rows = _places(len(step.row_labels), row, by_position=True)
    return rows, _places(len(step.column_labels), column, by_position=by_position)


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


def _cells(step: Step, digits: int) -> list[tuple[str, ...]]:
    """The table as text: a line of headings, then a line for each row or gap."""
    rows, columns = _axes(step)
    lines = [("", *(_label(step.column_labels, column) for column in columns))]
    for row in rows:
        lines.append((_label(step.row_labels, row), *(_cell(step, row, column, digits) for column in columns)))
    return lines


def _label(labels: tuple[str, ...], place: Place) -> str:
    return f"… {place.count} more" if isinstance(place, Gap) else visible(labels[place])


def _cell(step: Step, row: Place, column: Place, digits: int) -> str:
    if isinstance(row, Gap) or isinstance(column, Gap):
        return "…"
    written = number(step.matrix[row][column], digits)
    return f"[{written}]" if (row, column) == step.cell else written


def _aligned(step: Step, digits: int) -> list[str]:
    """The table in columns that stand under their headings."""
    lines = _cells(step, digits)
    widths = [max(_width(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(_padded(line, widths)).rstrip() for line in lines]


def _padded(line: tuple[str, ...], widths: list[int]) -> list[str]:
    """The row's label to the left, its numbers to the right."""
    blanks = [" " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)]
    return [line[0] + blanks[0], *(blank + cell for cell, blank in zip(line[1:], blanks[1:], strict=True))]


def _width(text: str) -> int:
    """How many columns a terminal gives the text: two for wide characters, none for those that stand on others."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    marks = sum(unicodedata.category(character) in ("Mn", "Me") for character in text)
    return len(text) + wide - marks


def _stacked(arithmetic: Arithmetic, digits: int) -> list[str]:
    """The arithmetic with its equals signs below one another."""
    first, *others = arithmetic.lines(digits)
    blank = " " * len(arithmetic.target)
    return [f"{arithmetic.target} = {first}", *(f"{blank} = {other}" for other in others)]


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, TEXT_WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
