"""Small multiples: the same axes for all panels, and a scale of its own where one value would press all others."""

import numpy as np
import pytest

from tests.report.test_forest import words
from vitral.core.errors import UsageError
from vitral.report.lines import Axis, Line
from vitral.report.margin import Reference
from vitral.report.panels import MOST_PANELS, Mark, Panel, panel_plot, panels_left_out

X, Y = Axis("step"), Axis("difference (nats)")
STEPS = [10, 20, 30, 40]


def panel(title: str, *values: float | None, **told) -> Panel:
    return Panel(title, [Line("", STEPS[: len(values)], values)], **told)


def test_all_panels_have_the_same_axes() -> None:
    figure = panel_plot([panel("a", 0.1, 0.2, 0.3, 0.2), panel("b", -0.1, 0.0, 0.1, 0.15)], X, Y, zero=0.0)
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1


def test_a_panel_far_off_has_its_own_scale_says_so_and_shows_zero() -> None:
    few = [panel(f"arm {n}", 0.1, 0.06, 0.05, 0.05 + n / 100) for n in range(4)]
    figure = panel_plot([*few, panel("dead", 1.4, 1.4, 1.41, 1.39)], X, Y, zero=0.0)
    *shared, own = figure.axes
    assert len({axes.get_ylim() for axes in shared}) == 1
    assert shared[0].get_ylim()[1] < 0.2
    assert own.get_ylim()[0] < 0 < 1.41 < own.get_ylim()[1]
    assert words(figure).count("own scale") == 1


def test_early_values_do_not_decide_the_scale() -> None:
    figure = panel_plot([panel("a", 9.0, 8.0, 0.1, 0.1)], X, Y, zero=0.0, settled=0.6)
    assert figure.axes[0].get_ylim()[1] < 1


def test_a_logarithmic_axis_has_two_decades_at_least() -> None:
    low, high = panel_plot([panel("a", 0.9, 1.0, 1.1, 1.0)], X, Axis("ratio", log=True)).axes[0].get_ylim()
    assert high / low == pytest.approx(100)
    dead = [panel("a", 1.0, 1.0), panel("b", 0.03, 1.0), panel("c", 4.0, 1.0), panel("d", 1e-12, 1.0)]
    figure = panel_plot(dead, X, Axis("ratio", log=True), zero=1.0)
    assert len({axes.get_ylim() for axes in figure.axes[:3]}) == 1
    assert figure.axes[3].get_ylim()[0] < 1e-12 < figure.axes[0].get_ylim()[0]
    with pytest.raises(UsageError, match="cannot show a number below zero"):
        panel_plot([panel("a", 0.0, 1.0)], X, Axis("ratio", log=True))


def test_seeds_are_thin_and_values_that_are_not_finite_are_left_out() -> None:
    seeds = [Line("", STEPS, [0.1, float("nan"), 0.3, None]), Line("", STEPS, [0.2, 0.2, 0.2, 0.2])]
    axes = panel_plot([panel("a", 0.15, 0.2, 0.25, 0.2, seeds=seeds)], X, Y).axes[0]
    thin = [np.asarray(line.get_ydata()).tolist() for line in axes.lines if line.get_linewidth() < 1]
    assert thin == [[0.1, 0.3], [0.2, 0.2, 0.2, 0.2]]


def test_the_best_value_is_marked_and_hollow_at_an_edge() -> None:
    shown = [panel("a", 3.0, 2.0, 2.5, marks=[Mark(20, 2.0)]), panel("b", 2.0, 2.1, marks=[Mark(10, 2.0, hollow=True)])]
    figure = panel_plot(shown, Axis("factor", log=True, ticks=STEPS), Y)
    marks = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "D"]
    assert [(np.asarray(mark.get_xdata()).tolist(), mark.get_markerfacecolor() == "#ffffff") for mark in marks] == [
        ([20], False),
        ([10], True),
    ]


def test_references_are_named_once() -> None:
    figure = panel_plot([panel(name, 0.0, 0.5) for name in "abc"], X, Y, references=[Reference("trigram", 0.2)])
    assert words(figure).count("trigram") == 1
    assert [len([line for line in axes.lines if line.get_linestyle() != "-"]) for axes in figure.axes] == [1, 1, 1]


@pytest.mark.parametrize("num", [3, MOST_PANELS])
def test_panels_and_their_names_do_not_overlap(num: int) -> None:
    shown = [
        panel(f"without attention, as many parameters {n}", 1.0, 0.5, note="against the full model") for n in range(num)
    ]
    figure = panel_plot(shown, X, Y, title="Loss")
    boxes = [text.get_window_extent() for axes in figure.axes for text in axes.texts]
    plots = [axes.get_window_extent() for axes in figure.axes]
    assert len(figure.axes) == num
    for number, one in enumerate(boxes):
        assert figure.bbox.x0 <= one.x0
        assert one.x1 <= figure.bbox.x1
        assert not any(one.overlaps(other) for other in [*boxes[number + 1 :], *plots])


def test_too_many_panels_and_none_are_refused() -> None:
    crowd = [panel(f"arm {n}", 1.0) for n in range(MOST_PANELS + 2)]
    with pytest.raises(UsageError, match="too many"):
        panel_plot(crowd, X, Y)
    with pytest.raises(UsageError, match="nothing to draw"):
        panel_plot([panel("a", None, float("inf"))], X, Y)
    assert f"arm {MOST_PANELS}, arm {MOST_PANELS + 1}" in panels_left_out(crowd)
    assert panels_left_out(crowd[:3]) == ""
