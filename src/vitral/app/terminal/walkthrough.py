"""How walkthroughs are printed: in a form to be written, or on a terminal with tables coloured by weight."""

import json
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from vitral.app.terminal.screen import console, say
from vitral.core.text import visible
from vitral.explanation import (
    Panel,
    Step,
    Walkthrough,
    to_plain,
    to_text,
)
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.truncation import Gap, Shown, ShownPanel, truncate
from vitral.explanation.walkthrough import heading, opening, stacked, worked_out
from vitral.report.live import live_tables
from vitral.report.walkthrough import to_markdown, to_page
from vitral.report.walkthrough_latex import to_latex

HEAT = ("", "grey93 on grey19", "grey93 on grey27", "grey93 on dark_blue", "grey93 on blue3", "grey93 on blue1")
"""Text and background colour by weight, from 0 to 1; legible on a light terminal too."""

INDENT = 3
LABEL_WIDTH = 24
"""Longer row labels are folded."""
SPACING = 3
"""Blanks between two columns."""


def written(walkthrough: Walkthrough, form: str, digits: int, *, whole: bool, as_ascii: bool) -> str:
    """A walkthrough in a form; the given numbers of a worked example can be edited on an HTML page."""
    how: dict[str, Any] = {"digits": digits, "whole": whole}
    if form == "html":
        return to_page(walkthrough, **how, before=live_tables(walkthrough, digits))
    if form == "json":
        return json.dumps(to_plain(walkthrough, **how), indent=2, ensure_ascii=as_ascii, allow_nan=False) + "\n"
    return {"text": to_text, "markdown": to_markdown, "latex": to_latex}[form](walkthrough, **how)


def print_walkthrough(walkthrough: Walkthrough, digits: int, *, whole: bool = False) -> None:
    """Print every step: formula, shapes, sentence, numbers, and the arithmetic of one cell."""
    screen = console()
    if not screen.is_terminal:
        say(to_text(walkthrough, digits=digits, whole=whole))
        return
    words = walkthrough.phrases(whole=whole)
    screen.print(Text(visible(walkthrough.title), style="bold"))
    for paragraph in opening(walkthrough, words, "bright"):
        screen.print(Text(visible(paragraph), style="dim"))
    number = 0
    for chapter in walkthrough.chapters:
        if chapter.title:
            screen.rule(Text(visible(chapter.title)))
        for step in chapter.steps:
            number += 1
            _print_step(screen, step, number, digits, words)


def _print_step(screen: Console, step: Step, number: int, digits: int, words: Phrases) -> None:
    screen.print()
    screen.print(Text(visible(heading(step, number, digits, words)), style="bold"))
    if step.shapes:
        screen.print(Padding(Text(step.shapes, style="dim"), (0, 0, 0, INDENT)))
    screen.print(Padding(Text(visible(step.sentence)), (0, 0, 0, INDENT)))
    for panel in step.panels:
        if panel.label:
            screen.print(Padding(Text(visible(panel.label), style="italic"), (0, 0, 0, INDENT)))
        for part in _tables(step, panel, truncate(panel, digits, words), screen.width - INDENT):
            screen.print(Padding(part, (0, 0, 0, INDENT)))
        for arithmetic in worked_out(panel):
            screen.print(
                Padding(Text(visible("\n".join(stacked(arithmetic, digits, words))), style="cyan"), (0, 0, 0, INDENT))
            )


def _tables(step: Step, panel: Panel, shown: ShownPanel, width: int) -> list[Table]:
    # On a screen that is too narrow, a table becomes several below one another, each with some of the columns.
    labels = min(LABEL_WIDTH, max(cell_len(visible(line[0])) for line in shown.lines))
    parts: list[list[int]] = [[]]
    room = width - labels
    for column, name in enumerate(shown.headings):
        needed = SPACING + max(cell_len(visible(name)), *(cell_len(line[column + 1]) for line in shown.lines))
        if parts[-1] and needed > room:
            parts.append([])
            room = width - labels
        parts[-1].append(column)
        room -= needed
    return [_table(step, panel, shown, columns) for columns in parts]


def _table(step: Step, panel: Panel, shown: ShownPanel, columns: Sequence[int]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("", max_width=LABEL_WIDTH, overflow="fold")
    for column in columns:
        made.add_column(Text(visible(shown.headings[column])), justify="right", no_wrap=True)
    for row, (label, *cells) in zip(shown.rows, shown.lines, strict=True):
        styled = [Text(cells[column], style=_style(step, panel, row, shown.columns[column])) for column in columns]
        made.add_row(Text(visible(label)), *styled)
    return made


def _style(step: Step, panel: Panel, row: Shown, column: Shown) -> Style:
    if isinstance(row, Gap) or isinstance(column, Gap):
        return Style()
    share = panel.matrix[row][column] if step.is_share else 0.0
    heat = Style.parse(HEAT[min(len(HEAT) - 1, round(share * (len(HEAT) - 1)))])
    return heat + Style(bold=True, reverse=True) if (row, column) in panel.worked else heat
