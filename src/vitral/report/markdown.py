"""Sections as text: a Markdown file (GitHub's: samples fenced, figures linked), and lines of a terminal.

On a terminal tables are aligned, paragraphs wrapped, and figures left out.
"""

import re
import textwrap
from collections.abc import Sequence

from vitral.core.text import aligned, visible
from vitral.report.sections import (
    Callout,
    CellTable,
    Columns,
    Details,
    Figure,
    Formula,
    Heading,
    Listing,
    Paragraph,
    Preformatted,
    Section,
)
from vitral.report.tables import Table, escape, one_line


def markdown(title: str, sections: Sequence[Section], *, lead: str = "", footer: str = "") -> str:
    """A whole Markdown document, ending in a newline; the arguments are those of `html.page`."""
    blocks = [f"# {escape(title)}", escape(lead), *(_block(section) for section in sections)]
    blocks += ["---", escape(footer)] if footer else []
    return "\n\n".join(block for block in blocks if block) + "\n"


def fence(text: str) -> str:
    """The text in a code fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    bar = "`" * max(3, longest + 1)
    return f"{bar}text\n{visible(text).rstrip(chr(10))}\n{bar}"


def _block(section: Section) -> str:
    match section:
        case Heading():
            return f"{'#' * section.level} {escape(section.text)}"
        case Paragraph(link=link):
            return f"[{escape(section.text)}]({link})" if link else escape(section.text)
        case Callout():
            return "\n".join(f"> {line}" for line in escape(section.text).splitlines())
        case Listing():
            return "\n".join(f"- {one_line(item)}" for item in section.items)
        case Columns():
            return "\n\n".join(map(_block, section.sections))
        case Details():
            inside = "\n\n".join(map(_block, section.sections))
            return f"<details>\n<summary>{escape(section.summary)}</summary>\n\n{inside}\n\n</details>"
        case _:
            return _shown(section)


def _shown(section: Section) -> str:
    """A table, a drawing, a formula or a text as it is."""
    match section:
        case Table():
            caption = [f"{escape(section.caption)}\n"] if section.caption else []
            return "\n".join([*caption, *section.markdown_lines])
        case CellTable():
            return _cell_table(section)
        case Preformatted():
            caption = [f"**{one_line(section.caption)}**"] if section.caption else []
            return "\n\n".join([*caption, fence(section.text)])
        case Figure():
            return f"![{one_line(section.alt)}]({section.path})\n\n{escape(section.caption)}"
        case Formula():
            return f"$$\n{section.latex}\n$$" if section.latex else fence(section.text)
        case _:
            return ""


def _cell_table(section: CellTable) -> str:
    rows = [list(cells) for cells in section.rows]
    worked: list[str] = []
    for row, column in (section.chosen, *section.also):
        working = section.workings[row][column]
        if working is not None:
            rows[row][column + 1] = f"[{rows[row][column + 1]}]"
            worked.append(_block(working))
    return "\n\n".join([_block(Table(section.caption, section.columns, rows)), *worked])


WIDTH = 100
WIDEST_CELL = 60
"""Characters of a cell; a longer one is cut, except in the last column."""


def plain_text(title: str, sections: Sequence[Section] = ()) -> str:
    """A title and sections as lines of text, without a line break at the end."""
    blocks = [_wrapped(title), *(_written(section) for section in sections)]
    return "\n".join(block for block in blocks if block)


def _written(section: Section) -> str:
    match section:
        case Heading():
            return f"\n{visible(section.text)}"
        case Paragraph() | Callout():
            return _wrapped(section.text)
        case Listing():
            return "\n".join(_wrapped(item) for item in section.items)
        case Table():
            return f"\n{_table(section)}" if section.caption else _table(section)
        case CellTable():
            return _written(Table(section.caption, section.columns, section.rows))
        case Preformatted():
            return "\n".join(filter(None, (visible(section.caption), visible(section.text).rstrip("\n"))))
        case Columns():
            return "\n".join(map(_written, section.sections))
        case Details():
            return "\n".join([visible(section.summary), *map(_written, section.sections)])
        case Formula():
            return visible(section.text)
        case _:
            return ""


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.fill(line, WIDTH) for line in visible(text).splitlines())


def _table(section: Table) -> str:
    headings = [section.labels] if any(section.labels) else []
    lines = [[*map(_cell, row[:-1]), *map(_line, row[-1:])] for row in (*headings, *section.cells)]
    return "\n".join(filter(None, [_wrapped(section.caption), *aligned(lines, {0, *section.words})]))


def _line(text: str) -> str:
    return " ".join(visible(text).split())


def _cell(text: str) -> str:
    line = _line(text)
    return line if len(line) <= WIDEST_CELL else f"{line[: WIDEST_CELL - 1]}…"
