"""A worked example as a spreadsheet: settings, then each matrix to the right of its name."""

import io
import tomllib
from collections.abc import Iterator
from typing import Any

SECTIONS = ("given", "steps", "claimed")
NAME_WIDTH = 20


def workbook(text: str) -> bytes | None:
    """The text of a worked example as .xlsx; None if openpyxl is not installed.

    The numbers under [claimed] have boxes, whether they are filled in or are question marks. The layout is one that
    `vitral check` reads.
    """
    try:
        import openpyxl
        from openpyxl.styles import Border, Font, Side
    except ImportError:
        return None
    data = tomllib.loads(text)
    book = openpyxl.Workbook()
    page: Any = book.active
    page.title = "exercise"
    box = Border(**dict.fromkeys(("left", "right", "top", "bottom"), Side(style="thin")))
    for name, value in data.items():
        if name not in SECTIONS:
            page.append([name, *(value if isinstance(value, list) else [value])])
    for section in SECTIONS:
        if section not in data:
            continue
        page.append([])
        page.append([section])
        page.cell(page.max_row, 1).font = Font(bold=True)
        for name, rows in _matrices(data[section]):
            for row in rows:
                page.append([None if row is not rows[0] else name, *row])
                for cell in page[page.max_row][1 : len(row) + 1] if section == "claimed" else ():
                    cell.border = box
            page.append([])
    page.column_dimensions["A"].width = NAME_WIDTH
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


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
