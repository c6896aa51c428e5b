"""Figures: the same data give the same bytes, what is asked for is in them, and what cannot be drawn is refused."""

import re

import matplotlib
import pytest
from matplotlib.figure import Figure

from vitral.report.lines import Line, loss_plot
from vitral.report.maps import attention_maps
from vitral.report.style import drawn_bytes

LINES = [("bigram", 2.52), ("trigram", 1.949), ("4-gram", 1.595)]
WEIGHTS = [[[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.5, 0.3, 0.2]]] * 2


def curves() -> Figure:
    """Two arms of two seeds with three lines."""
    full = Line("the full model", [5, 10], [3.05, 1.8], low=[3.0, 1.7], high=[3.1, 1.9])
    without = Line("without attention, as many parameters", [5, 10], [3.3, 2.55], low=[3.2, 2.5], high=[3.4, 2.6])
    return loss_plot([full, without], references=LINES, title="Test loss")


def maps() -> Figure:
    """Two heads over three tokens that mathematical text would trip over."""
    return attention_maps(WEIGHTS, ["To", "$x_1$", "\n"], title="Block 0")


def words(figure: Figure) -> str:
    """All text of a figure, as its SVG holds it."""
    return " ".join(re.findall(r">([^<]+)</(?:text|tspan)>", drawn_bytes(figure).decode()))


@pytest.mark.parametrize("draw", [curves, maps])
def test_the_same_data_give_the_same_bytes_whatever_matplotlib_is_set_to(draw) -> None:
    before = dict(matplotlib.rcParams)
    svg, png = drawn_bytes(draw()), drawn_bytes(draw(), "png")
    with matplotlib.rc_context({"font.size": 31, "lines.linewidth": 9, "svg.hashsalt": None, "text.color": "red"}):
        assert drawn_bytes(draw()) == svg
        assert drawn_bytes(draw(), "png") == png
    assert dict(matplotlib.rcParams) == before
    assert b"dc:date" not in svg
    assert png.startswith(b"\x89PNG")


def test_curves_name_arms_with_their_last_mean_and_lines_with_their_value() -> None:
    text = words(curves())
    for part in ("the full model", "1.800", "2.550", "bigram", "2.520", "4-gram", "nats per token", "optimizer step"):
        assert part in text


def test_early_values_leave_the_frame_and_the_figure_says_so() -> None:
    steps = list(range(0, 101, 5))
    figure = loss_plot([Line("full", steps, [9.0, 7.0, *[2.0] * 19])], references=LINES)
    assert figure.axes[0].get_ylim()[1] < 3
    assert "begins at 9.00" in words(figure)


def test_maps_write_small_matrices_out_and_keep_dollar_signs() -> None:
    text = words(maps())
    for part in ("0.75", "head 1", "$x_1$", "query", "key"):
        assert part in text
    assert "0.00" not in text


def test_a_map_prints_each_weight_in_the_column_of_its_key_and_the_row_of_its_query() -> None:
    axes = maps().axes[0]
    printed = {text.get_position(): float(text.get_text()) for text in axes.texts}
    cells = {(source, time): weight for time, row in enumerate(WEIGHTS[0]) for source, weight in enumerate(row)}
    assert printed == {cell: weight for cell, weight in cells.items() if weight > 0}


@pytest.mark.parametrize(
    "draw",
    [
        lambda title: loss_plot([Line("a", [1, 2], [3.0, 2.0])], title=title),
        lambda title: attention_maps([[[1.0]]], ["a"], title=title),
    ],
)
def test_a_long_title_is_not_cut(draw) -> None:
    figure = draw("A title with many words, which are more than fit above so small a figure " * 2)
    figure.draw_without_rendering()
    assert max(text.get_window_extent().x1 for text in figure.texts) <= figure.bbox.x1
