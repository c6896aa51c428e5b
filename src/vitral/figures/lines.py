"""One quantity against another: a line, or a row of marks, for each series; `loss_plot` is the one of training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from vitral.core.errors import UsageError
from vitral.core.language import _, number
from vitral.figures.margin import Label, Reference, label_right, label_width, text_width
from vitral.figures.palette import INK, MUTED, PAPER
from vitral.figures.style import FONT_SIZE, look, styled
from vitral.figures.text import drawable, minus

PLOT_WIDTH, PLOT_HEIGHT, LOSS_HEIGHT = 6.2, 4.2, 4.6
LEFT, BESIDE_TICKS, BOTTOM, TOP = 0.85, 0.6, 0.75, 0.55
MOST_LINES = 8
"""More measured lines cannot be distinguished and are refused."""
FEW_STEPS = 12
"""Below this many steps the automatic ticks of a plot of losses would be fractions."""
SETTLED_AFTER = 0.1
"""In a plot of losses, values before this share of a line's steps may lie above the frame."""


MARKS_NEED = 1.015
"""Width of a plot of losses whose last point has a mark, in last steps."""
_DRAWINGS: Mapping[str, dict[str, Any]] = {
    "plain": {"linewidth": 2.2, "zorder": 3},
    "thin": {"linewidth": 0.9, "linestyle": "solid", "alpha": 0.75, "zorder": 2.5},
    "dots": {"linewidth": 1.6, "markersize": 6, "zorder": 3},
    "hollow": {
        "color": INK,
        "linestyle": "none",
        "marker": "o",
        "markerfacecolor": PAPER,
        "markersize": 7,
        "zorder": 3.2,
    },
}


@dataclass(frozen=True)
class Line:
    """One series of points.

    Attributes:
        label: its name, written at its last point; empty for none.
        x: increasing.
        y: of the same length; a value that is None or not finite is omitted.
        low: lower end of a band, or empty for none.
        high: upper end of a band, or empty for none.
        theory: drawn as a thin line without marks: a prediction, not a measurement.
        joined: whether the marks are joined; False for data to which a curve is fitted.
        look: in a plot of losses, "plain"; "thin", for noisy data; "dots", a mark at each point; or "hollow": marks
            that are empty and not joined.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    theory: bool = False
    joined: bool = True
    look: Literal["plain", "thin", "dots", "hollow"] = "plain"

    def __post_init__(self) -> None:
        """Refuse unequal lengths."""
        if len({len(self.x), len(self.y), len(self.low or self.x), len(self.high or self.x)}) != 1:
            raise UsageError("line {label!r}: x, y and band must be equally long", label=self.label)


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        label: the quantity with its unit.
        log: whether it is logarithmic.
        ticks: positions of the numbers; chosen automatically if empty.
    """

    label: str
    log: bool = False
    ticks: Sequence[float] = ()


@styled
def line_plot(
    lines: Sequence[Line], x: Axis, y: Axis, *, references: Sequence[Reference] = (), title: str = ""
) -> Figure:
    """Draw lines, each named at its right end.

    Args:
        lines: at most eight measured ones; theory does not count.
        x: the horizontal axis.
        y: the vertical axis.
        references: thin dotted lines across.
        title: above the plot; empty for none.

    Raises:
        UsageError: no line has a finite point, more than `MOST_LINES` measured lines have one, or a logarithmic axis
            has a point that is not positive.
    """
    shown = [line for line in (_positive_where_log(_finite(line), x, y) for line in lines) if line.x]
    if not shown:
        raise UsageError("no line has a finite value, so there is nothing to draw")
    measured = [line for line in shown if not line.theory]
    if len(measured) > MOST_LINES:
        raise UsageError(
            "{lines} lines cannot be told apart, at most {most} can; draw fewer",
            lines=len(measured),
            most=MOST_LINES,
        )
    looks = {id(line): look(index) for index, line in enumerate(measured)}
    colours = [looks[id(line)].colour if id(line) in looks else MUTED for line in shown]
    names = [
        Label(line.label, _last(line), colour, "normal" if line.theory else "bold")
        for line, colour in zip(shown, colours, strict=True)
        if line.label
    ]
    names += [Label(reference.label, reference.value) for reference in references]
    margin = label_width(names) if names else 0.3
    figure = Figure()
    axes = figure.add_axes((0, 0, 1, 1))
    for line in shown:
        if line.theory:
            axes.plot(line.x, _values(line), color=INK, linewidth=1.1, linestyle=(0, (4, 2)), zorder=3.5)
        else:
            colour, dash, marker = looks[id(line)]
            style = dash if line.joined else "none"
            axes.plot(
                line.x, _values(line), color=colour, linestyle=style, marker=marker, markersize=6, linewidth=2, zorder=3
            )
            _shade(axes, line, colour)
    _cross(axes, references)
    axes.set(xlabel=drawable(x.label), ylabel=drawable(y.label), title=drawable(title))
    _scale(axes, x, "x")
    _scale(axes, y, "y")
    left = BESIDE_TICKS + _tick_width(axes)
    width, height = left + PLOT_WIDTH + margin, BOTTOM + PLOT_HEIGHT + TOP
    figure.set_size_inches(width, height)
    axes.set_position((left / width, BOTTOM / height, PLOT_WIDTH / width, PLOT_HEIGHT / height))
    label_right(axes, [_placed(name, axes, y) for name in names], height=PLOT_HEIGHT, width=PLOT_WIDTH)
    return figure


@styled
def loss_plot(
    lines: Sequence[Line],
    *,
    references: Sequence[Reference] = (),
    title: str = "",
    x_label: str | None = None,
    y_label: str | None = None,
) -> Figure:
    """Draw losses against steps, each line named at its end with its last value, and reference values.

    Early values far above all later ones are above the frame; a note there gives the first.

    Args:
        lines: at most eight can be distinguished.
        references: for example the n-gram baselines.
        title: above the plot; empty for none.
        x_label: the unit of x; "optimizer step" if None.
        y_label: the quantity and its unit; "loss (nats per token)" if None.

    Raises:
        UsageError: no line has a finite value.
    """
    x_label, y_label = x_label or _("optimizer step"), y_label or _("loss (nats per token)")
    shown = [_finite(line) for line in lines]
    if not any(line.x for line in shown):
        raise UsageError("no line has a finite value, so there is nothing to draw")
    names = [
        Label(f"{line.label}  {minus(number(_last(line), '.3f'))}", _last(line), look(index).colour, "bold")
        for index, line in enumerate(shown)
        if line.x and line.label
    ]
    names += [
        Label(f"{reference.label}  {minus(number(reference.value, '.3f'))}", reference.value)
        for reference in references
    ]
    margin = label_width(names)
    width, height = LEFT + PLOT_WIDTH + margin, BOTTOM + LOSS_HEIGHT + TOP
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((LEFT / width, BOTTOM / height, PLOT_WIDTH / width, LOSS_HEIGHT / height))
    for index, line in enumerate(shown):
        colour, dash, marker = look(index)
        marked = line.look == "dots" or len(line.x) == 1
        usual = {"color": colour, "linestyle": dash, "marker": marker if marked else ""}
        axes.plot(line.x, _values(line), **usual | _DRAWINGS[line.look])
        _shade(axes, line, colour)
    _cross(axes, references)
    axes.set(xlabel=drawable(x_label), ylabel=drawable(y_label), title=drawable(title))
    _across(axes, shown)
    _frame(axes, shown, references)
    label_right(axes, names, height=LOSS_HEIGHT, width=PLOT_WIDTH)
    return figure


def left_out(labels: Sequence[str]) -> str:
    """A sentence for the caption that names the lines beyond the first `MOST_LINES`; empty if there are none.

    >>> left_out(["a", "b"])
    ''
    >>> left_out(list("abcdefghij"))
    ' Only the first 8 are drawn; not drawn: i, j.'
    """
    rest = ", ".join(labels[MOST_LINES:])
    return _(" Only the first {lines} are drawn; not drawn: {names}.", lines=MOST_LINES, names=rest) if rest else ""


def _finite(line: Line) -> Line:
    keep = [index for index, value in enumerate(line.y) if value is not None and math.isfinite(value)]
    x, y = ([series[index] for index in keep] for series in (line.x, line.y))
    low, high = ([series[index] for index in keep] if series else () for series in (line.low, line.high))
    return replace(line, x=x, y=y, low=low, high=high)


def _positive_where_log(line: Line, x: Axis, y: Axis) -> Line:
    for axis, numbers in ((x, line.x), (y, _values(line))):
        if axis.log and any(number <= 0 for number in numbers):
            raise UsageError(
                "line {label!r}: a logarithmic axis ({axis}) cannot show a number below zero",
                label=line.label,
                axis=axis.label,
            )
    return line


def _values(line: Line) -> list[float]:
    return [value for value in line.y if value is not None]


def _last(line: Line) -> float:
    return _values(line)[-1]


def _shade(axes: Axes, line: Line, colour: str) -> None:
    if line.low and line.high:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.22, linewidth=0, zorder=2)


def _cross(axes: Axes, references: Sequence[Reference]) -> None:
    for reference in references:
        axes.axhline(reference.value, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1.5)


def _across(axes: Axes, lines: Sequence[Line]) -> None:
    # Sets the x limits: from zero where there are marks, or only one step.
    steps = [step for line in lines for step in line.x]
    axes.margins(x=0)
    if len(set(steps)) == 1 or any(line.look in ("dots", "hollow") for line in lines):
        axes.set_xlim(0, max(steps) * MARKS_NEED or 1)
    if min(steps) >= 0 and max(steps) < FEW_STEPS:
        axes.set_xticks(range(math.ceil(max(steps)) + 1))


def _frame(axes: Axes, lines: Sequence[Line], references: Sequence[Reference]) -> None:
    # Sets the y limits, and notes above the frame the values outside it.
    everything = [value for line in lines for value in (*_values(line), *line.low, *line.high)]
    settled = [reference.value for reference in references]
    for line in lines:
        settled += _values(line) if line.look == "hollow" else []
        late = [index for index, step in enumerate(line.x) if step >= SETTLED_AFTER * line.x[-1]]
        settled += [series[index] for series in (_values(line), line.low, line.high) if series for index in late]
    low, high = min([*settled, *everything]), max(settled)
    pad = 0.04 * (high - low) or 0.5
    axes.set_ylim(low - pad, high + pad)
    above = max(everything)
    if above > high + pad:
        note = _("begins at {loss:.2f}, above the frame", loss=above)
        axes.text(1.0, 1.015, note, transform=axes.transAxes, ha="right", color=MUTED, fontsize=FONT_SIZE - 2)


def _scale(axes: Axes, axis: Axis, which: str) -> None:
    ticks = axes.xaxis if which == "x" else axes.yaxis
    if axis.log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
        decades = math.log10(high / low)
        ticks.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,)))
        ticks.set_major_formatter(FuncFormatter(lambda value, place: short(value)))
        ticks.set_minor_formatter(NullFormatter())
    if axis.ticks:
        (axes.set_xticks if which == "x" else axes.set_yticks)(list(axis.ticks), [short(tick) for tick in axis.ticks])
        axes.minorticks_off()


def _tick_width(axes: Axes) -> float:
    # Inches of the widest number on the vertical axis.
    places = [float(place) for place in axes.yaxis.get_majorticklocs()]
    return max(
        (text_width(text, size=FONT_SIZE) for text in axes.yaxis.get_major_formatter().format_ticks(places)),
        default=0.0,
    )


def short(value: float) -> str:
    """A tick's number in few characters.

    >>> short(1e-3), short(250.0), short(2e6), short(1.5e-7)
    ('0.001', '250', '2M', '1.5e-07')
    """
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{number(value / (1e3 if suffix == 'k' else limit), 'g')}{suffix}"
    return number(value, "g")


def _placed(label: Label, axes: Axes, y: Axis) -> Label:
    # `label_right` counts heights linearly.
    if not y.log:
        return label
    low, high = axes.get_ylim()
    share = math.log(label.value / low) / math.log(high / low)
    return Label(label.text, low + share * (high - low), label.colour, label.weight)
