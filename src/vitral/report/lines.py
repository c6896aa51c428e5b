"""One quantity against another: a line, or a row of marks, for each series; `loss_plot` is the one of training."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from vitral.core.errors import UsageError
from vitral.core.language import _, number
from vitral.report.margin import Label, Reference, label_right, label_width, text_width
from vitral.report.palette import INK, MUTED, PAPER
from vitral.report.style import FONT_SIZE, drawable, look, styled

PLOT_WIDTH, PLOT_HEIGHT, LOSS_HEIGHT = 6.2, 4.2, 4.6
BESIDE_TICKS, BOTTOM, TOP = 0.6, 0.75, 0.55
MOST_LINES = 8
"""More measured lines cannot be distinguished; `left_out` names them."""
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


_THEORY: Mapping[str, Any] = {"color": INK, "linewidth": 1.1, "linestyle": (0, (4, 2)), "zorder": 3.5}


@dataclass(frozen=True)
class Line:
    """One series of points.

    Attributes:
        label: its name, written at its last point; empty for none.
        x: increasing.
        y: of the same length; a value that is None, not finite, or not positive on a logarithmic axis is omitted.
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
        lines: at most `MOST_LINES` measured ones can be told apart; theory does not count.
        x: the horizontal axis.
        y: the vertical axis.
        references: thin dotted lines across.
        title: above the plot; empty for none.

    Raises:
        UsageError: no line has a point that the axes can show.
    """
    shown = _shown(lines, x, y)
    looks, names = [], []
    for line in shown:
        colour, dash, marker = look(sum("marker" in each for each in looks))
        marks = {"color": colour, "linestyle": dash if line.joined else "none", "marker": marker, "markersize": 6}
        looks.append(_THEORY if line.theory else marks | {"linewidth": 2, "zorder": 3})
        if line.label:
            style = (MUTED, "normal") if line.theory else (colour, "bold")
            names.append(Label(line.label, _values(line)[-1], *style))
    names += [Label(reference.label, reference.value) for reference in references]

    def scaled(axes: Axes) -> None:
        _scale(axes, "x", x)
        _scale(axes, "y", y)

    return _drawn(shown, looks, names, references, (x.label, y.label, title), PLOT_HEIGHT, scaled)


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
        lines: at most `MOST_LINES` can be distinguished.
        references: for example the n-gram baselines.
        title: above the plot; empty for none.
        x_label: the unit of x; "optimizer step" if None.
        y_label: the quantity and its unit; "loss (nats per token)" if None.

    Raises:
        UsageError: no line has a finite value.
    """
    x, y = Axis(x_label or _("optimizer step")), Axis(y_label or _("loss (nats per token)"))
    shown, names, looks = _shown(lines, x, y), [], []
    places = [index for index, line in enumerate(lines) if _points(line, x, y)]
    for index, line in zip(places, shown, strict=True):
        colour, dash, marker = look(index)
        is_marked = line.look == "dots" or len(line.x) == 1
        usual = {"color": colour, "linestyle": dash, "marker": marker if is_marked else ""}
        looks.append(usual | _DRAWINGS[line.look])
        if line.label:
            last = Reference(line.label, _values(line)[-1]).as_label()
            names.append(replace(last, colour=colour, weight="bold"))
    names += [reference.as_label() for reference in references]

    def scaled(axes: Axes) -> None:
        _across(axes, shown)
        _frame(axes, shown, references)

    return _drawn(shown, looks, names, references, (x.label, y.label, title), LOSS_HEIGHT, scaled)


def _drawn(
    lines: Sequence[Line],
    looks: Sequence[Mapping[str, Any]],
    names: Sequence[Label],
    references: Sequence[Reference],
    words: tuple[str, str, str],
    plot_height: float,
    scaled: Callable[[Axes], None],
) -> Figure:
    """A plot that is as wide as its ticks and the names beside it need; `words` are below, beside and above it."""
    figure = Figure()
    axes = figure.add_axes((0, 0, 1, 1))
    for line, how in zip(lines, looks, strict=True):
        axes.plot(line.x, _values(line), **how)
        if line.low and line.high:
            axes.fill_between(line.x, line.low, line.high, color=how["color"], alpha=0.22, linewidth=0, zorder=2)
    for reference in references:
        axes.axhline(reference.value, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1.5)
    axes.set(**dict(zip(("xlabel", "ylabel", "title"), map(drawable, words), strict=True)))
    scaled(axes)
    ticks = axes.yaxis.get_major_formatter().format_ticks([float(tick) for tick in axes.yaxis.get_majorticklocs()])
    left = BESIDE_TICKS + max((text_width(tick, size=FONT_SIZE) for tick in ticks), default=0.0)
    titled = text_width(axes.get_title("left"), "bold", FONT_SIZE + 1) + 0.2
    width = left + max(PLOT_WIDTH + (label_width(names) if names else 0.3), titled)
    height = BOTTOM + plot_height + TOP
    figure.set_size_inches(width, height)
    axes.set_position((left / width, BOTTOM / height, PLOT_WIDTH / width, plot_height / height))
    label_right(axes, names, height=plot_height, width=PLOT_WIDTH)
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


def _shown(lines: Sequence[Line], x: Axis, y: Axis) -> list[Line]:
    """The lines that have points, with these points only."""
    shown = []
    for line in lines:
        keep = _points(line, x, y)
        low, high = ([series[index] for index in keep] if series else () for series in (line.low, line.high))
        kept = replace(line, x=[line.x[at] for at in keep], y=[line.y[at] for at in keep], low=low, high=high)
        shown += [kept] if keep else []
    if not shown:
        raise UsageError("no line has a finite value, so there is nothing to draw")
    return shown


def _points(line: Line, x: Axis, y: Axis) -> list[int]:
    """Indices of the points that the axes can show."""

    def fits(value: float | None, axis: Axis) -> bool:
        return value is not None and math.isfinite(value) and (value > 0 or not axis.log)

    pairs = enumerate(zip(line.x, line.y, strict=True))
    return [index for index, (step, value) in pairs if fits(step, x) and fits(value, y)]


def _values(line: Line) -> list[float]:
    return [value for value in line.y if value is not None]


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


def _scale(axes: Axes, which: Literal["x", "y"], axis: Axis) -> None:
    ticks = axes.xaxis if which == "x" else axes.yaxis
    if axis.log:
        axes.set(**{f"{which}scale": "log"})
        low, high = ticks.get_view_interval()
        ticks.set_major_locator(LogLocator(subs=(1, 2, 5) if math.log10(high / low) < 2.5 else (1,)))
        ticks.set_major_formatter(FuncFormatter(lambda value, place: short(value)))
        ticks.set_minor_formatter(NullFormatter())
    if axis.ticks:
        ticks.set_ticks(list(axis.ticks), [short(tick) for tick in axis.ticks])
        ticks.set_minor_locator(NullLocator())


def short(value: float) -> str:
    """A tick's number in few characters.

    >>> short(1e-3), short(250.0), short(2e6), short(1.5e-7)
    ('0.001', '250', '2M', '1.5e-07')
    """
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{number(value / (1e3 if suffix == 'k' else limit), 'g')}{suffix}"
    return number(value, "g")
