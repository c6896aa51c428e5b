"""Loss against steps: one line or band for each thing that was trained, with reference lines to read it by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitral.core.errors import UsageError
from vitral.figures.margin import Label, Reference, label_right, label_width
from vitral.figures.palette import MUTED
from vitral.figures.style import FONT_SIZE, look, styled
from vitral.figures.text import drawable

PLOT_WIDTH = 6.2
PLOT_HEIGHT = 4.6
LEFT, BOTTOM, TOP = 0.85, 0.75, 0.55
SETTLED_AFTER = 0.1
"""Values before this share of the steps may leave the frame at the top, so that the rest can be told apart."""


@dataclass(frozen=True)
class Curve:
    """One quantity against steps.

    Attributes:
        label: what it is, written at its end with its last value.
        steps: increasing.
        values: as many; the mean, where there are several runs. A value that is not finite is left out.
        low: lower end of the band, or empty for none.
        high: upper end of the band, or empty for none.
    """

    label: str
    steps: Sequence[int]
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()

    def __post_init__(self) -> None:
        """Refuse lengths that do not agree."""
        if len({len(self.steps), len(self.values), len(self.low or self.steps), len(self.high or self.steps)}) != 1:
            raise UsageError(f"curve {self.label!r}: steps, values and band must be equally long")


def band(label: str, runs: Sequence[Sequence[tuple[int, float]]]) -> Curve:
    """Mean and range over several runs, at the steps that all of them have.

    Args:
        label: what the runs are.
        runs: of each run, its (step, value) pairs.

    >>> band("a", [[(0, 4.0), (5, 2.0)], [(0, 4.0), (5, 3.0), (10, 1.0)]]).values
    (4.0, 2.5)
    """
    tables = [dict(run) for run in runs]
    steps = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
    columns = [[table[step] for table in tables] for step in steps]
    means = tuple(float(np.mean(column)) for column in columns)
    if len(tables) < 2:
        return Curve(label, tuple(steps), means)
    return Curve(label, tuple(steps), means, tuple(map(min, columns)), tuple(map(max, columns)))


@styled
def loss_curves(
    curves: Sequence[Curve],
    *,
    references: Sequence[Reference] = (),
    title: str = "",
    x_label: str = "optimizer step",
    y_label: str = "loss (nats per token)",
) -> Figure:
    """Draw curves with their names at their ends, and reference values as thin lines with theirs.

    Early values far above everything later leave the frame at the top; a note above the frame says where they start.

    Args:
        curves: at most eight can be told apart.
        references: for example the n-gram lines.
        title: above the plot; empty for none.
        x_label: what `steps` count.
        y_label: the quantity and its unit.

    Raises:
        UsageError: no curve has a finite value.
    """
    shown = [_finite(curve) for curve in curves]
    if not any(curve.steps for curve in shown):
        raise UsageError("no curve has a finite value, so there is nothing to draw")
    labels = _labels(shown, references)
    margin = label_width(labels)
    width, height = LEFT + PLOT_WIDTH + margin, BOTTOM + PLOT_HEIGHT + TOP
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((LEFT / width, BOTTOM / height, PLOT_WIDTH / width, PLOT_HEIGHT / height))
    for index, curve in enumerate(shown):
        _draw(axes, curve, index)
    for reference in references:
        axes.axhline(reference.value, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1.5)
    axes.set(xlabel=drawable(x_label), ylabel=drawable(y_label), title=drawable(title))
    axes.margins(x=0)
    _frame(axes, shown, references)
    label_right(axes, labels, height=PLOT_HEIGHT, width=PLOT_WIDTH)
    return figure


def _finite(curve: Curve) -> Curve:
    """The curve without the points that are not finite."""
    keep = [index for index, value in enumerate(curve.values) if math.isfinite(value)]
    values, low, high = (
        tuple(series[index] for index in keep) if series else () for series in (curve.values, curve.low, curve.high)
    )
    return Curve(curve.label, tuple(curve.steps[index] for index in keep), values, low, high)


def _labels(curves: Sequence[Curve], references: Sequence[Reference]) -> list[Label]:
    measured = [
        Label(f"{curve.label}  {curve.values[-1]:.3f}", curve.values[-1], look(index).colour, "bold")
        for index, curve in enumerate(curves)
        if curve.steps
    ]
    return measured + [Label(f"{reference.label}  {reference.value:.3f}", reference.value) for reference in references]


def _draw(axes: Axes, curve: Curve, index: int) -> None:
    colour, dash, marker = look(index)
    lonely = marker if len(curve.steps) == 1 else ""
    axes.plot(curve.steps, curve.values, color=colour, linestyle=dash, marker=lonely, linewidth=2.2, zorder=3)
    if curve.low and curve.high:
        axes.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.22, linewidth=0, zorder=2)


def _frame(axes: Axes, curves: Sequence[Curve], references: Sequence[Reference]) -> None:
    """Set the y limits, and say above the frame what has left it."""
    last = max(curve.steps[-1] for curve in curves if curve.steps)
    everything = [value for curve in curves for value in (*curve.values, *curve.low, *curve.high)]
    settled = [reference.value for reference in references]
    for curve in curves:
        late = [index for index, step in enumerate(curve.steps) if step >= SETTLED_AFTER * last]
        settled += [series[index] for series in (curve.values, curve.low, curve.high) if series for index in late]
    low, high = min([*settled, *everything]), max(settled)
    pad = 0.04 * (high - low) or 0.5
    axes.set_ylim(low - pad, high + pad)
    above = max(everything)
    if above > high + pad:
        note = f"begins at {above:.2f}, above the frame"
        axes.text(1.0, 1.015, note, transform=axes.transAxes, ha="right", color=MUTED, fontsize=FONT_SIZE - 2)
