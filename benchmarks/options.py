"""What a user may say about a benchmark, once, for every row."""

from dataclasses import dataclass
from pathlib import Path

QUICK_ROUNDS = 2


class LeftOut(Exception):
    """A row, or a contender, cannot be measured here; the message is the one line that says why."""


@dataclass(frozen=True)
class Options:
    """What holds for all rows.

    Attributes:
        rounds: measurements of each contender.
        seeds: seeds of the rows that train to a target loss.
        threads: threads of every contender, in this process and in those it starts.
        quick: a smoke run: little work, few rounds, numbers that mean nothing.
        nanogpt: a checkout of nanoGPT, to measure against it too.
    """

    rounds: int = 7
    seeds: int = 5
    threads: int = 1
    quick: bool = False
    nanogpt: Path | None = None

    @property
    def least_seconds(self) -> float:
        """A shorter action is repeated until a measurement takes so long, so that the clock's own cost vanishes."""
        return 0.0 if self.quick else 0.3
