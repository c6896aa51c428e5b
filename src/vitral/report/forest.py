"""A forest plot: differences with their simultaneous intervals, a row each, grouped by what they are differences to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.core.text import signed
from vitral.report.margin import text_width
from vitral.report.palette import GRID, INK, MUTED, PAPER
from vitral.report.scales import common_reach
from vitral.report.style import BAND, COLOURS, FONT_SIZE, drawable, styled

ROW, HEAD, GAP = 0.37, 0.36, 0.12
"""Inches of a row, of a group's heading, and of the space above a heading."""
PLOT_WIDTH = 4.6
TOP, AXIS, EDGE, INDENT = 0.12, 0.72, 0.14, 0.16
TITLE_INCHES = 0.36
TEXT = FONT_SIZE - 0.5
DOTS_BELOW = 0.3
"""Rows between an interval and the dots of its seeds."""


class Sign(NamedTuple):
    """The colour and marker of a verdict; every verdict has a marker of its own, for readers who see no colour."""

    colour: str
    marker: str
    filled: bool = True


SIGNS = {
    "better": Sign(COLOURS[2], "v"),
    "lower": Sign(COLOURS[0], "v"),
    "worse": Sign(COLOURS[1], "^"),
    "higher": Sign(COLOURS[3], "^"),
    "equivalent": Sign(COLOURS[0], "s"),
    "undecided": Sign(MUTED, "o", filled=False),
    "fails": Sign(INK, "X"),
}
"""By verdict; any other word is drawn as undecided."""


@dataclass(frozen=True)
class ForestRow:
    """One difference.

    Attributes:
        label: of the row: the arm.
        group: that it is compared with; rows of a group stand together.
        estimate: the difference; None where there is none, such as of an arm that fails.
        low: lower end of its interval; None without one.
        high: upper end, or None.
        dots: the difference of each seed.
        word: the verdict, one of the keys of `SIGNS`; empty for none.
        told: the verdict in the words of the page, written at the right end; empty for none.
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
    told: str = ""
    clipped: str = ""

    @property
    def sign(self) -> Sign:
        """Its colour and marker."""
        return SIGNS.get(self.word, SIGNS["undecided"])

    @property
    def reach(self) -> float:
        """The largest distance from zero of the estimate and its interval."""
        ends = [abs(end) for end in (self.estimate, self.low, self.high) if end is not None and math.isfinite(end)]
        return max(ends, default=0.0)


@dataclass(frozen=True)
class SecondAxis:
    """The same differences in another unit, above the plot.

    Attributes:
        label: quantity and unit.
        factor: of the first axis's unit: a difference times it is in this unit.
    """

    label: str
    factor: float


@styled
def forest_plot(
    rows: Sequence[ForestRow],
    *,
    x_label: str,
    margin: float | None = None,
    second: SecondAxis | None = None,
    title: str = "",
    digits: int = 1,
    unit: str = "",
) -> Figure:
    """Draw a row for each difference, under the name of what it is compared with.

    The axis is that of most rows: a row that is off it has an arrow at the edge and its number. Marker and colour both
    give the verdict: a triangle down for better, up for worse, a square for equivalent, an empty circle for undecided.

    Args:
        rows: in the order of the table beside the figure; groups are in the order of their first row.
        x_label: the difference and its unit.
        margin: of equivalence, in the unit of the axis: a grey band on both sides of zero; None for none.
        second: another unit, above the plot.
        title: above everything; empty for none.
        digits: after the point, of the numbers at the right.
        unit: after each of these numbers, such as "%".

    Raises:
        UsageError: there is no row.
    """
    if not rows:
        raise UsageError("no difference has a value, so there is nothing to draw")
    span = _span(rows, margin or 0.0)
    places = _places(rows)
    numbers = [_number(row, span, digits, unit) for row in rows]
    sides = _Sides.of(rows, numbers)
    plot = places.bottom
    above = TOP + TITLE_INCHES * bool(title) + (AXIS - 0.18) * (second is not None)
    width, height = sides.left + PLOT_WIDTH + sides.right, above + plot + AXIS
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((sides.left / width, AXIS / height, PLOT_WIDTH / width, plot / height))
    axes.set_xlim(*span)
    axes.set_ylim(plot, 0.0)
    if margin is not None:
        axes.axvspan(-margin, margin, zorder=0.5, **BAND)
    axes.axvline(0.0, color=INK, linewidth=1.0, zorder=1.5)
    for (name, place), number in zip(places.heads, range(len(places.heads)), strict=True):
        _write(axes, -sides.left + EDGE, place, _("against {arm}", arm=name) if name else "", weight="bold")
        if number:
            axes.plot([-sides.left / PLOT_WIDTH, 1.0], [place - HEAD / 2 - GAP / 2] * 2, **_across(axes))
    for row, place, number in zip(rows, places.rows, numbers, strict=True):
        _draw(axes, row, place, span)
        _write(axes, -sides.left + EDGE + INDENT * bool(row.group), place, row.label)
        _write(axes, PLOT_WIDTH + 0.16, place, number)
        _write(axes, PLOT_WIDTH + 0.16 + sides.numbers, place, row.told, weight="bold")
    _dress(axes, x_label, second)
    if title:
        name = drawable(title)
        figure.text(EDGE / width, 1 - TOP / height, name, va="top", fontweight="bold", fontsize=FONT_SIZE + 1)
    return figure


def _span(rows: Sequence[ForestRow], margin: float) -> tuple[float, float]:
    """Ends of the axis: those of the rows within the common reach, zero and the margin with some space around them."""
    drawn = [row for row in rows if not row.clipped]
    reach = max(common_reach([row.reach for row in drawn]), 1.3 * margin) or 1.0
    ends = [end for row in drawn for end in (row.estimate, row.low, row.high, *row.dots) if end is not None]
    inside = [end for end in ends if abs(end) <= reach]
    low, high = min([*inside, -1.3 * margin]), max([*inside, 1.3 * margin])
    space = 0.04 * (high - low) or reach
    # An arrow needs its side of zero.
    return min(low - space, -0.1 * reach), max(high + space, 0.1 * reach)


class _Places(NamedTuple):
    """Inches from the top of the plot."""

    heads: list[tuple[str, float]]
    rows: list[float]
    bottom: float


def _places(rows: Sequence[ForestRow]) -> _Places:
    """Rows below the heading of their group, in order; without a heading where no row has a group."""
    groups = list(dict.fromkeys(row.group for row in rows))
    heads, found, top = [], dict[int, float](), 0.0
    for group in groups:
        top += GAP * bool(heads)
        if group:
            heads.append((group, top + HEAD / 2))
            top += HEAD
        for number, row in enumerate(rows):
            if row.group == group:
                found[number] = top + ROW / 2
                top += ROW
    return _Places(heads, [found[number] for number in range(len(rows))], top + 0.06)


class _Sides(NamedTuple):
    """Inches beside the plot: names at the left, numbers and verdicts at the right."""

    left: float
    numbers: float
    right: float

    @staticmethod
    def of(rows: Sequence[ForestRow], numbers: Sequence[str]) -> "_Sides":
        heads = [text_width(_("against {arm}", arm=row.group), "bold", TEXT) for row in rows if row.group]
        names = [text_width(drawable(row.label), size=TEXT) + INDENT * bool(row.group) for row in rows]
        shown = max((text_width(number, size=TEXT) for number in numbers), default=0.0)
        shown += 0.16 * bool(shown)
        words = max((text_width(drawable(row.told), "bold", TEXT) for row in rows), default=0.0)
        # A heading may run over the plot, where its line is empty.
        left = max(*names, min(max(heads, default=0.0), max(names) + 2.0)) + EDGE + 0.16
        return _Sides(left, shown, 0.16 + shown + words + EDGE)


def _is_off(row: ForestRow, span: tuple[float, float]) -> bool:
    return bool(row.clipped) or row.estimate is None or not span[0] <= row.estimate <= span[1]


def _number(row: ForestRow, span: tuple[float, float], digits: int, unit: str) -> str:
    """The estimate; of a row off the axis also the interval, which is not drawn."""
    if row.clipped or row.estimate is None or not math.isfinite(row.estimate):
        return drawable(row.clipped)
    told = f"{signed(round(row.estimate, digits) + 0.0, digits)}{unit}"
    if not _is_off(row, span) or row.low is None or row.high is None:
        return told
    return f"{told} ({_('{low} to {high}', low=signed(row.low, digits), high=signed(row.high, digits))})"


def _across(axes: Axes) -> dict:
    return {"transform": axes.get_yaxis_transform(), "color": GRID, "linewidth": 1.0, "clip_on": False, "zorder": 0.4}


def _write(axes: Axes, inches: float, place: float, text: str, *, weight: str = "normal") -> None:
    share = axes.get_yaxis_transform()
    look = {"color": INK, "fontweight": weight, "fontsize": TEXT, "va": "center_baseline"}
    axes.text(inches / PLOT_WIDTH, place, drawable(text), transform=share, **look)


def _draw(axes: Axes, row: ForestRow, place: float, span: tuple[float, float]) -> None:
    colour, marker, filled = row.sign
    left, right = span
    dots = [dot for dot in row.dots if left <= dot <= right]
    below = [place + DOTS_BELOW * ROW] * len(dots)
    axes.plot(dots, below, linestyle="", marker="o", markersize=3.4, color=colour, alpha=0.55, markeredgewidth=0)
    if row.low is not None and row.high is not None and row.low < right and row.high > left:
        ends = [max(row.low, left), min(row.high, right)]
        axes.plot(ends, [place, place], color=colour, linewidth=2.0, solid_capstyle="butt", zorder=3)
        marks = ("|" if row.low >= left else "<", "|" if row.high <= right else ">")
        for end, mark in zip(ends, marks, strict=True):
            axes.plot([end], [place], marker=mark, markersize=7, color=colour, markeredgewidth=1.6, zorder=3)
    if _is_off(row, span) or row.estimate is None:
        _arrow(axes, row, place)
        return
    face = colour if filled else PAPER
    look = {"markersize": 7, "color": colour, "markerfacecolor": face, "markeredgewidth": 1.6, "zorder": 4}
    axes.plot([row.estimate], [place], marker=marker, **look)


def _arrow(axes: Axes, row: ForestRow, place: float) -> None:
    """At the edge beyond which the value lies."""
    below = row.estimate is not None and row.estimate < 0
    side, edge = (-1, 0.0) if below else (1, 1.0)
    share, colour = axes.get_yaxis_transform(), row.sign.colour
    point = {"arrowstyle": "-|>", "color": colour, "linewidth": 2.0, "shrinkA": 0, "shrinkB": 0}
    tail = (edge - side * 0.07, place)
    axes.annotate("", (edge, place), tail, xycoords=share, textcoords=share, arrowprops=point)
    if row.word == "fails":
        axes.plot([tail[0]], [place], marker=row.sign.marker, markersize=8, color=colour, transform=share, zorder=4)


def _dress(axes: Axes, x_label: str, second: SecondAxis | None) -> None:
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(drawable(x_label), fontsize=TEXT)
    axes.tick_params(axis="x", labelsize=TEXT)
    axes.locator_params(axis="x", nbins=7)
    if second is not None:
        above = axes.twiny()
        low, high = axes.get_xlim()
        above.set_xlim(low * second.factor, high * second.factor)
        above.spines[:].set_visible(False)
        above.spines["top"].set(visible=True, color=MUTED)
        above.grid(visible=False)
        above.set_xlabel(drawable(second.label), fontsize=TEXT)
        above.tick_params(axis="x", labelsize=TEXT)
        above.locator_params(axis="x", nbins=5)
