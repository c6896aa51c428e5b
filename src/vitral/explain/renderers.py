"""A walkthrough as text for a terminal and as sections for a page."""

from vitral.explain.arithmetic import number
from vitral.explain.walkthrough import Step, Walkthrough
from vitral.figures.sections import Details, Paragraph, Preformatted, Section, Table
from vitral.figures.text import visible

MOST_COLUMNS = 10


def to_text(walkthrough: Walkthrough, *, digits: int = 3) -> str:
    """Plain text: each step with formula, shapes, sentence, aligned numbers and the arithmetic of one of them."""
    parts = [walkthrough.title, walkthrough.intro]
    for index, step in enumerate(walkthrough.steps, start=1):
        heading = f"{index}. {step.title}    {step.formula}    {step.shapes}"
        parts.append(
            "\n".join([heading, f"   {step.sentence}", *_aligned(step, digits), f"   {step.arithmetic.line()}"])
        )
    return visible("\n\n".join(parts))


def to_sections(walkthrough: Walkthrough, *, digits: int = 3) -> list[Section]:
    """Sections of a page: each step folds."""
    sections: list[Section] = [Paragraph(walkthrough.intro)]
    for index, step in enumerate(walkthrough.steps, start=1):
        columns, rows = _cells(step, digits)
        table = Table(f"{step.formula}, {step.shapes}", ("", *columns), tuple(rows))
        inside = (Paragraph(step.sentence), table, Preformatted(step.arithmetic.line()))
        sections.append(Details(f"{index}. {step.title}: {step.formula}", inside))
    return sections


def _cells(step: Step, digits: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows as text, columns beyond `MOST_COLUMNS` counted in the last heading."""
    shown = len(step.column_labels) if len(step.column_labels) <= MOST_COLUMNS else MOST_COLUMNS - 1
    hidden = len(step.column_labels) - shown
    more = (f"… {hidden} more",) if hidden else ()
    rows = [
        (label, *(number(value, digits) for value in row[:shown]), *("…" for _ in more))
        for label, row in zip(step.row_labels, step.matrix, strict=True)
    ]
    return (*step.column_labels[:shown], *more), rows


def _aligned(step: Step, digits: int) -> list[str]:
    """The numbers in columns that stand under their headings."""
    columns, rows = _cells(step, digits)
    lines = [("", *columns), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["   " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
