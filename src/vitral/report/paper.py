"""An exercise as a sheet of paper with boxes to fill in: a page for printing, and a LaTeX document.

All text is plain and is escaped where it is written. Pages are black on white; their margins fit A4 and Letter.
"""

from pathlib import Path

from markupsafe import Markup

from vitral.core.language import _
from vitral.explanation.examples.file import parse_example
from vitral.explanation.exercises.sheets import ExerciseSheet
from vitral.explanation.formulas import latex, mathml
from vitral.explanation.phrasebook import phrases
from vitral.report.html import language_code, rendered, templates
from vitral.report.live import blanks_of, to_live
from vitral.report.sections import Heading
from vitral.report.walkthrough import document, steps_in_latex, to_sections


def sheet_page(sheet: ExerciseSheet, *, is_key: bool = False) -> str:
    """An exercise as a self-contained page for printing.

    Args:
        sheet: the exercise.
        is_key: whether the numbers are in their boxes, and every step with its arithmetic follows on a new page.
    """
    steps = [Heading(_("Every step with its arithmetic")), *to_sections(sheet.walkthrough)]
    paper, say = sheet.paper(filled=is_key), phrases()
    tasks = [(task, [Markup(mathml(one, paper.decimals, say)) for one in task.formulas]) for task in paper.tasks]
    page = templates().get_template("paper.html")
    return page.render(paper=paper, tasks=tasks, language=language_code(), **rendered(steps if is_key else ()))


def practice_page(sheet: ExerciseSheet) -> str | None:
    """The sheet as a page for practice: each cell is judged when it is filled in; None for derivatives."""
    if any(quantity.derivative for quantity in sheet.key.sheet.quantities):
        return None
    example = parse_example(sheet.toml, Path(f"{sheet.exercise.name}.toml"))
    return to_live(example, blanks=blanks_of(example), digits=sheet.exercise.decimals)


def sheet_latex(sheet: ExerciseSheet, *, is_key: bool = False) -> str:
    """An exercise as a LaTeX document for pdflatex with amsmath; the arguments are those of `sheet_page`."""
    paper, say = sheet.paper(filled=is_key), phrases()
    tasks = [(task, [Markup(latex(one, paper.decimals, say)) for one in task.formulas]) for task in paper.tasks]
    steps = steps_in_latex(sheet.walkthrough) if is_key else ""
    return document("paper.tex", paper=paper, tasks=tasks, steps=steps)
