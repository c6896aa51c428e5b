"""A walkthrough as a self-contained page, as Markdown, or as sections of another page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vitral.explanation.formulas import markdown_latex, mathml, text
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.steps import Arithmetic, Panel, Step
from vitral.explanation.truncation import Gap, Shown, ShownPanel, is_truncated, shown_cells, truncate
from vitral.explanation.walkthrough import Walkthrough, opening, stacked
from vitral.report.html import page
from vitral.report.markdown import markdown
from vitral.report.notebook import page_of
from vitral.report.picture import diagram
from vitral.report.sections import (
    Beside,
    CellTable,
    CellWords,
    Details,
    Formula,
    Heading,
    Paragraph,
    Section,
    WholeTable,
)

MOST = 1_600_000
CELL = 80
"""Characters of a cell that is shown at first, without its arithmetic."""
WORDS = ("open", "close", "all_terms", "fewer_terms", "scroll")


@dataclass
class _Room:
    """The characters that a page has left, so that the page of a large model stays below 2 MB.

    Attributes:
        arithmetic: of the cells that are shown.
        numbers: of tables that are opened.
        hidden: arithmetic of cells that are shown when their table is opened.
        is_enough: whether everything had room.
    """

    arithmetic: int = 600_000
    numbers: int = 500_000
    hidden: int = 60_000
    is_enough: bool = True

    def takes(self, kind: str, needed: int) -> bool:
        """Whether there is room; if so, it is taken."""
        left = getattr(self, kind) - needed
        if left >= 0:
            setattr(self, kind, left)
        elif kind != "hidden":
            self.is_enough = False
        return left >= 0


def _room(walkthrough: Walkthrough, say: Phrases) -> _Room:
    """The room beside the cells that are shown in any case."""
    say = replace(say, whole=False)
    shown = sum(shown_cells(panel, say) for step in walkthrough.steps for panel in step.panels)
    share = min(1.0, max(0.0, MOST - CELL * shown) / (_Room.arithmetic + _Room.numbers + _Room.hidden))
    return _Room(int(_Room.arithmetic * share), int(_Room.numbers * share), int(_Room.hidden * share))


def to_page(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False, before: Sequence[Section] = ()) -> str:
    """A self-contained HTML document: steps can be folded, choosing a cell shows its arithmetic, gaps can be opened.

    Args:
        walkthrough: the steps.
        digits: after the point.
        whole: whether everything is open from the first.
        before: sections above the steps.
    """
    say = walkthrough.phrases(whole=whole)
    room = _room(walkthrough, say)
    chapters = [*_drawn(walkthrough, say), *_chapters(walkthrough, digits, say, room)]
    lead, *intro = opening(walkthrough, say, "choose")
    sections = [*map(Paragraph, intro), *_missing(room, say), *before, *chapters]
    words = {"lead": lead, "footer": say("page.footer"), "contents": say("page.contents")}
    return page(walkthrough.title, sections, language=walkthrough.language, **words)


@page_of.register
def _walkthrough_page(walkthrough: Walkthrough) -> str:
    return to_page(walkthrough)


def to_markdown(walkthrough: Walkthrough, *, digits: int = 3, whole: bool = False) -> str:
    """A Markdown document; the arithmetic of each table's chosen cells is below it, formulas between dollar signs.

    Args:
        walkthrough: the steps.
        digits: after the point.
        whole: whether all rows, columns and terms are written.
    """
    say = walkthrough.phrases(whole=whole)
    lead, *intro = opening(walkthrough, say)
    sections: list[Section] = [*map(Paragraph, intro), *_drawn(walkthrough, say)]
    number = 0
    for chapter in walkthrough.chapters:
        sections += [Heading(chapter.title)] if chapter.title else []
        for step in chapter.steps:
            number += 1
            sections += [Heading(f"{number}. {step.title}", 3), *_inside(step, digits, say, None)]
    return markdown(walkthrough.title, sections, lead=lead)


def to_sections(walkthrough: Walkthrough, *, digits: int = 3) -> list[Section]:
    """Sections of another page; each step can be folded."""
    say = walkthrough.phrases()
    room = _room(walkthrough, say)
    chapters = [*_drawn(walkthrough, say), *_chapters(walkthrough, digits, say, room, inside_another=True)]
    return [*map(Paragraph, opening(walkthrough, say, "choose")), *_missing(room, say), *chapters]


def _drawn(walkthrough: Walkthrough, say: Phrases) -> list[Section]:
    return [] if walkthrough.picture is None else [diagram(walkthrough.picture, say)]


def _missing(room: _Room, say: Phrases) -> list[Section]:
    return [] if room.is_enough else [Paragraph(say("page.cut_json"))]


def _chapters(
    walkthrough: Walkthrough, digits: int, say: Phrases, room: _Room, *, inside_another: bool = False
) -> list[Section]:
    """Foldable steps under the headings of their chapters; inside another page folded and one level lower."""
    sections: list[Section] = []
    number = 0
    for chapter in walkthrough.chapters:
        sections += [Heading(chapter.title, 3 if inside_another else 2)] if chapter.title else []
        for step in chapter.steps:
            number += 1
            inside = tuple(_inside(step, digits, say, room))
            sections.append(Details(f"{number}. {step.title}", inside, unfolded=not inside_another))
    return sections


def _inside(step: Step, digits: int, say: Phrases, room: _Room | None) -> list[Section]:
    written = text(step.formula, digits, say)
    formula = (
        [Formula(mathml(step.formula, digits, say), written, markdown_latex(step.formula, digits, say))]
        if written
        else []
    )
    tables = [_table(step, panel, digits, say, room) for panel in step.panels]
    shapes = [Paragraph(step.shapes)] if step.shapes else []
    return [*formula, Paragraph(step.sentence), *shapes, Beside(tuple(tables)) if len(tables) > 1 else tables[0]]


def _table(step: Step, panel: Panel, digits: int, say: Phrases, room: _Room | None) -> CellTable:
    """The table of a panel; without `room`, as in Markdown, only the worked cells have their arithmetic."""
    if (
        room is not None
        and say.whole
        and not room.takes("numbers", len(panel.row_labels) * len(panel.column_labels) * CELL)
    ):
        say = replace(say, whole=False)
    shown = truncate(panel, digits, say)
    chosen, *also = shown.worked(panel)
    made = {cell: _fitting(_working(panel.working(*cell), digits, say, is_worked=True), room) for cell in panel.worked}
    weight = _weight(made[panel.cell])
    writes_all = room is not None and room.takes("arithmetic", weight * len(shown.rows) * len(shown.columns))

    def working(row: Shown, column: Shown) -> Formula | None:
        if isinstance(row, Gap) or isinstance(column, Gap):
            return None
        if (row, column) in made or not writes_all:
            return made.get((row, column))
        return _working(panel.working(row, column), digits, say)

    workings = tuple(tuple(working(row, column) for column in shown.columns) for row in shown.rows)
    heat = tuple(
        tuple(
            0.0 if isinstance(row, Gap) or isinstance(column, Gap) else panel.matrix[row][column]
            for column in shown.columns
        )
        for row in shown.rows
    )
    return CellTable(
        panel.label,
        ("", *shown.headings),
        shown.lines,
        workings,
        chosen,
        heat if step.is_share else (),
        tuple(also),
        panel.quantity,
        panel.head,
        _places(shown.rows),
        _places(shown.columns),
        None if room is None else _whole(panel, digits, say, room, weight),
        None if room is None else CellWords(**{name: say(f"page.{name}") for name in WORDS}),
    )


def _fitting(working: Formula | None, room: _Room | None) -> Formula | None:
    """The arithmetic without its sum of all terms if the page has no room for it."""
    if working is None or room is None or not working.whole or room.takes("arithmetic", len(working.whole) // 3):
        return working
    return replace(working, whole="")


def _places(shown: tuple[Shown, ...]) -> tuple[int | None, ...]:
    return tuple(None if isinstance(place, Gap) else place for place in shown)


def _whole(panel: Panel, digits: int, say: Phrases, room: _Room, weight: int) -> WholeTable | None:
    """The whole table, if it is not shown anyway and the page has room."""
    rows, columns = len(panel.row_labels), len(panel.column_labels)
    if not is_truncated(panel, say) or not room.takes("numbers", rows * columns * (digits + 8)):
        return None
    every: ShownPanel = truncate(panel, digits, replace(say, whole=True))
    workings = ()
    if weight and room.takes("hidden", weight * rows * columns):
        workings = tuple(
            tuple(_working(panel.working(row, column), digits, say) for column in range(columns)) for row in range(rows)
        )
    options = " ".join(f"--{name} {{{axis}}}" for name, axis in zip(panel.asked, ("row", "column"), strict=False))
    ask = say("page.ask", options=options) if options else ""
    return WholeTable(every.headings, every.lines, workings, ask, panel.first)


def _weight(working: Formula | None) -> int:
    """About how many characters the arithmetic of a cell takes in a page."""
    return 0 if working is None else len(working.mathml) // 3


def _working(arithmetic: Arithmetic, digits: int, say: Phrases, *, is_worked: bool = False) -> Formula | None:
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
        "\n".join(stacked(arithmetic, digits, say)),
        markdown_latex(equation, digits, say),
        whole if whole != written else "",
    )
