"""A worked example as a spreadsheet: settings, then each matrix to the right of its name."""

import io
import tomllib
from collections.abc import Iterator
from typing import Any

SECTIONS = ("given", "steps", "claimed")
COLUMN_WIDTH = 9
NAME_WIDTH = 20


def workbook(text: str) -> bytes | None:
    """The text of a worked example as .xlsx; None if openpyxl is not installed.

    The numbers under [claimed] have boxes, whether they are filled in or are question marks. The layout is one that
    `vitral check` reads.
    """
    try:
        import openpyxl
        from openpyxl.worksheet.properties import PageSetupProperties
    except ImportError:
        return None
    data = tomllib.loads(text)
    book = openpyxl.Workbook()
    page = book.worksheets[0]
    page.title = "exercise"
    line = 1
    for name, value in data.items():
        if name not in SECTIONS:
            _put(page, line, [name, *(value if isinstance(value, list) else [value])])
            line += 1
    for section in SECTIONS:
        if section in data:
            line = _section(page, line + 1, section, data[section])
    page.column_dimensions["A"].width = NAME_WIDTH
    for column in "BCDEFGHIJKLM":
        page.column_dimensions[column].width = COLUMN_WIDTH
    page.page_setup.fitToHeight = 0
    page.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def _section(page: Any, line: int, section: str, table: dict[str, Any]) -> int:
    """Write a table of the file from a line on, and return the line after it."""
    from openpyxl.styles import Alignment, Border, Font, Side

    thin = Side(style="thin")
    _put(page, line, [section])
    page.cell(line, 1).font = Font(bold=True)
    line += 1
    for name, rows in _matrices(table):
        _put(page, line, [name])
        for row in rows:
            _put(page, line, ["", *row])
            for column in range(2, len(row) + 2):
                page.cell(line, column).alignment = Alignment(horizontal="left" if section == "steps" else "center")
                if section == "claimed":
                    page.cell(line, column).border = Border(left=thin, right=thin, top=thin, bottom=thin)
            line += 1
        line += 1
    return line


def _put(page: Any, line: int, values: list[Any]) -> None:
    for column, value in enumerate(values, start=1):
        if value != "":
            page.cell(line, column).value = value


def _matrices(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, list[list[Any]]]]:
    """Each matrix with its name; of several heads, one each."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _matrices(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            yield f"{prefix}{name}", [[value]]
        elif not isinstance(value[0], list):
            yield f"{prefix}{name}", [value]
        elif not isinstance(value[0][0], list):
            yield f"{prefix}{name}", value
        else:
            yield from ((f"{prefix}{name} head {head}", rows) for head, rows in enumerate(value, start=1))
