"""A figure whose plots and texts have their places in inches."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitral.report.margin import text_width
from vitral.report.style import FONT_SIZE, drawable

TITLE_SIZE = FONT_SIZE + 1


class Sheet:
    """A figure measured in inches from its lower left corner, at least as wide as the title at its top."""

    def __init__(self, width: float, height: float, title: str = "", left: float = 0.2) -> None:
        """Without plots."""
        titled = left + text_width(drawable(title), "bold", TITLE_SIZE) + 0.2
        self.width, self.height = max(width, titled), height
        self.figure = Figure(figsize=(self.width, height))
        self.write(left, height - 0.12, title, va="top", fontweight="bold", fontsize=TITLE_SIZE)

    def plot(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """A new plot of this size."""
        share = (left / self.width, bottom / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(share)

    def write(self, x: float, y: float, text: str, **look: Any) -> None:
        """Text anywhere on the sheet."""
        self.figure.text(x / self.width, y / self.height, drawable(text), **look)
