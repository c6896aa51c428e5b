"""Results in notebooks: the page of a result in a frame of its own, from the renderers of pages.

The frame is an `iframe` with the whole page inside (`srcdoc`): no style reaches the notebook and none of the notebook's
reaches the page. It is sandboxed: a script runs only on a page that has the one of `html.page`, with an origin of its
own, under the page's content security policy, so nothing is loaded and nothing outside the frame can be read.
"""

from functools import singledispatch
from pathlib import Path
from typing import ClassVar

from markupsafe import Markup, escape

from vitral.figures.text import visible

HEIGHT = 620
"""Pixels of a frame; its lower edge can be dragged."""
LINE, AROUND = 25, 190
"""Pixels of a line of text, and of the title and margins of a page."""
FRAME = (
    "display: block; box-sizing: border-box; width: 100%; resize: vertical; "
    "border: 1px solid rgba(128, 128, 128, 0.35); border-radius: 4px"
)


@singledispatch
def page_of(result: object) -> str:
    """The page of a result, a whole HTML document; rooms register their own for their classes."""
    return _text_page(result)


def written_page(file: Path, result: object) -> str:
    """The page of a result that was written to a file; the result as text where the file is gone."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return _text_page(result)


def _text_page(result: object) -> str:
    """A page of the result as text."""
    from vitral.figures.html import page
    from vitral.figures.sections import Preformatted

    return page(type(result).__name__, [Preformatted(str(result))])


class Shown:
    """A result that a prompt shows as text and a notebook as its page."""

    _is_only_text: ClassVar[bool] = False
    """Whether the page has no more than the text, so that a short one needs little room."""

    def __repr__(self) -> str:
        """The text that a person reads."""
        return str(self)

    def _repr_html_(self) -> str:
        """The page in a sandboxed frame."""
        from vitral.figures.plain import WIDTH

        text = str(self)
        lines = sum(1 + len(line) // WIDTH for line in text.splitlines())
        height = min(HEIGHT, AROUND + LINE * lines) if self._is_only_text else HEIGHT
        return framed(page_of(self), text, height)


def framed(document: str, text: str, height: int = HEIGHT) -> str:
    """A whole HTML document inside another one, safe whatever it contains.

    Args:
        document: the page; it is escaped as a whole.
        text: the same as text; folded under its first line. It stays where frames are removed, as in a notebook of
            somebody else that is not trusted.
        height: pixels.
    """
    # Links to places on the page would otherwise lead to the notebook's own address.
    inside = document.replace("<head>", '<head>\n<base href="about:srcdoc">', 1)
    allowed = "allow-scripts" if "<script>" in document else ""
    first, _, rest = visible(text).strip().partition("\n")
    title = escape(first)
    folded = Markup("<details><summary>{}</summary><pre>{}</pre></details>").format(title, rest) if rest else title
    return (
        f'<iframe sandbox="{allowed}" title="{title}" style="{FRAME}; height: {height}px" '
        f'srcdoc="{escape(inside)}"></iframe>\n<div style="opacity: 0.6; font-size: 0.85em">{folded}</div>'
    )
