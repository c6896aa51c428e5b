"""A small curve for a row of a table: plain SVG, without axes, in the colours of the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from vitral.report.palette import MUTED

WIDTH, HEIGHT, PAD = 132, 34, 4
LINE = "#0072b2"


@dataclass(frozen=True)
class Spark:
    """A small curve; several beside each other have the same frame.

    Attributes:
        points: (x, y), x increasing.
        frame: least and largest x, least and largest y.
        levels: y of thin lines across.
        alt: the finding in words.
    """

    points: Sequence[tuple[float, float]]
    frame: tuple[float, float, float, float]
    levels: Sequence[float] = ()
    alt: str = ""

    @property
    def svg(self) -> str:
        """The drawing; empty without a point."""
        if not self.points:
            return ""
        places = [self._place(x, y) for x, y in self.points]
        low, high = self.frame[2:]
        across = (self._place(0.0, level)[1] for level in self.levels if low <= level <= high)
        lines = "".join(
            f'<path d="M0 {y:.1f}H{WIDTH}" stroke="{MUTED}" stroke-width="0.7" stroke-dasharray="1 2"/>' for y in across
        )
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        x, y = places[-1]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}">{lines}'
            f'<path d="M{path}" fill="none" stroke="{LINE}" stroke-width="1.6" stroke-linejoin="round"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{LINE}"/></svg>'
        )

    def _place(self, x: float, y: float) -> tuple[float, float]:
        left, right, low, high = self.frame
        across = (min(max(x, left), right) - left) / (right - left) if right > left else 1.0
        up = (min(max(y, low), high) - low) / (high - low) if high > low else 0.5
        return PAD + across * (WIDTH - 2 * PAD), HEIGHT - PAD - up * (HEIGHT - 2 * PAD)
