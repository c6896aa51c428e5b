"""Labels keep apart, in order, inside, and move no more than they must."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.report.lines import spread

positions = st.lists(st.floats(-5, 15), min_size=1, max_size=7)


def gaps(centres: list[float], sizes: list[float]) -> list[float]:
    """Room between neighbours, negative where they overlap."""
    order = sorted(range(len(centres)), key=lambda index: centres[index])
    return [centres[b] - centres[a] - (sizes[a] + sizes[b]) / 2 for a, b in itertools.pairwise(order)]


@given(positions, st.randoms())
def test_no_two_labels_overlap_and_order_is_kept(wanted: list[float], random) -> None:
    sizes = [random.uniform(0.1, 1.4) for _ in wanted]
    centres = spread(wanted, sizes, 0.0, 10.0)
    assert min(gaps(centres, sizes), default=0.0) >= -1e-9
    assert min(c - s / 2 for c, s in zip(centres, sizes, strict=True)) >= -1e-9
    assert max(c + s / 2 for c, s in zip(centres, sizes, strict=True)) <= 10 + 1e-9
    for a, b in itertools.combinations(range(len(wanted)), 2):
        if wanted[a] < wanted[b]:
            assert centres[a] < centres[b]


def test_labels_with_room_stay_where_they_want_to_be() -> None:
    assert spread([1.0, 4.0, 9.0], [1.0, 1.0, 1.0], 0.0, 10.0) == [1.0, 4.0, 9.0]


def test_a_crowd_is_centred_on_its_mean() -> None:
    assert spread([5.0, 5.0, 5.0], [2.0, 2.0, 2.0], 0.0, 20.0) == pytest.approx([3.0, 5.0, 7.0])
