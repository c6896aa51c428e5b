"""A walkthrough: a computation in chapters of numbered steps, and its form as plain text."""

import textwrap
from dataclasses import dataclass, field, replace
from typing import Any

from vitral.core.shown import Shown
from vitral.core.text import columns, visible
from vitral.explanation.formulas import lines, text
from vitral.explanation.formulas.notation import Equation
from vitral.explanation.phrasebook import Phrases, phrases
from vitral.explanation.picture import Picture
from vitral.explanation.picture_text import picture_lines, picture_title
from vitral.explanation.plain_steps import plain_step
from vitral.explanation.sheet import Sheet
from vitral.explanation.steps import Arithmetic, Chapter, Panel, Step
from vitral.explanation.truncation import ShownPanel, is_truncated, truncate

TEXT_WIDTH = 100
INDENT = "   "


@dataclass(frozen=True, repr=False)
class Walkthrough(Shown):
    """Chapters in order; steps are numbered across chapters.

    Attributes:
        title: of the whole.
        intro: one string for each paragraph before the steps.
        chapters: the computation.
        language: of the texts, "en" or "pt".
        picture: the path of the chosen position; None if there is none.
        sort_terms: whether the terms of a sum are written in the order of their size.
        sheet: of a worked example, whose given numbers can be edited on a page (`renderers.live`).
    """

    title: str
    intro: tuple[str, ...]
    chapters: tuple[Chapter, ...]
    language: str = "en"
    picture: Picture | None = None
    sort_terms: bool = False
    sheet: Sheet | None = field(default=None, compare=False)

    def phrases(self, **how: bool) -> Phrases:
        """The phrases of its language; `how` they are written, as `whole`."""
        return replace(phrases(self.language), sort_terms=self.sort_terms, **how)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all chapters."""
        return tuple(step for chapter in self.chapters for step in chapter.steps)

    def __str__(self) -> str:
        """The walkthrough as plain text."""
        return to_text(self)

    def plain(self) -> dict[str, Any]:
        """As plain data, the document of `vitral explain --format json`; its sentences are in `language`."""
        return to_plain(self)


def opening(walkthrough: Walkthrough, say: Phrases, marked: str = "brackets") -> list[str]:
    """The paragraphs before the steps; `marked` is how chosen numbers appear: brackets, boxed, bright, choose."""
    how = say(f"page.{marked}")
    is_cut = any(is_truncated(panel, say) for step in walkthrough.steps for panel in step.panels)
    opened = say("page.cut_open" if marked == "choose" else "page.cut_all")
    return [*walkthrough.intro, f"{how} {say('page.cut')} {opened}" if is_cut else how]


def to_text(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False) -> str:
    """Plain text: each step with formula, shapes, sentence, aligned numbers and the arithmetic of one of them.

    Args:
        walkthrough: the steps.
        digits: after the point.
        whole: whether all rows, columns and terms are written.
    """
    say = walkthrough.phrases(whole=whole)
    parts = [walkthrough.title, *(_wrapped(paragraph) for paragraph in opening(walkthrough, say))]
    if walkthrough.picture is not None:
        parts.append(drawn(walkthrough.picture, say))
    count = 0
    for chapter in walkthrough.chapters:
        parts += [f"── {chapter.title} " + "─" * max(0, 60 - len(chapter.title))] if chapter.title else []
        for step in chapter.steps:
            count += 1
            parts += _step(step, count, digits, say)
    return "\n\n".join(visible(part) for part in parts)


def to_plain(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False) -> dict[str, Any]:
    """All contents of a walkthrough; infinite numbers as "inf" and "-inf", cells counted from 0.

    Formulas and arithmetic have decimal points in every language; sentences are in the walkthrough's.

    Args:
        walkthrough: the steps.
        digits: of the numbers written in formulas and arithmetic; the matrices are exact.
        whole: whether all terms of a sum are written; the matrices are always whole.
    """
    say = walkthrough.phrases(in_data=True, whole=whole)
    chapters = [
        {"title": chapter.title, "steps": [plain_step(step, digits, say) for step in chapter.steps]}
        for chapter in walkthrough.chapters
    ]
    return {
        "title": walkthrough.title,
        "language": walkthrough.language,
        "intro": list(walkthrough.intro),
        "picture": [] if walkthrough.picture is None else picture_lines(walkthrough.picture, say),
        "chapters": chapters,
    }


def drawn(picture: Picture, say: Phrases) -> str:
    """The picture as text."""
    lines = (f"{INDENT}{line}".rstrip() for line in picture_lines(picture, say))
    return "\n".join([picture_title(picture, say), *lines])


def heading(step: Step, count: int, digits: int, say: Phrases) -> str:
    """A step's first line with its formula; further equations of the formula on lines below."""
    formulas = step.formula.all() if isinstance(step.formula, Equation) else (step.formula,)
    first, *others = (text(formula, digits, say) for formula in formulas)
    return "\n".join(
        [f"{count}. {step.title}: {first}" if first else f"{count}. {step.title}", *map(INDENT.__add__, others)]
    )


def stacked(arithmetic: Arithmetic, digits: int, say: Phrases) -> list[str]:
    """The arithmetic as lines with aligned equals signs."""
    return lines(arithmetic.equation(), digits, say)


def _wrapped(paragraph: str, indent: str = "") -> str:
    return textwrap.fill(paragraph, TEXT_WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _step(step: Step, count: int, digits: int, say: Phrases) -> list[str]:
    shapes = f"{INDENT}{step.shapes}\n" if step.shapes else ""
    parts = [f"{heading(step, count, digits, say)}\n{shapes}{_wrapped(step.sentence, INDENT)}"]
    for panel in step.panels:
        table = "\n".join(_aligned(panel, truncate(panel, digits, say)))
        label = f"{panel.label}\n" if panel.label else ""
        parts.append(textwrap.indent(label + table, INDENT))
        for arithmetic in worked_out(panel):
            parts.append(textwrap.indent("\n".join(stacked(arithmetic, digits, say)), INDENT))
    return parts


def worked_out(panel: Panel) -> list[Arithmetic]:
    """The arithmetic that is written below the panel; none if its numbers are given."""
    return [arithmetic for cell in panel.worked if (arithmetic := panel.working(*cell)).stages]


def _aligned(panel: Panel, shown: ShownPanel) -> list[str]:
    """The table in aligned columns; the chosen number in brackets."""
    lines = [["", *shown.headings], *(list(line) for line in shown.lines)]
    if worked_out(panel):
        for row, column in shown.worked(panel):
            lines[row + 1][column + 1] = f"[{lines[row + 1][column + 1]}]"
    widths = [max(columns(line[place]) for line in lines) for place in range(len(lines[0]))]
    return ["  ".join(_padded(line, widths)).rstrip() for line in lines]


def _padded(line: list[str], widths: list[int]) -> list[str]:
    """The row's label aligned left, its numbers right."""
    blanks = [" " * (width - columns(cell)) for cell, width in zip(line, widths, strict=True)]
    return [line[0] + blanks[0], *(blank + cell for cell, blank in zip(line[1:], blanks[1:], strict=True))]
