"""Results in notebooks: the page of a result in a frame of its own, from the renderers of pages.

The frame is an `iframe` with the whole page inside (`srcdoc`): no style reaches the notebook and none of the notebook's
reaches the page. It is sandboxed: a script runs only on a page that has the one of `html.page`, with an origin of its
own, under the page's content security policy, so nothing is loaded and nothing outside the frame can be read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from vitral.core.text import visible

if TYPE_CHECKING:
    from vitral.report.sections import Preformatted

HEIGHT = 620
"""Pixels of a frame; its lower edge can be dragged."""
LINE, AROUND = 25, 190
"""Pixels of a line of text, and of the title and margins of a page."""
FRAME = (
    "display: block; box-sizing: border-box; width: 100%; resize: vertical; "
    "border: 1px solid rgba(128, 128, 128, 0.35); border-radius: 4px"
)


VIEWS = {
    "CheckReport": "checked_sheet",
    "Forecast": "model",
    "Measures": "survey",
    "RunComparison": "side_by_side",
    "TextMeasures": "survey",
    "Walkthrough": "walkthrough",
}
"""Results of lower rooms, and the module here that writes them: its functions are `page_of`, `text_of` and so on."""


def form(result: object, name: str) -> Callable[..., Any] | None:
    """What makes a form of a result, such as "page" or "table".

    That is a method of the result, or the function `NAME_of` of its module in `VIEWS`; None where there is neither.
    """
    own, view = getattr(result, name, None), VIEWS.get(type(result).__name__)
    if own is not None or view is None:
        return own
    made = getattr(import_module(f"vitral.report.{view}"), f"{name}_of", None)
    return made and partial(made, result)


def page_of(result: object) -> str:
    """The page of a result, a whole HTML document."""
    return (form(result, "page") or partial(_text_page, result))()


def text_of(result: object) -> str:
    """The text of a result that has none of its own."""
    return (form(result, "text") or partial(object.__repr__, result))()


def written_page(file: Path, result: object) -> str:
    """The page of a result that was written to a file; the result as text where the file is gone."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return _text_page(result)


def _text_page(result: object) -> str:
    """A page of the result as text."""
    from vitral.report.html import page
    from vitral.report.sections import Preformatted

    return page(type(result).__name__, [Preformatted(str(result))])


def in_frame(result: object, *, is_only_text: bool) -> str:
    """The page of a result in a sandboxed frame, which is low if the page has no more than a short text."""
    from vitral.report.markdown import WIDTH

    text = str(result)
    lines = sum(1 + len(line) // WIDTH for line in text.splitlines())
    height = min(HEIGHT, AROUND + LINE * lines) if is_only_text else HEIGHT
    return framed(page_of(result), text, height)


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


@dataclass(frozen=True)
class ProgressView:
    """The present state of a training, for display; every text is escaped.

    Attributes:
        headline: the model and the text.
        label: of the bar, for those who do not see it.
        share: of the steps that are done, from 0 to 1.
        lines: the step and the time left.
        measured: the last evaluation.
        notes: warnings, and the end.
        sample: the last sample; an empty text for none.
    """

    headline: str
    label: str
    share: float
    lines: tuple[str, ...]
    measured: str
    notes: tuple[str, ...]
    sample: "Preformatted"


def progress_html(view: ProgressView) -> str:
    """The state of a training, for inside another page: without a document, a style rule or a script of its own."""
    from vitral.report.html import templates

    return templates().get_template("progress.html").render(view=view)
