"""A grid of numbers: named rows and columns, shaded cells with the number in them, one colour bar."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from vitral.core.errors import UsageError
from vitral.core.language import _, number
from vitral.figures.maps import ON_DARK, ON_LIGHT, colour_bar, shade_cells
from vitral.figures.margin import text_width
from vitral.figures.palette import GRID, MUTED
from vitral.figures.style import FONT_SIZE, styled
from vitral.figures.text import drawable, minus

CELL_HEIGHT, LEAST_CELL_WIDTH = 0.4, 0.72
MOST_ROWS, MOST_COLUMNS = 64, 16
DARK_FROM = 0.5
MARGIN, BAR = 0.3, 1.15


@styled
def value_grid(
    values: Sequence[Sequence[float | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    unit: str,
    *,
    apart: Sequence[int] = (),
    title: str = "",
) -> Figure:
    """Draw a grid whose shading goes from 0 to the largest value, rounded up to a tenth.

    Args:
        values: a row for each of `rows`, not negative; None for an empty cell.
        rows: names at the left.
        columns: names below.
        unit: label of the colour bar.
        apart: rows above which a line is drawn.
        title: above everything; empty for none.

    Raises:
        UsageError: no cell, too many to read, a negative number, or names that do not match the values.
    """
    shape = {len(row) for row in values}
    if len(values) != len(rows) or shape != {len(columns)} or not columns:
        raise UsageError(
            "a grid of {rows} by {columns} names does not match the values", rows=len(rows), columns=len(columns)
        )
    if len(rows) > MOST_ROWS or len(columns) > MOST_COLUMNS:
        raise UsageError(
            "a grid of {rows} by {columns} cells is too large to read", rows=len(rows), columns=len(columns)
        )
    numbers = np.array([[np.nan if value is None else value for value in row] for row in values], dtype=float)
    shown = np.ma.masked_invalid(numbers)
    if (shown < 0).any():
        raise UsageError("a grid's numbers must be zero or more")
    highest = float(shown.max()) if shown.count() else 1.0
    top = math.ceil(10 * highest - 1e-9) / 10 or 1.0
    cell = max(LEAST_CELL_WIDTH, *(text_width(drawable(name)) + 0.15 for name in columns))
    left = max(text_width(drawable(name), size=FONT_SIZE) for name in rows) + MARGIN
    plot_width, plot_height = cell * len(columns), CELL_HEIGHT * len(rows)
    above = 0.15 + 0.4 * bool(title)
    width, height = left + plot_width + BAR, 0.45 + plot_height + above
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((left / width, 0.45 / height, plot_width / width, plot_height / height))
    shade_cells(axes, shown, top)
    for (row, column), value in np.ndenumerate(numbers):
        if not np.isnan(value):
            colour = ON_DARK if value > DARK_FROM * top else ON_LIGHT
            axes.text(
                column, row, minus(number(value, ".2f")), ha="center", va="center", color=colour, fontsize=FONT_SIZE - 1
            )
    for row in apart:
        axes.axhline(row - 0.5, color=MUTED, linewidth=1.4)
    axes.set_xticks(range(len(columns)), [drawable(name) for name in columns], fontsize=FONT_SIZE - 1)
    axes.set_yticks(range(len(rows)), [drawable(name) for name in rows])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set(visible=True, color=GRID)
    bar_height = min(plot_height, 3.2)
    bar = figure.add_axes(
        ((width - BAR + 0.25) / width, (height - above - bar_height) / height, 0.16 / width, bar_height / height)
    )
    colour_bar(bar, top, unit)
    if title:
        figure.text(
            0.2 / width, 1 - 0.12 / height, drawable(title), va="top", fontweight="bold", fontsize=FONT_SIZE + 1
        )
    return figure


def head_grid(patterns: Mapping[str, Any], title: str) -> tuple[Figure, int]:
    """Draw the share of each head's attention weight by kind of key, and below it that of uniform attention.

    Args:
        patterns: `layers`, each with `heads`, each with `name` and `share` by kind; and `uniform`, shares by kind.
        title: above everything.

    Returns:
        The figure and the number of heads drawn: those of the first layers, as many as can be read.
    """
    heads = [
        (layer, head, each)
        for layer, found in enumerate(patterns["layers"])
        for head, each in enumerate(found["heads"])
    ]
    wide, kinds = len(patterns["layers"][0]["heads"]), list(patterns["uniform"])
    drawn = heads[: min(max(1, (MOST_ROWS - 1) // wide) * wide, MOST_ROWS - 1)]
    figure = value_grid(
        [*([each["share"][kind] for kind in kinds] for *_place, each in drawn), list(patterns["uniform"].values())],
        [
            *(
                _("block {layer}, head {head}: {kind}", layer=layer, head=head, kind=_(each["name"]))
                for layer, head, each in drawn
            ),
            _("uniform attention"),
        ],
        [_(kind) for kind in kinds],
        _("share of attention weight"),
        apart=[*(row for row, (_layer, head, _head) in enumerate(drawn) if head == 0 and row), len(drawn)],
        title=title,
    )
    return figure, len(drawn)
