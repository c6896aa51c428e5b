"""A walkthrough as a LaTeX document for pdflatex with amsmath."""

from typing import Any

from markupsafe import Markup

from vitral.core.latex import escape
from vitral.explanation.formulas import latex
from vitral.explanation.formulas.notation import Expression
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.picture import Picture
from vitral.explanation.picture_text import are_named, head_name, marked_tokens, picture_title, written
from vitral.explanation.steps import Panel, Step
from vitral.explanation.truncation import truncate
from vitral.explanation.walkthrough import Walkthrough, opening, worked_out
from vitral.report.latex import document


def to_latex(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False) -> str:
    """A complete document.

    Args:
        walkthrough: the steps.
        digits: after the point.
        whole: whether all rows, columns and terms are written.
    """
    steps = steps_in_latex(walkthrough, digits=digits, whole=whole)
    return document("walkthrough.tex", title=walkthrough.title, steps=steps)


def steps_in_latex(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False) -> Markup:
    """What is inside the document: introduction, picture and steps."""
    say = walkthrough.phrases(whole=whole)
    picture = None if walkthrough.picture is None else _picture(walkthrough.picture, digits, say)
    steps = [
        {"chapter": "" if place else chapter.title, **_step(step, digits, say)}
        for chapter in walkthrough.chapters
        for place, step in enumerate(chapter.steps)
    ]
    return document("steps.tex", opening=opening(walkthrough, say, "boxed"), picture=picture, steps=steps)


def _formula(formula: Expression | None, digits: int, say: Phrases) -> Markup:
    written = "" if formula is None else latex(formula, digits, say)
    return Markup("" if written == r"\text{}" else written)


def _picture(picture: Picture, digits: int, say: Phrases) -> dict[str, Any]:
    """The path of the chosen position: attention as one formula, and a small table of the quantities on the way."""
    lanes = [
        (
            head_name(picture, head, say) if part[0].has_heads and are_named(picture) else "",
            [
                (_formula(strip.label, digits, say), _formula(strip.how, digits, say), written(strip, head, say))
                for strip in part
            ],
        )
        for part in picture.parts
        for head in range(len(picture.heads) if part[0].has_heads else 1)
    ]
    tokens, formula = "  ".join(marked_tokens(picture)), _formula(picture.formula, digits, say)
    return {"title": picture_title(picture, say), "tokens": tokens, "formula": formula, "lanes": lanes}


def _step(step: Step, digits: int, say: Phrases) -> dict[str, Any]:
    worked = [worked_out(panel) for panel in step.panels]
    tables = [
        {
            **_table(panel, digits, say, is_boxed=any(worked)),
            "arithmetics": [_formula(each.equation(), digits, say) for each in arithmetics],
        }
        for panel, arithmetics in zip(step.panels, worked, strict=True)
    ]
    formula = _formula(step.formula, digits, say)
    return {"title": step.title, "formula": formula, "sentence": step.sentence, "tables": tables}


def _table(panel: Panel, digits: int, say: Phrases, *, is_boxed: bool) -> dict[str, Any]:
    """A matrix as an array with its row and column labels, its own label below; the chosen numbers in boxes."""
    shown = truncate(panel, digits, say)
    boxed = {*shown.worked(panel)} if is_boxed else set[tuple[int, int]]()
    rows = []
    for row, (label, *cells) in enumerate(shown.lines):
        numbers = [rf"\text{{{escape(cell)}}}" if panel.words else _number(cell) for cell in cells]
        marked = [rf"\boxed{{{cell}}}" if (row, column) in boxed else cell for column, cell in enumerate(numbers)]
        rows.append((label, [Markup(cell) for cell in marked]))
    return {"label": panel.label, "headings": shown.headings, "rows": rows}


def _number(cell: str) -> str:
    return {"…": r"\cdots"}.get(cell, cell.replace("−", "-").replace("∞", r"\infty").replace(",", "{,}"))
