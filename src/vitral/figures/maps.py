"""Attention weights as heat maps: who looks at whom."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.cm
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from vitral.core.errors import UsageError
from vitral.figures.palette import GRID, MUTED
from vitral.figures.style import FONT_SIZE, styled
from vitral.figures.text import drawable

MOST_INCHES_WIDE = 13.0
NUMBERS_UP_TO = 8
LEAST_INCHES, MOST_INCHES = 2.6, 4.9
CELL_INCHES = 0.22
DARK_CELL = 0.5
ON_DARK, ON_LIGHT = "#fdfdfd", "#15181c"
"""Ink of the numbers in cells: other colours than a page maps to its own, for cells stay as they are."""
TOP, BAR = 0.55, 1.2
MOST_LABEL = 12
WEIGHTS = LinearSegmentedColormap.from_list("weights", ["#eaf1f7", "#9cc4e0", "#0072b2", "#00243a"])


@styled
def attention_maps(weights: ArrayLike, asking: Sequence[str], asked: Sequence[str] = (), *, title: str = "") -> Figure:
    """Draw one heat map for each head of a layer, on one colour scale from 0 to 1.

    A row is a position that asks (a query) and adds up to one; a column is a position that is asked (a key). Cells that
    are exactly zero, as masked ones are, stay the colour of the paper. Up to 8 by 8 the numbers are written in.

    Args:
        weights: `[heads, time, source]`, between 0 and 1.
        asking: labels of the time axis.
        asked: labels of the source axis; the same as `asking` if not given.
        title: above everything; empty for none.

    Raises:
        UsageError: the weights have another shape than the labels, or a weight is not in [0, 1].
    """
    values = np.asarray(weights, dtype=float)
    asked = asked or asking
    if values.ndim != 3 or not values.size or values.shape[1:] != (len(asking), len(asked)):
        labels = f"[heads, {len(asking)}, {len(asked)}]"
        raise UsageError(f"attention weights of shape {list(values.shape)} do not go with labels for {labels}")
    if not ((values >= 0) & (values <= 1 + 1e-6)).all():
        raise UsageError("attention weights must lie between 0 and 1")
    sheet = _sheet(len(values), asking, asked, bool(title))
    figure = Figure(figsize=(sheet.width, sheet.height))
    for head, matrix in enumerate(values):
        axes = figure.add_axes(sheet.place(head))
        _draw(axes, matrix, head)
        _label(axes, asking, asked, sheet.side)
    bar = figure.add_axes(sheet.bar())
    figure.colorbar(matplotlib.cm.ScalarMappable(Normalize(0.0, 1.0), WEIGHTS), cax=bar, label="attention weight")
    bar.grid(visible=False)
    top = 1 - 0.12 / sheet.height
    figure.text(0.2 / sheet.width, top, drawable(title), va="top", fontweight="bold", fontsize=FONT_SIZE + 1)
    return figure


class _Sheet(NamedTuple):
    """Sizes in inches of a sheet of square plots, filled row by row."""

    columns: int
    rows: int
    side: float
    left: float
    bottom: float
    title: float

    @property
    def width(self) -> float:
        return self.columns * (self.side + self.left) + BAR

    @property
    def height(self) -> float:
        return self.rows * (self.side + TOP + self.bottom) + self.title

    def place(self, index: int) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of a plot, as shares of the sheet."""
        row, column = divmod(index, self.columns)
        left = self.left + column * (self.side + self.left)
        bottom = (self.rows - 1 - row) * (self.side + TOP + self.bottom) + self.bottom
        return left / self.width, bottom / self.height, self.side / self.width, self.side / self.height

    def bar(self) -> tuple[float, float, float, float]:
        """The same for the colour bar, beside the first row."""
        _, bottom, _, height = self.place(0)
        return (self.width - BAR + 0.3) / self.width, bottom, 0.16 / self.width, height


def _sheet(num_heads: int, asking: Sequence[str], asked: Sequence[str], titled: bool) -> _Sheet:
    side = min(MOST_INCHES, max(LEAST_INCHES, CELL_INCHES * max(len(asking), len(asked))))
    left, bottom = (0.55 + 0.1 * max(len(_short(label)) for label in labels) for labels in (asking, asked))
    columns = max(1, min(num_heads, int((MOST_INCHES_WIDE - BAR) // (side + left))))
    return _Sheet(columns, math.ceil(num_heads / columns), side, left, bottom, 0.35 * titled)


def _short(label: str) -> str:
    """The label as it is drawn, cut where it would take more room than the map."""
    line = drawable(label)
    return line if len(line) <= MOST_LABEL else f"{line[: MOST_LABEL - 1]}…"


def _draw(axes: Axes, matrix: np.ndarray, head: int) -> None:
    shown = np.ma.masked_equal(matrix, 0.0)
    axes.imshow(shown, cmap=WEIGHTS, vmin=0.0, vmax=1.0, interpolation="none", aspect="auto")
    axes.set_title(f"head {head}")
    axes.grid(visible=False)
    axes.spines[:].set(visible=True, color=GRID)
    if max(matrix.shape) > NUMBERS_UP_TO:
        return
    size = FONT_SIZE - 1 if max(matrix.shape) <= 5 else FONT_SIZE - 4
    for (time, source), weight in np.ndenumerate(matrix):
        if weight:
            colour = ON_DARK if weight > DARK_CELL else ON_LIGHT
            axes.text(source, time, f"{weight:.2f}", ha="center", va="center", fontsize=size, color=colour)


def _label(axes: Axes, asking: Sequence[str], asked: Sequence[str], side: float) -> None:
    """Name rows and columns; where they are too many to read, every second, third … one."""
    for axis, labels in ((axes.yaxis, asking), (axes.xaxis, asked)):
        every = math.ceil(len(labels) * 0.13 / side)
        places = range(0, len(labels), every)
        size = min(FONT_SIZE, 0.72 * 72 * side / len(labels) * every)
        axis.set_ticks(list(places), [_short(labels[place]) for place in places], fontsize=size)
        axis.set_tick_params(length=0)
    if max(len(_short(label)) for label in asked) > 2:
        axes.tick_params(axis="x", rotation=90)
    axes.set_ylabel("asks (query)", color=MUTED)
    axes.set_xlabel("is asked (key)", color=MUTED)
