"""A walkthrough as a self-contained page, as Markdown, as LaTeX, or as sections of another page."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from vitral.core.latex import escape
from vitral.explanation.formulas import latex, lines, markdown_latex, mathml, text
from vitral.explanation.formulas.notation import Expression
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.steps import Arithmetic, Panel, Step
from vitral.explanation.walkthrough import (
    Place,
    StepView,
    TableView,
    Walkthrough,
    is_truncated,
    opening,
    shown_cells,
    truncate,
    views,
)
from vitral.report.html import page
from vitral.report.markdown import markdown
from vitral.report.sections import (
    CELL_WORDS,
    CellTable,
    Columns,
    Details,
    Formula,
    Heading,
    Paragraph,
    Section,
)

MOST_CELLS = 4_000
"""If a page shows more, each table has the arithmetic of its worked row only."""
MOST_WHOLE = 10_000
"""Cells of a table that can be opened; the numbers of a larger one are in the plain data."""


def to_page(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False, before: Sequence[Section] = ()) -> str:
    """A self-contained HTML document: steps can be folded, choosing a cell shows its arithmetic, gaps can be opened.

    Args:
        walkthrough: the steps.
        digits: after the point.
        whole: whether everything is open from the first.
        before: sections above the steps.
    """
    say = walkthrough.phrases(whole=whole)
    lead, *intro = opening(walkthrough, say, "choose")
    sections = [*map(Paragraph, intro), *before, *_folded(walkthrough, digits, say)]
    return page(walkthrough.title, sections, lead=lead, footer=say("page.footer"), language=walkthrough.language)


page_of = to_page
"""Of a walkthrough in a notebook."""


def to_sections(walkthrough: Walkthrough) -> list[Section]:
    """Sections of another page; each step can be folded."""
    say = walkthrough.phrases()
    steps = _folded(walkthrough, 3, say, inside_another=True)
    return [*map(Paragraph, opening(walkthrough, say, "choose")), *steps]


def to_markdown(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False) -> str:
    """A Markdown document; the arithmetic of each table's chosen cells is below it, formulas between dollar signs.

    Args:
        walkthrough: the steps.
        digits: after the point.
        whole: whether all rows, columns and terms are written.
    """
    say = walkthrough.phrases(whole=whole)
    lead, *intro = opening(walkthrough, say)
    sections: list[Section] = [*map(Paragraph, intro)]
    for view in views(walkthrough, digits, say):
        sections += [Heading(view.chapter)] if view.chapter else []
        sections += [Heading(view.heading, 3), *_inside(view, digits, say, is_page=False, is_small=False)]
    return markdown(walkthrough.title, sections, lead=lead)


def to_latex(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False) -> str:
    """A complete LaTeX document for pdflatex with amsmath.

    Args:
        walkthrough: the steps.
        digits: after the point.
        whole: whether all rows, columns and terms are written.
    """
    steps = steps_in_latex(walkthrough, digits=digits, whole=whole)
    return document("walkthrough.tex", title=walkthrough.title, steps=steps)


def steps_in_latex(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False) -> Markup:
    """What is inside the document: introduction and steps."""
    say = walkthrough.phrases(whole=whole)

    def formula(expression: Expression) -> Markup:
        written = latex(expression, digits, say)
        return Markup("" if written == r"\text{}" else written)

    def cell(written: str, table: TableView, row: int, column: int) -> Markup:
        number = {"…": r"\cdots"}.get(written, written.replace("−", "-").replace("∞", r"\infty").replace(",", "{,}"))
        number = rf"\text{{{escape(written)}}}" if table.panel.words else number
        return Markup(rf"\boxed{{{number}}}" if (row, column) in table.marked else number)

    steps = list(views(walkthrough, digits, say))
    return document("steps.tex", opening=opening(walkthrough, say, "boxed"), steps=steps, formula=formula, cell=cell)


def _folded(walkthrough: Walkthrough, digits: int, say: Phrases, *, inside_another: bool = False) -> list[Section]:
    """Foldable steps under the headings of their chapters; inside another page folded and one level lower."""
    panels = [panel for step in walkthrough.steps for panel in step.panels]
    is_small = sum(shown_cells(panel, say) for panel in panels) <= MOST_CELLS
    is_missing = any(_size(panel) > MOST_WHOLE and is_truncated(panel, say) for panel in panels)
    sections: list[Section] = [Paragraph(say("page.cut_json"))] if is_missing or not is_small else []
    for view in views(walkthrough, digits, say):
        sections += [Heading(view.chapter, 3 if inside_another else 2)] if view.chapter else []
        inside = tuple(_inside(view, digits, say, is_page=True, is_small=is_small))
        sections.append(Details(view.heading, inside, unfolded=not inside_another))
    return sections


def _size(panel: Panel) -> int:
    return len(panel.row_labels) * len(panel.column_labels)


def formula_of(step: Step, digits: int, say: Phrases) -> list[Section]:
    """The formula of a step in every form; nothing if it has none."""
    written = text(step.formula, digits, say)
    if not written:
        return []
    return [Formula(mathml(step.formula, digits, say), written, markdown_latex(step.formula, digits, say))]


def _inside(view: StepView, digits: int, say: Phrases, *, is_page: bool, is_small: bool) -> list[Section]:
    step = view.step
    tables = tuple(_table(view, table, digits, say, is_page=is_page, is_small=is_small) for table in view.tables)
    words = [Paragraph(each) for each in (step.sentence, step.shapes) if each]
    shown = [Columns(tables)] if len(tables) > 1 else tables
    return [*formula_of(step, digits, say), *words, *shown]


def _table(view: StepView, table: TableView, digits: int, say: Phrases, *, is_page: bool, is_small: bool) -> CellTable:
    """The table of a panel: on a page with the arithmetic of every cell, or of the worked row of a large page."""
    panel, (chosen, *also) = table.panel, table.chosen

    def working(at: int, row: Place, column: Place) -> Formula | None:
        if not (isinstance(row, int) and isinstance(column, int)):
            return None
        is_worked = (row, column) in panel.worked
        if not (is_worked or (is_page and (is_small or at == chosen[0]))):
            return None
        return _working(panel.working(row, column), digits, say, is_worked=is_worked)

    heat = tuple(
        tuple(
            panel.matrix[row][column] if isinstance(row, int) and isinstance(column, int) else 0.0
            for column in table.columns
        )
        for row in table.rows
    )
    return CellTable(
        panel.label,
        ("", *table.headings),
        table.lines,
        tuple(tuple(working(at, row, column) for column in table.columns) for at, row in enumerate(table.rows)),
        chosen,
        heat if view.step.is_share else (),
        tuple(also),
        panel.quantity,
        panel.head,
        _indices(table.rows),
        _indices(table.columns),
        _whole(panel, digits, say) if is_page else None,
        {name: say(f"page.{name}") for name in CELL_WORDS} if is_page else None,
    )


def _indices(shown: tuple[Place, ...]) -> tuple[int | None, ...]:
    return tuple(index if isinstance(index, int) else None for index in shown)


def _whole(panel: Panel, digits: int, say: Phrases) -> dict[str, Any] | None:
    """The whole table, if it is not shown anyway and is not too large."""
    if not is_truncated(panel, say) or _size(panel) > MOST_WHOLE:
        return None
    every = truncate(panel, digits, replace(say, whole=True))
    options = " ".join(f"--{name} {{{axis}}}" for name, axis in zip(panel.asked, ("row", "column"), strict=False))
    ask = say("page.ask", options=options) if options else ""
    return {"columns": every.headings, "rows": every.lines, "ask": ask, "first": panel.first}


def _working(arithmetic: Arithmetic, digits: int, say: Phrases, *, is_worked: bool) -> Formula | None:
    """A cell's arithmetic; None for a given number. Only that of a worked cell is written in every form."""
    if not arithmetic.stages:
        return None
    equation = arithmetic.equation()
    written = mathml(equation, digits, say)
    if not is_worked:
        return Formula(written, "")
    whole = mathml(equation, digits, replace(say, whole=True))
    return Formula(
        written,
        "\n".join(lines(equation, digits, say)),
        markdown_latex(equation, digits, say),
        whole if whole != written else "",
    )


def document(template: str, **parts: Any) -> Markup:
    """A filled template; text that is `Markup` is LaTeX already."""
    return Markup(_templates().get_template(template).render(**parts))


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("vitral.report", "templates"),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape(str(value))),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
    )
    environment.filters["number"] = _number
    return environment


def _number(cell: str | None) -> Markup:
    """A number of a table in mathematics, where a bare comma would be that of a list; words as they are."""
    text = escape(cell or "")
    return Markup(text if not cell or any(map(str.isalpha, cell)) else f"${text.replace(',', '{,}')}$")
