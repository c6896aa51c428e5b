"""The table of slips that students make, with the step in which each happens.

A slip of a step replaces how that step is worked out; a slip of the pen changes one number as it is written down. The
student goes on from the wrong numbers without a further mistake.
"""

from collections.abc import Callable
from dataclasses import dataclass

from students.paper import Paper
from students.pen import Again, Value

Make = Callable[[Paper, str], Value]
Misprint = Callable[[Paper, str, Value, Value], tuple[Value, Value]]


@dataclass(frozen=True)
class SlipKind:
    """One kind of slip.

    Attributes:
        steps: where it can happen; empty for any printed step.
        make: works the step out with the slip; None for a slip of the pen.
        misprint: changes what is written and what is carried on; None for a slip of a step.
        skips: a step that the student does not make then.
    """

    steps: tuple[str, ...]
    make: Make | None = None
    misprint: Misprint | None = None
    skips: str = ""

    def places(self, steps: list[str], printed: set[str]) -> list[str]:
        """The steps in which it can happen."""
        if self.misprint:
            return [step for step in steps if step in printed and step != "greedy" and step in (self.steps or printed)]
        return [step for step in steps if step in self.steps or step.rpartition("_")[0] in self.steps]

    def place(self, paper: Paper) -> str:
        """The step of this paper in which it happens."""
        steps = self.places(paper.problem.steps, paper.printed)
        if not steps:
            raise Again
        return paper.rng.choice(steps)


SLIPS: dict[str, SlipKind] = {}


def slip(name: str, *steps: str, rows: bool = False, skips: str = "") -> Callable[[Make], Make]:
    """Add a slip of a step to the table."""

    def add(make: Make) -> Make:
        def made(paper: Paper, step: str) -> Value:
            value = make(paper, step)
            return one_row(paper, step, value) if rows and paper.rng.random() < 0.3 else value

        SLIPS[name] = SlipKind(steps, made, skips=skips)
        return make

    return add


def pen_slip(name: str, *steps: str) -> Callable[[Misprint], Misprint]:
    """Add a slip of the pen to the table."""

    def add(misprint: Misprint) -> Misprint:
        SLIPS[name] = SlipKind(steps, misprint=misprint)
        return misprint

    return add


def one_row(paper: Paper, step: str, value: Value) -> Value:
    """The slip in one row only."""
    own = paper.own(step)
    head = paper.rng.randrange(len(own))
    row = paper.rng.randrange(len(own[head]))
    own[head][row] = value[head][row]
    return own


def need(condition: object) -> None:
    """Refuse a draw for which the slip makes no sense."""
    if not condition:
        raise Again


def same_shape(left: Value, right: Value) -> bool:
    def shape(value: Value) -> list[tuple[int, int]]:
        return [(len(rows), len(rows[0])) for rows in value]

    return shape(left) == shape(right)
