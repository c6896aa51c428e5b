"""Lines of one quantity against another: what is drawn, what is left out, what is refused."""

import math

import numpy as np
import pytest

from vitral.core.errors import UsageError
from vitral.report.lines import Axis, Line, line_plot
from vitral.report.style import drawn_bytes

X, Y = Axis("d_k"), Axis("variance")


def test_values_that_are_none_or_not_finite_are_left_out() -> None:
    figure = line_plot([Line("a", [1, 2, 3, 5], [1.0, None, math.nan, 7.0]), Line("gone", [1], [None])], X, Y)
    drawn = [np.asarray(line.get_xydata()).tolist() for line in figure.axes[0].lines]
    assert [[1.0, 1.0], [5.0, 7.0]] in drawn
    assert "gone" not in drawn_bytes(figure).decode()


def test_a_logarithmic_axis_leaves_out_what_it_cannot_show_and_nothing_at_all_is_refused() -> None:
    figure = line_plot([Line("a", [1, 2, 3], [1.0, -1.0, 5.0])], X, Axis("v", log=True))
    assert np.asarray(figure.axes[0].lines[0].get_xydata()).tolist() == [[1.0, 1.0], [3.0, 5.0]]
    with pytest.raises(UsageError, match="no line has a finite value"):
        line_plot([Line("a", [1], [None])], X, Y)
