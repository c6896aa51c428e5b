"""The options of a benchmark, common to all rows."""

from dataclasses import dataclass
from pathlib import Path

QUICK_ROUNDS = 2


class LeftOut(Exception):
    """A row or a contender cannot be measured here; the message is one line with the reason."""


@dataclass(frozen=True)
class Options:
    """Options common to all rows.

    Attributes:
        rounds: measurements of each contender.
        seeds: seeds of the rows that train to a target loss.
        threads: threads of every contender, in this process and in those it starts.
        quick: a smoke run: little work, few rounds, numbers that mean nothing.
        nanogpt: a checkout of nanoGPT, to measure against it too.
        texts: further texts of the rows that train on several, as names or paths; the text of the board.
        minutes: of each training of the board.
        configs: configurations of runs, which the board trains too.
        records: the board's file of records; None: none are read or kept.
    """

    rounds: int = 7
    seeds: int = 5
    threads: int = 1
    quick: bool = False
    nanogpt: Path | None = None
    texts: tuple[str, ...] = ()
    minutes: float = 1
    configs: tuple[Path, ...] = ()
    records: Path | None = None

    @property
    def least_seconds(self) -> float:
        """Minimum seconds of a measurement; shorter actions are repeated, so that the clock itself costs nothing."""
        return 0.0 if self.quick else 0.3
