"""Lines of one quantity against another: what is drawn, what is left out, what is refused."""

import math

import numpy as np
import pytest

from vitral.core.errors import UsageError
from vitral.figures.lines import MOST_LINES, Axis, Line, left_out, line_plot
from vitral.figures.margin import Reference
from vitral.figures.style import svg_bytes

X, Y = Axis("d_k"), Axis("variance")


def test_every_label_and_unit_is_written() -> None:
    lines = [Line("measured", [16, 64], [16.5, 63.0]), Line("d_k", [16, 64], [16, 64], theory=True)]
    figure = line_plot(
        lines, Axis("d_k (numbers)", log=True), Axis("variance", log=True), references=[Reference("one", 20.0)]
    )
    svg = svg_bytes(figure).decode()
    assert all(word in svg for word in ("measured", "d_k (numbers)", "variance", "one"))
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_values_that_are_none_or_not_finite_are_left_out() -> None:
    figure = line_plot([Line("a", [1, 2, 3, 5], [1.0, None, math.nan, 7.0]), Line("gone", [1], [None])], X, Y)
    drawn = [np.asarray(line.get_xydata()).tolist() for line in figure.axes[0].lines]
    assert [[1.0, 1.0], [5.0, 7.0]] in drawn
    assert "gone" not in svg_bytes(figure).decode()


def test_the_axis_label_stays_inside_the_page_beside_long_numbers() -> None:
    figure = line_plot([Line("a", [1, 2], [0.123451, 0.123459])], X, Y)
    figure.draw_without_rendering()
    box = figure.axes[0].yaxis.get_label().get_window_extent()
    assert box.x0 > 0


@pytest.mark.parametrize(
    ("lines", "y", "complaint"),
    [
        ([Line("a", [1], [None])], Y, "no line has a finite value"),
        ([Line("a", [1, 2], [1.0, -1.0])], Axis("v", log=True), "'a': a logarithmic axis"),
    ],
)
def test_what_cannot_be_drawn_is_refused(lines: list[Line], y: Axis, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        line_plot(lines, X, y)


def test_no_more_lines_than_looks_that_can_be_told_apart() -> None:
    lines = [Line(str(index), [1, 2], [index, index + 1.0]) for index in range(MOST_LINES)]
    theory, nothing = Line("law", [1, 2], [3.0, 5.0], theory=True), Line("gone", [1], [None])
    line_plot([*lines, theory, nothing], X, Y)
    with pytest.raises(UsageError, match="9 lines cannot be told apart, at most 8 can"):
        line_plot([*lines, Line("one more", [1], [2.0])], X, Y)
    assert left_out([line.label for line in lines]) == ""
    assert (
        left_out([*(line.label for line in lines), "one more"]) == " Only the first 8 are drawn; not drawn: one more."
    )


def test_lengths_must_agree() -> None:
    with pytest.raises(UsageError, match="equally long"):
        Line("a", [1, 2], [1.0])
