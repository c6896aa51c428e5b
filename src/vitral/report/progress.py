"""A training in progress as a piece of HTML that a notebook shows again and again in one place."""

from dataclasses import dataclass
from itertools import count

from markupsafe import Markup

from vitral.report.html import inline_svg, templates
from vitral.report.sections import Preformatted

_curves = count(1)
"""A notebook shows several: the ids inside a drawing are unique in it."""


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
        curve: text of an SVG file, from `vitral.report`; empty for none.
    """

    headline: str
    label: str
    share: float
    lines: tuple[str, ...]
    measured: str
    notes: tuple[str, ...]
    sample: Preformatted
    curve: str = ""


def progress_html(view: ProgressView) -> str:
    """The state of a training, for inside another page: without a document, a style rule or a script of its own."""
    curve = Markup(inline_svg(view.curve, f"training{next(_curves)}")) if view.curve else Markup()
    return templates().get_template("progress.html").render(view=view, curve=curve)
