"""Bars: the characters of an alphabet by how often they occur, and counts by name."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vitral.core.language import _, number
from vitral.report.margin import text_width
from vitral.report.palette import INK, MUTED
from vitral.report.sheet import Sheet
from vitral.report.style import COLOURS, FONT_SIZE, drawable, styled

Counts = Sequence[tuple[str, int]]

WIDTH, TOP, BOTTOM = 10.0, 0.6, 0.65
PER_ROW, MOST_ROWS = 36, 4
LEFT, RIGHT, BAR_INCHES, LABEL_INCHES = 1.45, 0.2, 1.25, 0.45
ROW_INCHES = 0.34
"""Inches of a horizontal bar."""


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
    step = BAR_INCHES + LABEL_INCHES
    sheet = Sheet(WIDTH, TOP + BOTTOM + len(rows) * step - LABEL_INCHES, title, LEFT)
    for place, row in enumerate(rows):
        axes = sheet.plot(LEFT, sheet.height - TOP - BAR_INCHES - place * step, WIDTH - LEFT - RIGHT, BAR_INCHES)
        colours = [COLOURS[1] if count < rare else COLOURS[0] for _label, count in row]
        axes.bar(range(len(row)), [count for _label, count in row], color=colours, width=0.78)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda count, place: number(count, ",.0f"))
        axes.minorticks_off()
        axes.set(ylim=(0.7, ordered[0][1] * 1.6), xlim=(-0.6, PER_ROW - 0.4))
        axes.set_xticks(range(len(row)), [drawable(label) for label, _count in row])
        for label in axes.get_xticklabels():  # a long one must not run into its neighbours
            label.set_fontsize(min(FONT_SIZE, max(5.0, FONT_SIZE * 2.6 / len(label.get_text()))))
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="x", visible=False)
    sheet.write(0.16, (BOTTOM + sheet.height - TOP) / 2, _("occurrences (log scale)"), rotation=90, va="center")
    below, hidden = sum(count < rare for _label, count in ordered), len(ordered) - len(shown)
    parts = [_("{number} distinct, the most frequent first", number=len(ordered))]
    parts += [_("{number} below {least} occurrences (second colour)", number=below, least=rare)] * bool(below)
    parts += [_("the {number} rarest not shown", number=hidden)] * bool(hidden)
    sheet.write(LEFT, 0.14, "; ".join(parts), color=MUTED, fontsize=FONT_SIZE - 1)
    return sheet.figure


@styled
def count_bars(counts: Counts, *, title: str = "", x_label: str = "") -> Figure:
    """Draw a horizontal bar for each name, the first at the top, with its count; `x_label` says what is counted."""
    names, values = [drawable(name) for name, _count in counts], [count for _name, count in counts]
    left = max(text_width(name, size=FONT_SIZE) for name in names) + 0.35
    rows = ROW_INCHES * len(counts)
    sheet = Sheet(WIDTH, (0.55 if title else 0.15) + BOTTOM + rows, title, left)
    axes = sheet.plot(left, BOTTOM, WIDTH - left - 0.3, rows)
    axes.barh(range(len(counts)), values, color=COLOURS[0], height=0.66)
    for place, count in enumerate(values):
        axes.annotate(str(count), (count, place), (4, 0), textcoords="offset points", va="center", color=INK)
    axes.set_yticks(range(len(counts)), names)
    axes.set(ylim=(len(counts) - 0.5, -0.5), xlim=(0, max(1, *values) * 1.08), xlabel=x_label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    return sheet.figure
