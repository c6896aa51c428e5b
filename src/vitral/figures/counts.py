"""Counts as horizontal bars, one for each name."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vitral.core.errors import UsageError
from vitral.figures.margin import text_width
from vitral.figures.palette import INK
from vitral.figures.style import COLOURS, FONT_SIZE, styled
from vitral.figures.text import drawable

WIDTH, ROW_INCHES = 10.0, 0.34
TOP, BOTTOM, RIGHT = 0.15, 0.65, 0.3
TITLE_INCHES = 0.4


@styled
def count_bars(counts: Sequence[tuple[str, int]], *, title: str = "", x_label: str = "") -> Figure:
    """Draw a bar for each name, the first at the top, with its count.

    Args:
        counts: (name, count) pairs.
        title: above the plot; empty for none.
        x_label: the things that are counted.

    Raises:
        UsageError: there is no name, or a count is below zero.
    """
    if not counts or min(count for _name, count in counts) < 0:
        raise UsageError("bars need at least one name, each with a count of at least 0")
    names = [drawable(name) for name, _count in counts]
    left = max(text_width(name, size=FONT_SIZE) for name in names) + 0.35
    rows = ROW_INCHES * len(counts)
    height = TOP + TITLE_INCHES * bool(title) + BOTTOM + rows
    figure = Figure(figsize=(WIDTH, height))
    plot = (left / WIDTH, BOTTOM / height, (WIDTH - left - RIGHT) / WIDTH, rows / height)
    axes = figure.add_axes(plot)
    values = [count for _name, count in counts]
    axes.barh(range(len(counts)), values, color=COLOURS[0], height=0.66)
    for place, count in enumerate(values):
        axes.annotate(str(count), (count, place), (4, 0), textcoords="offset points", va="center", color=INK)
    axes.set_yticks(range(len(counts)), names)
    axes.set_ylim(len(counts) - 0.5, -0.5)
    axes.set_xlim(0, max(1, *values) * 1.08)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(x_label)
    figure.text(left / WIDTH, 1 - 0.12 / height, drawable(title), va="top", fontweight="bold", fontsize=FONT_SIZE + 1)
    return figure
