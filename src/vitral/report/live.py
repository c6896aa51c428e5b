"""Pages that compute: a worked example whose given numbers can be edited, an exercise to fill in; and that on paper.

The page holds the sheet as a graph (`vitral.core.graphs`), made by the sheet's own operations, and runs it.
"""

import math
from collections.abc import Collection
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from markupsafe import Markup
from torch import Tensor

from vitral.core.graphs import Plain
from vitral.core.language import _
from vitral.explanation.examples.document import TomlDocument
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.file import parse_example
from vitral.explanation.examples.schema import CHOICES
from vitral.explanation.exercises.sheets import ExerciseSheet
from vitral.explanation.formulas import latex, mathml
from vitral.explanation.phrasebook import Phrases, catalogue, phrases
from vitral.explanation.sheet import Sheet, sheet_graph
from vitral.explanation.steps import Panel, Step
from vitral.explanation.walks import walk_example
from vitral.explanation.walkthrough import Walkthrough, truncate
from vitral.report.html import language_code, page, rendered, templates
from vitral.report.sections import (
    CellTable,
    Columns,
    Heading,
    LiveTables,
    Paragraph,
    Section,
)
from vitral.report.walkthrough import document, formula_of, steps_in_latex, to_sections


def blanks_of(example: Example) -> tuple[str, ...]:
    """The claimed quantities of which a cell is left open, in the order of the computation."""
    return tuple(claim.name for claim in example.claims if bool(claim.values.isnan().any()))


def live_tables(walkthrough: Walkthrough, digits: int) -> list[Section]:
    """The sections that make the page of a worked example alive; none if nothing can be edited."""
    if walkthrough.sheet is None:
        return []
    sheet, say = walkthrough.sheet, phrases(walkthrough.language)
    graph = sheet_graph(sheet)
    editable = [name for name in sheet.given_names if name in graph["inputs"]]
    if not editable or not graph["outputs"]:
        return []
    words = _words("live", say)
    data = _data(sheet, graph, digits, say) | {"editable": editable, "stale": [], "blanks": [], "words": words}
    data["words"]["more"] = say("page.more_terms", count="{count}", total="{total}")
    return [Paragraph(say("live.lead")), LiveTables(data, say("live.title"), say("live.reset"))]


def _words(table: str, say: Phrases) -> dict[str, str]:
    """The phrases of a table of the catalogue, whose places the script fills."""
    return {
        key.partition(".")[2]: say.translated(phrase)
        for key, phrase in catalogue().items()
        if key.startswith(f"{table}.")
    }


def _data(sheet: Sheet, graph: Plain, digits: int, say: Phrases) -> dict[str, Any]:
    return {
        "graph": graph,
        "given": {name: _plain(sheet.values[name]) for name in graph["inputs"]},
        "choices": [each.name for each in sheet.quantities if each.chooses],
        "unexplained": [each.name for each in sheet.quantities if each.name in CHOICES and not each.is_free],
        "vocabulary": list(sheet.vocabulary),
        "digits": digits,
        "comma": say.has_comma,
        "first": sheet.first,
    }


def _plain(value: Tensor) -> list[float | str]:
    return [each if math.isfinite(each) else "inf" if each > 0 else "-inf" for each in value.flatten().tolist()]


# The exercise.


def exercise_page(example: Example, *, digits: int = 3) -> str:
    """An exercise as a self-contained page: the given numbers, and empty tables of the quantities of `blanks_of`.

    Each cell is judged when it is filled in.

    Args:
        example: the computation.
        digits: after the point, of the given numbers.
    """
    example, say = example.told(), phrases()
    graph = sheet_graph(example.sheet)
    order = [name for name in blanks_of(example) if name in graph["outputs"]]
    file = _file(example, order)
    name = example.path.name if example.path else "exercise.toml"
    words = _words("practice", say)
    data = _data(example.sheet, graph, digits, say)
    data |= {"editable": [], "stale": [], "blanks": order, "decimals": example.decimals, "file": file, "words": words}
    saved = (say("practice.file", name=name), name) if file else None
    sections: list[Section] = [Paragraph(example.note)] if example.note else []
    sections += [Paragraph(say("practice.how", decimals=example.decimals))]
    sections += [LiveTables(data, say("practice.title"), say("practice.clear"), saved)]
    for step in walk_example(example).steps:
        if step.name == "given" or step.name in order:
            sections += [Heading(step.title, 2), *_blank_step(step, order, digits, say)]
    return page(example.title, sections, lead=say("practice.intro"), footer=say("page.footer"))


def _blank_step(step: Step, blanks: Collection[str], digits: int, say: Phrases) -> list[Section]:
    """A step without what would give its numbers away: sentence, arithmetic, shades."""
    say = replace(say, whole=True)
    tables = [_blank_table(step, panel, digits, say, is_blank=step.name in blanks) for panel in step.panels]
    return [*formula_of(step, digits, say), Columns(tuple(tables)) if len(tables) > 1 else tables[0]]


def _blank_table(step: Step, panel: Panel, digits: int, say: Phrases, *, is_blank: bool) -> CellTable:
    shown = truncate(panel, digits, say)
    lines = tuple((label, *([""] * len(cells) if is_blank else cells)) for label, *cells in shown.lines)
    nothing = tuple((None,) * len(shown.columns) for _row in shown.rows)
    columns = ("", *shown.headings)
    return CellTable(
        panel.label or step.shapes, columns, lines, nothing, (0, 0), quantity=panel.quantity, head=panel.head
    )


def _file(example: Example, blanks: Collection[str]) -> list[str | dict[str, str]]:
    """The author's file, cut at the cells to fill in: texts, and the places of the cells between them.

    Empty if a cell has no place of its own in a TOML file, as in a spreadsheet, or where "?" is a whole row.
    """
    document = example.document
    if not isinstance(document, TomlDocument):
        return []
    parts, end = list[str | dict[str, str]](), 0
    cells = [
        (document.tokens.get(claim.path(index)), f"{claim.name}/{number}")
        for claim in example.claims
        for number, index in enumerate(product(*map(range, claim.values.shape)))
        if claim.name in blanks and claim.values[index].isnan()
    ]
    for token, name in sorted(cells, key=lambda cell: cell[0].column if cell[0] else -1):
        if token is None:
            return []
        parts += [document.text[end : token.column], {"cell": name}]
        end = token.end
    return [*parts, document.text[end:]]


# The exercise on paper.


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
    return exercise_page(example, digits=sheet.exercise.decimals)


def sheet_latex(sheet: ExerciseSheet, *, is_key: bool = False) -> str:
    """An exercise as a LaTeX document for pdflatex with amsmath; the arguments are those of `sheet_page`."""
    paper, say = sheet.paper(filled=is_key), phrases()
    tasks = [(task, [Markup(latex(one, paper.decimals, say)) for one in task.formulas]) for task in paper.tasks]
    steps = steps_in_latex(sheet.walkthrough) if is_key else ""
    return document("paper.tex", paper=paper, tasks=tasks, steps=steps)
