"""One style for every figure, and its files: the same data give the same bytes.

Colours are those of Okabe and Ito (2008), distinguishable with any common colour blindness; arms also differ by dash
and marker. Figures are built on `matplotlib.figure.Figure` directly, so that no window system and no global list of
figures is used, and the user's matplotlib settings have no effect.
"""

import functools
import io
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import ScalarFormatter

from vitral.core.language import localised
from vitral.core.text import visible
from vitral.report.html import GRID, INK, MUTED, PAPER

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
DASHES = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")

FONT_SIZE, SMALL = 12.0, 10.5
WIDTH, TITLE_WIDTH = 9.2, 72
"""Inches of every figure, so that letters have one size on a page, and characters of a line of its title."""
APART = 3.0
"""A reach this many times the next smaller one is off the axis."""
BAND = {"color": MUTED, "alpha": 0.15, "linewidth": 0}
"""A band behind a plot; its colour is one that a dark page replaces."""
PNG_DPI = 144

_SETTINGS = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE,
    "figure.titlesize": FONT_SIZE + 1,
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


def look(index: int) -> tuple[str, Any, str]:
    """The colour, dash and marker of series `index`, which repeat with different periods, so that 8 are distinct."""
    return (COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)])


def styled(draw: Callable[Parameters, Figure]) -> Callable[Parameters, Figure]:
    """Decorate a drawing function to use the one style, whatever the matplotlib settings outside are."""

    @functools.wraps(draw)
    def drawn(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Figure:
        with matplotlib.style.context(["default", _SETTINGS]):
            figure = draw(*args, **kwargs)
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                if type(axis.get_major_formatter()) is ScalarFormatter:
                    axis.set_major_formatter(_Numbers())
        return figure

    return drawn


def sheet(height: float, title: str = "", rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure of this many inches in height with its plots row by row; matplotlib finds room for all texts."""
    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    figure.suptitle(textwrap.fill(drawable(title), TITLE_WIDTH), x=0.01, ha="left", fontweight="bold")
    return figure, figure.subplots(rows, columns, squeeze=False).flatten().tolist()


def common_reach(reaches: Sequence[float]) -> float:
    """The largest reach that an axis shows: the largest of all, or the one below a gap in their upper half.

    Args:
        reaches: of each row or panel, its largest distance from zero; those of zero do not count.

    >>> common_reach([0.2, 0.5, 1.1, 0.8]), common_reach([0.2, 0.5, 1.1, 0.8, 75.0])
    (1.1, 1.1)
    """
    ordered = sorted(reach for reach in reaches if reach > 0)
    upper = range(len(ordered) // 2 + len(ordered) % 2, len(ordered))
    gap = next((index for index in upper if ordered[index] > APART * ordered[index - 1]), len(ordered))
    return ordered[gap - 1] if ordered else 0.0


class _Numbers(ScalarFormatter):
    """The usual numbers of an axis, as the current language writes them."""

    def format_ticks(self, values: list[float]) -> list[str]:
        return [localised(text) for text in super().format_ticks(values)]


FORMATS: dict[str, dict[str, str | None]] = {
    "svg": {"Date": None, "Creator": "Vitral"},
    "png": {"Software": "Vitral"},
    "pdf": {"CreationDate": None, "Creator": "Vitral", "Producer": "Vitral"},
}
"""The formats of figures, and what stands in their files beside the drawing: no date."""


def drawn_bytes(figure: Figure, kind: str = "svg") -> bytes:
    """The figure as a file in one of `FORMATS`; in SVG text stays text, and ids are by content."""
    buffer = io.BytesIO()
    with matplotlib.style.context(["default", _SETTINGS]):
        figure.savefig(buffer, format=kind, dpi=PNG_DPI, metadata=FORMATS[kind])
    return buffer.getvalue()


def drawable(text: str) -> str:
    """One line that the bundled font can draw: characters without a glyph are written as code points.

    >>> drawable("a␠中")
    'a␣U+4E2D'
    """
    font = _font()
    line = visible(text).replace("\n", "↵").replace("\t", "→").replace("␠", "␣")
    return "".join(c if font.get_char_index(ord(c)) else f"U+{ord(c):04X}" for c in line)


@functools.cache
def _font():
    """DejaVu Sans, which comes with matplotlib."""
    from matplotlib import font_manager

    return font_manager.get_font(font_manager.findfont("DejaVu Sans"))
