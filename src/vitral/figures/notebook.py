"""Results in notebooks: the page of a result in a frame of its own, from the renderers of pages.

The frame is an `iframe` with the whole page inside (`srcdoc`): no style reaches the notebook and none of the notebook's
reaches the page. It is sandboxed: a script runs only on a page that has the one of `html.page`, with an origin of its
own, under the page's content security policy, so nothing is loaded and nothing outside the frame can be read.
"""

from functools import singledispatch
from pathlib import Path

from markupsafe import escape

from vitral.figures.html import page
from vitral.figures.sections import Preformatted
from vitral.figures.text import visible

HEIGHT = 620
"""Pixels of a frame; its lower edge can be dragged."""
FRAME = "display: block; width: 100%; border: 1px solid rgba(128, 128, 128, 0.35); border-radius: 4px; resize: vertical"


@singledispatch
def page_of(result: object) -> str:
    """The page of a result, a whole HTML document; rooms register their own for their classes."""
    return page(type(result).__name__, [Preformatted(str(result))])


def written_page(file: Path, result: object) -> str:
    """The page of a result that was written to a file; the result as text where the file is gone."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return page(type(result).__name__, [Preformatted(str(result))])


class Shown:
    """A result that a prompt shows as text and a notebook as its page."""

    def __repr__(self) -> str:
        """The text that a person reads."""
        return str(self)

    def _repr_html_(self) -> str:
        """The page in a sandboxed frame."""
        return framed(page_of(self), str(self).partition("\n")[0])


def framed(document: str, title: str, height: int = HEIGHT) -> str:
    """A whole HTML document inside another one, safe whatever it contains.

    Args:
        document: the page; it is escaped as a whole.
        title: one line, which stays where frames are removed, as in a notebook that is not trusted.
        height: pixels.
    """
    # Links to places on the page would otherwise lead to the notebook's own address.
    inside = document.replace("<head>", '<head>\n<base href="about:srcdoc">', 1)
    allowed = "allow-scripts" if "<script>" in document else ""
    name = escape(visible(title))
    return (
        f'<iframe sandbox="{allowed}" title="{name}" style="{FRAME}; height: {height}px" '
        f'srcdoc="{escape(inside)}"></iframe>\n<div style="opacity: 0.6; font-size: 0.85em">{name}</div>'
    )
