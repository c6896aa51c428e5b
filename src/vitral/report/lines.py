"""One quantity against another: a plot with a line for each series; `loss_plot` is the one of training."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from vitral.core.errors import UsageError
from vitral.core.language import _, number
from vitral.core.text import minus
from vitral.report.html import INK, MUTED, PAPER
from vitral.report.style import SMALL, drawable, look, sheet, styled
from vitral.studies.figures import Axis, Line, Look

HEIGHT = 4.8
"""Inches of a plot."""
MOST_LINES = 8
"""More measured lines cannot be distinguished; `left_out` names them."""
SETTLED_AFTER = 0.1
"""In a plot of losses, values before this share of a line's steps may lie above the frame."""
NAME, NAME_SHARE = 24, 0.055
"""Characters of a line of a name beside a plot, and the share of the plot's height that it takes."""
_LOOKS: Mapping[Look, Mapping[str, Any]] = {
    "marked": {"linewidth": 1.8, "markersize": 6, "zorder": 3},
    "plain": {"linewidth": 2.2, "marker": "", "zorder": 3},
    "thin": {"linewidth": 0.9, "linestyle": "solid", "marker": "", "alpha": 0.6, "zorder": 2.5},
    "hollow": {"color": INK, "linestyle": "", "marker": "o", "markerfacecolor": PAPER, "markersize": 7, "zorder": 3.2},
    "theory": {"color": INK, "linewidth": 1.1, "linestyle": (0, (4, 2)), "marker": "", "zorder": 3.5},
}
_REFERENCE: Mapping[str, Any] = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (1, 2)), "zorder": 1.5}


def loss_plot(lines: Sequence[Line], *, x_label: str = "", y_label: str = "", **how: Any) -> Figure:
    """Draw losses, against optimizer steps and in nats per token if nothing else is said: a `line_plot`.

    Each line is named with its last value; early values far above all later ones are above the frame, and a note there
    gives the first.
    """
    x, y = Axis(x_label or _("optimizer step")), Axis(y_label or _("loss (nats per token)"))
    return line_plot(lines, x, y, are_losses=True, **how)


@styled
def line_plot(
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    references: Sequence[tuple[str, float]] = (),
    title: str = "",
    are_losses: bool = False,
) -> Figure:
    """Draw lines, each named at its right end.

    Args:
        lines: at most `MOST_LINES` measured ones can be told apart; theory does not count.
        x: the horizontal axis.
        y: the vertical axis.
        references: thin dotted lines across.
        title: above the plot; empty for none.
        are_losses: whether they are framed and named as losses (`loss_plot`).

    Raises:
        UsageError: no line has a point that the axes can show.
    """
    figure, (axes,) = sheet(HEIGHT, title)
    shown, names, drawn = [one for line in lines if (one := _fitting(line, x, y)).x], [], 0
    if not shown:
        raise UsageError("no line has a finite value, so there is nothing to draw")
    for line in shown:
        colour = _draw(axes, line, drawn)
        drawn += line.look != "theory"
        if line.label:
            names.append((line.label, line.y[-1] or 0.0, colour, "normal" if line.look == "theory" else "bold"))
    names += [(*reference, MUTED, "normal") for reference in references]
    for _label, value in references:
        axes.axhline(value, **_REFERENCE)
    axes.set(xlabel=drawable(x.label), ylabel=drawable(y.label))
    if are_losses:
        _frame(axes, shown, references)
        names = [(f"{label}  {minus(number(value, '.3f'))}", value, *how) for label, value, *how in names]
    _scale(axes, x, y)
    _name(axes, names)
    return figure


def _draw(axes: Axes, line: Line, index: int) -> str:
    """Draw a line as number `index` of a plot, and return its colour."""
    colour, dash, marker = look(index)
    how = {"color": colour, "linestyle": dash, "marker": marker} | dict(_LOOKS[line.look])
    if len(line.x) == 1 and not how["marker"]:
        how["marker"] = marker
    axes.plot(line.x, line.y, **how)  # pyright: ignore[reportArgumentType]  no None is left
    if line.low and line.high:
        axes.fill_between(line.x, line.low, line.high, color=how["color"], alpha=0.22, linewidth=0, zorder=2)
    return how["color"]


def _frame(axes: Axes, lines: Sequence[Line], references: Sequence[tuple[str, float]]) -> None:
    """The limits of a plot of losses; values outside it are noted above."""
    everything = [value for line in lines for value in _late(line, 0.0)]
    settled = [value for line in lines for value in _late(line, 0.0 if line.look == "hollow" else SETTLED_AFTER)]
    settled += [value for _label, value in references]
    low, high = min([*settled, *everything]), max(settled)
    pad = 0.04 * (high - low) or 0.5
    axes.set(ylim=(low - pad, high + pad), xlim=(0, 1.015 * max(step for line in lines for step in line.x) or 1))
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    if (above := max(everything)) > high + pad:
        note = _("begins at {loss:.2f}, above the frame", loss=above)
        axes.text(1.0, 1.015, note, transform=axes.transAxes, ha="right", color=MUTED, fontsize=SMALL)


def _late(line: Line, settled: float) -> list[float]:
    """The values from this share of the last x on, with the ends of their bands."""
    late = [index for index, x in enumerate(line.x) if x >= settled * line.x[-1]]
    series = (line.y, line.low, line.high)
    return [value for one in series if one for index in late if (value := one[index]) is not None]


def _name(axes: Axes, names: Sequence[tuple[str, float, str, str]]) -> None:
    """Names beside a plot whose limits are final, at their values, each joined to its value by a thin line."""
    edge, scale = axes.get_xlim()[1], axes.transScale + axes.transLimits
    shares = [float(scale.transform((edge, value))[1]) for _label, value, _colour, _weight in names]
    texts = [textwrap.fill(drawable(label), NAME) for label, *_how in names]
    heights = spread(shares, [NAME_SHARE * (1 + text.count("\n")) for text in texts], 0.0, 1.0)
    for text, share, height, (_label, _value, colour, weight) in zip(texts, shares, heights, names, strict=True):
        arrow = {"arrowstyle": "-", "color": colour, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
        axes.annotate(
            text,
            (1.0, share),
            (1.045, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=SMALL,
            fontweight=weight,
            color=INK if weight == "bold" else MUTED,
            arrowprops=arrow,
            annotation_clip=False,
        )


def left_out(labels: Sequence[str]) -> str:
    """A sentence for the caption that names the lines beyond the first `MOST_LINES`; empty if there are none.

    >>> left_out(["a", "b"])
    ''
    >>> left_out(list("abcdefghij"))
    ' Only the first 8 are drawn; not drawn: i, j.'
    """
    rest = ", ".join(labels[MOST_LINES:])
    return _(" Only the first {lines} are drawn; not drawn: {names}.", lines=MOST_LINES, names=rest) if rest else ""


def _fitting(line: Line, x: Axis, y: Axis) -> Line:
    """The line with only those points that the axes can show."""
    pairs = enumerate(zip(line.x, line.y, strict=True))
    keep = [index for index, pair in pairs if _shows(x, pair[0]) and _shows(y, pair[1])]
    series = {
        name: [values[at] for at in keep] for name in ("x", "y", "low", "high") if (values := getattr(line, name))
    }
    return line._replace(**series)


def _shows(axis: Axis, value: float | None) -> bool:
    return value is not None and math.isfinite(value) and (value > 0 or not axis.log)


def _scale(axes: Axes, x: Axis, y: Axis) -> None:
    for axis, which, ticks in ((x, "x", axes.xaxis), (y, "y", axes.yaxis)):
        if axis.log:
            axes.set(**{f"{which}scale": "log"})
            low, high = ticks.get_view_interval()
            ticks.set_major_locator(LogLocator(subs=(1, 2, 5) if math.log10(high / low) < 2.5 else (1,)))
            ticks.set_major_formatter(FuncFormatter(lambda value, position: short(value)))
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


def spread(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Centres of labels, as near to `wanted` as possible without overlaps.

    The sum of squared moves is minimal among all placements in the same order: with the sizes subtracted, this is
    isotonic regression (Barlow et al. 1972). Labels stay between `low` and `high` if they fit there together; if they
    do not, they exceed `high`.

    Args:
        wanted: the position of each label without the others.
        sizes: of each label along the axis, its margin included.
        low: begin of the axis.
        high: end of the axis.

    >>> spread([1.0, 1.0, 9.0], [2.0, 2.0, 2.0], 0.0, 10.0)
    [1.0, 3.0, 9.0]
    """
    from scipy.optimize import isotonic_regression  # slow to import

    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    ends = [0.0, *accumulate(sizes[index] for index in order)]
    offsets = [end + sizes[index] / 2 for end, index in zip(ends, order, strict=False)]
    free = [wanted[index] - offset for index, offset in zip(order, offsets, strict=True)]
    begins = isotonic_regression(free).x.clip(low, max(low, high - ends[-1])) if free else []
    centres = {index: float(begin + offset) for index, begin, offset in zip(order, begins, offsets, strict=True)}
    return [centres[index] for index in range(len(wanted))]
