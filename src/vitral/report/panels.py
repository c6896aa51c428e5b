"""Small multiples: one panel for each arm, all on the same axes; a panel that needs another scale says so."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator, ScalarFormatter

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.report.lines import Axis, Line, short
from vitral.report.margin import Reference, wrapped
from vitral.report.palette import INK, MUTED, PAPER
from vitral.report.scales import common_reach
from vitral.report.style import BAND, COLOURS, FONT_SIZE, drawable, styled

PANEL_WIDTH, PANEL_HEIGHT = 2.15, 1.45
LEFT, BESIDE, BOTTOM, ABOVE = 0.85, 0.22, 0.62, 0.14
OWN_SCALE = 0.5
"""Inches more at the left of a panel with numbers of its own."""
TITLE_INCHES, LINE_INCHES = 0.36, 0.19
SMALL = FONT_SIZE - 1.5
MOST_PANELS = 24
ABREAST, CROWDED = 3, 12
"""Panels in a row, and the panels from which on there is one more in each."""
FEW_POINTS = 6
"""Points of a line that are marked each."""
APART = 2.5
"""A panel that reaches this many times further than the next one has a scale of its own."""


@dataclass(frozen=True)
class Mark:
    """A point that is singled out, such as the best of a line.

    Attributes:
        x: its place.
        y: its value.
        hollow: whether it is empty inside: a point to be read with care.
    """

    x: float
    y: float
    hollow: bool = False


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        title: above it: the arm.
        lines: the thick lines, as a rule one: means.
        seeds: thin lines: one for each seed.
        context: grey lines behind, such as those of the arm that it is compared with.
        marks: points that are singled out.
        note: under the title, in a few words; empty for none.
    """

    title: str
    lines: Sequence[Line]
    seeds: Sequence[Line] = ()
    context: Sequence[Line] = ()
    marks: Sequence[Mark] = ()
    note: str = ""


@styled
def panel_plot(
    panels: Sequence[Panel],
    x: Axis,
    y: Axis,
    *,
    zero: float | None = None,
    band: tuple[float, float] | None = None,
    references: Sequence[Reference] = (),
    settled: float = 0.0,
    title: str = "",
) -> Figure:
    """Draw panels row by row, on the same axes as far as their values allow.

    A panel whose values are far off those of most panels has a vertical axis of its own, in another colour and named.

    Args:
        panels: at most `MOST_PANELS`.
        x: the horizontal axis.
        y: the vertical axis; where it is logarithmic, a panel whose values fit in the decades of most keeps them.
        zero: value of a solid line across, from which the differences are counted; None for none.
        band: ends of a grey band across, such as the margin of equivalence; None for none.
        references: dotted lines across, named in the first panel.
        settled: only values from this share of the last x on decide the scale; earlier ones may lie outside it.
        title: above everything; empty for none.

    Raises:
        UsageError: there is no panel with a finite value, there are too many, or a logarithmic axis has a value that is
            not positive.
    """
    shown = [panel for panel in panels if any(_points(line) for line in panel.lines)]
    if not shown:
        raise UsageError("no line has a finite value, so there is nothing to draw")
    if len(shown) > MOST_PANELS:
        raise UsageError(
            "{panels} panels are too many to read, at most {most} can be; draw fewer",
            panels=len(shown),
            most=MOST_PANELS,
        )
    spans = [_span(panel, y, settled) for panel in shown]
    common, apart = _common(spans, y, zero, band)
    frame = _Frame(x, y, _across(shown, x), zero, band, references)
    columns = _abreast(len(shown))
    rows = math.ceil(len(shown) / columns)
    wide = BESIDE + OWN_SCALE * any(apart)
    above = ABOVE + LINE_INCHES * max(len(_heading(panel, own=own)) for panel, own in zip(shown, apart, strict=True))
    head = TITLE_INCHES * bool(title)
    height = head + rows * (above + PANEL_HEIGHT) + (rows - 1) * 0.12 + BOTTOM
    beside = wrapped(y.label, height - head - BOTTOM / 2)
    margin = LEFT + LINE_INCHES * (len(beside) - 1)
    # Few panels are wider: a page scales every figure to its own width, and with it the letters.
    panel_width = max(PANEL_WIDTH, (ABREAST * (PANEL_WIDTH + wide) - columns * wide) / columns)
    width = margin + columns * panel_width + (columns - 1) * wide + 0.25
    figure = Figure(figsize=(width, height))
    for number, (panel, span, own) in enumerate(zip(shown, spans, apart, strict=True)):
        row, column = divmod(number, columns)
        left = margin + column * (panel_width + wide)
        bottom = height - head - (row + 1) * (above + PANEL_HEIGHT) - row * 0.12
        axes = figure.add_axes((left / width, bottom / height, panel_width / width, PANEL_HEIGHT / height))
        _scale(axes, frame, _own(span, y, zero) if own else common)
        _background(axes, frame, named=not number)
        _draw(axes, panel)
        first = all(apart[number - column : number])  # of the panels in its row that share an axis
        _dress(axes, panel, own=own, first=first, last=number + columns >= len(shown))
    figure.text((margin + (width - margin) / 2) / width, 0.12 / height, drawable(x.label), ha="center", va="bottom")
    middle = (BOTTOM / 2 + (height - head - BOTTOM / 2) / 2) / height
    figure.text(0.1 / width, middle, "\n".join(beside), rotation=90, ha="left", va="center", multialignment="center")
    if title:
        top = 1 - 0.12 / height
        figure.text(0.1 / width, top, drawable(title), va="top", fontweight="bold", fontsize=FONT_SIZE + 1)
    return figure


def panels_left_out(panels: Sequence[Panel]) -> str:
    """A sentence for the caption that names the panels beyond the first `MOST_PANELS`; empty if there are none."""
    rest = ", ".join(panel.title for panel in panels[MOST_PANELS:])
    return _(" Only the first {most} are drawn; not drawn: {names}.", most=MOST_PANELS, names=rest) if rest else ""


class _Frame(NamedTuple):
    """What all panels share."""

    x: Axis
    y: Axis
    across: tuple[float, float]
    zero: float | None
    band: tuple[float, float] | None
    references: Sequence[Reference]


def _abreast(panels: int) -> int:
    """Panels in a row: few rows, and a last row that is full or nearly so."""
    rows = math.ceil(panels / (ABREAST + (panels > CROWDED)))
    return math.ceil(panels / rows)


def _points(line: Line) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None and math.isfinite(y)]


def _span(panel: Panel, y: Axis, settled: float) -> tuple[float, float]:
    """Least and largest value that its axis shows."""
    found = [_points(line) for line in (*panel.lines, *panel.seeds) if _points(line)]
    if y.log and min(value for points in found for _x, value in points) <= 0:
        raise UsageError(
            "line {label!r}: a logarithmic axis ({axis}) cannot show a number below zero",
            label=panel.title,
            axis=y.label,
        )
    late = [value for points in found for place, value in points if place >= settled * points[-1][0]]
    return min(late), max(late)


def _across(panels: Sequence[Panel], x: Axis) -> tuple[float, float]:
    """Ends of the horizontal axis, the same for all panels."""
    places = [place for panel in panels for line in panel.lines for place, _value in _points(line)]
    low, high = min([*places, *x.ticks]), max([*places, *x.ticks])
    if x.log:
        space = (high / low) ** 0.05 if high > low else 2.0
        return low / space, high * space
    space = 0.04 * (high - low) or 0.5
    return low - space, high + space


def _common(
    spans: Sequence[tuple[float, float]], y: Axis, zero: float | None, band: tuple[float, float] | None
) -> tuple[tuple[float, float], list[bool]]:
    """The axis of most panels, and which panels need one of their own."""
    if y.log:
        logs = [(math.log10(low), math.log10(high)) for low, high in spans]
        # The axis has a decade on each side in any case, so that what fits there needs no scale of its own.
        reaches = [max(abs(low), abs(high), 1.0) for low, high in logs]
        reach = common_reach(reaches, APART)
    else:
        middle = sorted((low + high) / 2 for low, high in spans)[len(spans) // 2] if zero is None else zero
        reaches = [max(abs(low - middle), abs(high - middle)) for low, high in spans]
        reach = common_reach(reaches, APART)
    apart = [value > max(reach, 0.0) for value in reaches]
    kept = [span for span, own in zip(spans, apart, strict=True) if not own] or list(spans)
    ends = [*(end for span in kept for end in span), *(band or ()), *([] if zero is None else [zero])]
    return _padded((min(ends), max(ends)), y), apart


def _own(span: tuple[float, float], y: Axis, zero: float | None) -> tuple[float, float]:
    # A difference is shown together with the zero that it is counted from.
    ends = (*span, *([] if zero is None else [zero]))
    return _padded((min(ends), max(ends)), y)


def _padded(span: tuple[float, float], y: Axis) -> tuple[float, float]:
    low, high = span
    if y.log:
        # Two decades at least, so that small changes look small.
        space = max(0.06 * math.log10(high / low), (2 - math.log10(high / low)) / 2)
        return low / 10**space, high * 10**space
    # Changes of less than a hundredth look small.
    space = max(0.06 * (high - low), (0.01 * max(abs(low), abs(high)) - (high - low)) / 2) or 0.5
    return low - space, high + space


def _background(axes: Axes, frame: _Frame, *, named: bool) -> None:
    """Band, zero and references; the names of the references in one panel."""
    if frame.band is not None:
        axes.axhspan(*frame.band, zorder=0.5, **BAND)
    if frame.zero is not None:
        axes.axhline(frame.zero, color=INK, linewidth=0.9, zorder=1.6)
    low, high = axes.get_ylim()
    for reference in frame.references:
        if not low <= reference.value <= high:
            continue
        axes.axhline(reference.value, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1.5)
        if named:
            beside = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "bottom", "color": MUTED}
            axes.text(0.99, reference.value, drawable(reference.label), fontsize=SMALL - 1.5, **beside)


def _draw(axes: Axes, panel: Panel) -> None:
    for line in panel.context:
        axes.plot(*_series(line), color=MUTED, linewidth=1.4, alpha=0.45, zorder=2)
    for line in panel.seeds:
        axes.plot(*_series(line), color=COLOURS[0], linewidth=0.8, alpha=0.5, zorder=2.5)
    for line in panel.lines:
        marker = "o" if len(_points(line)) <= FEW_POINTS else ""
        axes.plot(*_series(line), color=COLOURS[0], linewidth=2.2, marker=marker, markersize=5, zorder=3)
    for mark in panel.marks:
        face = PAPER if mark.hollow else COLOURS[1]
        look = {"markersize": 7, "color": COLOURS[1], "markerfacecolor": face, "markeredgewidth": 1.6}
        axes.plot([mark.x], [mark.y], marker="D", linestyle="", zorder=4, **look)


def _series(line: Line) -> tuple[list[float], list[float]]:
    points = _points(line)
    return [place for place, _value in points], [value for _place, value in points]


def _scale(axes: Axes, frame: _Frame, span: tuple[float, float]) -> None:
    if frame.y.log:
        axes.set_yscale("log")
    if frame.x.log:
        axes.set_xscale("log")
    axes.set_ylim(*span)
    axes.set_xlim(*frame.across)
    axes.tick_params(labelsize=SMALL)
    for axis, given in ((axes.xaxis, frame.x), (axes.yaxis, frame.y)):
        if given.ticks:
            axis.set_ticks(list(given.ticks), [short(tick) for tick in given.ticks])
            axis.set_minor_locator(NullLocator())
        elif given.log:
            axis.set_major_locator(LogLocator(numticks=5))
            axis.set_major_formatter(FuncFormatter(lambda value, place: short(value)))
            axis.set_minor_formatter(NullFormatter())
        else:
            axis.set_major_locator(MaxNLocator(4))
            axis.set_major_formatter(ScalarFormatter(useOffset=False))


def _dress(axes: Axes, panel: Panel, *, own: bool, first: bool, last: bool) -> None:
    for number, (line, weight) in enumerate(reversed(_heading(panel, own=own))):
        place = 1.0 + (0.07 + number * LINE_INCHES) / PANEL_HEIGHT
        colour = INK if weight == "bold" else COLOURS[1] if own else MUTED
        axes.text(0, place, line, transform=axes.transAxes, fontsize=SMALL, fontweight=weight, color=colour)
    if own:
        axes.spines["left"].set(color=COLOURS[1], linewidth=1.6)
        axes.tick_params(axis="y", colors=COLOURS[1], labelcolor=COLOURS[1])
    axes.tick_params(labelleft=first or own, labelbottom=last)


def _heading(panel: Panel, *, own: bool) -> list[tuple[str, str]]:
    """Lines above a panel, each with its weight: the title, and under it words about this panel."""
    words = "; ".join([*([_("own scale")] if own else []), *([panel.note] if panel.note else [])])
    lines = [(line, "bold") for line in wrapped(panel.title, PANEL_WIDTH, "bold", SMALL)]
    return [*lines, *((line, "normal") for line in wrapped(words, PANEL_WIDTH, "normal", SMALL) if words)]
