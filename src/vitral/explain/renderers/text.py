"""A walkthrough as plain text."""

import textwrap
import unicodedata

from vitral.explain.phrases import Phrases, phrases
from vitral.explain.renderers.cutting import Cut, cut, equation, opening
from vitral.explain.scripts import sides, text
from vitral.explain.walkthrough import Arithmetic, Panel, Step, Walkthrough
from vitral.figures.text import visible

TEXT_WIDTH = 100
INDENT = "   "


def to_text(walkthrough: Walkthrough, *, digits: int = 3) -> str:
    """Plain text: each step with formula, shapes, sentence, aligned numbers and the arithmetic of one of them.

    Args:
        walkthrough: what is shown.
        digits: after the point.
    """
    say = phrases(walkthrough.language)
    parts = [walkthrough.title, *(wrapped(paragraph) for paragraph in opening(walkthrough, say))]
    number = 0
    for chapter in walkthrough.chapters:
        parts += [f"── {chapter.title} " + "─" * max(0, 60 - len(chapter.title))] if chapter.title else []
        for step in chapter.steps:
            number += 1
            parts += _told(step, number, digits, say)
    return "\n\n".join(visible(part) for part in parts)


def heading(step: Step, number: int, digits: int, say: Phrases) -> str:
    """A step's first line."""
    formula = text(step.formula, digits, say)
    return f"{number}. {step.title}: {formula}" if formula else f"{number}. {step.title}"


def stacked(arithmetic: Arithmetic, digits: int, say: Phrases) -> list[str]:
    """The arithmetic with its equals signs below one another."""
    target, first, *others = sides(equation(arithmetic), digits, say)
    return [f"{target} = {first}", *(f"{' ' * _width(target)} = {side}" for side in others)]


def wrapped(paragraph: str, indent: str = "") -> str:
    """A paragraph in lines."""
    return textwrap.fill(paragraph, TEXT_WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _told(step: Step, number: int, digits: int, say: Phrases) -> list[str]:
    shapes = f"{INDENT}{step.shapes}\n" if step.shapes else ""
    told = [f"{heading(step, number, digits, say)}\n{shapes}{wrapped(step.sentence, INDENT)}"]
    for panel in step.panels:
        table = "\n".join(_aligned(panel, cut(panel, digits, say)))
        label = f"{panel.label}\n" if panel.label else ""
        told.append(textwrap.indent(label + table, INDENT))
        arithmetic = panel.working(*panel.cell)
        if arithmetic.stages:
            told.append(textwrap.indent("\n".join(stacked(arithmetic, digits, say)), INDENT))
    return told


def _aligned(panel: Panel, shown: Cut) -> list[str]:
    """The table in columns that stand under their headings; the chosen number in brackets."""
    lines = [["", *shown.headings], *(list(line) for line in shown.lines)]
    row, column = shown.rows.index(panel.cell[0]) + 1, shown.columns.index(panel.cell[1]) + 1
    if panel.working(*panel.cell).stages:
        lines[row][column] = f"[{lines[row][column]}]"
    widths = [max(_width(line[place]) for line in lines) for place in range(len(lines[0]))]
    return ["  ".join(_padded(line, widths)).rstrip() for line in lines]


def _padded(line: list[str], widths: list[int]) -> list[str]:
    """The row's label to the left, its numbers to the right."""
    blanks = [" " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)]
    return [line[0] + blanks[0], *(blank + cell for cell, blank in zip(line[1:], blanks[1:], strict=True))]


def _width(words: str) -> int:
    """How many columns a terminal gives the text: two for wide characters, none for those that stand on others."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in words)
    marks = sum(unicodedata.category(character) in ("Mn", "Me") for character in words)
    return len(words) + wide - marks
