"""Estimates with their intervals, a row each: differences, grouped by what they are differences to, or means."""

import math
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitral.core.language import _, number
from vitral.core.text import minus, signed
from vitral.report.html import INK, MUTED, PAPER
from vitral.report.style import BAND, COLOURS, SMALL, common_reach, drawable, sheet, styled

ROW, AROUND = 0.37, 1.3
"""Inches of a row, and of all that is above and below the rows."""
NAME = 44
"""Characters of a line of a row's name."""
DOTS_BELOW = 0.3
"""Rows between an interval and the dots of its seeds."""


SIGNS = {
    "": (COLOURS[0], "o", COLOURS[0]),
    "better": (COLOURS[2], "v", COLOURS[2]),
    "worse": (COLOURS[1], "^", COLOURS[1]),
    "equivalent": (COLOURS[0], "s", COLOURS[0]),
    "undecided": (MUTED, "o", PAPER),
    "fails": (INK, "X", INK),
}
"""By verdict its colour, its marker, one of its own for readers who see no colour, and the colour inside."""


class Row(NamedTuple):
    """One estimate.

    Attributes:
        label: of the row: the arm.
        group: that it is compared with, or of a mean a heading; rows of a group stand together.
        estimate: the difference or the mean; None where there is none, such as of an arm that fails.
        low: lower end of its interval; None without one.
        high: upper end, or None.
        dots: the value of each seed.
        word: the verdict, one of the keys of `SIGNS`.
        verdict: the verdict in the words of the page, written at the right end; empty for none.
        clipped: text of a row whose value is off the axis, for example "fails in 6 of 6: 3.264"; such a row has an
            arrow at the edge instead of a point.
    """

    label: str
    group: str = ""
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    dots: Sequence[float] = ()
    word: str = ""
    verdict: str = ""
    clipped: str = ""

    @property
    def ends(self) -> list[float]:
        """The estimate and the ends of its interval."""
        return [end for end in (self.estimate, self.low, self.high) if end is not None and math.isfinite(end)]

    def beside(self, limits: tuple[float, float], digits: int, unit: str, *, are_differences: bool) -> str:
        """The estimate in words; of a row off the axis also the interval, which is not drawn."""
        if self.clipped or self.estimate is None:
            return self.clipped

        def show(value: float) -> str:
            return signed(value, digits) if are_differences else minus(number(value, f".{digits}f"))

        estimate = f"{show(round(self.estimate, digits) + 0.0)}{unit}"
        if limits[0] <= self.estimate <= limits[1] or self.low is None or self.high is None:
            return estimate
        return f"{estimate} ({_('{low} to {high}', low=show(self.low), high=show(self.high))})"


@styled
def interval_plot(
    rows: Sequence[Row],
    x_label: str,
    *,
    title: str = "",
    are_differences: bool = True,
    margin: float = 0.0,
    digits: int = 1,
    unit: str = "",
) -> Figure:
    """Draw a row for each estimate, under the name of what it is compared with.

    The axis is that of most rows: a row that is off it has an arrow at the edge and its number. Marker and colour both
    give the verdict: a triangle down for better, up for worse, a square for equivalent, an empty circle for undecided.

    Args:
        rows: at least one, in the order of the table beside the figure; groups are in the order of their first row.
        x_label: the quantity and its unit.
        title: above everything; empty for none.
        are_differences: whether zero is on the axis and the numbers have signs.
        margin: of equivalence: a grey band on both sides of zero; 0 for none.
        digits: after the point, of the numbers at the right.
        unit: after each of these numbers, such as "%".
    """
    groups = list(dict.fromkeys(row.group for row in rows))
    lines: list[Row | str] = []
    for group in groups:
        lines += [group] * bool(group)
        lines += [row for row in rows if row.group == group]
    figure, (axes,) = sheet(AROUND + ROW * len(lines), title)
    limits = _limits(rows, margin) if are_differences else (-math.inf, math.inf)
    if are_differences:
        axes.set_xlim(*limits)
        axes.axvline(0.0, color=INK, linewidth=1.0, zorder=1.5)
    if margin:
        axes.axvspan(-margin, margin, zorder=0.5, **BAND)
    for y, row in enumerate(lines):
        if isinstance(row, Row):
            _draw(axes, row, y, limits)
    axes.set_yticks(
        range(len(lines)), ["" if isinstance(row, str) else textwrap.fill(drawable(row.label), NAME) for row in lines]
    )
    axes.set(ylim=(len(lines) - 0.4, -0.6), xlabel=drawable(x_label))
    axes.tick_params(axis="y", length=0, labelsize=SMALL)
    axes.locator_params(axis="x", nbins=6)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    for y, row in enumerate(lines):
        beside = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": SMALL}
        if isinstance(row, str):
            head = drawable(_("against {arm}", arm=row) if are_differences else row)
            axes.text(-0.02, y, head, ha="right", fontweight="bold", **beside)
        else:
            estimate = row.beside(axes.get_xlim(), digits, unit, are_differences=are_differences)
            axes.text(1.03, y, drawable("  ".join(filter(None, (estimate, row.verdict)))), **beside)
    return figure


def _limits(rows: Sequence[Row], margin: float) -> tuple[float, float]:
    """Ends of the axis: those of the rows within the common reach, zero and the margin with some space around them."""
    drawn = [row for row in rows if not row.clipped]
    reach = max(common_reach([max(map(abs, row.ends), default=0.0) for row in drawn]), 1.3 * margin) or 1.0
    ends = [end for row in drawn for end in (*row.ends, *row.dots) if abs(end) <= reach]
    low, high = min([*ends, -1.3 * margin]), max([*ends, 1.3 * margin])
    space = 0.04 * (high - low) or reach
    # An arrow needs its side of zero.
    return min(low - space, -0.1 * reach), max(high + space, 0.1 * reach)


def _draw(axes: Axes, row: Row, y: float, limits: tuple[float, float]) -> None:
    (colour, marker, face), (left, right) = SIGNS.get(row.word, SIGNS["undecided"]), limits
    dots = [dot for dot in row.dots if left <= dot <= right]
    below = [y + DOTS_BELOW] * len(dots)
    axes.plot(dots, below, linestyle="", marker="o", markersize=3.4, color=colour, alpha=0.55, markeredgewidth=0)
    if row.low is not None and row.high is not None and row.low < right and row.high > left:
        ends = [max(row.low, left), min(row.high, right)]
        axes.plot(ends, [y, y], color=colour, linewidth=2.0, solid_capstyle="butt", zorder=3)
        for end, mark in zip(ends, ("|" if row.low >= left else "<", "|" if row.high <= right else ">"), strict=True):
            axes.plot([end], [y], marker=mark, markersize=7, color=colour, markeredgewidth=1.6, zorder=3)
    if not row.clipped and row.estimate is not None and left <= row.estimate <= right:
        look = {"markersize": 7, "color": colour, "markerfacecolor": face, "markeredgewidth": 1.6, "zorder": 4}
        axes.plot([row.estimate], [y], marker=marker, **look)
        return
    # An arrow at the edge beyond which the value lies.
    side, edge = ("<", 0.0) if row.estimate is not None and row.estimate < 0 else (">", 1.0)
    share = axes.get_yaxis_transform()
    axes.plot([edge], [y], marker=side, markersize=9, color=colour, transform=share, clip_on=False, zorder=4)
    if row.word == "fails":
        axes.plot([edge - 0.04], [y], marker=marker, markersize=8, color=colour, transform=share, zorder=4)
