"""Labels beside a plot, each joined to its value by a thin line, without overlaps."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from vitral.core.language import number
from vitral.core.text import minus
from vitral.report.palette import INK, MUTED
from vitral.report.style import FONT_SIZE, POINTS_PER_INCH, drawable

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

    def as_label(self) -> "Label":
        """Its name and its value, to be written beside the plot."""
        return Label(f"{self.label}  {minus(number(self.value, '.3f'))}", self.value)


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
    """Write labels to the right of a plot at their values on its y axis.

    Args:
        axes: the plot, its limits final.
        labels: any order.
        height: of the plot, in inches.
        width: of the plot, in inches.
    """
    inches = [_share(axes, (0.0, label.value))[1] * height for label in labels]
    places = spread(inches, [_LINE_INCHES * len(label.lines) for label in labels], 0.0, height)
    for label, inch, place in zip(labels, inches, places, strict=True):
        axes.plot(*_leader(inch, place, width, height), transform=axes.transAxes, color=label.colour, **_LEADER)
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


def _share(axes: Axes, place: tuple[float, float]) -> tuple[float, float]:
    """Where a place is, as shares of the plot's width and height."""
    x, y = axes.transLimits.transform(axes.transScale.transform(place))
    return float(x), float(y)


def label_top(axes: Axes, labels: Sequence[Label], *, width: float, height: float) -> None:
    """Write labels vertically above a plot at their values on its (linear) x axis; sizes as in `label_right`."""
    inches = [_share(axes, (label.value, 0.0))[0] * width for label in labels]
    places = spread(inches, [_LINE_INCHES] * len(labels), 0.0, width)
    for label, inch, place in zip(labels, inches, places, strict=True):
        away, along = _leader(inch, place, height, width)
        axes.plot(along, away, transform=axes.transAxes, color=label.colour, **_LEADER)
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


_LEADER = {"linewidth": 1.0, "clip_on": False, "zorder": 2}


def _leader(inch: float, place: float, across: float, along: float) -> tuple[list[float], list[float]]:
    """A bent line from a value to its label: shares of the plot's size across the edge, and along it."""
    bends = [0.0, 0.12, LEADER_INCHES - 0.08, LEADER_INCHES - 0.03]
    return [1.0 + bend / across for bend in bends], [inch / along, inch / along, place / along, place / along]


def spread(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Centres of labels, as near to `wanted` as possible without overlaps.

    The sum of squared moves is minimal among all placements in the same order: with the sizes subtracted, this is
    isotonic regression, solved by pooling adjacent violators (Barlow et al. 1972). Labels stay between `low` and
    `high` if they fit there together; if they do not, they exceed `high`.

    Args:
        wanted: the position of each label without the others.
        sizes: of each label along the axis, its margin included.
        low: begin of the axis.
        high: end of the axis.

    >>> spread([1.0, 1.0, 9.0], [2.0, 2.0, 2.0], 0.0, 10.0)
    [1.0, 3.0, 9.0]
    """
    if not wanted:
        return []
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    offsets = [0.0]
    for before, after in pairwise(order):
        offsets.append(offsets[-1] + (sizes[before] + sizes[after]) / 2)
    begin = low + sizes[order[0]] / 2
    end = high - sizes[order[-1]] / 2 - offsets[-1]
    pooled = _isotonic([wanted[index] - offset for index, offset in zip(order, offsets, strict=True)])
    centres = [0.0] * len(wanted)
    for index, offset, place in zip(order, offsets, pooled, strict=True):
        centres[index] = max(begin, min(end, place)) + offset
    return centres


def _isotonic(values: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to `values` in squared distance."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean, count), (next_mean, next_count) = pools[-2:]
            both = count + next_count
            pools[-2:] = [((mean * count + next_mean * next_count) / both, both)]
    return [mean for mean, count in pools for _ in range(count)]
