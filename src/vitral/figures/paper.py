"""A sheet of paper with boxes to fill in: as a page for printing, and as a LaTeX document.

All text is plain and is escaped where it is written. Pages are black on white; their margins fit A4 and Letter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vitral.core.checked import checked
from vitral.figures.html import rendered, templates
from vitral.figures.latex import PREAMBLE, escape
from vitral.figures.sections import Formula, Section


@dataclass(frozen=True)
class PaperGrid:
    """A table of numbers, or of boxes for numbers.

    Attributes:
        label: above it.
        rows: a label for each row.
        columns: a label for each column.
        cells: the numbers as text; None for a box.
        is_asked: whether it is to be filled in, so that its numbers have boxes on the key too.
    """

    label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str | None, ...], ...]
    is_asked: bool = False


@dataclass(frozen=True)
class PaperTask:
    """One quantity to compute.

    Attributes:
        heading: with its number.
        formulas: of each number; several if the quantity is computed from others that are not asked.
        latex: the same in LaTeX.
        grids: where the numbers go.
    """

    heading: str
    formulas: tuple[Formula, ...]
    latex: tuple[str, ...]
    grids: tuple[PaperGrid, ...]


@dataclass(frozen=True)
class Paper:
    """A sheet.

    Attributes:
        title: its heading.
        fields: lines for the name and the like, in order.
        intro: paragraphs.
        given_heading: above the given numbers.
        given: the given numbers.
        helps_heading: above the tables that help.
        helps: tables that help, as of exponentials.
        tasks: in order.
        language: BCP 47 code of the text.
    """

    title: str
    fields: tuple[str, ...]
    intro: tuple[str, ...]
    given_heading: str
    given: tuple[PaperGrid, ...]
    helps_heading: str
    helps: tuple[PaperGrid, ...]
    tasks: tuple[PaperTask, ...]
    language: str


@checked
def paper_page(paper: Paper, sections: Sequence[Section] = ()) -> str:
    """The sheet as a self-contained page for printing.

    Args:
        paper: the sheet.
        sections: printed after it, from a new page on.
    """
    body, script = rendered(sections)
    formulas = [[Markup(formula.mathml) for formula in task.formulas] for task in paper.tasks]
    shell = templates().get_template("paper.html")
    return shell.render(paper=paper, tasks=list(zip(paper.tasks, formulas, strict=True)), body=body, script=script)


LATEX = rf"""{PREAMBLE}% The text is also inside the margins of Letter paper.
\usepackage[hmargin=2.2cm,top=2cm,bottom=3.2cm]{{geometry}}
\newcommand{{\place}}[1]{{\makebox[1.15cm]{{\rule[-0.22cm]{{0pt}}{{0.66cm}}#1}}}}
"""


MOST_IN_HALF = 5
"""Columns of boxes, with that of the labels, that fit in half of a line."""


@checked
def paper_latex(paper: Paper, appendix: str = "") -> str:
    """The sheet as a LaTeX document for pdflatex with amsmath.

    Args:
        paper: the sheet.
        appendix: LaTeX that follows it, from a new page on.
    """
    lines = [LATEX, r"\begin{document}", rf"{{\Large\bfseries {escape(paper.title)}\par}}", ""]
    if paper.fields:
        lines += [r"\quad ".join(rf"{escape(field)}: \hrulefill" for field in paper.fields), ""]
    lines += [line for paragraph in paper.intro for line in (escape(paragraph), "")]
    for heading, grids in ((paper.given_heading, paper.given), (paper.helps_heading, paper.helps)):
        if grids:
            lines += [rf"\subsection*{{{escape(heading)}}}", *_flow(grids)]
    lines += [r"\medskip{\raggedright", *map(_task, paper.tasks), r"\par}"]
    if appendix:
        lines += [r"\clearpage", appendix]
    return "\n".join([*lines, r"\end{document}"]) + "\n"


def _task(task: PaperTask) -> str:
    """A task in a box of its own, which no page break divides; two are side by side where they fit."""
    columns = sum(len(grid.columns) + 1 for grid in task.grids)
    share = "0.48" if columns <= MOST_IN_HALF else "0.98"
    lines = [rf"\begin{{minipage}}[t]{{{share}\linewidth}}\raggedright", rf"\subsubsection*{{{escape(task.heading)}}}"]
    lines += [rf"\fitting{{{formula}}}\par\smallskip" for formula in task.latex]
    return "\n".join([*lines, *_flow(task.grids), r"\vspace{0.4cm}\end{minipage}\hspace{0.01\linewidth}"])


def _flow(grids: Sequence[PaperGrid]) -> list[str]:
    """Tables one beside the other, in as many lines as they need."""
    return [r"{\raggedright", *(_grid(grid) + r"\hspace{0.6cm}" for grid in grids), r"\par}"]


def _grid(grid: PaperGrid) -> str:
    count = len(grid.columns)
    inner = "|" if grid.is_asked else ""
    lines = [rf"\begin{{tabular}}[t]{{r|{inner.join('c' * count)}|}}"]
    if any(grid.columns):
        lines.append(" & ".join(["", *map(_small, grid.columns)]) + rf" \\ \cline{{2-{count + 1}}}")
    rule = rf" \\ \cline{{2-{count + 1}}}" if grid.is_asked else r" \\"
    for label, cells in zip(grid.rows, grid.cells, strict=True):
        written = [_place(cell) if grid.is_asked else _number(cell or "") for cell in cells]
        lines.append(" & ".join([_small(label), *written]) + rule)
    if not grid.is_asked:
        lines.append(rf"\cline{{2-{count + 1}}}")
    table = "\n".join([*lines, r"\end{tabular}"])
    if grid.label:
        table = rf"\begin{{tabular}}[t]{{@{{}}l@{{}}}}\small {escape(grid.label)}\\{table}\end{{tabular}}"
    return rf"\fitting{{\text{{{table}}}}}"


def _place(cell: str | None) -> str:
    return rf"\place{{{_number(cell or '')}}}"


def _small(label: str) -> str:
    return rf"{{\scriptsize {escape(label)}}}"


def _number(cell: str) -> str:
    if not cell or any(map(str.isalpha, cell)):
        return escape(cell)
    return "$" + escape(cell).replace(",", "{,}") + "$"  # TeX sets a bare comma as that of a list
