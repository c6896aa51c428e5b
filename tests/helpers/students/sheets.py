"""Sheets as students write them, honest or with one slip, and the truth about each.

`student_sheet(seed)` draws a problem, a habit of calculating and rounding, and perhaps a slip, works the problem out
with paper and calculator, and writes the sheet as the student would type it. Nothing here is shared with the checker
that it measures. Decimals are not declared; zeros at the end of a number are typed or lost.

A sheet with a slip is kept only if its truth is certain:

- the first printed step in which a number differs from what the same student would have written without the slip has
  a cell that differs by at least two units of that step's typed digits (less is rounding);
- that step is the one of the slip, if it is printed;
- no student with a habit of the list would honestly have written the same numbers (tried where it could be: on sheets
  of few numbers, none of them far off).

A habit is honest only if it keeps at least as many digits as the sheet prints, and if what needs no rounding is right
on the sheet: a result of exact numbers that fits its digits.

Two slips that lead to the same typed numbers are the same slip, whatever it is called: `Sheet.same_as` names them.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any

from students.paper import Paper, is_short
from students.pen import HABITS, LISTED, PRECISE, UNLISTED, Again, Habit, Pen, Value, draw_habit, every_listed
from students.problems import PER_HEAD, PROBLEMS
from students.slips import SLIPS

KINDS = ("attention", "attention", "attention", "block", "block", "choice", "choice", "position")
"""Kinds of problems in the format of worked examples, as often as they are drawn."""
MOST_ATTEMPTS, PATIENCE = 4000, 40
LEAST_UNITS = 2
FEW_CELLS, NOT_FAR = 9, 20.0
"""On larger sheets, or with a number further off, no other habit explains every number."""
VECTORS = ("temperature", "top_k", "top_p")

Place = tuple[str, int, int, int]
"""A cell: step, head, row, column, from 0."""


@dataclass(frozen=True)
class Changed:
    """A printed cell that a slip has changed.

    Attributes:
        step: the quantity, as the sheet calls it.
        index: head, row and column, from 0.
        meant: what the student would have written without the slip.
        typed: what the sheet says.
        units: how far off it is, in units of the step's typed digits.
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
        about: where exactly.
        first: the first printed step that the slip changes.
        changed: the cells that it changes, in the order of the sheet.
        exact: the cells whose true result fits its digits.
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
    about: str
    first: str | None
    changed: tuple[Changed, ...]
    exact: frozenset[Place]
    steps: tuple[str, ...]
    remade: Callable[[str], str | None] = field(repr=False, compare=False, default=lambda slip: None)

    def same_as(self, slip: str) -> bool:
        """Whether another slip leads to the same sheet."""
        with localcontext(PRECISE):
            return self.slip == slip or self.remade(slip) == self.text


def student_sheet(
    seed: int,
    kind: str | None = None,
    habit: str | None = None,
    slip: str | None = None,
    *,
    kinds: tuple[str, ...] = KINDS,
    extent: str | None = None,
) -> Sheet:
    """The sheet of a seed.

    Args:
        seed: every seed is another sheet.
        kind: one of `PROBLEMS`; None draws one of `kinds`.
        habit: the name of a habit, "listed" or "unlisted" for any of those; None: listed.
        slip: the name of a slip, "any" for any of them, None for an honest sheet.
        kinds: to draw from.
        extent: "all", "some" or "output"; None draws one.
    """
    choose = random.Random(f"{seed}/{kind}/{habit}/{slip}/{extent}")
    names = {"listed": tuple(LISTED), "unlisted": tuple(UNLISTED), None: tuple(LISTED)}.get(habit, (str(habit),))
    with localcontext(PRECISE):
        chosen, way = slip, choose.choice(names)
        for attempt in range(MOST_ATTEMPTS):
            if attempt % PATIENCE == 0:  # another slip and another habit where they cannot be
                chosen, way = choose.choice(tuple(SLIPS)) if slip == "any" else slip, choose.choice(names)
            rng = random.Random(f"{seed}/{kind}/{habit}/{chosen}/{extent}/{attempt}")
            try:
                maker = _Maker(rng, seed, kind or rng.choice(kinds), way, extent)
                return maker.sheet(chosen)
            except (Again, ArithmeticError):  # such as the logarithm of a negative number after a slip
                continue
    raise AssertionError(f"no sheet for seed {seed}, {kind}, {habit}, {slip}, {extent}")


class _Maker:
    """Makes one sheet; raises `Again` where the draw does not work out."""

    def __init__(self, rng: random.Random, seed: int, kind: str, habit: str, extent: str | None) -> None:
        self.rng, self.seed, self.kind = rng, seed, kind
        self.digits = rng.choice((1, 2, 2, 2, 3, 3, 3, 4))
        self.habit = draw_habit(rng, habit, self.digits)
        self.problem = problem = PROBLEMS[kind](rng)
        d_k = problem.settings["d_k"] if problem.scale == "sqrt" else None
        if not self.habit.matters(problem.steps, d_k, problem.settings.get("activation") == "gelu"):
            raise Again
        self.extent = extent or rng.choice(("all", "all", "some", "some", "output"))
        self.printed = self.draw_printed()
        if self.habit.percent and self.digits > 2 and "weights" not in self.printed:
            raise Again
        digits_of = self.draw_digits()
        self.pen = Pen(self.habit, self.digits, digits_of, str(rng.random()))
        self.zeros = rng.choice(("kept", "kept", "lost", "whole"))
        self.salt = str(rng.random())

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
        if slip:
            self.printed.discard(SLIPS[slip].skips)
        honest = Paper(self.problem, self.pen, self.printed)
        self.check(honest)
        shown = honest
        if slip:
            shown = Paper(self.problem, self.pen, self.printed, SLIPS[slip], self.salt)
        hidden = self.hidden(shown)
        typed = self.typed_steps(shown)
        exact = frozenset(self.exact_cells(honest, hidden))
        changed = tuple(self.changes(honest, shown, typed, hidden, exact))
        first = self.first(changed, shown) if slip else None
        if slip and self.is_honest_of_another(changed, typed, hidden):
            raise Again
        return Sheet(
            self.seed,
            self.write(typed, hidden),
            self.kind,
            self.habit,
            self.digits,
            self.extent,
            slip,
            shown.where,
            shown.about,
            first,
            changed,
            exact,
            tuple(typed),
            self.remade,
        )

    def remade(self, slip: str) -> str | None:
        """The sheet with another slip."""
        try:
            paper = Paper(self.problem, self.pen, self.printed, SLIPS[slip], self.salt)
            return self.write(self.typed_steps(paper), self.hidden(paper))
        except (Again, ArithmeticError):
            return None

    def typed_steps(self, paper: Paper) -> dict[str, list[list[list[str]]]]:
        """The printed steps as typed."""
        return {
            step: [[[self.typed(x) for x in row] for row in rows] for rows in paper.shown[step]]
            for step in self.problem.steps
            if step in self.printed
        }

    def check(self, honest: Paper) -> None:
        """Refuse what no lecturer sets: huge scores, weights that are all 0 or 1, a blank result."""
        for step in ("scores", "scaled", "logits", "scores"):
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
            if step not in self.printed or step in ("k", "v", "greedy") or step.startswith(VECTORS):
                continue
            value = paper.shown[step]
            for h, rows in enumerate(value):
                for i, row in enumerate(rows):
                    for j in range(len(row)):
                        if rng.random() < 0.15 if scattered else i < len(rows) - 1:
                            hidden.add((step, h, i, j))
        return hidden

    def typed(self, value: Decimal) -> str:
        """A number as typed: with its zeros, without them, or without them where it is whole."""
        if not value.is_finite():
            return "-inf"
        text = format(value, "f")
        if value == 0:
            text = text.removeprefix("-")
        if "." in text and (self.zeros == "lost" or (self.zeros == "whole" and value == value.to_integral_value())):
            text = text.rstrip("0").rstrip(".")
        return text

    def exact_cells(self, honest: Paper, hidden: set[Place]) -> Iterator[Place]:
        """The cells of exact steps whose result is as short as what is written, as is everything before it."""
        true = Paper(self.problem, Pen(HABITS["full"], 12, {}, ""), set())
        for step in self.problem.steps:
            if step not in self.problem.exact:
                continue
            short = [(place, x) for place, x in _places(step, true.full[step]) if is_short(x, self.pen.places(step, x))]
            for place, value in short:
                if dict(_places(step, honest.shown[step]))[place] != value:
                    raise Again
                if step in self.printed and place not in hidden and value.is_finite():
                    yield place
            if len(short) < len(list(_places(step, true.full[step]))):
                return

    def changes(
        self,
        honest: Paper,
        shown: Paper,
        typed: dict[str, list[list[list[str]]]],
        hidden: set[Place],
        exact: frozenset[Place],
    ) -> Iterator[Changed]:
        """The visible cells that differ from what the student would have written without the slip."""
        for step, texts in typed.items():
            if [len(row) for rows in honest.shown[step] for row in rows] != [len(r) for rows in texts for r in rows]:
                raise Again
            open_cells = [text for place, text in _places(step, texts) if place not in hidden]
            visible = max((len(text.partition(".")[2]) for text in open_cells), default=0)
            meant = dict(_places(step, honest.shown[step]))
            for place, value in _places(step, shown.shown[step]):
                if place in hidden or value == meant[place]:
                    continue
                decimals = min(visible, self.pen.places(step, value)) if value.is_finite() else 0
                off = abs(value - meant[place])
                units = float(off.scaleb(decimals)) if off.is_finite() else float("inf")
                if step == "greedy":
                    units = float("inf")
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

    def is_honest_of_another(
        self, changed: tuple[Changed, ...], typed: dict[str, list[list[list[str]]]], hidden: set[Place]
    ) -> bool:
        """Whether another habit, without a slip, leads to the same visible numbers."""
        cells = sum(place not in hidden for step, texts in typed.items() for place, _ in _places(step, texts))
        if cells > FEW_CELLS or max(cell.units for cell in changed) > NOT_FAR:
            return False
        return any(self.same_sheet(habit, typed, hidden) for habit in every_listed())

    def same_sheet(self, habit: Habit, typed: dict[str, list[list[list[str]]]], hidden: set[Place]) -> bool:
        pen = Pen(habit, self.digits, self.pen.digits_of, "")
        try:
            other = self.typed_steps(Paper(self.problem, pen, self.printed))
        except (Again, ArithmeticError):
            return False
        return all(
            place in hidden or text == dict(_places(step, other[step]))[place]
            for step, texts in typed.items()
            for place, text in _places(step, texts)
        )

    # The file.

    def write(self, typed: dict[str, list[list[list[str]]]], hidden: set[Place]) -> str:
        problem = self.problem
        lines = [f'title = "sheet {self.seed}"', *problem.top, "[given]", *problem.settings.get("given", [])]
        for name, value in problem.given.items():
            texts = [[[format(x, "f") for x in row] for row in rows] for rows in value]
            vector = name.startswith("b_") or name.endswith(("_gain", "_bias")) or name == "targets"
            lines.append(f"{name} = {self.nested(name, texts, vector)}")
        lines.append("[claimed]")
        for step, texts in typed.items():
            if step == "greedy":
                index = int(Decimal(texts[0][0][0]))
                lines.append(f'greedy = "{self.vocabulary[index]}"')
                continue
            cells = [
                [
                    [
                        '"?"' if (step, h, i, j) in hidden else '"-inf"' if text == "-inf" else text
                        for j, text in enumerate(row)
                    ]
                    for i, row in enumerate(rows)
                ]
                for h, rows in enumerate(texts)
            ]
            key = f'"{step}"' if step.startswith(VECTORS) else step
            lines.append(f"{key} = {self.nested(step, cells, step.startswith(VECTORS))}")
        return "\n".join(lines) + "\n"

    @property
    def vocabulary(self) -> list[str]:
        [line] = [line for line in self.problem.top if line.startswith("vocabulary")]
        return [word.strip(' "') for word in line.partition("[")[2].rstrip("]").split(",")]

    def nested(self, name: str, value: list[list[list[str]]], vector: bool) -> str:
        """A value as nested lists, without the axis of heads where there is one head."""
        heads = [_listed(rows[0]) if vector else _listed([_listed(row) for row in rows]) for rows in value]
        return _listed(heads) if name in PER_HEAD and self.problem.heads > 1 else heads[0]


def _listed(parts: list[str]) -> str:
    return f"[{', '.join(parts)}]"


def _cells(value: Value) -> Iterator[Decimal]:
    return (x for rows in value for row in rows for x in row)


def _places(step: str, value: list) -> Iterator[tuple[Place, Any]]:
    for h, rows in enumerate(value):
        for i, row in enumerate(rows):
            for j, entry in enumerate(row):
                yield (step, h, i, j), entry
