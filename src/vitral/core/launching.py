"""What the launcher of several ranks says to each of them, by torchrun's variables of the environment."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from vitral.core.errors import UsageError

MOST = 1 << 16
"""Above every number of ranks, of starts, and of a port."""


@dataclass(frozen=True)
class Launch:
    """One of several ranks, as its launcher describes it.

    Attributes:
        rank: its number, from 0.
        size: number of ranks.
        local_rank: its number among those of its machine; 0 if the launcher does not say.
        local_size: number of ranks on its machine.
        host: where the store is that connects the ranks.
        port: of this store.
        restarts: how often the launcher of its machine has started its ranks anew.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    port: int
    restarts: int

    @classmethod
    def read(cls) -> "Launch":
        """What the environment says.

        Raises:
            UsageError: a variable is missing or impossible.
        """
        size = _number("WORLD_SIZE", 1)
        return cls(
            rank=_number("RANK", 0, size - 1),
            size=size,
            local_rank=_number("LOCAL_RANK", 0, size - 1, default="0"),
            local_size=_number("LOCAL_WORLD_SIZE", 1, size, default="1"),
            host=_given("MASTER_ADDR"),
            port=_number("MASTER_PORT", 1, MOST - 1),
            restarts=_number("TORCHELASTIC_RESTART_COUNT", 0, default="0"),
        )


def launched() -> bool:
    """Whether a launcher says that there are several ranks; `Launch.read` refuses what it says wrongly."""
    size = os.environ.get("WORLD_SIZE") or "1"
    return not (size.isdecimal() and int(size) == 1)


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


def _given(name: str, default: str = "") -> str:
    given = os.environ.get(name) or default
    if not given:
        raise UsageError(
            "WORLD_SIZE={size} without {name}: a launcher of several ranks sets both, as torchrun does; one process "
            "alone needs neither",
            size=os.environ["WORLD_SIZE"],
            name=name,
        )
    return given


def _number(name: str, least: int, most: int = MOST, *, default: str = "") -> int:
    given = _given(name, default)
    if given.isdecimal() and least <= int(given) <= most:
        return int(given)
    raise UsageError(
        "{name}={given!r} in the environment: expected a whole number from {least} to {most}, as a launcher of "
        "several ranks sets it",
        name=name,
        given=given,
        least=str(least),
        most=str(most),
    )
