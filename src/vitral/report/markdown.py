"""The same sections as a Markdown file (GitHub's flavour): text escaped, samples fenced, figures linked."""

import re
from collections.abc import Sequence

from vitral.core.text import visible
from vitral.report import sections as pieces

_SPECIAL = re.compile(r"([\\`*_\[\]<>&|~$])")
_BLOCK_START = re.compile(r"^([ \t]*)(?:(\d+)([.)])|(#{1,6}|[+-]|=+|-+))(?=\s|$)", re.MULTILINE)


def markdown(title: str, sections: Sequence[pieces.Section], *, lead: str = "", footer: str = "") -> str:
    """A whole Markdown document, ending in a newline; the arguments are those of `html.page`."""
    blocks = [f"# {escape(title)}", escape(lead), *(_block(section) for section in sections)]
    blocks += ["---", escape(footer)] if footer else []
    return "\n\n".join(block for block in blocks if block) + "\n"


def escape(text: str) -> str:
    r"""Plain text escaped so that Markdown shows exactly it.

    >>> escape("a_b <i> 1*2")
    'a\\_b \\<i\\> 1\\*2'
    """
    return _BLOCK_START.sub(_escaped_start, _SPECIAL.sub(r"\\\1", visible(text)))


def _escaped_start(match: re.Match[str]) -> str:
    indent, number, point, mark = match.groups()
    return f"{indent}\\{mark}" if mark else f"{indent}{number}\\{point}"


def fence(text: str) -> str:
    """The text in a code fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    bar = "`" * max(3, longest + 1)
    return f"{bar}text\n{visible(text).rstrip(chr(10))}\n{bar}"


def _block(section: pieces.Section) -> str:
    match section:
        case pieces.Heading():
            return f"{'#' * section.level} {escape(section.text)}"
        case pieces.Paragraph():
            return escape(section.text)
        case pieces.Callout():
            return "\n".join(f"> {line}" for line in escape(section.text).splitlines())
        case pieces.Listing():
            return "\n".join(f"- {_one_line(item)}" for item in section.items)
        case pieces.Preformatted():
            return "\n\n".join([*_caption(section.caption), fence(section.text)])
        case pieces.Columns() | pieces.Beside():
            return "\n\n".join(map(_block, section.items))
        case pieces.Details():
            inside = "\n\n".join(map(_block, section.sections))
            return f"<details>\n<summary>{escape(section.summary)}</summary>\n\n{inside}\n\n</details>"
        case _:
            return _shown(section)


def _shown(section: pieces.Section) -> str:
    """A table, a drawing or a formula."""
    match section:
        case pieces.Table():
            table = "\n".join(table_lines(section.columns, section.rows, section.prose))
            return f"{escape(section.caption)}\n\n{table}" if section.caption else table
        case pieces.SortableTable():
            return _block(section.table)
        case pieces.CellTable():
            return _cell_table(section)
        case pieces.Figure():
            return f"![{_one_line(section.alt)}]({section.path})\n\n{escape(section.caption)}"
        case pieces.Diagram():
            return "\n\n".join([*_caption(section.caption), fence(section.text)])
        case pieces.Formula():
            return f"$$\n{section.latex}\n$$" if section.latex else fence(section.text)
        case _:
            return ""


def _caption(text: str) -> list[str]:
    return [f"**{_one_line(text)}**"] if text else []


def _cell_table(section: pieces.CellTable) -> str:
    rows = [list(cells) for cells in section.rows]
    worked: list[str] = []
    for row, column in (section.chosen, *section.also):
        working = section.workings[row][column]
        if working is not None:
            rows[row][column + 1] = f"[{rows[row][column + 1]}]"
            worked.append(_block(working))
    return "\n\n".join([_block(pieces.Table(section.caption, section.columns, tuple(map(tuple, rows)))), *worked])


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], prose: Sequence[int] = ()) -> list[str]:
    """The lines of a table; the first column and those in `prose` are left-aligned."""
    marks = ["---" if not index or index in prose else "---:" for index in range(len(columns))]
    lines = [list(map(_one_line, columns)), marks, *(list(map(_one_line, row)) for row in rows)]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _one_line(text: str) -> str:
    return " ".join(escape(text).split())
