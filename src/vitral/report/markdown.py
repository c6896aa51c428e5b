"""The same sections as a Markdown file (GitHub's flavour): text escaped, samples fenced, figures linked."""

import re
from collections.abc import Sequence

from vitral.core.text import visible
from vitral.report import sections as pieces
from vitral.report.tables import Table, escape, one_line


def markdown(title: str, sections: Sequence[pieces.Section], *, lead: str = "", footer: str = "") -> str:
    """A whole Markdown document, ending in a newline; the arguments are those of `html.page`."""
    blocks = [f"# {escape(title)}", escape(lead), *(_block(section) for section in sections)]
    blocks += ["---", escape(footer)] if footer else []
    return "\n\n".join(block for block in blocks if block) + "\n"


def fence(text: str) -> str:
    """The text in a code fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    bar = "`" * max(3, longest + 1)
    return f"{bar}text\n{visible(text).rstrip(chr(10))}\n{bar}"


def _block(section: pieces.Section) -> str:
    match section:
        case pieces.Heading():
            return f"{'#' * section.level} {escape(section.text)}"
        case pieces.Paragraph(link=link):
            return f"[{escape(section.text)}]({link})" if link else escape(section.text)
        case pieces.Callout():
            return "\n".join(f"> {line}" for line in escape(section.text).splitlines())
        case pieces.Listing():
            return "\n".join(f"- {one_line(item)}" for item in section.items)
        case pieces.Columns():
            return "\n\n".join(map(_block, section.sections))
        case pieces.Details():
            inside = "\n\n".join(map(_block, section.sections))
            return f"<details>\n<summary>{escape(section.summary)}</summary>\n\n{inside}\n\n</details>"
        case _:
            return _shown(section)


def _shown(section: pieces.Section) -> str:
    """A table, a drawing, a formula or a text as it is."""
    match section:
        case Table():
            caption = [f"{escape(section.caption)}\n"] if section.caption else []
            return "\n".join([*caption, *section.markdown_lines])
        case pieces.CellTable():
            return _cell_table(section)
        case pieces.Preformatted():
            caption = [f"**{one_line(section.caption)}**"] if section.caption else []
            return "\n\n".join([*caption, fence(section.text)])
        case pieces.Figure():
            return f"![{one_line(section.alt)}]({section.path})\n\n{escape(section.caption)}"
        case pieces.Formula():
            return f"$$\n{section.latex}\n$$" if section.latex else fence(section.text)
        case _:
            return ""


def _cell_table(section: pieces.CellTable) -> str:
    rows = [list(cells) for cells in section.rows]
    worked: list[str] = []
    for row, column in (section.chosen, *section.also):
        working = section.workings[row][column]
        if working is not None:
            rows[row][column + 1] = f"[{rows[row][column + 1]}]"
            worked.append(_block(working))
    return "\n\n".join([_block(Table(section.caption, section.columns, rows)), *worked])
