"""Timing: contenders run alternately (A B A B), so that disturbances affect all of them equally."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Contender = Callable[[], float]
"""Does its work once and returns the seconds."""


@dataclass(frozen=True)
class Range:
    """A median, with the lowest and highest value."""

    median: float
    low: float
    high: float


def alternate(contenders: Mapping[str, Contender], rounds: int, warmup: int = 1) -> dict[str, list[float]]:
    """Seconds of each contender, one measurement per round, after `warmup` uncounted rounds.

    >>> alternate({"a": lambda: 1.0, "b": lambda: 2.0}, rounds=2)
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    for _ in range(warmup):
        for run in contenders.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            seconds[name].append(run())
    return seconds


def clocked(action: Callable[[], Any], least_seconds: float = 0.0) -> Contender:
    """The action as a contender, timed by the wall clock.

    Its first call (the warm-up's) also finds out how often it has to be repeated to take `least_seconds`; every later
    one repeats it so often. The seconds are those of one action.
    """
    repeats = 0

    def run() -> float:
        nonlocal repeats
        if not repeats:
            action()  # the first call allocates and compiles, which would suggest too few repeats
            once = _timed(action, 1)
            repeats = max(1, math.ceil(least_seconds / max(once, 1e-9)))
            return once
        return _timed(action, repeats)

    return run


def _timed(action: Callable[[], Any], repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - begin) / repeats


def summary(values: Sequence[float]) -> Range:
    """Median, lowest, highest.

    >>> summary([3.0, 1.0, 2.0])
    Range(median=2.0, low=1.0, high=3.0)
    """
    return Range(statistics.median(values), min(values), max(values))


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Range:
    """The ratios theirs / ours per round, since both contenders meet the same conditions within a round.

    A contender that never reached the target has `inf`; the ratio of two such contenders is 1.

    >>> ratio([4.0, 9.0, 8.0], [2.0, 3.0, 2.0])
    Range(median=3.0, low=2.0, high=4.0)
    """
    pairs = zip(theirs, ours, strict=True)
    return summary([1.0 if math.isinf(a) and math.isinf(b) else a / b for a, b in pairs])


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Range:
    """The differences ours - theirs per round.

    >>> difference([2.0, 2.5], [1.5, 1.5])
    Range(median=0.75, low=0.5, high=1.0)
    """
    return summary([a - b for a, b in zip(ours, theirs, strict=True)])
