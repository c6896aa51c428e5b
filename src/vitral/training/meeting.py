"""The ranks of one start meet: they agree on a name, under which they keep what they tell each other.

A launcher starts all ranks anew after a death, and its store remembers those before. torchrun counts the starts on each
machine by itself, so the count is no common name. Instead each rank writes a token of its own. The hash of all tokens
is the name, as soon as every rank says that it has read the same tokens: a rank of an earlier start cannot say so.
"""

import hashlib
import secrets
import time
from dataclasses import dataclass
from typing import Protocol

from vitral.training.team import RankLost

LOOK = 0.05
"""Seconds between two looks at the store."""
STARTED_ANEW = "+"
"""After the token of a rank that was started before."""


class Store(Protocol):
    """Text and counters by name (`torch.distributed.Store`); it raises RuntimeError once the connection is lost."""

    def set(self, key: str, value: str, /) -> None:
        """Set a text."""
        ...

    def get(self, key: str, /) -> bytes:
        """A text that is there."""
        ...

    def check(self, keys: list[str], /) -> bool:
        """Whether all of them are there."""
        ...

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter, and return it."""
        ...

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Set a text that has the expected value, "" if there is none yet; return what it is then."""
        ...


@dataclass(frozen=True)
class Meeting:
    """What the ranks of one start have in common.

    Attributes:
        name: of the start; no other has it.
        is_restarted: whether some rank was started before.
    """

    name: str
    is_restarted: bool


def meet(store: Store, rank: int, size: int, seconds: float, *, is_restarted: bool = False) -> Meeting:
    """Wait until every rank has started; connecting to one that has not would have no end.

    Args:
        store: what all ranks see.
        rank: this rank.
        size: number of ranks.
        seconds: within which every rank must come.
        is_restarted: whether the launcher of this rank says that it was started before.

    Raises:
        RankLost: one has not come in time, or the store is gone.
    """
    tokens, until = [f"meeting/token/{other}" for other in range(size)], time.monotonic() + seconds
    try:
        again = store.add(f"meeting/starts/{rank}", 1) > 1 or is_restarted
        store.set(tokens[rank], secrets.token_hex(8) + STARTED_ANEW * again)
        while True:
            present = [other for other in range(size) if store.check([tokens[other]])]
            drawn = [store.get(tokens[other]).decode("ascii") for other in present]
            name = hashlib.sha256(" ".join(drawn).encode("ascii")).hexdigest()[:16]
            seen = [f"meeting/seen/{name}/{other}" for other in range(size)]
            store.set(seen[rank], "1")
            if len(present) == size and store.check(seen):
                return Meeting(name, any(token.endswith(STARTED_ANEW) for token in drawn))
            if time.monotonic() > until:
                raise _missing([store.check([key]) for key in seen], rank, seconds)
            time.sleep(LOOK)
    except RuntimeError:
        raise launcher_gone() from None


def _missing(is_here: list[bool], rank: int, seconds: float) -> RankLost:
    lost = RankLost("rank {rank} has not started within {seconds:g} s", rank=is_here.index(False), seconds=seconds)
    lost.is_said = rank != is_here.index(True)
    return lost


def launcher_gone() -> RankLost:
    """The store does not answer any more."""
    return RankLost("the launcher of the ranks has ended, or the rank or machine that served their connection")
