"""A grid of numbers: named rows and columns, shaded cells with the number in them, one colour bar."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from vitral.report.maps import colour_bar, shade_cells, write_cells
from vitral.report.margin import text_width
from vitral.report.sheet import Sheet
from vitral.report.style import FONT_SIZE, drawable, styled

CELL_HEIGHT, LEAST_CELL_WIDTH = 0.4, 0.72
MOST_ROWS, MOST_COLUMNS = 64, 16
MARGIN, BAR = 0.3, 1.15


@styled
def value_grid(
    values: Sequence[Sequence[float | None]],
    rows: Sequence[str],
    columns: Sequence[str],
    unit: str,
    *,
    title: str = "",
) -> Figure:
    """Draw a grid whose shading goes from 0 to the largest value, rounded up to a tenth.

    Args:
        values: a row for each of `rows`, not negative; None for an empty cell.
        rows: names at the left, at most `MOST_ROWS`.
        columns: names below, at most `MOST_COLUMNS`.
        unit: label of the colour bar.
        title: above everything; empty for none.
    """
    numbers = np.array([[np.nan if value is None else value for value in row] for row in values], dtype=float)
    shown = np.ma.masked_invalid(numbers)
    highest = float(shown.max()) if shown.count() else 1.0
    top = math.ceil(10 * highest - 1e-9) / 10 or 1.0
    cell = max(LEAST_CELL_WIDTH, *(text_width(drawable(name)) + 0.15 for name in columns))
    left = max(text_width(drawable(name), size=FONT_SIZE) for name in rows) + MARGIN
    plot_width, plot_height = cell * len(columns), CELL_HEIGHT * len(rows)
    above = 0.15 + 0.4 * bool(title)
    sheet = Sheet(left + plot_width + BAR, 0.45 + plot_height + above, title)
    axes = sheet.plot(left, 0.45, plot_width, plot_height)
    shade_cells(axes, shown, top)
    write_cells(axes, shown, top, FONT_SIZE - 1)
    axes.set_xticks(range(len(columns)), [drawable(name) for name in columns], fontsize=FONT_SIZE - 1)
    axes.set_yticks(range(len(rows)), [drawable(name) for name in rows])
    axes.tick_params(length=0)
    bar = min(plot_height, 3.2)
    colour_bar(sheet.plot(left + plot_width + 0.25, 0.45 + plot_height - bar, 0.16, bar), top, unit)
    return sheet.figure
