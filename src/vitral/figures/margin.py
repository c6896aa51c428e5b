"""Labels beside a plot, each joined to its value by a thin line, without overlaps."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from vitral.figures.labels import spread
from vitral.figures.palette import INK, MUTED
from vitral.figures.style import FONT_SIZE, POINTS_PER_INCH
from vitral.figures.text import drawable

WRAP = 24
LABEL_SIZE = FONT_SIZE - 1
LEADER_INCHES = 0.32
_LINE_INCHES = 1.3 * LABEL_SIZE / POINTS_PER_INCH


@dataclass(frozen=True)
class Reference:
    """A reference value, drawn as a thin line across the plot.

    Attributes:
        label: its name, for example `bigram`.
        value: in the unit of the axis.
    """

    label: str
    value: float


@dataclass(frozen=True)
class Label:
    """A label of a value of the axis.

    Attributes:
        text: wrapped at 24 characters.
        value: its position on the axis.
        colour: of its leader line; the text is always in ink, for contrast.
        weight: `bold` for measurements, `normal` for references.
    """

    text: str
    value: float
    colour: str = MUTED
    weight: str = "normal"

    @property
    def lines(self) -> list[str]:
        """The wrapped lines of the text."""
        return textwrap.wrap(drawable(self.text), WRAP) or [""]


def text_width(line: str, weight: str = "normal", size: float = LABEL_SIZE) -> float:
    """Width of a line of text in inches, from the font metrics."""
    font = FontProperties(family="DejaVu Sans", weight=weight, size=size)
    width, _, _ = text_to_path.get_text_width_height_descent(line, font, ismath=False)
    return width / POINTS_PER_INCH


def wrapped(text: str, inches: float, weight: str = "normal", size: float = LABEL_SIZE) -> list[str]:
    """The lines of a text that is broken between words so that it fits this width; a long word is not broken."""
    lines = [""]
    for word in drawable(text).split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, weight, size) > inches:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def label_width(labels: Sequence[Label]) -> float:
    """Width in inches of the margin for these labels and their leader lines."""
    longest = max((text_width(line, label.weight) for label in labels for line in label.lines), default=0.0)
    return LEADER_INCHES + longest + 0.15


def label_right(axes: Axes, labels: Sequence[Label], *, height: float, width: float) -> None:
    """Write labels to the right of a plot at their values on its (linear) y axis.

    Args:
        axes: the plot, its limits final.
        labels: any order.
        height: of the plot, in inches.
        width: of the plot, in inches.
    """
    low, high = axes.get_ylim()
    inches = [(label.value - low) / (high - low) * height for label in labels]
    places = spread(inches, [_LINE_INCHES * len(label.lines) for label in labels], 0.0, height)
    for label, inch, place in zip(labels, inches, places, strict=True):
        bend = [1.0, 1.0 + 0.12 / width, 1.0 + (LEADER_INCHES - 0.08) / width, 1.0 + (LEADER_INCHES - 0.03) / width]
        ends = [inch / height, inch / height, place / height, place / height]
        axes.plot(bend, ends, transform=axes.transAxes, color=label.colour, linewidth=1.0, clip_on=False, zorder=2)
        axes.text(
            1.0 + LEADER_INCHES / width,
            place / height,
            "\n".join(label.lines),
            transform=axes.transAxes,
            va="center_baseline" if len(label.lines) == 1 else "center",
            ha="left",
            fontsize=LABEL_SIZE,
            fontweight=label.weight,
            color=INK if label.weight == "bold" else MUTED,
            linespacing=1.15,
        )


def label_top(axes: Axes, labels: Sequence[Label], *, width: float, height: float) -> None:
    """Write labels vertically above a plot at their values on its (linear) x axis; sizes as in `label_right`."""
    low, high = axes.get_xlim()
    inches = [(label.value - low) / (high - low) * width for label in labels]
    places = spread(inches, [_LINE_INCHES] * len(labels), 0.0, width)
    for label, inch, place in zip(labels, inches, places, strict=True):
        bend = [1.0, 1.0 + 0.1 / height, 1.0 + (LEADER_INCHES - 0.08) / height, 1.0 + (LEADER_INCHES - 0.03) / height]
        ends = [inch / width, inch / width, place / width, place / width]
        axes.plot(ends, bend, transform=axes.transAxes, color=label.colour, linewidth=1.0, clip_on=False, zorder=2)
        axes.text(
            place / width,
            1.0 + LEADER_INCHES / height,
            drawable(label.text),
            transform=axes.transAxes,
            rotation=90,
            va="bottom",
            ha="center",
            fontsize=LABEL_SIZE,
            color=MUTED,
        )
