"""What the launcher of several ranks says to each of them, by torchrun's variables of the environment."""

import os
from collections.abc import Sequence


def launched() -> bool:
    """Whether this process was launched as one of several ranks."""
    size = os.environ.get("WORLD_SIZE", "1")
    return size.isdecimal() and int(size) > 1 and {"RANK", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def local_rank() -> int:
    """The number of this rank among those of its machine; 0 if the launcher does not say."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_size() -> int:
    """The number of ranks of this machine; 1 if the launcher does not say."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def out_of_place(places: Sequence[Sequence[int]]) -> int | None:
    """The first rank that is not where it is if the ranks of one machine follow those of another, as many on each.

    >>> out_of_place([(0, 2), (1, 2), (0, 2), (1, 2)])
    >>> out_of_place([(0, 2), (1, 2), (0, 1)])
    2

    Args:
        places: of each rank, `local_rank` and `local_size`.
    """
    size, last = places[0][1], len(places) - 1
    wrong = (rank for rank, place in enumerate(places) if (*place,) != (rank % size, size))
    return next(wrong, None if len(places) % size == 0 else last)
