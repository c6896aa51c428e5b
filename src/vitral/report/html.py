"""One self-contained HTML file from sections: no network, readable in light, in dark and on paper.

A page whose cells can be chosen, or whose tables can be sorted, contains one small script; the content security policy
forbids any other. The page is readable without it.
"""

import base64
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from importlib import resources
from itertools import count
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from vitral.core import language as languages
from vitral.core.language import _
from vitral.core.text import visible
from vitral.report.sections import (
    Beside,
    CellTable,
    Details,
    Heading,
    LiveTables,
    Section,
)
from vitral.report.tables import Table

INK, MUTED, GRID, PAPER = "#1b1f24", "#59636e", "#d8dde3", "#ffffff"
"""Foreground, secondary text, grid and background of figures; a page maps them to its own (dark) colours."""
_THEMED = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)", PAPER: "var(--paper)"}
_SVG_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_SVG_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


class Anchor(NamedTuple):
    """An entry of the table of contents."""

    name: str
    text: str


def page(
    title: str,
    sections: Sequence[Section],
    *,
    lead: str = "",
    footer: str = "",
    language: str | None = None,
    contents: str | None = None,
) -> str:
    """A whole HTML document.

    Args:
        title: the document's and its one heading of level 1.
        sections: in reading order; all their text is escaped.
        lead: a sentence or two below the title.
        footer: a line at the end, for example what made the page.
        language: "en" or "pt"; the current one if None.
        contents: name of the table of contents, in that language; the usual one if None.
    """
    anchors: list[Anchor] = []
    body, script = rendered(sections, anchors)
    entries = [anchor for anchor in anchors if anchor.text]
    shell = templates().get_template("page.html")
    words = {"title": title, "lead": lead, "footer": footer}
    words |= {"contents": contents or _("Contents"), "language": language_code(language)}
    fragments = Markup(json.dumps(FRAGMENTS, ensure_ascii=False).replace("<", "\\u003c")) if script else ""
    return shell.render(**words, body=body, entries=entries, script=script, fragments=fragments)


def rendered(sections: Sequence[Section], anchors: list[Anchor] | None = None) -> tuple[Markup, "PageScript | None"]:
    """Sections as HTML, with the script that they need.

    Args:
        sections: in reading order.
        anchors: receives the headings.
    """
    render = _renderer([] if anchors is None else anchors)
    body = Markup("\n").join(render(section) for section in sections)
    scripts = [name for name, needs in SCRIPTS.items() if _has(sections, needs)]
    return body, _script(scripts) if scripts else None


class PageScript(NamedTuple):
    """The script of a page, and its hash for the content security policy."""

    source: Markup
    hash: str


SCRIPTS: dict[str, Callable[[Section], bool]] = {
    "cells.js": lambda section: isinstance(section, CellTable | Beside),
    "sort.js": lambda section: isinstance(section, Table) and section.is_sortable,
    "live.js": lambda section: isinstance(section, LiveTables),
}
"""The scripts, and the sections that need them."""


def _script(names: Sequence[str]) -> PageScript:
    folder = resources.files("vitral.report") / "templates"
    source = "".join((folder / name).read_text(encoding="utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return PageScript(Markup(source), f"sha256-{digest}")


def _has(sections: Sequence[Section], needs: Callable[[Section], bool]) -> bool:
    return any(needs(one) or (isinstance(one, Details) and _has(one.sections, needs)) for one in sections)


class _Workings(NamedTuple):
    """The arithmetic of a table's cells.

    `stored` is JSON for the script: the arithmetic of every cell by "row,column", that with all terms, the whole table.
    """

    first: Markup
    also: list[Markup]
    rows: list[int | None]
    columns: list[int | None]
    stored: Markup


def _workings(table: CellTable) -> _Workings:
    rows = list(table.rows_at) or list(range(len(table.rows)))
    columns = list(table.columns_at) or list(range(len(table.columns) - 1))
    whole = table.whole
    known = {
        f"{row},{column}": working
        for row, line in zip(rows, table.workings, strict=True)
        for column, working in zip(columns, line, strict=True)
        if working is not None
    }
    told = {place: packed(working.mathml) for place, working in known.items()}
    terms = {place: packed(working.whole) for place, working in known.items() if working.whole}
    stored: dict[str, Any] = {"told": told, "terms": terms}
    if table.words is not None:
        stored["words"] = {name: visible(words) for name, words in asdict(table.words).items()}
    if whole is not None:
        stored |= {"columns": list(map(visible, whole.columns)), "ask": visible(whole.ask), "first": whole.first}
        stored["heat"] = bool(table.heat)
        stored["rows"] = [list(map(visible, line)) for line in whole.rows]
    chosen, *also = ((table.workings[row][column]) for row, column in (table.chosen, *table.also))
    return _Workings(
        Markup() if chosen is None else Markup(chosen.mathml),
        [Markup(working.mathml) for working in also if working is not None],
        rows,
        columns,
        _stored(stored),
    )


def _stored(data: Any) -> Markup:
    """Plain data inside a script element."""
    return Markup(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


FRAGMENTS = (
    *("<mrow><mo>−</mo><mn>", "</mn></mrow>", "</mn><mo>·</mo><mn>", "</mn><mo>+</mo><mn>", "</mn><mo>−</mo><mn>"),
    *("<mo>=</mo>", "<mo>·</mo>", "<mn>", "</mn>", "<mo>", "</mo>", "<mi>", "</mi>", "<mrow>", "</mrow>"),
    *("<mtext>", "</mtext>", "<msub>", "</msub>", "<msup>", "</msup>", "<mfrac>", "</mfrac>"),
    *("<math>", "</math>", "<br>"),
)
"""Pieces of MathML; a stored formula has the letters A to Z in their place, the first of them A."""


def packed(mathml: str) -> str:
    """A formula in few bytes for the script, which unpacks it: a capital letter is a fragment, or itself after a grave.

    >>> packed("<math><mi>W</mi></math>")
    'XL`WMY'
    """
    mathml = re.sub("[A-Z`]", r"`\g<0>", mathml)
    for place, fragment in enumerate(FRAGMENTS):
        mathml = mathml.replace(fragment, chr(ord("A") + place))
    return mathml


def _renderer(anchors: list[Anchor]) -> Callable[[Section], Markup]:
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


def _note(anchors: list[Anchor], heading: Heading) -> str:
    # A unique anchor; only headings of level 2 are in the table of contents.
    plain = unicodedata.normalize("NFKD", heading.text).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "section"
    taken = {anchor.name for anchor in anchors}
    name = slug
    for number in count(2):
        if name not in taken:
            break
        name = f"{slug}-{number}"
    anchors.append(Anchor(name, heading.text if heading.level == 2 else ""))
    return name


def inline_svg(svg: str, prefix: str) -> str:
    """An SVG file prepared for a page with other figures.

    Its prologue, metadata and style rule (which would apply to the whole page) are removed, its ids get a prefix, and
    the colours of ink and paper become those of the page, dark mode included.

    Args:
        svg: text of a file that `style.save` wrote.
        prefix: unique on the page.
    """
    svg = svg[svg.index("<svg") :]
    svg = _SVG_METADATA.sub("", _SVG_STYLE.sub("", svg))
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    return _themed(svg)


def _themed(svg: str) -> str:
    """An SVG file whose ink and paper are those of the page, hidden from screen readers, which have its text."""
    for colour, variable in _THEMED.items():
        svg = svg.replace(colour, variable)
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1).strip()


def language_code(language: str | None = None) -> str:
    """The BCP 47 code of a language of ours, for screen readers and hyphenation; of the current one if None."""
    return {"pt": "pt-BR"}.get(language or languages.language(), "en")


@cache
def templates() -> jinja2.Environment:
    """The templates of pages; every value is escaped, and `visible` writes hidden characters out."""
    loader = jinja2.PackageLoader("vitral.report", "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    return environment
