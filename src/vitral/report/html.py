"""One self-contained HTML file from sections: no network, readable in light, in dark and on paper.

A page whose cells can be chosen, or whose tables can be sorted, contains one small script; the content security policy
forbids any other. The page is readable without it.
"""

import base64
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from vitral.core import language as languages
from vitral.core.language import _, in_language
from vitral.core.text import visible
from vitral.report.sections import (
    CellTable,
    Columns,
    Details,
    Heading,
    LiveTables,
    Section,
)
from vitral.report.tables import Table

if TYPE_CHECKING:
    import jinja2

INK, MUTED, GRID, PAPER = "#1b1f24", "#59636e", "#d8dde3", "#ffffff"
"""Foreground, secondary text, grid and background of figures; a page maps them to its own (dark) colours."""
_THEMED = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)", PAPER: "var(--paper)"}
_OF_THE_FILE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>|<metadata>.*?</metadata>", re.DOTALL)


def page(
    title: str,
    sections: Sequence[Section],
    *,
    lead: str = "",
    footer: str = "",
    language: str | None = None,
) -> str:
    """A whole HTML document.

    Args:
        title: the document's and its one heading of level 1.
        sections: in reading order; all their text is escaped.
        lead: a sentence or two below the title.
        footer: a line at the end, for example what made the page.
        language: "en" or "pt"; the current one if None.
    """
    with in_language(language or languages.language()):
        words = {"title": title, "lead": lead, "footer": footer, "contents": _("Contents"), "language": language_code()}
        return templates().get_template("page.html").render(**words, **rendered(sections))


def rendered(sections: Sequence[Section]) -> dict[str, Any]:
    """What a template shows of sections.

    Returns:
        Their HTML, "body"; the anchors and texts of a table of contents, "entries"; the "script" that they need, and
        its "hash" for the content security policy.
    """
    anchors: dict[str, str] = {}
    body = Markup("\n").join(map(_renderer(anchors), sections))
    folder = resources.files("vitral.report") / "templates"
    script = "".join((folder / name).read_text("utf-8") for name, needs in SCRIPTS.items() if _has(sections, needs))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    entries = [(name, text) for name, text in anchors.items() if text]
    return {"body": body, "entries": entries, "script": Markup(script), "hash": f"sha256-{digest}"}


SCRIPTS: dict[str, Callable[[Section], bool]] = {
    "cells.js": lambda section: isinstance(section, CellTable),
    "sort.js": lambda section: isinstance(section, Table) and section.is_sortable,
    "live.js": lambda section: isinstance(section, LiveTables),
}
"""The scripts, and the sections that need them."""


def _has(sections: Sequence[Section], needs: Callable[[Section], bool]) -> bool:
    return any(needs(one) or (isinstance(one, Columns | Details) and _has(one.sections, needs)) for one in sections)


def _workings(table: CellTable) -> dict[str, Any]:
    """The arithmetic of a table's cells.

    Returns:
        That of the cell chosen at first, "first", and of further ones, "also"; the indices of the shown "rows" and
        "columns"; and what the script needs, "stored": the arithmetic of every cell by "row,column", that with all
        terms, the whole table.
    """
    rows = list(table.rows_at) or list(range(len(table.rows)))
    columns = list(table.columns_at) or list(range(len(table.columns) - 1))
    known = {
        f"{row},{column}": working
        for row, line in zip(rows, table.workings, strict=True)
        for column, working in zip(columns, line, strict=True)
        if working is not None
    }
    stored = {
        "told": {cell: working.mathml for cell, working in known.items()},
        "terms": {cell: working.whole for cell, working in known.items() if working.whole},
        "heat": bool(table.heat),
        **_readable({"words": table.words, **(table.whole or {})}),
    }
    chosen = [table.workings[row][column] for row, column in (table.chosen, *table.also)]
    first, *also = [None if working is None else Markup(working.mathml) for working in chosen]
    return {"first": first, "also": filter(None, also), "rows": rows, "columns": columns, "stored": _stored(stored)}


def _readable(data: Any) -> Any:
    """Plain data with its hidden characters written out."""
    if isinstance(data, Mapping):
        return {key: _readable(value) for key, value in data.items()}
    if isinstance(data, tuple):
        return list(map(_readable, data))
    return visible(data) if isinstance(data, str) else data


def _stored(data: Any) -> Markup:
    """Plain data inside a script element."""
    return Markup(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def _renderer(anchors: dict[str, str]) -> Callable[[Section], Markup]:
    """A function that turns a section into HTML by the macro named after its class, noting headings in `anchors`."""
    figures = count(1)

    def render(section: Section) -> Markup:
        return Markup(getattr(macros, type(section).__name__.lower())(section))

    parts: dict[str, Callable[..., Any]] = {
        "render": render,
        "anchor": lambda heading: _note(anchors, heading),
        "inline": lambda figure: Markup(inline_svg(figure.svg, f"figure{next(figures)}")),
        "workings": _workings,
        "stored": _stored,
        "generated": Markup,
    }
    macros = templates().get_template("sections.html").make_module(parts)
    return render


def _note(anchors: dict[str, str], heading: Heading) -> str:
    """A unique anchor; only headings of level 2 are in the table of contents."""
    plain = unicodedata.normalize("NFKD", heading.text).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "section"
    names = chain([slug], (f"{slug}-{number}" for number in count(2)))
    name = next(name for name in names if name not in anchors)
    anchors[name] = heading.text if heading.level == 2 else ""
    return name


def inline_svg(svg: str, prefix: str) -> str:
    """An SVG file prepared for a page with other figures.

    Its prologue, metadata and style rule (which would apply to the whole page) are removed, its ids get a prefix, and
    the colours of ink and paper become those of the page, dark mode included.

    Args:
        svg: text of a file that `style.save` wrote.
        prefix: unique on the page.
    """
    svg = _OF_THE_FILE.sub("", svg[svg.index("<svg") :])
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for colour, variable in _THEMED.items():
        svg = svg.replace(colour, variable)
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1).strip()


def language_code() -> str:
    """The BCP 47 code of the current language, for screen readers and hyphenation."""
    return {"pt": "pt-BR"}.get(languages.language(), "en")


@cache
def templates() -> "jinja2.Environment":
    """The templates of pages; every value is escaped, and `visible` writes hidden characters out."""
    import jinja2  # only a page needs it

    loader = jinja2.PackageLoader("vitral.report", "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    return environment
