"""A walkthrough on a terminal: tables coloured by weight; plain text where it is no terminal."""

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from vitral.cli.screen import console, say
from vitral.explain import Panel, Step, Walkthrough, phrases, to_text
from vitral.explain.phrases import Phrases
from vitral.explain.renderers.cutting import Gap, cut, opening
from vitral.explain.renderers.text import heading, stacked
from vitral.figures.text import visible

HEAT = ("", "on grey11", "on grey19", "on grey27", "on dark_blue", "on blue3")
"""Backgrounds by share, from none to all."""


def print_walkthrough(walkthrough: Walkthrough, digits: int) -> None:
    """Every step: formula, shapes, sentence, numbers, and the arithmetic of one of them."""
    screen = console()
    if not screen.is_terminal:
        say(to_text(walkthrough, digits=digits))
        return
    words = phrases(walkthrough.language)
    screen.print(Text(visible(walkthrough.title), style="bold"))
    for paragraph in opening(walkthrough, words):
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
    screen.print(Padding(Text(step.shapes, style="dim"), (0, 0, 0, 3)))
    screen.print(Padding(Text(visible(step.sentence)), (0, 0, 0, 3)))
    for panel in step.panels:
        if panel.label:
            screen.print(Padding(Text(visible(panel.label), style="italic"), (0, 0, 0, 3)))
        screen.print(Padding(_table(step, panel, digits, words), (0, 0, 0, 3)))
        arithmetic = panel.working(*panel.cell)
        if arithmetic.stages:
            screen.print(
                Padding(Text(visible("\n".join(stacked(arithmetic, digits, words))), style="cyan"), (0, 0, 0, 3))
            )


def _table(step: Step, panel: Panel, digits: int, words: Phrases) -> Table:
    shown = cut(panel, digits, words)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("")
    for name in shown.headings:
        made.add_column(Text(visible(name)), justify="right", no_wrap=True)
    for row, (label, *cells) in zip(shown.rows, shown.lines, strict=True):
        styled = []
        for column, cell in zip(shown.columns, cells, strict=True):
            style = Style()
            if not isinstance(row, Gap) and not isinstance(column, Gap):
                if step.is_share:
                    style += Style.parse(HEAT[min(len(HEAT) - 1, round(panel.matrix[row][column] * (len(HEAT) - 1)))])
                if (row, column) == panel.cell:
                    style += Style(bold=True, underline=True)
            styled.append(Text(cell, style=style))
        made.add_row(Text(visible(label)), *styled)
    return made
