"""One quantity against another: a line or a row of marks for each thing compared, axes linear or logarithmic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from vitral.core.errors import UsageError
from vitral.figures.margin import Label, Reference, label_right, label_width, text_width
from vitral.figures.palette import INK, MUTED
from vitral.figures.style import FONT_SIZE, look, styled
from vitral.figures.text import drawable

PLOT_WIDTH, PLOT_HEIGHT = 6.2, 4.2
BESIDE_TICKS, BOTTOM, TOP = 0.6, 0.75, 0.55
MOST_LINES = 8
"""More measured lines than looks that can be told apart are refused."""


@dataclass(frozen=True)
class Line:
    """One series of points.

    Attributes:
        label: what it is, written at its last point.
        x: increasing.
        y: as many; a value that is None or not finite is left out.
        low: lower end of a band, or empty for none.
        high: upper end of a band, or empty for none.
        theory: drawn as a thin line without marks: what was predicted, not measured.
        joined: whether the marks are joined; False for a fit's data.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    theory: bool = False
    joined: bool = True

    def __post_init__(self) -> None:
        """Refuse lengths that do not agree."""
        if len({len(self.x), len(self.y), len(self.low or self.x), len(self.high or self.x)}) != 1:
            raise UsageError(f"line {self.label!r}: x, y and band must be equally long")


@dataclass(frozen=True)
class Axis:
    """What an axis measures.

    Attributes:
        label: the quantity with its unit.
        log: whether it is logarithmic.
        ticks: where to write numbers; empty to leave that to the figure.
    """

    label: str
    log: bool = False
    ticks: Sequence[float] = ()


@styled
def line_plot(
    lines: Sequence[Line], x: Axis, y: Axis, *, references: Sequence[Reference] = (), title: str = ""
) -> Figure:
    """Draw the lines, each named at its right end.

    Args:
        lines: at most eight measured ones can be told apart; theory does not count.
        x: the horizontal axis.
        y: the vertical axis.
        references: thin dotted lines across.
        title: above the plot; empty for none.

    Raises:
        UsageError: no line has a point that can be drawn, more than `MOST_LINES` measured ones have, or a logarithmic
            axis has one that is not positive.
    """
    shown = [line for line in (_drawable(line, x, y) for line in lines) if line.x]
    if not shown:
        raise UsageError("no line has a point that can be drawn")
    measured = [line for line in shown if not line.theory]
    if len(measured) > MOST_LINES:
        raise UsageError(f"{len(measured)} lines cannot be told apart, at most {MOST_LINES} can; draw fewer")
    looks = {id(line): look(index) for index, line in enumerate(measured)}
    colours = [looks[id(line)].colour if id(line) in looks else MUTED for line in shown]
    names = [
        Label(line.label, float(line.y[-1] or 0.0), colour, "normal" if line.theory else "bold")
        for line, colour in zip(shown, colours, strict=True)
        if line.label
    ]
    names += [Label(reference.label, reference.value) for reference in references]
    margin = label_width(names) if names else 0.3
    figure = Figure()
    axes = figure.add_axes((0, 0, 1, 1))
    for line in shown:
        if line.theory:
            axes.plot(*_points(line), color=INK, linewidth=1.1, linestyle=(0, (4, 2)), zorder=3.5)
        else:
            colour, dash, marker = looks[id(line)]
            style = dash if line.joined else "none"
            axes.plot(*_points(line), color=colour, linestyle=style, marker=marker, markersize=6, linewidth=2, zorder=3)
            if line.low and line.high:
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.22, linewidth=0, zorder=2)
    for reference in references:
        axes.axhline(reference.value, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1.5)
    axes.set(xlabel=drawable(x.label), ylabel=drawable(y.label), title=drawable(title))
    _scale(axes, x, "x")
    _scale(axes, y, "y")
    left = BESIDE_TICKS + _tick_width(axes)
    width, height = left + PLOT_WIDTH + margin, BOTTOM + PLOT_HEIGHT + TOP
    figure.set_size_inches(width, height)
    axes.set_position((left / width, BOTTOM / height, PLOT_WIDTH / width, PLOT_HEIGHT / height))
    label_right(axes, [_placed(name, axes, y) for name in names], height=PLOT_HEIGHT, width=PLOT_WIDTH)
    return figure


def left_out(labels: Sequence[str]) -> str:
    """What a caption adds where only the first `MOST_LINES` of these are drawn; nothing where all are.

    >>> left_out(["a", "b"])
    ''
    >>> left_out(list("abcdefghij"))
    ' Drawn are the first 8; left out: i, j.'
    """
    rest = ", ".join(labels[MOST_LINES:])
    return f" Drawn are the first {MOST_LINES}; left out: {rest}." if rest else ""


def _points(line: Line) -> tuple[list[float], list[float]]:
    """The places and values of a line that has no gaps any more."""
    return list(line.x), [value for value in line.y if value is not None]


def _drawable(line: Line, x: Axis, y: Axis) -> Line:
    keep = [index for index, value in enumerate(line.y) if value is not None and math.isfinite(value)]
    values = [line.y[index] for index in keep]
    places = [line.x[index] for index in keep]
    for axis, numbers in ((x, places), (y, values)):
        if axis.log and any(number is not None and number <= 0 for number in numbers):
            raise UsageError(f"line {line.label!r}: a logarithmic axis ({axis.label}) cannot show a number below zero")
    bands = [[band[index] for index in keep] if band else () for band in (line.low, line.high)]
    return Line(line.label, places, values, *bands, theory=line.theory, joined=line.joined)


def _scale(axes: Axes, axis: Axis, which: str) -> None:
    """Set one axis' scale and ticks, numbers written out rather than as powers where they are short."""
    ticks = axes.xaxis if which == "x" else axes.yaxis
    if axis.log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
        decades = math.log10(high / low)
        ticks.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,)))
        ticks.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        ticks.set_minor_formatter(NullFormatter())
    if axis.ticks:
        (axes.set_xticks if which == "x" else axes.set_yticks)(list(axis.ticks), [_short(tick) for tick in axis.ticks])
        axes.minorticks_off()


def _tick_width(axes: Axes) -> float:
    """Inches of the widest number on the vertical axis."""
    places = [float(place) for place in axes.yaxis.get_majorticklocs()]
    return max(
        (text_width(text, size=FONT_SIZE) for text in axes.yaxis.get_major_formatter().format_ticks(places)),
        default=0.0,
    )


def _short(value: float) -> str:
    """A tick's number in few characters.

    >>> _short(1e-3), _short(250.0), _short(2e6), _short(1.5e-7)
    ('0.001', '250', '2M', '1.5e-07')
    """
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if suffix == 'k' else limit):g}{suffix}"
    return f"{value:g}"


def _placed(label: Label, axes: Axes, y: Axis) -> Label:
    """The label at its height on the axis as `label_right` counts it, linearly."""
    if not y.log:
        return label
    low, high = axes.get_ylim()
    share = math.log(label.value / low) / math.log(high / low)
    return Label(label.text, low + share * (high - low), label.colour, label.weight)
