"""A grid of numbers: named rows and columns, shaded cells with the number in them, one colour bar."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from vitral.core.language import _
from vitral.report.maps import colour_bar, shade_cells, write_cells
from vitral.report.margin import text_width
from vitral.report.palette import MUTED
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
    apart: Sequence[int] = (),
    title: str = "",
) -> Figure:
    """Draw a grid whose shading goes from 0 to the largest value, rounded up to a tenth.

    Args:
        values: a row for each of `rows`, not negative; None for an empty cell.
        rows: names at the left, at most `MOST_ROWS`.
        columns: names below, at most `MOST_COLUMNS`.
        unit: label of the colour bar.
        apart: rows above which a line is drawn.
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
    for row in apart:
        axes.axhline(row - 0.5, color=MUTED, linewidth=1.4)
    axes.set_xticks(range(len(columns)), [drawable(name) for name in columns], fontsize=FONT_SIZE - 1)
    axes.set_yticks(range(len(rows)), [drawable(name) for name in rows])
    axes.tick_params(length=0)
    bar = min(plot_height, 3.2)
    colour_bar(sheet.plot(left + plot_width + 0.25, 0.45 + plot_height - bar, 0.16, bar), top, unit)
    return sheet.figure


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
