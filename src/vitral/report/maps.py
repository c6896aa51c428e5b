"""Attention weights as heat maps."""

import math
from collections.abc import Sequence

import matplotlib.cm
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from vitral.core.language import _, number
from vitral.core.text import minus
from vitral.report.palette import GRID, MUTED
from vitral.report.sheet import Sheet
from vitral.report.style import FONT_SIZE, drawable, styled

MOST_INCHES_WIDE = 13.0
NUMBERS_UP_TO = 8
LEAST_INCHES, MOST_INCHES = 2.6, 4.9
CELL_INCHES = 0.22
DARK_CELL = 0.5
ON_DARK, ON_LIGHT = "#fdfdfd", "#15181c"
"""Colours of the numbers in cells. A page does not replace them by its own, because cells keep their colours too."""
TOP, BAR = 0.55, 1.2
MOST_LABEL = 12
MOST_PATHS, CELL_PIXELS, BAR_STEPS = 32, 16, 64
WEIGHTS = LinearSegmentedColormap.from_list("weights", ["#eaf1f7", "#9cc4e0", "#0072b2", "#00243a"])


def shade_cells(axes: Axes, values: np.ma.MaskedArray, top: float) -> None:
    """Shade a grid of cells, the first row at the top; the centre of row 2, column 3 is at y = 2, x = 3.

    Cells are vector paths, which no program blurs. A grid of more than `MOST_PATHS` in a direction would make a huge
    file; it is an image in which each cell has many pixels.

    Args:
        axes: the plot.
        values: `[rows, columns]`; masked cells stay empty.
        top: value of the darkest colour; 0 is the lightest.
    """
    rows, columns = values.shape
    if max(rows, columns) <= MOST_PATHS:
        edges = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
        # Each cell has a thin edge of its own colour, without which the page shines through between cells.
        axes.pcolormesh(*edges, values, cmap=WEIGHTS, vmin=0.0, vmax=top, edgecolors="face", linewidth=0.2)
    else:
        large = values.repeat(CELL_PIXELS, axis=0).repeat(CELL_PIXELS, axis=1)
        place = (-0.5, columns - 0.5, rows - 0.5, -0.5)
        axes.imshow(large, cmap=WEIGHTS, vmin=0.0, vmax=top, interpolation="none", aspect="auto", extent=place)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    axes.grid(visible=False)
    axes.spines[:].set(visible=True, color=GRID)


def write_cells(axes: Axes, values: np.ma.MaskedArray, top: float, size: float) -> None:
    """Write its number into each shaded cell."""
    for (row, column), value in np.ma.ndenumerate(values):
        colour = ON_DARK if value > DARK_CELL * top else ON_LIGHT
        look = {"ha": "center", "va": "center", "fontsize": size, "color": colour}
        axes.text(column, row, minus(number(value, ".2f")), **look)


def colour_bar(axes: Axes, top: float, label: str) -> None:
    """The scale of `shade_cells`, drawn as vector paths."""
    colours = matplotlib.cm.ScalarMappable(Normalize(0.0, top), WEIGHTS.resampled(BAR_STEPS))
    solids = axes.figure.colorbar(colours, cax=axes, label=label).solids
    assert solids is not None
    solids.set(rasterized=False, edgecolor="face", linewidth=0.4)
    axes.grid(visible=False)


@styled
def attention_maps(weights: ArrayLike, queries: Sequence[str], keys: Sequence[str] = (), *, title: str = "") -> Figure:
    """Draw one heat map for each head of a layer, on one colour scale from 0 to 1.

    A row is a query position and adds up to one; a column is a key position. Cells of exactly zero, such as masked
    ones, are not coloured. Up to 8 by 8 cells contain their numbers.

    Args:
        weights: `[heads, time, source]`, between 0 and 1.
        queries: labels of the time axis.
        keys: labels of the source axis; the same as `queries` if not given.
        title: above everything; empty for none.
    """
    values = np.asarray(weights, dtype=float)
    keys = keys or queries
    side = min(MOST_INCHES, max(LEAST_INCHES, CELL_INCHES * max(len(queries), len(keys))))
    left, bottom = (0.55 + 0.1 * max(len(_short(label)) for label in labels) for labels in (queries, keys))
    rows = math.ceil(len(values) / max(1, int((MOST_INCHES_WIDE - BAR) // (side + left))))
    columns = math.ceil(len(values) / rows)  # rows of equal length
    sheet = Sheet(columns * (side + left) + BAR, rows * (side + TOP + bottom) + 0.35 * bool(title), title)
    for head, matrix in enumerate(values):
        row, column = divmod(head, columns)
        low = (rows - 1 - row) * (side + TOP + bottom) + bottom
        axes = sheet.plot(left + column * (side + left), low, side, side)
        shown = np.ma.masked_equal(matrix, 0.0)
        shade_cells(axes, shown, 1.0)
        axes.set_title(_("head {head}", head=head))
        if max(matrix.shape) <= NUMBERS_UP_TO:
            write_cells(axes, shown, 1.0, FONT_SIZE - 1 if max(matrix.shape) <= 5 else FONT_SIZE - 4)
        _label(axes, queries, keys, side)
    first = (rows - 1) * (side + TOP + bottom) + bottom
    colour_bar(sheet.plot(columns * (side + left) + 0.3, first, 0.16, side), 1.0, _("attention weight"))
    return sheet.figure


def _short(label: str) -> str:
    line = drawable(label)
    return line if len(line) <= MOST_LABEL else f"{line[: MOST_LABEL - 1]}…"


def _label(axes: Axes, queries: Sequence[str], keys: Sequence[str], side: float) -> None:
    # If there are too many labels to read, only every second, third … is written.
    for axis, labels in ((axes.yaxis, queries), (axes.xaxis, keys)):
        every = math.ceil(len(labels) * 0.13 / side)
        places = range(0, len(labels), every)
        size = min(FONT_SIZE, 0.72 * 72 * side / len(labels) * every)
        axis.set_ticks(list(places), [_short(labels[place]) for place in places], fontsize=size)
        axis.set_tick_params(length=0)
    if max(len(_short(label)) for label in keys) > 2:
        axes.tick_params(axis="x", rotation=90)
    axes.set_ylabel(_("query"), color=MUTED)
    axes.set_xlabel(_("key"), color=MUTED)
