"""Printing: tables, lines, JSON. Colour and width are left to rich."""

import json
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from vitral.core.text import visible
from vitral.report import sections as pages

if TYPE_CHECKING:
    from vitral.report.tables import DataTable

PLAIN_WIDTH = 120
"""Columns where there is no terminal."""
WIDEST = 1000
"""Columns of a terminal at most; COLUMNS can hold any number."""
LONGEST_NAME = 26
"""Characters of the first column that are never broken."""


def console() -> Console:
    """A console that prints text as it is, without markup or highlighting."""
    made = Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = PLAIN_WIDTH
    elif made.width > WIDEST:
        made.width = WIDEST
    return made


def say(text: str = "") -> None:
    """Print text, control characters made visible."""
    sys.stdout.write(visible(text) + "\n")
    sys.stdout.flush()


def runnable(line: str) -> str:
    """A line of commands as they can be typed in this shell: with the path of this program if it is not on PATH."""
    program = sys.argv[0]
    if os.path.basename(program) != "vitral" or shutil.which("vitral"):
        return line
    return re.sub(r"\bvitral (?=[a-z])", lambda _found: f"{shlex.quote(program)} ", line)


def print_json(data: Any) -> None:
    """Print plain data as JSON."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=not prints_unicode()) + "\n")


def prints_unicode() -> bool:
    """Whether standard output takes every character; elsewhere JSON is written in ASCII, with the same meaning."""
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> Table:
    """A table: the first `words` columns are left-aligned, the others (numbers) right-aligned."""
    made = Table(
        title=title,
        box=box.SIMPLE_HEAD,
        show_header=any(columns),
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < words else "right", overflow="fold")
    for row in rows:
        made.add_row(*(visible(cell) for cell in row))
    return made


def print_form(shown: "DataTable", form: str) -> None:
    """Print a table as CSV, Markdown or LaTeX."""
    say(shown.write(form).rstrip("\n"))


def print_sections(sections: Sequence[pages.Section]) -> None:
    """Print the tables and the paragraphs of a page."""
    screen = console()
    for section in sections:
        if isinstance(section, pages.Table):
            words = 1 + max((index for index in section.prose), default=0)
            screen.print(table(section.caption, section.columns, section.rows, words=words))
        elif isinstance(section, pages.Paragraph):
            say(section.text)


def print_data(shown: "DataTable") -> None:
    """Print a table of plain data; where it is too wide, long cells are broken, of the other columns only headings."""
    made = table("", shown.labels, shown.cells)
    made.title, made.padding = None, (0, 1, 0, 0)
    for index, (column, of_data) in enumerate(zip(made.columns, shown.columns, strict=True)):
        column.justify = "left" if index in (0, *shown.words) else "right"
        widest = max((len(row[index]) for row in shown.cells), default=0)
        if not of_data.is_long and (index or widest <= LONGEST_NAME):
            column.no_wrap = True
            column.header = textwrap.fill(str(column.header), max(widest, 4), break_long_words=False)
    say(shown.caption)
    console().print(made)
