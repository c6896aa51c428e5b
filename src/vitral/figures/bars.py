"""Character counts of an alphabet on a logarithmic scale, the most frequent first."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from vitral.core.errors import UsageError
from vitral.core.language import _, number
from vitral.figures.palette import MUTED
from vitral.figures.style import COLOURS, FONT_SIZE, styled
from vitral.figures.text import drawable

PER_ROW = 36
MOST_ROWS = 4
WIDTH = 10.0
LEFT, RIGHT, TOP, BOTTOM = 1.45, 0.2, 0.6, 0.65
BAR_INCHES, LABEL_INCHES = 1.25, 0.45


@styled
def alphabet_bars(counts: Sequence[tuple[str, int]], *, title: str = "", rare: int = 0) -> Figure:
    """Draw a bar for each character, 36 to a row and at most four rows; a note counts the characters not drawn.

    Args:
        counts: (label, occurrences) pairs in any order; labels printable, as `Tokenizer.label` gives them.
        title: above the plot; empty for none.
        rare: characters that occur fewer times than this are drawn in another colour.

    Raises:
        UsageError: there is no character, or a count is below one.
    """
    if not counts or min(count for _label, count in counts) < 1:
        raise UsageError("an alphabet needs at least one character, each with a count of at least 1")
    ordered = sorted(counts, key=lambda pair: (-pair[1], pair[0]))
    shown = ordered[: PER_ROW * MOST_ROWS]
    rows = [shown[begin : begin + PER_ROW] for begin in range(0, len(shown), PER_ROW)]
    height = TOP + BOTTOM + len(rows) * (BAR_INCHES + LABEL_INCHES) - LABEL_INCHES
    figure = Figure(figsize=(WIDTH, height))
    for place, row in enumerate(rows):
        bottom = height - TOP - BAR_INCHES - place * (BAR_INCHES + LABEL_INCHES)
        plot = (LEFT / WIDTH, bottom / height, (WIDTH - LEFT - RIGHT) / WIDTH, BAR_INCHES / height)
        axes = figure.add_axes(plot)
        colours = [COLOURS[1] if count < rare else COLOURS[0] for _label, count in row]
        axes.bar(range(len(row)), [count for _label, count in row], color=colours, width=0.78)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda count, place: number(count, ",.0f"))
        axes.minorticks_off()
        axes.set_ylim(0.7, ordered[0][1] * 1.6)
        axes.set_xlim(-0.6, PER_ROW - 0.4)
        axes.set_xticks(range(len(row)), [drawable(label) for label, _count in row], fontsize=_label_size(row))
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="x", visible=False)
    centre = (BOTTOM + height - TOP) / 2 / height
    figure.text(0.16 / WIDTH, centre, _("occurrences (log scale)"), rotation=90, va="center", ha="left")
    figure.text(LEFT / WIDTH, 0.14 / height, _note(ordered, shown, rare), color=MUTED, fontsize=FONT_SIZE - 1)
    figure.text(LEFT / WIDTH, 1 - 0.14 / height, drawable(title), va="top", fontweight="bold", fontsize=FONT_SIZE + 1)
    return figure


def _label_size(row: Sequence[tuple[str, int]]) -> float:
    longest = max(len(drawable(label)) for label, _count in row)
    return FONT_SIZE if longest <= 2 else max(5.0, FONT_SIZE * 2.6 / longest)


def _note(ordered: Sequence[tuple[str, int]], shown: Sequence[tuple[str, int]], rare: int) -> str:
    below, hidden = sum(count < rare for _label, count in ordered), len(ordered) - len(shown)
    parts = [_("{number} distinct, the most frequent first", number=len(ordered))]
    parts += [_("{number} below {least} occurrences (second colour)", number=below, least=rare)] * bool(below)
    parts += [_("the {number} rarest not shown", number=hidden)] * bool(hidden)
    return "; ".join(parts)
