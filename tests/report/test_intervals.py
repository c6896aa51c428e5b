"""Forest plots: a row where its numbers are, the margin, clipped rows, and marks for those who see no colour."""

import itertools
import re

import numpy as np
from matplotlib.figure import Figure

from vitral.report.html import GRID, INK, MUTED, PAPER
from vitral.report.intervals import SIGNS, Row, interval_plot
from vitral.report.style import COLOURS, common_reach, drawn_bytes

ROWS = [
    Row("post-norm", "pre-norm", 2.7, 1.1, 4.3, (2.1, 2.6, 3.4), "worse", "worse"),
    Row("RMSNorm", "pre-norm", -0.2, -0.8, 0.4, (-0.5, 0.1), "equivalent", "equivalent"),
    Row("no warm-up", "post-norm", -4.8, -9.0, -0.6, (-5.0, -4.6), "better", "better"),
    Row("no residual", "pre-norm", word="fails", verdict="fails", clipped="6 of 6 seeds: 3.264"),
]


def drawn(rows=ROWS, **options) -> Figure:
    return interval_plot(rows, "difference (%)", **options)


def words(figure: Figure) -> str:
    return " ".join(re.findall(r">([^<]+)</(?:text|tspan)>", drawn_bytes(figure).decode()))


def points(figure: Figure, marker: str) -> list[float]:
    lines = figure.axes[0].lines
    return [x for line in lines if line.get_marker() == marker for x in np.asarray(line.get_xdata(), float).tolist()]


def test_estimates_and_ends_are_where_the_numbers_are() -> None:
    figure = drawn()
    assert [points(figure, SIGNS[word][1]) for word in ("worse", "equivalent", "better")] == [[2.7], [-0.2], [-4.8]]
    assert sorted(points(figure, "|")) == [-9.0, -0.8, -0.6, 0.4, 1.1, 4.3]
    assert sorted(points(figure, "o")) == sorted([2.1, 2.6, 3.4, -0.5, 0.1, -5.0, -4.6])


def test_every_verdict_has_a_marker_of_its_own() -> None:
    shapes = [
        (SIGNS[word][1], SIGNS[word][2] == PAPER) for word in ("better", "worse", "equivalent", "undecided", "fails")
    ]
    assert len(set(shapes)) == len(shapes)


def test_rows_stand_under_the_name_of_their_rival() -> None:
    figure = drawn()
    texts = [*figure.axes[0].texts, *figure.axes[0].get_yticklabels()]
    height = {text.get_text(): text.get_position()[1] for text in texts}
    assert height["against pre-norm"] < height["post-norm"] < height["RMSNorm"] < height["no residual"]
    assert height["no residual"] < height["against post-norm"] < height["no warm-up"]


def test_an_arm_that_fails_does_not_stretch_the_axis_and_has_its_number() -> None:
    with_it, without = drawn(), drawn(ROWS[:3])
    assert with_it.axes[0].get_xlim() == without.axes[0].get_xlim()
    assert "6 of 6 seeds: 3.264" in words(with_it)


def test_a_difference_far_beyond_the_others_is_an_arrow_with_its_number() -> None:
    crowd = [Row(f"arm {n}", "base", n / 10, n / 10 - 0.5, n / 10 + 0.5) for n in range(6)]
    figure = drawn([*crowd, Row("far", "base", 75.0, 60.0, 90.0, (), "worse", "worse")], unit="%")
    assert figure.axes[0].get_xlim()[1] < 5
    assert points(figure, SIGNS["worse"][1]) == []
    assert "+75.0%" in words(figure)


def test_the_band_is_the_margin_and_is_always_inside() -> None:
    small = [Row("a", "b", 0.01, -0.02, 0.03, (), "equivalent")]
    low, high = drawn(small, margin=1.0).axes[0].get_xlim()
    assert low < -1.0
    assert high > 1.0


def test_names_and_numbers_neither_overlap_nor_leave_the_figure() -> None:
    rows = [
        Row(f"without attention, as many parameters, {n}", f"rival {n // 8}", n - 9.0, n - 11.0, n - 8.0)
        for n in range(24)
    ]
    figure = drawn(rows, unit="%", title="Difference")
    figure.draw_without_rendering()
    texts = [*figure.axes[0].texts, *figure.axes[0].get_yticklabels()]
    boxes = [text.get_window_extent() for text in texts if text.get_text().strip()]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other) or min(one.y1, other.y1) - max(one.y0, other.y0) < 1


def test_the_reach_ends_below_a_gap_in_the_upper_half_only() -> None:
    assert common_reach([]) == 0.0
    assert common_reach([0.0, 2.0]) == 2.0
    assert common_reach([0.01, 1.0, 1.2]) == 1.2
    assert common_reach([1.0, 1.2, 30.0, 31.0]) == 1.2


def test_greys_are_those_that_a_dark_page_replaces() -> None:
    svg = drawn_bytes(drawn(margin=1.0)).decode()
    assert "<image" not in svg
    colours = set(re.findall(r"#[0-9a-f]{6}", svg))
    assert colours <= {INK, MUTED, GRID, PAPER, *COLOURS, "#000000"}
