"""Sheets as students write them, honest or with one slip, and the truth about each.

`student_sheet(seed)` draws a problem, a habit of calculating and rounding, and perhaps a slip, works the problem out
with paper and calculator, and writes the sheet as the student would type it. Nothing here is shared with the checker
that it measures. Decimals are not declared; zeros at the end of a number are typed or lost. Some
students write decimal commas, or W_Q for w_q; lecturers give thirds as fractions.

A sheet with a slip is kept only if its truth is certain:

- the first printed step in which a number differs from what the same student would have written without the slip has
  a cell that differs from that, and from the true number, by at least two units of that step's typed digits (less is
  rounding);
- that step is the one of the slip, if it is printed;
- no student with a habit of the list would honestly have written the same numbers (tried where it could be: on sheets
  of few numbers, none of them far off);
- on a sheet of three numbers or fewer, a wrong one lies outside what the habits of both lists lead to.

A habit is honest only if it keeps at least as many digits as the sheet prints, and if what needs no rounding is right
on the sheet: a result of exact numbers that fits its digits.

Two slips that lead to the same typed numbers are the same slip, whatever it is called: `Sheet.same_as` names them.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any

from students.paper import Paper, clean, is_short
from students.pen import HABITS, LISTED, PRECISE, UNLISTED, ZERO, Again, Habit, Pen, Value, draw_habit, every
from students.problems import PROBLEMS
from students.slips import SLIPS
from students.writing import SCALARS, VECTORS, Place, Typed, Writer

KINDS = ("attention", "attention", "attention", "block", "block", "choice", "choice", "position", "loss")
"""Kinds of problems in the format of worked examples, as often as they are drawn."""
MOST_ATTEMPTS, PATIENCE = 4000, 40
LEAST_UNITS = 2
TOO_FEW = 3
"""So few numbers do not tell a habit."""
FEW_CELLS, NOT_FAR = 9, 20.0
"""On larger sheets, or with a number further off, no other habit explains every number."""


@dataclass(frozen=True)
class Changed:
    """A printed cell that a slip has changed.

    Attributes:
        step: the quantity, as the sheet calls it.
        index: head, row and column, from 0.
        meant: what the student would have written without the slip.
        typed: what the sheet says.
        units: how far off it is, in units of the step's typed digits, from what was meant or from the true number,
            whichever is nearer.
        exact: whether the true result fits its digits, so that no habit of rounding excuses another number.
    """

    step: str
    index: tuple[int, int, int]
    meant: Decimal
    typed: Decimal
    units: float
    exact: bool


@dataclass(frozen=True)
class Sheet:
    """A student's sheet and the truth about it.

    Attributes:
        seed: it is made from.
        text: TOML, as `docs/examples.md` describes it.
        kind: of the problem.
        habit: of the student.
        digits: decimals of the printed numbers.
        extent: "all" steps are printed, "some", or only the "output".
        slip: its name; None on an honest sheet.
        slip_step: the step in which it happens.
        first: the first printed step that the slip changes.
        changed: the cells that it changes, in the order of the sheet.
        steps: the printed steps, in order.
        remade: the same sheet with another slip instead, or None.
    """

    seed: int
    text: str
    kind: str
    habit: Habit
    digits: int
    extent: str
    slip: str | None
    slip_step: str
    first: str | None
    changed: tuple[Changed, ...]
    steps: tuple[str, ...]
    remade: Callable[[str], str | None] = field(repr=False, compare=False, default=lambda slip: None)

    def same_as(self, slip: str) -> bool:
        """Whether another slip leads to the same sheet."""
        with localcontext(PRECISE):
            return self.slip == slip or self.remade(slip) == self.text


def student_sheet(
    seed: int,
    habit: str | None = None,
    slip: str | None = None,
    *,
    kinds: tuple[str, ...] = KINDS,
) -> Sheet:
    """The sheet of a seed.

    Args:
        seed: every seed is another sheet.
        habit: the name of a habit, "listed" or "unlisted" for any of those; None: listed.
        slip: the name of a slip, "any" for any of them, None for an honest sheet.
        kinds: of problems to draw from.
    """
    choose = random.Random(f"{seed}/None/{habit}/{slip}/None")
    names = {"listed": tuple(LISTED), "unlisted": tuple(UNLISTED), None: tuple(LISTED)}.get(habit, (str(habit),))
    with localcontext(PRECISE):
        chosen, way, topic = slip, "", ""
        for attempt in range(MOST_ATTEMPTS):
            if attempt % PATIENCE == 0:  # another slip, another habit, another kind where they cannot be
                chosen, way = choose.choice(tuple(SLIPS)) if slip == "any" else slip, choose.choice(names)
                topic = "attention" if HABITS[way].of_machine else choose.choice(kinds)
            rng = random.Random(f"{seed}/None/{habit}/{chosen}/None/{attempt}")
            try:
                maker = _Maker(rng, seed, topic if slip is None else rng.choice(kinds), way)
                return maker.sheet(chosen)
            except (Again, ArithmeticError):  # such as the logarithm of a negative number after a slip
                continue
    raise AssertionError(f"no sheet for seed {seed}, {habit}, {slip}")


class _Maker:
    """Makes one sheet; raises `Again` where the draw does not work out."""

    def __init__(self, rng: random.Random, seed: int, kind: str, habit: str) -> None:
        self.rng, self.seed, self.kind = rng, seed, kind
        self.digits = rng.choice((1, 2, 2, 2, 3, 3, 3, 4))
        self.habit = draw_habit(rng, habit, self.digits)
        self.problem = problem = PROBLEMS[kind](rng)
        d_k = problem.settings["d_k"] if problem.scale == "sqrt" else None
        if not self.habit.matters(problem.steps, d_k, problem.settings.get("activation") == "gelu"):
            raise Again
        self.extent = rng.choice(("all", "all", "some", "some", "output"))
        self.printed = self.draw_printed()
        if self.habit.percent and self.digits > 2 and "weights" not in self.printed:
            raise Again
        digits_of = self.draw_digits()
        self.pen = Pen(self.habit, self.digits, digits_of, str(rng.random()))
        self.writer = Writer(rng, problem, f"sheet {seed}")
        self.salt = str(rng.random())

    def in_a_notebook(self, slip: str | None) -> None:
        """Attention without a slip, in which nothing is exact."""
        given, habit = self.problem.given, self.habit
        if slip or self.kind != "attention" or (habit.given and "w_q" not in given):
            raise Again
        self.problem.exact = set()
        for name in [name for name in given if name.startswith("w_")] if habit.given else ():
            given[name] = [[[Decimal(self.rng.gauss(0, 1)) for _ in row] for row in rows] for rows in given[name]]
            self.problem.given_digits = self.digits

    def draw_digits(self) -> dict[str, int]:
        """The decimals of a printed step that has others than the sheet; more of them only if more are carried."""
        step = self.rng.choice(("weights", "probabilities", "output"))
        digits = max(1, min(4, self.digits + self.rng.choice((-1, 1))))
        more = digits > self.digits and self.habit.carry not in ("full", "guard", "mixed")
        if self.rng.random() < 0.2 and not self.habit.significant and step in self.printed and not more:
            return {step: digits}
        return {}

    def draw_printed(self) -> set[str]:
        """The steps on the sheet."""
        steps, rng = self.problem.steps, self.rng
        if self.extent == "all":
            return set(steps)
        if self.extent == "output":
            return {step for step in steps if step.partition("_")[0] in ("temperature", "top", "greedy")} or {steps[-1]}
        kept = {step for step in steps if rng.random() < 0.55} | {rng.choice(steps)}
        return kept

    def sheet(self, slip: str | None) -> Sheet:
        if self.habit.of_machine:
            self.in_a_notebook(slip)
        if slip:
            self.printed.discard(SLIPS[slip].skips)
            if not SLIPS[slip].places(self.problem.steps, self.printed):
                raise Again
        honest = Paper(self.problem, self.pen, self.printed)
        self.check(honest)
        self.true = Paper(self.problem, Pen(HABITS["full"], 12, {}, ""), set())
        shown = honest
        if slip:
            shown = Paper(self.problem, self.pen, self.printed, SLIPS[slip], self.salt)
        hidden = self.hidden(shown)
        typed = self.writer.typed_steps(shown)
        exact = frozenset(self.exact_cells(honest, hidden))
        changed = tuple(self.changes(honest, shown, typed, hidden, exact))
        first = self.first(changed, shown) if slip else None
        if slip and self.is_honest_of_another(changed, typed, hidden):
            raise Again
        return Sheet(
            self.seed,
            self.writer.write(typed, hidden),
            self.kind,
            self.habit,
            self.digits,
            self.extent,
            slip,
            shown.where,
            first,
            changed,
            tuple(typed),
            self.remade,
        )

    def remade(self, slip: str) -> str | None:
        """The sheet with another slip."""
        try:
            paper = Paper(self.problem, self.pen, self.printed, SLIPS[slip], self.salt)
            return self.writer.write(self.writer.typed_steps(paper), self.hidden(paper))
        except (Again, ArithmeticError):
            return None

    def check(self, honest: Paper) -> None:
        """Refuse what no lecturer sets: huge scores, weights that are all 0 or 1, a blank result."""
        for step in ("scores", "scaled", "logits"):
            if any(abs(x) > 9 for x in _cells(honest.have.get(step, [])) if x.is_finite()):
                raise Again
        for step in ("weights", "probabilities"):
            shares = list(_cells(honest.have.get(step, [])))
            if shares and not any(Decimal("0.08") < share < Decimal("0.92") for share in shares):
                raise Again
        if any(abs(x) > 60 for value in honest.shown.values() for x in _cells(value) if x.is_finite()):
            raise Again

    # What is on the sheet.

    def hidden(self, paper: Paper) -> set[Place]:
        """The printed cells that are left open: single ones, or all rows but one."""
        rng = random.Random(self.salt)
        hidden: set[Place] = set()
        if rng.random() < 0.75:
            return hidden
        scattered = rng.random() < 0.5
        for step in self.problem.steps:
            if step not in self.printed or step in ("k", "v", "greedy", *SCALARS) or step.startswith(VECTORS):
                continue
            value = paper.shown[step]
            for h, rows in enumerate(value):
                for i, row in enumerate(rows):
                    for j in range(len(row)):
                        if rng.random() < 0.15 if scattered else i < len(rows) - 1:
                            hidden.add((step, h, i, j))
        return hidden

    def exact_cells(self, honest: Paper, hidden: set[Place]) -> Iterator[Place]:
        """The cells of exact steps whose result is as short as what is written, as is everything before it."""
        for step in self.problem.steps:
            if step not in self.problem.exact:
                continue
            true = list(_places(step, self.true.full[step]))
            short = [(place, x) for place, x in true if is_short(x, self.pen.places(step, x))]
            for place, value in short:
                if dict(_places(step, honest.shown[step]))[place] != clean(value):
                    raise Again
                if step in self.printed and place not in hidden and value.is_finite():
                    yield place
            if len(short) < len(true):
                return

    def changes(
        self,
        honest: Paper,
        shown: Paper,
        typed: Typed,
        hidden: set[Place],
        exact: frozenset[Place],
    ) -> Iterator[Changed]:
        """The visible cells that differ from what the student would have written without the slip."""
        for step, texts in typed.items():
            if [len(row) for rows in honest.shown[step] for row in rows] != [len(r) for rows in texts for r in rows]:
                raise Again
            open_cells = [text for place, text in _places(step, texts) if place not in hidden]
            visible = max((len(text.partition(".")[2]) for text in open_cells), default=0)
            meant, true = (dict(_places(step, value)) for value in (honest.shown[step], self.true.full[step]))
            for place, value in _places(step, shown.shown[step]):
                if place in hidden or value == meant[place]:
                    continue
                decimals = min(visible, self.pen.places(step, value)) if value.is_finite() else 0
                off = min(abs(value - number) if value != number else ZERO for number in (meant[place], true[place]))
                units = float(off.scaleb(decimals)) if off.is_finite() and (step != "greedy" or not off) else math.inf
                yield Changed(step, place[1:], meant[place], value, units, place in exact)

    def first(self, changed: tuple[Changed, ...], shown: Paper) -> str:
        """The first changed step; `Again` where it is not certain."""
        if not changed:
            raise Again
        step = changed[0].step
        if max(cell.units for cell in changed if cell.step == step) < LEAST_UNITS:
            raise Again
        if shown.where in self.printed and shown.where != step:
            raise Again
        return step

    def is_honest_of_another(self, changed: tuple[Changed, ...], typed: Typed, hidden: set[Place]) -> bool:
        """Whether another habit, without a slip, leads to the same visible numbers."""
        cells = sum(place not in hidden for step, texts in typed.items() for place, _ in _places(step, texts))
        if cells <= TOO_FEW and changed[0].step != "greedy":
            return self.is_among_honest([cell for cell in changed if cell.step == changed[0].step])
        if cells > FEW_CELLS or max(cell.units for cell in changed) > NOT_FAR:
            return False
        return any(self.same_sheet(habit, typed, hidden) for habit in every(LISTED))

    def is_among_honest(self, changed: list[Changed]) -> bool:
        """Whether each wrong number lies between those to which two habits lead."""
        step, found = changed[0].step, {cell.index: [cell.meant] for cell in changed}
        for habit in every(HABITS):
            try:
                shown = Paper(self.problem, Pen(habit, self.digits, self.pen.digits_of, ""), self.printed).shown[step]
            except (Again, ArithmeticError):
                continue
            for h, i, j in found:
                found[h, i, j].append(shown[h][i][j])
        return all(min(found[cell.index]) <= cell.typed <= max(found[cell.index]) for cell in changed)

    def same_sheet(self, habit: Habit, typed: Typed, hidden: set[Place]) -> bool:
        pen = Pen(habit, self.digits, self.pen.digits_of, "")
        try:
            other = self.writer.typed_steps(Paper(self.problem, pen, self.printed))
        except (Again, ArithmeticError):
            return False
        return all(
            place in hidden or text == dict(_places(step, other[step]))[place]
            for step, texts in typed.items()
            for place, text in _places(step, texts)
        )


def _cells(value: Value) -> Iterator[Decimal]:
    return (x for rows in value for row in rows for x in row)


def _places(step: str, value: list) -> Iterator[tuple[Place, Any]]:
    for h, rows in enumerate(value):
        for i, row in enumerate(rows):
            for j, entry in enumerate(row):
                yield (step, h, i, j), entry
