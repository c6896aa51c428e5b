"""A walkthrough as a LaTeX document for pdflatex with amsmath."""

from vitral.core.checked import Digits, checked
from vitral.explanation.formulas import escape, latex
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.picture import Picture
from vitral.explanation.picture_text import are_named, head_name, marked_tokens, picture_title, written
from vitral.explanation.steps import Panel, Step
from vitral.explanation.truncation import truncate
from vitral.explanation.walkthrough import Walkthrough, opening, worked_out
from vitral.figures.latex import PREAMBLE

GEOMETRY = r"\usepackage[margin=2.2cm]{geometry}"


@checked
def to_latex(walkthrough: Walkthrough, *, digits: Digits = 3, whole: bool = False) -> str:
    """A complete document.

    Args:
        walkthrough: the steps.
        digits: after the point.
        whole: whether all rows, columns and terms are written.
    """
    say = walkthrough.phrases(whole=whole)
    lines = [
        PREAMBLE + GEOMETRY,
        rf"\title{{{escape(walkthrough.title)}}}",
        r"\author{}\date{}",
        r"\begin{document}",
        r"\maketitle",
    ]
    lines += [escape(paragraph) + "\n" for paragraph in opening(walkthrough, say, "boxed")]
    lines += [] if walkthrough.picture is None else _picture(walkthrough.picture, digits, say)
    count = 0
    for chapter in walkthrough.chapters:
        lines += [rf"\section*{{{escape(chapter.title)}}}"] if chapter.title else []
        for step in chapter.steps:
            count += 1
            lines += _step(step, count, digits, say)
    return "\n".join([*lines, r"\end{document}"]) + "\n"


def _picture(picture: Picture, digits: int, say: Phrases) -> list[str]:
    """The path of the chosen position: attention as one formula, and a small table of the quantities on the way."""
    formula = [] if picture.formula is None else [rf"\[\fitting{{{latex(picture.formula, digits, say)}}}\]"]
    rows = []
    for part in picture.parts:
        for head in range(len(picture.heads) if part[0].has_heads else 1):
            if part[0].has_heads and are_named(picture):
                rows.append(rf"\multicolumn{{3}}{{l}}{{\text{{{escape(head_name(picture, head, say))}}}}} \\")
            for strip in part:
                how = "" if strip.how is None else f"= {latex(strip.how, digits, say)}"
                numbers = rf"\text{{{escape(written(strip, head, say))}}}"
                rows.append(rf"{latex(strip.label, digits, say)} & {how} & \quad {numbers} \\")
    table = rf"\begin{{array}}{{lll}}{chr(10).join(rows)}\end{{array}}"
    tokens = [escape("  ".join(marked_tokens(picture))), ""] if picture.tokens else []
    title = rf"\textbf{{{escape(picture_title(picture, say))}}}"
    return [title, "", *tokens, *formula, r"\begin{center}", rf"\fitting{{{table}}}", r"\end{center}"]


def _step(step: Step, count: int, digits: int, say: Phrases) -> list[str]:
    formula = latex(step.formula, digits, say)
    lines = [
        rf"\subsection*{{{count}. {escape(step.title)}}}",
        rf"\[\fitting{{{formula}}}\]" if formula != r"\text{}" else "",
    ]
    lines += [escape(step.sentence), ""]
    worked = [(panel, worked_out(panel)) for panel in step.panels]
    if not any(arithmetics for _, arithmetics in worked):
        tables = [_table(panel, digits, say, boxed=False) for panel, _ in worked]
        return [
            *lines,
            r"\begin{center}",
            "\\qquad\n".join(rf"\fitting{{{table}}}" for table in tables),
            r"\end{center}",
        ]
    for panel, arithmetics in worked:
        lines += [r"\begin{center}", rf"\fitting{{{_table(panel, digits, say, boxed=True)}}}", r"\end{center}"]
        lines += [rf"\[\fitting{{{latex(arithmetic.equation(), digits, say)}}}\]" for arithmetic in arithmetics]
    return lines


def _table(panel: Panel, digits: int, say: Phrases, *, boxed: bool) -> str:
    """A matrix as an array with its row and column labels, its own label below; the chosen number in a box."""
    shown = truncate(panel, digits, say)
    worked = shown.worked(panel) if boxed else []
    lines = [" & ".join(["", *map(_small, shown.headings)]) + r" \\ \hline"]
    for place, (label, *cells) in enumerate(shown.lines):
        written = [rf"\text{{{escape(cell)}}}" if panel.words else _number(cell) for cell in cells]
        for column in (column for row, column in worked if row == place):
            written[column] = rf"\boxed{{{written[column]}}}"
        lines.append(" & ".join([_small(label), *written]) + r" \\")
    array = rf"\begin{{array}}{{l|{'r' * len(shown.columns)}}}" + "\n".join(lines) + r"\end{array}"
    return rf"\underset{{\text{{\small {escape(panel.label)}}}}}{{{array}}}" if panel.label else array


def _small(label: str) -> str:
    return rf"\text{{\scriptsize {escape(label)}}}"


def _number(cell: str) -> str:
    return {"…": r"\cdots"}.get(cell, cell.replace("−", "-").replace("∞", r"\infty").replace(",", "{,}"))
