"""How far an axis goes where one value would press all others together."""

from collections.abc import Sequence

APART = 3.0
"""A reach this many times the next smaller one is off the axis."""


def common_reach(reaches: Sequence[float], apart: float = APART) -> float:
    """The largest reach that an axis shows: the largest of all, or the one below a gap in their upper half.

    Args:
        reaches: of each row or panel, its largest distance from zero; those of zero do not count.
        apart: a reach this many times the next smaller one is off the axis.

    >>> common_reach([0.2, 0.5, 1.1, 0.8]), common_reach([0.2, 0.5, 1.1, 0.8, 75.0])
    (1.1, 1.1)
    """
    ordered = sorted(reach for reach in reaches if reach > 0)
    if not ordered:
        return 0.0
    for place in range(len(ordered) // 2 + len(ordered) % 2, len(ordered)):
        if ordered[place] > apart * ordered[place - 1]:
            return ordered[place - 1]
    return ordered[-1]
