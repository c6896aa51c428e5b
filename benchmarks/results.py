"""The results of a measurement as plain data, and its goals."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.timing import Contender, Range, alternate, difference, ratio, summary

OURS = "Vitral"
LOSS = "test loss"
"""The quantity of goals on losses."""


@dataclass(frozen=True)
class Measurement:
    """One contender's rounds.

    Attributes:
        name: who.
        seconds: one number a round; inf where it did not get there.
        facts: further facts by name.
    """

    name: str
    seconds: tuple[float, ...]
    facts: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Goal:
    """A goal of a row, for Vitral's measurement.

    Attributes:
        kind: "faster": at least `bound` times as fast as `peer`; "within": at most `bound` times the seconds of `peer`;
            "beyond": at most `bound` seconds more than `peer`; "rate": at least `bound` units of work a second;
            "seconds": at most so many; "fact": its fact `peer` is at most so much;
            "lower": its fact "test loss" is lower than that of `peer` by at least so many nats.
        bound: the number.
        peer: whom it is held against, where it is.
    """

    kind: Literal["faster", "within", "beyond", "rate", "seconds", "fact", "lower"]
    bound: float
    peer: str = ""

    def text(self, unit: str) -> str:
        """The goal in one phrase.

        >>> Goal("faster", 10, "transformers").text("tokens")
        '≥ 10x transformers'
        """
        return {
            "faster": f"≥ {self.bound:g}x {self.peer}",
            "within": f"≤ {self.bound:g}x the time of {self.peer}",
            "beyond": f"≤ {self.peer} + {self.bound:g} s",
            "rate": f"≥ {self.bound:,g} {unit}/s",
            "seconds": f"≤ {self.bound:g} s",
            "fact": f"≤ {self.bound:g} {self.peer}",
            "lower": f"≥ {self.bound:g} nats below {self.peer}",
        }[self.kind]


@dataclass(frozen=True)
class Verdict:
    """A goal with its measured value.

    Attributes:
        text: the goal in one phrase.
        bound: its number.
        measured: the measured value in the goal's terms, None without the peer.
        reached: whether the median reaches it.
        peer: whom it is held against.
        kind: see `Goal`.
    """

    text: str
    bound: float
    measured: Range | None
    reached: bool
    peer: str
    kind: str


@dataclass(frozen=True)
class Section:
    """One table: the contenders of one measurement.

    Attributes:
        row: the row it belongs to.
        title: title of the table.
        measurements: the contenders; the first one is the one the goals are about.
        unit: unit of the work done; empty for plain seconds.
        work: how much of it.
        goals: the goals.
        notes: notes for readers of the numbers.
        is_race: whether who is faster is the question; of equal times it is not.
    """

    row: str
    title: str
    measurements: tuple[Measurement, ...]
    unit: str = ""
    work: float = 1.0
    goals: tuple[Goal, ...] = ()
    notes: tuple[str, ...] = ()
    is_race: bool = True

    @property
    def ours(self) -> Measurement:
        """The contender to which the goals apply."""
        return self.measurements[0]

    def speed_against(self, other: Measurement) -> Range:
        """Speedup over `other`."""
        return ratio(other.seconds, self.ours.seconds)

    def rate(self, measurement: Measurement) -> Range:
        """Work per second."""
        return summary([self.work / seconds for seconds in measurement.seconds])

    def verdicts(self) -> list[Verdict]:
        """Every goal with its measured value."""
        return [self._judge(goal) for goal in self.goals]

    def _judge(self, goal: Goal) -> Verdict:
        measured = self._measured(goal)
        at_most = goal.kind in ("within", "beyond", "seconds", "fact")
        reached = measured is not None and (measured.median <= goal.bound if at_most else measured.median >= goal.bound)
        return Verdict(goal.text(self.unit), goal.bound, measured, reached, goal.peer, goal.kind)

    def _measured(self, goal: Goal) -> Range | None:
        if goal.kind == "rate":
            return self.rate(self.ours)
        if goal.kind == "seconds":
            return summary(self.ours.seconds)
        if goal.kind == "fact":
            return summary([float(self.ours.facts[goal.peer])])
        peer = next((one for one in self.measurements if one.name == goal.peer), None)
        if peer is None:
            return None
        if goal.kind == "lower":
            return summary([float(peer.facts[LOSS]) - float(self.ours.facts[LOSS])])
        if goal.kind == "beyond":
            return difference(self.ours.seconds, peer.seconds)
        return self.speed_against(peer) if goal.kind == "faster" else ratio(self.ours.seconds, peer.seconds)

    def plain(self) -> dict[str, Any]:
        """As plain data; infinite values become None for JSON."""
        return {
            "title": self.title,
            "unit": self.unit,
            "work": self.work,
            "contenders": [
                {
                    "name": one.name,
                    "seconds": [_plain(value) for value in one.seconds],
                    "median_seconds": _plain(summary(one.seconds).median),
                    "ours_is_times_as_fast": _plain_range(self.speed_against(one)),
                    "facts": {name: _plain(value) for name, value in one.facts.items()},
                }
                for one in self.measurements
            ],
            "goals": [
                {
                    "goal": one.text,
                    "kind": one.kind,
                    "bound": one.bound,
                    "peer": one.peer,
                    "found": _plain_range(one.measured),
                    "reached": one.reached,
                }
                for one in self.verdicts()
            ],
            "notes": list(self.notes),
        }


def measure(contenders: Mapping[str, Contender], rounds: int, warmup: int = 2) -> tuple[Measurement, ...]:
    """The contenders in turns (`timing.alternate`), as measurements; two rounds of warm-up let compilers settle."""
    seconds = alternate(contenders, rounds, warmup)
    return tuple(Measurement(name, tuple(values)) for name, values in seconds.items())


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain_range(values: Range | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {"median": _plain(values.median), "low": _plain(values.low), "high": _plain(values.high)}
