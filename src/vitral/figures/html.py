"""One self-contained HTML file from sections: no network, readable in light, in dark and on paper.

A page whose cells can be chosen, or whose tables can be sorted, contains one small script; the content security policy
forbids any other. The page is readable without it.
"""

import base64
import hashlib
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from itertools import count
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from vitral.core import language as languages
from vitral.core.checked import checked
from vitral.core.language import _
from vitral.figures.palette import GRID, INK, MUTED, PAPER
from vitral.figures.sections import Beside, CellTable, Details, Figure, Formula, Heading, Section, SortableTable
from vitral.figures.text import visible

_THEMED = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)", PAPER: "var(--paper)"}
_SVG_STYLE = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_SVG_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


class Anchor(NamedTuple):
    """An entry of the table of contents."""

    name: str
    text: str


@checked
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
        language: BCP 47 code of the text, for screen readers and hyphenation; the current language if None.
        contents: name of the table of contents, in that language; the usual one if None.
    """
    anchors: list[Anchor] = []
    body, script = rendered(sections, anchors)
    entries = [anchor for anchor in anchors if anchor.text]
    shell = templates().get_template("page.html")
    words = {"title": title, "lead": lead, "footer": footer}
    words |= {"contents": contents or _("Contents"), "language": language or languages.language()}
    return shell.render(**words, body=body, entries=entries, script=script)


def rendered(sections: Sequence[Section], anchors: list[Anchor] | None = None) -> tuple[Markup, "PageScript | None"]:
    """Sections as HTML, with the script that they need.

    Args:
        sections: in reading order.
        anchors: receives the headings.
    """
    render = _renderer([] if anchors is None else anchors)
    body = Markup("\n").join(render(section) for section in sections)
    scripts = [name for name, kinds in SCRIPTS.items() if _has(sections, kinds)]
    return body, _script(scripts) if scripts else None


class PageScript(NamedTuple):
    """The script of a page, and its hash for the content security policy."""

    source: Markup
    hash: str


SCRIPTS = {"cells.js": (CellTable, Beside), "sort.js": (SortableTable,)}
"""The scripts, and the sections that need them."""


def _script(names: Sequence[str]) -> PageScript:
    folder = resources.files("vitral.figures") / "templates"
    source = "".join((folder / name).read_text(encoding="utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return PageScript(Markup(source), f"sha256-{digest}")


def _has(sections: Sequence[Section], kinds: tuple[type, ...]) -> bool:
    return any(
        isinstance(section, kinds) or (isinstance(section, Details) and _has(section.sections, kinds))
        for section in sections
    )


class _Workings(NamedTuple):
    """The arithmetic of the cells of a table: every text, the index of each cell's, and the one shown first."""

    all: list[Markup]
    places: list[list[int | None]]
    first: Markup


def _workings(table: CellTable) -> _Workings:
    every: list[Markup] = []
    places: list[list[int | None]] = []
    for row in table.workings:
        places.append([])
        for working in row:
            places[-1].append(None if working is None else len(every))
            if working is not None:
                every.append(Markup(working.mathml))
    first = places[table.chosen[0]][table.chosen[1]]
    return _Workings(every, places, Markup() if first is None else every[first])


def _renderer(anchors: list[Anchor]) -> Callable[[Section], Markup]:
    """A function that turns a section into HTML by the macro named after its class, noting headings in `anchors`."""
    figures = count(1)

    def render(section: Section) -> Markup:
        extra = {}
        if isinstance(section, Heading):
            extra["anchor"] = _note(anchors, section)
        elif isinstance(section, Figure):
            extra["svg"] = Markup(inline_svg(section.svg, f"figure{next(figures)}"))
        elif isinstance(section, SortableTable):
            extra["drawings"] = [Markup(_themed(svg)) for svg in section.drawings]
        elif isinstance(section, Formula):
            extra["mathml"] = Markup(section.mathml)
        elif isinstance(section, CellTable):
            extra["workings"] = _workings(section)
        return Markup(getattr(macros, type(section).__name__.lower())(section, **extra))

    macros = templates().get_template("sections.html").make_module({"render": render})
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


@cache
def templates() -> jinja2.Environment:
    """The templates of pages; every value is escaped, and `visible` writes hidden characters out."""
    loader = jinja2.PackageLoader("vitral.figures", "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    return environment
