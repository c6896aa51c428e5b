"""Lines and axes of a figure, as plain data; `vitral.report.lines` draws them."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Look = Literal["marked", "plain", "thin", "hollow", "theory"]


class Line(NamedTuple):
    """One series of points.

    Attributes:
        label: its name, written at its last point; empty for none.
        x: increasing.
        y: of the same length; a value that is None, not finite, or not positive on a logarithmic axis is omitted.
        low: lower end of a band, or empty for none.
        high: upper end of a band, or empty for none.
        look: "marked", a mark at each point; "plain"; "thin", for noisy data; "hollow": marks that are empty and not
            joined; "theory", a prediction, not a measurement.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    look: Look = "marked"


class Axis(NamedTuple):
    """An axis.

    Attributes:
        label: the quantity with its unit.
        log: whether it is logarithmic.
        ticks: positions of the numbers; chosen automatically if empty.
    """

    label: str
    log: bool = False
    ticks: Sequence[float] = ()
