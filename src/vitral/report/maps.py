"""Grids of numbers as shaded cells on one scale: attention weights of the heads of a layer, effects of a sweep."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.cm
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from vitral.core.language import _, number
from vitral.core.text import minus
from vitral.report.html import GRID
from vitral.report.style import SMALL, WIDTH, drawable, sheet, styled

NUMBERS_UP_TO, MOST_ABREAST = 8, 4
"""Positions of a map that has its numbers in it, and maps in a row."""
DARK_CELL = 0.5
ON_DARK, ON_LIGHT = "#fdfdfd", "#15181c"
"""Colours of the numbers in cells. A page does not replace them by its own, because cells keep their colours too."""
MOST_LABEL = 12
"""Characters of a label; where too many do not fit, only every second, third … is written."""
MOST_PATHS, BAR_STEPS = 32, 64
WEIGHTS = LinearSegmentedColormap.from_list("weights", ["#eaf1f7", "#9cc4e0", "#0072b2", "#00243a"])


@styled
def attention_maps(weights: ArrayLike, labels: Sequence[str], *, title: str = "") -> Figure:
    """Draw one heat map for each head of a layer, on one colour scale from 0 to 1.

    A row is a query position and adds up to one; a column is a key position. Cells of exactly zero, such as masked
    ones, are not coloured. Up to 8 by 8 cells contain their numbers.

    Args:
        weights: `[heads, time, time]`, between 0 and 1.
        labels: of the positions.
        title: above everything; empty for none.
    """
    values, short = np.asarray(weights, dtype=float), [_short(label) for label in labels]
    rows = math.ceil(len(values) / MOST_ABREAST)
    columns = math.ceil(len(values) / rows)  # rows of equal length
    side = min(5.0, (WIDTH - 1.0) / columns)
    figure, plots = sheet(0.6 + rows * side, title, rows, columns)
    for axes in plots[len(values) :]:
        axes.remove()
    for head, (axes, matrix) in enumerate(zip(plots, values, strict=False)):
        size, most = SMALL if columns < 3 else 7.0, max(matrix.shape)
        _shade(
            axes, np.ma.masked_equal(np.nan_to_num(matrix), 0.0), size - most / 2 + 1 if most <= NUMBERS_UP_TO else None
        )
        axes.set_title(_("head {head}", head=head))
        every = math.ceil(1.15 * size * most / (72 * (side - 0.8)))
        for axis in (axes.yaxis, axes.xaxis):
            axis.set_ticks(range(0, len(short), every), short[::every], fontsize=size)
        axes.tick_params(axis="x", rotation=90 if max(map(len, short)) > 2 else 0)
        axes.set(xlabel=_("key"), ylabel=_("query"), box_aspect=matrix.shape[0] / matrix.shape[1])
    # The scale too is drawn as vector paths.
    colours = matplotlib.cm.ScalarMappable(Normalize(0.0, 1.0), WEIGHTS.resampled(BAR_STEPS))
    bar = figure.colorbar(colours, ax=plots[: len(values)], label=_("attention weight"), shrink=0.8, aspect=16)
    assert bar.solids is not None
    bar.solids.set(rasterized=False, edgecolor="face", linewidth=0.4)
    bar.ax.grid(visible=False)
    return figure


def _shade(axes: Axes, values: np.ma.MaskedArray, size: float | None) -> None:
    """Shade a grid of cells, the first row at the top, and write their numbers in this size.

    Cells are vector paths, which no program blurs. A grid of more than `MOST_PATHS` in a direction would make a huge
    file; it is an image.
    """
    rows, columns = values.shape
    edges, is_large = (np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5), max(rows, columns) > MOST_PATHS
    # Each cell has a thin edge of its own colour, without which the page shines through between cells.
    how = {"rasterized": is_large} if is_large else {"edgecolors": "face", "linewidth": 0.2}
    axes.pcolormesh(*edges, values, cmap=WEIGHTS, vmin=0.0, vmax=1.0, **how)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set(visible=True, color=GRID)
    for (row, column), value in np.ma.ndenumerate(values) if size else ():
        colour = ON_DARK if value > DARK_CELL else ON_LIGHT
        text = minus(number(value, ".2f"))
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)


def _short(label: str) -> str:
    line = drawable(label)
    return line if len(line) <= MOST_LABEL else f"{line[: MOST_LABEL - 1]}…"


@styled
def effect_map(cells: Sequence[dict[str, Any]]) -> Figure:
    """Draw the cells of a sweep in signed colours: red above zero, blue below."""
    rows = list(dict.fromkeys(cell["place"] for cell in cells))
    figure, (axes,) = sheet(1.6 + 0.3 * len(rows))
    values = np.array([cell["effect"] for cell in cells], dtype=float).reshape(len(rows), -1)
    most = abs(values).max()
    drawn = axes.imshow(values, "RdBu_r", aspect="auto", vmin=-most, vmax=most)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(range(values.shape[1]), [_short(cell["token"]) for cell in cells[: values.shape[1]]])
    axes.grid(visible=False)
    figure.colorbar(drawn)
    return figure
