"""The figure: speedup over each peer, with the goals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from benchmarks.timing import Range
from vitral.report.html import INK, MUTED
from vitral.report.style import COLOURS, styled

WIDTH, BAR_HEIGHT, MARGIN = 10.0, 0.46, 1.2


@dataclass(frozen=True)
class Bar:
    """One comparison.

    Attributes:
        label: the section and the peer.
        speed: how many times as fast ours is.
        goal: the position of the goal's line, if any.
    """

    label: str
    speed: Range
    goal: float | None

    @property
    def reached(self) -> bool:
        """Whether the goal is reached; True without a goal."""
        return self.goal is None or self.speed.median >= self.goal


def bars(rows: Mapping[str, Any]) -> list[Bar]:
    """A bar for each peer of each table of the results kept; a goal "within b times its time" is a line at 1 / b.

    What never got there, or was never got to, has no length and is left to the table.
    """
    drawn = []
    for row, kept in rows.items():
        for table in kept["tables"]:
            goals = {goal["peer"]: goal for goal in table["goals"] if goal["kind"] in ("faster", "within")}
            for one in table["contenders"][1:]:
                speed = one["ours_is_times_as_fast"]
                if all(speed.values()):  # None where it is infinite, 0 where ours never got there
                    label = f"{row}: {table['title']}\nagainst {one['name']}"
                    drawn.append(Bar(label, Range(**speed), _line(goals.get(one["name"]))))
    return drawn


def _line(goal: Mapping[str, Any] | None) -> float | None:
    if goal is None:
        return None
    return goal["bound"] if goal["kind"] == "faster" else 1 / goal["bound"]


@styled
def draw(shown: Sequence[Bar], title: str) -> Figure:
    """Horizontal bars on a logarithmic axis around 1, the range of the paired ratios, a short line for each goal."""
    figure = Figure(figsize=(WIDTH, MARGIN + BAR_HEIGHT * max(1, len(shown))), layout="constrained")
    axes = figure.add_subplot()
    for y, bar in enumerate(shown):
        colour = COLOURS[2] if bar.reached else COLOURS[1]
        speed = bar.speed
        # On a logarithmic axis a bar begins somewhere: here at 1, as fast as the peer.
        axes.barh(y, speed.median - 1, left=1, height=0.5, color=colour if bar.goal is not None else MUTED)
        axes.plot([speed.low, speed.high], [y, y], color=INK, linewidth=1.2)
        if bar.goal is not None:
            axes.plot([bar.goal, bar.goal], [y - 0.4, y + 0.4], color=INK, linewidth=2)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(shown)), [bar.label for bar in shown], fontsize=8)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.set_xlabel("times as fast (thin line: range, thick mark: goal)")
    figure.suptitle(title, fontsize=11)
    return figure
