"""Bars: the characters of an alphabet by how often they occur, and counts by name."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vitral.core.language import _, number
from vitral.report.html import INK
from vitral.report.style import COLOURS, FONT_SIZE, SMALL, drawable, sheet, styled

Counts = Sequence[tuple[str, int]]

PER_ROW, MOST_ROWS = 36, 4


@styled
def alphabet_bars(counts: Counts, *, title: str = "", rare: int = 0) -> Figure:
    """Draw a bar for each character, 36 to a row and at most four rows; a note counts the characters not drawn.

    Args:
        counts: (label, occurrences) pairs in any order; labels printable, as `Tokenizer.label` gives them.
        title: above the plot; empty for none.
        rare: characters that occur fewer times than this are drawn in another colour.
    """
    ordered = sorted(counts, key=lambda pair: (-pair[1], pair[0]))
    shown = ordered[: PER_ROW * MOST_ROWS]
    rows = [shown[begin : begin + PER_ROW] for begin in range(0, len(shown), PER_ROW)]
    figure, plots = sheet(1.1 + 1.7 * len(rows), title, len(rows))
    for axes, row in zip(plots, rows, strict=True):
        colours = [COLOURS[1] if count < rare else COLOURS[0] for _label, count in row]
        axes.bar(range(len(row)), [count for _label, count in row], color=colours, width=0.78)
        axes.set(yscale="log", ylim=(0.7, ordered[0][1] * 1.6), xlim=(-0.6, PER_ROW - 0.4))
        axes.yaxis.set_major_formatter(lambda count, place: number(count, ",.0f"))
        axes.minorticks_off()
        axes.set_xticks(range(len(row)), [drawable(label) for label, _count in row])
        for label in axes.get_xticklabels():  # a long one must not run into its neighbours
            label.set_fontsize(min(FONT_SIZE, max(5.0, FONT_SIZE * 2.6 / len(label.get_text()))))
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="x", visible=False)
    below, hidden = sum(count < rare for _label, count in ordered), len(ordered) - len(shown)
    parts = [_("{number} distinct, the most frequent first", number=len(ordered))]
    parts += [_("{number} below {least} occurrences (second colour)", number=below, least=rare)] * bool(below)
    parts += [_("the {number} rarest not shown", number=hidden)] * bool(hidden)
    figure.supxlabel("; ".join(parts), fontsize=SMALL)
    figure.supylabel(_("occurrences (log scale)"), fontsize=SMALL)
    return figure


@styled
def count_bars(counts: Counts, *, title: str = "", x_label: str = "") -> Figure:
    """Draw a horizontal bar for each name, the first at the top, with its count; `x_label` says what is counted."""
    figure, (axes,) = sheet(1.1 + 0.34 * len(counts), title)
    bars = axes.barh(range(len(counts)), [count for _name, count in counts], color=COLOURS[0], height=0.66)
    axes.bar_label(bars, padding=4, color=INK)
    axes.set_yticks(range(len(counts)), [drawable(name) for name, _count in counts])
    axes.set(ylim=(len(counts) - 0.5, -0.5), xlabel=x_label)
    axes.set_xlim(right=1.05 * max(1, *(count for _name, count in counts)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    return figure
