"""How a student calculates and rounds: habits, and the arithmetic of each habit in decimal numbers.

A habit is one way of working through a whole sheet. Those under `LISTED` are the ones that a checker of hand-worked
sheets may be expected to know; those under `UNLISTED` are as honest, but of another kind. No habit keeps fewer
digits of a number than the sheet prints, but for √d_k ≈ 1.41 on a sheet of three digits, and 1.732 on one of four.
"""

import math
import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from itertools import product

PRECISE = Context(prec=40)

ZERO, ONE = Decimal(0), Decimal(1)
NEVER = Decimal("-Infinity")
ROUNDING = {"half-up": ROUND_HALF_UP, "half-even": ROUND_HALF_EVEN, "cut": ROUND_DOWN, "floor": ROUND_FLOOR}

Row = list[Decimal]
Matrix = list[Row]
Value = list[Matrix]
"""One matrix for each head; what has no heads is a list of one matrix, a vector a matrix of one row."""


class Again(Exception):
    """This draw will not do: the slip cannot be made here, or does not show."""


@dataclass(frozen=True)
class Habit:
    """A way of working.

    Attributes:
        name: of the habit.
        carry: with which numbers the next step goes on: "full", "printed" (rounded where a step is printed),
            "stepwise" (every step rounded), "guard" (every step rounded to more digits), "significant", "mixed", "half"
            (every step in half precision, as a notebook may compute).
        rounding: "half-up", "half-even", "cut" or "floor".
        guard: further digits carried.
        significant: digits of a number that are printed, instead of decimals; 0 for decimals.
        root: decimals of √d_k; None for exact.
        inverse: whether scores are multiplied by a rounded 1/√d_k.
        exp: how exponentials are taken: "exact", "digits", "table", "2.718", "shifted".
        exp_digits: their decimals.
        products: whether each product of a sum is rounded before it is added.
        running: whether a sum is rounded after each addition.
        repair: whether the last weight of a row is what the others leave of one.
        reciprocal: whether a rounded 1/Σ is multiplied.
        percent: whether weights are whole per cent.
        inner: whether means, variances and denominators are rounded to one digit more than the sheet.
        gelu: "exact" or "tanh".
        given: whether weights have more digits than the sheet prints of them, as in a notebook.
    """

    name: str
    carry: str = "full"
    rounding: str = "half-up"
    guard: int = 0
    significant: int = 0
    root: int | None = None
    inverse: bool = False
    exp: str = "exact"
    exp_digits: int = 4
    products: bool = False
    running: bool = False
    repair: bool = False
    reciprocal: bool = False
    percent: bool = False
    inner: bool = False
    gelu: str = "exact"
    given: bool = False

    @property
    def of_machine(self) -> bool:
        """Whether only a machine works so: in half precision, or with weights that the sheet shows rounded."""
        return self.given or self.carry == "half"

    def matters(self, steps: Sequence[str], d_k: int | None, gelu: bool) -> bool:
        """Whether it makes a difference on a problem: these steps, scores over √d_k (or None), a GELU."""
        root = d_k is not None and math.isqrt(d_k) ** 2 != d_k
        softmax = "weights" in steps or "probabilities" in steps
        idle = (
            (self.root is not None and not root)
            or ((self.exp != "exact" or self.reciprocal) and not softmax)
            or ((self.repair or self.percent) and "weights" not in steps)
            or (self.gelu == "tanh" and not gelu)
        )
        return not idle


CARRIES = ("full", "printed", "stepwise")

LISTED = {
    "full": Habit("full"),
    "printed": Habit("printed", carry="printed"),
    "stepwise": Habit("stepwise", carry="stepwise"),
    "half-even": Habit("half-even", rounding="half-even"),
    "cut": Habit("cut", rounding="cut"),
    "guard-1": Habit("guard-1", carry="guard", guard=1),
    "guard-2": Habit("guard-2", carry="guard", guard=2),
    "root-2": Habit("root-2", root=2),
    "root-3": Habit("root-3", root=3),
    "exp-few": Habit("exp-few", exp="digits"),
    "root-and-exp": Habit("root-and-exp", root=2, exp="digits"),
    "products": Habit("products", carry="printed", products=True),
    "repaired": Habit("repaired", carry="printed", repair=True),
    "significant-print": Habit("significant-print", significant=3),
    "floor": Habit("floor", rounding="floor"),
    "half-precision": Habit("half-precision", carry="half"),
    "given-rounded": Habit("given-rounded", given=True),
}
"""Habits that a checker may be expected to know. Where carry is "full", any of `CARRIES` is drawn, with exceptions."""

UNLISTED = {
    "significant-carry": Habit("significant-carry", carry="significant"),
    "exp-table": Habit("exp-table", exp="table"),
    "exp-2.718": Habit("exp-2.718", exp="2.718"),
    "exp-shifted": Habit("exp-shifted", exp="shifted"),
    "reciprocal": Habit("reciprocal", reciprocal=True),
    "percent": Habit("percent", carry="printed", percent=True),
    "inverse-root": Habit("inverse-root", root=3, inverse=True),
    "running": Habit("running", carry="printed", running=True),
    "mixed": Habit("mixed", carry="mixed"),
    "inner": Habit("inner", inner=True),
    "gelu-tanh": Habit("gelu-tanh", gelu="tanh"),
}
"""Honest habits that a checker is not told of."""

HABITS = {**LISTED, **UNLISTED}
FIXED = ("full", "significant-carry", "mixed", "given-rounded")
"""Habits whose way of carrying is themselves."""


def draw_habit(rng: random.Random, name: str, digits: int) -> Habit:
    """A habit with what it leaves open: how it carries, and its digits, never fewer than the sheet's."""
    habit = HABITS[name]
    if habit.carry == "full" and name not in FIXED:
        habit = replace(habit, carry=rng.choice(CARRIES))
    if habit.rounding == "half-up" and name not in ("full", "half-even", "given-rounded") and rng.random() < 0.12:
        habit = replace(habit, rounding="cut")
    if habit.exp in ("digits", "shifted"):
        habit = replace(habit, exp_digits=rng.choice([count for count in (2, 3, 4) if count >= digits]))
    if habit.root is not None and habit.root < digits - 1:
        raise Again
    if habit.significant and digits > 2:
        habit = replace(habit, significant=digits + 1)
    if name in ("exp-table", "exp-2.718", "percent") and digits > 3:
        raise Again
    return habit


def every(names: Iterable[str]) -> Iterator[Habit]:
    """Some habits with every way of carrying, and rounded or cut."""
    for name in names:
        habit = HABITS[name]
        carries = CARRIES if habit.carry == "full" and name not in FIXED else (habit.carry,)
        for carry, rounding, digits in product(carries, ("half-up", "cut"), (2, 3, 4)):
            if digits == 4 or habit.exp in ("digits", "shifted"):
                kept = habit.rounding if habit.rounding != "half-up" else rounding
                yield replace(habit, carry=carry, rounding=kept, exp_digits=digits)


def places_of(value: Decimal, significant: int) -> int:
    """The decimals that leave so many significant digits; none of a zero."""
    return 0 if value == 0 else significant - 1 - value.adjusted()


class Pen:
    """The arithmetic of one habit on one sheet."""

    def __init__(self, habit: Habit, digits: int, digits_of: dict[str, int], seed: str) -> None:
        """Keep the sheet's digits, and those of quantities that have others."""
        self.habit, self.digits, self.digits_of = habit, digits, digits_of
        self.seed = seed

    def round(self, value: Decimal, places: int) -> Decimal:
        """To so many decimals, of what a calculator shows: six digits more."""
        if not value.is_finite():
            return value
        clean = value.quantize(ONE.scaleb(-places - 6), rounding=ROUND_HALF_EVEN)
        return clean.quantize(Decimal(1).scaleb(-places), rounding=ROUNDING[self.habit.rounding])

    def stored(self, value: Value) -> Value:
        """A step's numbers as the student's machine keeps them."""
        if self.habit.carry != "half":
            return value
        return [[[Decimal(struct.unpack("e", struct.pack("e", x))[0]) for x in row] for row in rows] for rows in value]

    def places(self, step: str, value: Decimal) -> int:
        """The decimals with which a number of a step is written."""
        if self.habit.percent and step == "weights":
            return 2
        if self.habit.significant:
            places = places_of(value, self.habit.significant)
            rounded = self.round(value, places)
            return max(0, min(places_of(rounded, self.habit.significant), self.habit.significant + 3))
        return self.digits_of.get(step, self.digits)

    def written(self, step: str, value: Value) -> Value:
        """A step's numbers as they are put on paper."""
        made = [[[self.round(x, self.places(step, x)) for x in row] for row in rows] for rows in value]
        if step == "weights" and self.habit.repair:
            made = [[self.repaired(row) for row in rows] for rows in made]
        return made

    @staticmethod
    def repaired(row: Row) -> Row:
        """The last weight that is not 0 is what the others leave of one."""
        last = max((place for place, share in enumerate(row) if share), default=-1)
        rest = ONE - sum((share for place, share in enumerate(row) if place != last), ZERO)
        return [rest if place == last and rest >= 0 else share for place, share in enumerate(row)]

    def carried(self, step: str, value: Value, written: Value, printed: bool) -> Value:
        """The numbers with which the student goes on."""
        habit = self.habit
        carry = habit.carry
        if step == "weights" and (habit.percent or (habit.repair and printed)):
            return written
        if carry == "mixed":
            carry = random.Random(f"{self.seed}{step}").choice(("full", "printed"))
        if carry in ("full", "half") or (carry == "printed" and not printed):
            return value
        if carry == "guard":
            return [
                [[self.round(x, self.places(step, x) + habit.guard) for x in row] for row in rows] for rows in value
            ]
        if carry == "significant":
            kept = self.digits + 2
            return [
                [[self.round(x, places_of(x, kept)) if x.is_finite() else x for x in row] for row in rows]
                for rows in value
            ]
        return written

    # Arithmetic.

    def dot(self, left: Sequence[Decimal], right: Sequence[Decimal], extra: Decimal = ZERO) -> Decimal:
        """A sum of products and a bias."""
        total = ZERO
        for a, b in zip(left, right, strict=True):
            term = self.round(a * b, self.digits) if self.habit.products else a * b
            total += term
            if self.habit.running:
                total = self.round(total, self.digits + 1)
        return total + extra

    def times(self, left: Matrix, right: Matrix, bias: Row | None = None) -> Matrix:
        """A matrix product, with a bias for each column."""
        columns = [list(column) for column in zip(*right, strict=True)]
        extra = bias or [ZERO] * len(columns)
        return [[self.dot(row, column, b) for column, b in zip(columns, extra, strict=True)] for row in left]

    def divided_by_root(self, score: Decimal, width: int) -> Decimal:
        """A score over √d_k, as the student writes √d_k."""
        root, habit = Decimal(width).sqrt(), self.habit
        if habit.inverse:
            return score * self._short(1 / root, max(self.digits, habit.root or 3))
        return score / self._short(root, habit.root)

    @staticmethod
    def _short(value: Decimal, places: int | None) -> Decimal:
        if places is None or value == value.to_integral_value():
            return value
        return value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP)

    def exp(self, value: Decimal) -> Decimal:
        """An exponential."""
        if value == NEVER:
            return ZERO
        way = self.habit.exp
        if way == "table":
            below = value.quantize(Decimal("0.01"), rounding=ROUND_FLOOR)
            low, high = (
                entry.exp().quantize(Decimal("0.0001"), rounding=ROUND_HALF_UP)
                for entry in (below, below + Decimal("0.01"))
            )
            return low + (high - low) * (value - below) * 100
        if way == "2.718":
            return (value * Decimal("2.718").ln()).exp()
        if way in ("digits", "shifted"):
            return self.round(value.exp(), self.habit.exp_digits)
        return value.exp()

    def powers(self, row: Row) -> Row:
        """The exponentials of a row, of the distances to the largest where the student subtracts it."""
        finite = [x for x in row if x != NEVER]
        if not finite or max(finite) > 20:
            raise Again
        most = max(finite) if self.habit.exp == "shifted" else ZERO
        return [self.exp(x - most) if x != NEVER else ZERO for x in row]

    def shares(self, powers: Row) -> Row:
        """Each number over the sum of all."""
        total = sum(powers, ZERO)
        if total <= 0:
            raise Again
        if sum(power != 0 for power in powers) == 1:  # nobody divides a number by itself
            return [ONE if power else ZERO for power in powers]
        if self.habit.reciprocal:
            inverse = 1 / total
            inverse = self.round(inverse, places_of(inverse, self.digits + 2))
            return [power * inverse for power in powers]
        total = self.inner(total)
        return [power / total for power in powers]

    def softmax(self, row: Row) -> Row:
        """Exponentials over their sum."""
        return self.shares(self.powers(row))

    def inner(self, value: Decimal) -> Decimal:
        """A number inside of a step."""
        return self.round(value, self.digits + 1) if self.habit.inner else value

    def gelu(self, value: Decimal) -> Decimal:
        """x Φ(x), or its usual formula with tanh."""
        x = float(value)
        if self.habit.gelu == "tanh":
            share = 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        else:
            share = 0.5 * (1 + math.erf(x / math.sqrt(2)))
        return value * Decimal(share)
