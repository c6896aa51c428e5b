"""The clock: turns, repeats, ratios."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.timing import alternate, clocked, difference, ratio, summary

seconds = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9)


def test_contenders_take_turns_and_warming_up_does_not_count() -> None:
    order: list[str] = []

    def contender(name: str):
        return lambda: order.append(name) or float(len(order))

    measured = alternate({"a": contender("a"), "b": contender("b")}, rounds=3, warmup=1)
    assert order == ["a", "b"] * 4
    assert measured == {"a": [3.0, 5.0, 7.0], "b": [4.0, 6.0, 8.0]}


def test_a_short_action_is_repeated_after_the_first_call() -> None:
    calls = 0

    def action() -> None:
        nonlocal calls
        calls += 1

    run = clocked(action, least_seconds=1e-3)
    run()
    assert calls == 2  # the very first, and the one that says how often
    assert run() >= 0
    assert calls > 3


@given(seconds, st.floats(0.01, 100))
def test_a_ratio_is_of_pairs(theirs: list[float], factor: float) -> None:
    measured = ratio([factor * value for value in theirs], theirs)
    assert measured.low == pytest.approx(factor)
    assert measured.high == pytest.approx(factor)


@given(seconds)
def test_against_itself_everything_is_once_as_fast(ours: list[float]) -> None:
    assert ratio(ours, ours) == summary([1.0])
    assert difference(ours, ours) == summary([0.0])


def test_what_never_arrives_is_infinitely_slower_but_not_than_itself() -> None:
    assert ratio([math.inf, 4.0, 2.0], [math.inf, math.inf, 1.0]) == summary([1.0, 0.0, 2.0])
