"""Positions of labels without overlaps."""

from collections.abc import Sequence
from itertools import pairwise


def spread(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Centres of labels, as near to `wanted` as possible without overlaps.

    The sum of squared moves is minimal among all placements in the same order: with the sizes subtracted, this is
    isotonic regression, solved by pooling adjacent violators (Barlow et al. 1972). Labels stay between `low` and
    `high` if they fit there together; if they do not, they exceed `high`.

    Args:
        wanted: the position of each label without the others.
        sizes: of each label along the axis, its margin included.
        low: begin of the axis.
        high: end of the axis.

    >>> spread([1.0, 1.0, 9.0], [2.0, 2.0, 2.0], 0.0, 10.0)
    [1.0, 3.0, 9.0]
    """
    if not wanted:
        return []
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    offsets = [0.0]
    for before, after in pairwise(order):
        offsets.append(offsets[-1] + (sizes[before] + sizes[after]) / 2)
    begin = low + sizes[order[0]] / 2
    end = high - sizes[order[-1]] / 2 - offsets[-1]
    pooled = _isotonic([wanted[index] - offset for index, offset in zip(order, offsets, strict=True)])
    centres = [0.0] * len(wanted)
    for index, offset, place in zip(order, offsets, pooled, strict=True):
        centres[index] = max(begin, min(end, place)) + offset
    return centres


def _isotonic(values: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to `values` in squared distance."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (mean, count), (next_mean, next_count) = pools[-2:]
            both = count + next_count
            pools[-2:] = [((mean * count + next_mean * next_count) / both, both)]
    return [mean for mean, count in pools for _ in range(count)]
