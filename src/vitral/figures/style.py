"""One look for every figure, and the only place that writes one: the same data give the same bytes.

Colours are those of Okabe and Ito (2008), which people with any common colour blindness can tell apart; arms differ by
dash and marker too. Figures are built on `matplotlib.figure.Figure` directly, so no window system and no global figure
list is ever touched, and a user's own matplotlib settings change nothing.
"""

import functools
import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, ParamSpec

import matplotlib.style
from matplotlib.figure import Figure

from vitral.core.errors import StorageError
from vitral.figures.palette import GRID, INK, MUTED, PAPER

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
DASHES = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")

FONT_SIZE = 12.0
POINTS_PER_INCH = 72.0
PNG_DPI = 144

_SETTINGS = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE + 1,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "none",
    "svg.hashsalt": "vitral",
}

Parameters = ParamSpec("Parameters")


class Saved(NamedTuple):
    """Where a figure was written, for a page (SVG) and for everything else (PNG)."""

    svg: Path
    png: Path


class Look(NamedTuple):
    """How the n-th of several things to compare is drawn."""

    colour: str
    dash: str | tuple
    marker: str


def look(index: int) -> Look:
    """The look of number `index`; colours, dashes and markers repeat with different periods, so no two of 8 agree."""
    return Look(COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)])


def styled(draw: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Let a drawing function work in the one style, whatever matplotlib is set to outside."""

    @functools.wraps(draw)
    def drawn(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Figure:
        with matplotlib.style.context(["default", _SETTINGS]):
            return draw(*args, **kwargs)

    return drawn


def svg_bytes(figure: Figure) -> bytes:
    """The figure as a standalone SVG file: text stays text, no date, ids by content."""
    return _rendered(figure, "svg", {"Date": None, "Creator": "Vitral"})


def png_bytes(figure: Figure) -> bytes:
    """The figure as a PNG file at 144 dots per inch."""
    return _rendered(figure, "png", {"Software": "Vitral"})


def _rendered(figure: Figure, kind: str, metadata: dict[str, str | None]) -> bytes:
    buffer = io.BytesIO()
    with matplotlib.style.context(["default", _SETTINGS]):
        figure.savefig(buffer, format=kind, dpi=PNG_DPI, metadata=metadata)
    return buffer.getvalue()


def save(figure: Figure, folder: Path, name: str) -> Saved:
    """Write `folder/name.svg` and `folder/name.png`, making the folder.

    Raises:
        StorageError: the disk did not take them.
    """
    saved = Saved(folder / f"{name}.svg", folder / f"{name}.png")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        saved.svg.write_bytes(svg_bytes(figure))
        saved.png.write_bytes(png_bytes(figure))
    except OSError as error:
        raise StorageError(f"{folder}: the figure {name} cannot be written ({error.strerror})") from None
    return saved
