"""A walkthrough as a self-contained page, as Markdown, or as sections of another page."""

from vitral.core.checked import Digits, checked
from vitral.explanation.formulas import mathml, text
from vitral.explanation.phrasebook import Phrases, phrases
from vitral.explanation.steps import Arithmetic, Panel, Step
from vitral.explanation.truncation import Gap, truncate
from vitral.explanation.walkthrough import Walkthrough, opening, stacked
from vitral.figures.html import page
from vitral.figures.markdown import markdown
from vitral.figures.notebook import page_of
from vitral.figures.sections import Beside, CellTable, Details, Formula, Heading, Paragraph, Section

LANGUAGE_CODES = {"en": "en", "pt": "pt-BR"}


@checked(first=True)
def to_page(walkthrough: Walkthrough, *, digits: Digits = 3) -> str:
    """A self-contained HTML document: steps can be folded, choosing a cell shows its arithmetic."""
    say = phrases(walkthrough.language)
    lead, *intro = opening(walkthrough, say, "choose")
    sections = [*map(Paragraph, intro), *_chapters(walkthrough, digits, say)]
    language = LANGUAGE_CODES[walkthrough.language]
    words = {"lead": lead, "footer": say("page.footer"), "contents": say("page.contents")}
    return page(walkthrough.title, sections, language=language, **words)


@page_of.register
def _walkthrough_page(walkthrough: Walkthrough) -> str:
    return to_page(walkthrough)


@checked(first=True)
def to_markdown(walkthrough: Walkthrough, *, digits: Digits = 3) -> str:
    """A Markdown document; the arithmetic of each table's chosen cell is below it."""
    say = phrases(walkthrough.language)
    lead, *intro = opening(walkthrough, say)
    sections: list[Section] = [*map(Paragraph, intro)]
    number = 0
    for chapter in walkthrough.chapters:
        sections += [Heading(chapter.title)] if chapter.title else []
        for step in chapter.steps:
            number += 1
            sections += [Heading(f"{number}. {step.title}", 3), *_inside(step, digits, say)]
    return markdown(walkthrough.title, sections, lead=lead)


@checked(first=True)
def to_sections(walkthrough: Walkthrough, *, digits: Digits = 3) -> list[Section]:
    """Sections of another page; each step can be folded."""
    say = phrases(walkthrough.language)
    return [
        *map(Paragraph, opening(walkthrough, say, "choose")),
        *_chapters(walkthrough, digits, say, inside_another=True),
    ]


def _chapters(walkthrough: Walkthrough, digits: int, say: Phrases, *, inside_another: bool = False) -> list[Section]:
    """Foldable steps under the headings of their chapters; inside another page folded and one level lower."""
    sections: list[Section] = []
    number = 0
    for chapter in walkthrough.chapters:
        sections += [Heading(chapter.title, 3 if inside_another else 2)] if chapter.title else []
        for step in chapter.steps:
            number += 1
            inside = tuple(_inside(step, digits, say))
            sections.append(Details(f"{number}. {step.title}", inside, unfolded=not inside_another))
    return sections


def _inside(step: Step, digits: int, say: Phrases) -> list[Section]:
    written = text(step.formula, digits, say)
    formula = [Formula(mathml(step.formula, digits, say), written)] if written else []
    tables = [_table(step, panel, digits, say) for panel in step.panels]
    shapes = [Paragraph(step.shapes)] if len(tables) > 1 and step.shapes else []
    return [*formula, Paragraph(step.sentence), *shapes, Beside(tuple(tables)) if len(tables) > 1 else tables[0]]


def _table(step: Step, panel: Panel, digits: int, say: Phrases) -> CellTable:
    shown = truncate(panel, digits, say)
    workings = tuple(
        tuple(
            None
            if isinstance(row, Gap) or isinstance(column, Gap)
            else _working(panel.working(row, column), digits, say)
            for column in shown.columns
        )
        for row in shown.rows
    )
    heat = tuple(
        tuple(
            0.0 if isinstance(row, Gap) or isinstance(column, Gap) else panel.matrix[row][column]
            for column in shown.columns
        )
        for row in shown.rows
    )
    caption = panel.label or step.shapes
    return CellTable(
        caption, ("", *shown.headings), shown.lines, workings, shown.chosen(panel), heat if step.is_share else ()
    )


def _working(arithmetic: Arithmetic, digits: int, say: Phrases) -> Formula | None:
    """A cell's arithmetic; None for a given number."""
    if not arithmetic.stages:
        return None
    return Formula(mathml(arithmetic.equation(), digits, say), "\n".join(stacked(arithmetic, digits, say)))
