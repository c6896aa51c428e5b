"""Results of several arms: a dot for each seed, the mean with its interval, and reference lines."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitral.core.errors import UsageError
from vitral.core.language import _, number
from vitral.core.text import minus
from vitral.report.margin import LEADER_INCHES, Label, Reference, label_top, text_width
from vitral.report.palette import INK, MUTED, PAPER
from vitral.report.sheet import Sheet
from vitral.report.style import COLOURS, FONT_SIZE, styled

ROW_INCHES = 0.62
PLOT_WIDTH = 6.2
BOTTOM, RIGHT = 0.75, 0.95


@dataclass(frozen=True)
class IntervalRow:
    """The results of one arm.

    Attributes:
        label: its title.
        values: one for each seed.
        mean: of the values.
        low: lower end of the interval; None for a single seed.
        high: upper end of the interval; None for a single seed.
    """

    label: str
    values: Sequence[float]
    mean: float
    low: float | None = None
    high: float | None = None


@styled
def interval_dots(
    rows: Sequence[IntervalRow],
    *,
    references: Sequence[Reference] = (),
    title: str = "",
    x_label: str | None = None,
) -> Figure:
    """Draw a row for each arm, the first at the top: seeds as dots, mean and interval above them.

    Args:
        rows: in the order of the table beside the figure.
        references: vertical lines, named above the plot if they have a label.
        title: above everything; empty for none.
        x_label: the quantity and its unit; "loss (nats per token)" if None.

    Raises:
        UsageError: there is no row.
    """
    if not rows:
        raise UsageError("no arm has a value, so there is nothing to draw")
    labels = [Label(row.label, row.mean) for row in rows]
    names = [reference.as_label() for reference in references if reference.label]
    left = max(text_width(line, size=FONT_SIZE) for label in labels for line in label.lines) + 0.3
    upright = max((LEADER_INCHES + text_width(name.text) for name in names), default=0.0)
    plot = ROW_INCHES * len(rows)
    height = BOTTOM + plot + (0.6 if title else 0.2) + upright
    sheet = Sheet(left + PLOT_WIDTH + RIGHT, height, title, left=0.3)
    axes = sheet.plot(left, BOTTOM, PLOT_WIDTH, plot)
    for reference in references:
        axes.axvline(reference.value, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1.5)
    for index, row in enumerate(rows):
        _draw(axes, row, index)
    axes.set_yticks(range(len(rows)), ["\n".join(label.lines) for label in labels])
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel=x_label or _("loss (nats per token)"))
    axes.margins(x=0.06)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.autoscale_view()
    label_top(axes, names, width=PLOT_WIDTH, height=plot)
    return sheet.figure


def _draw(axes: Axes, row: IntervalRow, index: int) -> None:
    colour = COLOURS[0]  # its row names an arm, so that colours would carry nothing
    shifted = [index + 0.22] * len(row.values)
    axes.plot(row.values, shifted, linestyle="", marker="o", markersize=5, color=colour, alpha=0.55, zorder=3)
    if row.low is not None and row.high is not None:
        ends = [row.low, row.high]
        axes.plot(ends, [index, index], color=colour, linewidth=2.2, marker="|", markersize=11, markeredgewidth=2)
    axes.plot([row.mean], [index], marker="o", markersize=9, color=colour, markeredgecolor=PAPER, zorder=4)
    look = {"transform": axes.get_yaxis_transform(), "va": "center", "color": INK, "fontweight": "bold"}
    axes.text(1 + 0.15 / PLOT_WIDTH, index, minus(number(row.mean, ".3f")), **look)
