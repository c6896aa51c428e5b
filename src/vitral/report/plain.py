"""The same sections as plain text, for a person at a prompt: tables aligned, paragraphs wrapped, figures left out."""

import textwrap
from collections.abc import Sequence

from vitral.core.text import aligned, visible
from vitral.report.sections import (
    Callout,
    CellTable,
    Columns,
    Details,
    Formula,
    Heading,
    Listing,
    Paragraph,
    Preformatted,
    Section,
)
from vitral.report.tables import Table

WIDTH = 100
WIDEST_CELL = 60
"""Characters of a cell; a longer one is cut, except in the last column."""


def plain_text(title: str, sections: Sequence[Section] = ()) -> str:
    """A title and sections as lines of text, without a line break at the end."""
    blocks = [_wrapped(title), *(_block(section) for section in sections)]
    return "\n".join(block for block in blocks if block)


def _block(section: Section) -> str:
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
            return _block(Table(section.caption, section.columns, section.rows))
        case Preformatted():
            return "\n".join(filter(None, (visible(section.caption), visible(section.text).rstrip("\n"))))
        case Columns():
            return "\n".join(map(_block, section.sections))
        case Details():
            return "\n".join([visible(section.summary), *map(_block, section.sections)])
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
