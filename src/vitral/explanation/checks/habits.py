"""Habits of rounding: the ways in which an author computes a sheet by hand.

A habit says which numbers are carried on, how numbers are rounded, and which numbers inside a step are rounded too. It
computes a quantity as the author does; a check chooses the habit that explains most of a sheet.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import Tensor

from vitral.explanation.checks.units import Unit
from vitral.explanation.expressions import Call, nodes
from vitral.explanation.operations import Linear, Operation, Output, Project, Scale, Score, Softmax, Weigh
from vitral.explanation.operations.attention import MOST_EXPONENT
from vitral.explanation.operations.expression import Compute
from vitral.explanation.sheet import SheetQuantity, Values

TOLERANCE = 0.55
"""Units between a printed number and the habit's: half of the last digit, and a little for rounding twice."""
EXACTLY = 1e-6
"""Units that floating point may differ by."""
FEW = (2, 3, 1, 4)
"""Decimals to which roots and exponentials may be rounded."""
BOTH = tuple((roots, False, powers) for roots in (2, 3) for powers in (2, 3, 4))
"""Decimals of roots and exponentials in one sheet."""
MOST_GUARDS = 2
PART, MANY_PARTS = 0.3, 0.7
"""Cells that each part of a habit must explain, and further ones that each part from the third on must."""


@dataclass(frozen=True)
class Habit:
    """A way to compute a sheet by hand.

    Attributes:
        carry: numbers used for later steps: "full" precision, the "printed" ones, or "steps": each rounded, printed or
            not.
        cuts: digits are cut off, not rounded.
        roots: decimals of √d_k, rounded even if other numbers are cut; None for full precision.
        inverts: the rounded number is 1/√d_k, not √d_k.
        powers: decimals of exponentials; None for full precision.
        guards: further digits of what is carried on, if each step is rounded.
        products: each product of a sum is rounded.
        repairs: the last weight of a row is what the others leave of 1.
    """

    carry: str = "full"
    cuts: bool = False
    roots: int | None = None
    inverts: bool = False
    powers: int | None = None
    guards: int = 0
    products: bool = False
    repairs: bool = False

    @property
    def parts(self) -> int:
        """The number of ways in which it differs from full precision: smaller is simpler."""
        few = (self.roots is not None, self.inverts, self.powers is not None)
        return sum((self.carry != "full", self.cuts, *few, self.products, self.repairs))

    @property
    def price(self) -> float:
        """The number of cells that it must explain beyond full precision; few authors have many habits at once."""
        return PART * self.parts + MANY_PARTS * max(0, self.parts - 2)

    def make(self, quantity: SheetQuantity, values: Values, unit: Unit) -> Tensor:
        """A quantity from the author's values, before the result is rounded.

        Args:
            quantity: the quantity.
            values: what the author carries on.
            unit: of the quantity, for numbers that are rounded on the way.
        """
        return made(quantity.operation, self, [values[name] for name in quantity.inputs], unit)

    def inside(self, quantity: SheetQuantity) -> tuple[object, ...]:
        """What matters of the habit inside a step; empty if the operation is computed as it is."""
        if isinstance(quantity.operation, DOTS):
            return ("products", self.cuts, self.guards) if self.products else ()
        if isinstance(quantity.operation, Scale):
            return ("roots", self.roots, self.inverts) if self.roots is not None else ()
        if isinstance(quantity.operation, Softmax):
            return ("powers", self.powers, self.cuts) if self.powers is not None else ()
        if isinstance(quantity.operation, Compute):
            parts = (self.roots, self.powers, self.products)
            return ("tree", *parts, self.cuts, self.guards) if parts != (None, None, False) else ()
        return ()

    def rounded(self, values: Tensor, size: Tensor | float) -> Tensor:
        """Numbers rounded or cut to multiples of `size`."""
        scaled = values.abs() / size
        scaled = scaled + EXACTLY if self.cuts else scaled + 0.5 + EXACTLY
        return torch.where(values.isfinite(), scaled.floor() * size * values.sign(), values)

    def carried(self, values: Tensor, unit: Unit) -> Tensor:
        """What is carried on of a step whose number is not printed, or was not right."""
        if self.carry == "full":
            return values
        finer = unit.finer(self.guards if self.carry == "steps" else 0)
        return self.rounded(values, finer.of(values))

    def printed(self, quantity: SheetQuantity, values: Tensor, unit: Unit) -> Tensor:
        """What is printed of a computed step: rounded where that is not up to the check's tolerance."""
        if not self.repairs or not isinstance(quantity.operation, Softmax):
            return values
        written = self.rounded(values, unit.of(values))
        last = _last_positive(values)
        rest = 1 - written.masked_fill(last, 0.0).sum(dim=-1, keepdim=True)
        return torch.where(last, rest.expand_as(values), values)

    def explains(self, printed: Tensor, values: Tensor, size: Tensor) -> Tensor:
        """Whether printed numbers are these values, rounded or cut to units of `size`."""
        below, above = (TOLERANCE - 0.5, TOLERANCE + 0.5) if self.cuts else (TOLERANCE, TOLERANCE)
        off = (values - printed) * torch.where(values < 0, -1.0, 1.0)
        room = 1e-12 * values.abs().nan_to_num(posinf=0.0, neginf=0.0)
        near = (off >= -below * size - room) & (off <= above * size + room)
        return (printed == values) | near

    @property
    def told(self) -> tuple[tuple[str, int], ...]:
        """Its parts as keys of phrases, each with a number of decimals (0 where it has none)."""
        carry = f"guard_{self.guards}" if self.carry == "steps" and self.guards else self.carry
        parts = [(carry, 0), *(("cuts", 0) for _ in range(self.cuts))]
        if self.roots is not None:
            parts.append(("inverse" if self.inverts else "roots", self.roots))
        if self.powers is not None:
            parts.append(("powers", self.powers))
        return (*parts, *((name, 0) for name in ("products", "repairs") if getattr(self, name)))


DOTS = (Project, Linear, Score, Weigh, Output)
"""Operations that are sums of products."""


def habits(quantities: Sequence[SheetQuantity]) -> Iterator[Habit]:
    """The habits that may matter for these quantities, from the simplest on."""
    used = {part for quantity in quantities for part in _parts_of(quantity.operation)}
    rooted, raised, summed = (part in used for part in ("root", "power", "product"))
    few: list[tuple[int | None, bool, int | None]] = [(None, False, None)]
    few += [(digits, False, None) for digits in FEW if rooted]
    few += [(digits, True, None) for digits in FEW if rooted]
    few += [(None, False, digits) for digits in FEW if raised]
    few += BOTH if rooted and raised else ()
    carries = (("full", 0), ("printed", 0), *(("steps", guards) for guards in range(MOST_GUARDS + 1)))
    made = [
        Habit(carry, cuts, *each, guards, products, repairs)
        for (carry, guards), cuts, each, products, repairs in itertools.product(
            carries,
            (False, True),
            few,
            (False, True) if summed else (False,),
            (False, True) if raised else (False,),
        )
    ]
    return iter(sorted(made, key=lambda habit: (habit.price, habit.products)))


def _parts_of(operation: Operation) -> Iterator[str]:
    """What there is inside an operation that a habit may round."""
    if isinstance(operation, DOTS):
        yield "product"
    elif isinstance(operation, Softmax):
        yield "power"
    elif isinstance(operation, Scale) and operation.kind in ("sqrt", "adaptive"):
        yield "root"
    elif isinstance(operation, Compute):
        inside = {"matmul": "product", "exp": "power", "softmax": "power", "sqrt": "root"}
        for _, node in nodes(operation.expression):
            if isinstance(node, Call) and node.function in inside:
                yield inside[node.function]


def typical(decimals: int) -> Iterator[Habit]:
    """A few habits that lie far apart, for numbers of so many decimals."""
    for carry, cuts in itertools.product(("full", "printed", "steps"), (False, True)):
        yield Habit(carry, cuts)
    yield Habit("steps", products=True)
    yield Habit("steps", roots=max(decimals, 1), powers=max(decimals, 1))
    for digits in (1, 2):
        yield Habit(roots=digits)
        yield Habit(powers=digits)


@singledispatch
def made(operation: Operation, habit: Habit, inputs: list[Tensor], unit: Unit) -> Tensor:
    """The result of an operation, with the numbers on the way rounded as the habit does."""
    return operation(*inputs)


@made.register
def _(operation: Scale, habit: Habit, inputs: list[Tensor], unit: Unit) -> Tensor:
    [scores] = inputs
    if habit.roots is None or operation.kind not in ("sqrt", "adaptive"):
        return operation(scores)
    factors = operation.factors(scores)
    size = 10.0**-habit.roots
    if habit.inverts:
        return scores * (factors / size).round() * size
    return scores / ((1 / factors / size).round() * size).clamp(min=size)


@made.register
def _(operation: Softmax, habit: Habit, inputs: list[Tensor], unit: Unit) -> Tensor:
    [entries] = inputs
    return operation(entries) if habit.powers is None else _shares(entries, habit)


def _shares(entries: Tensor, habit: Habit) -> Tensor:
    """The softmax of rows, with rounded exponentials."""
    assert habit.powers is not None
    largest = entries.amax(dim=-1, keepdim=True)
    shift = torch.where((largest > MOST_EXPONENT) & largest.isfinite(), largest, 0.0)
    powers = habit.rounded(torch.exp(entries - shift), 10.0**-habit.powers)
    total = powers.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, powers / total.clamp(min=1e-300), torch.softmax(entries, dim=-1).nan_to_num())


@made.register
def _(operation: Compute, habit: Habit, inputs: list[Tensor], unit: Unit) -> Tensor:
    def instead(function: str, arguments: Sequence[Tensor], settings: Sequence[int | None]) -> Tensor | None:
        first = arguments[0]
        if function == "exp" and habit.powers is not None:
            return habit.rounded(first.exp(), 10.0**-habit.powers)
        if function == "softmax" and habit.powers is not None and first.dim():
            axis = -1 if not settings or settings[0] is None else settings[0]
            return _shares(first.movedim(axis, -1), habit).movedim(-1, axis)
        if function == "sqrt" and habit.roots is not None:
            size = 10.0**-habit.roots
            return (first.sqrt() / size).round() * size
        if function == "matmul" and habit.products and min(each.dim() for each in arguments) > 1:
            return _dotted(first, arguments[1], habit, unit)
        return None

    return operation.computed(inputs, instead)


def _dotted(left: Tensor, right: Tensor, habit: Habit, unit: Unit) -> Tensor:
    """[..., rows, columns] of [..., rows, terms] and [..., terms, columns]; each product is rounded."""
    products = left[..., :, :, None] * right[..., None, :, :]
    return habit.rounded(products, unit.finer(habit.guards).of(products)).sum(dim=-2)


def _shared(few: Tensor, many: Tensor) -> Tensor:
    """Keys or values for every query head: each serves a group of heads."""
    return few.repeat_interleave(len(many) // len(few), dim=0)


@made.register
def _(operation: Project, habit: Habit, inputs: list[Tensor], unit: Unit) -> Tensor:
    x, weight, *bias = inputs
    if not habit.products:
        return operation(*inputs)
    return _dotted(x[None], weight, habit, unit) + (bias[0][:, None] if bias else 0.0)


@made.register
def _(operation: Linear, habit: Habit, inputs: list[Tensor], unit: Unit) -> Tensor:
    x, weight, *bias = inputs
    if not habit.products:
        return operation(*inputs)
    return _dotted(x, weight.T if operation.tied else weight, habit, unit) + (bias[0] if bias else 0.0)


@made.register
def _(operation: Score, habit: Habit, inputs: list[Tensor], unit: Unit) -> Tensor:
    q, k = inputs
    return _dotted(q, _shared(k, q).mT, habit, unit) if habit.products else operation(q, k)


@made.register
def _(operation: Weigh, habit: Habit, inputs: list[Tensor], unit: Unit) -> Tensor:
    weights, v = inputs
    return _dotted(weights, _shared(v, weights), habit, unit) if habit.products else operation(weights, v)


@made.register
def _(operation: Output, habit: Habit, inputs: list[Tensor], unit: Unit) -> Tensor:
    z, *rest = inputs
    if not habit.products or not rest:
        return operation(*inputs)
    together = z.transpose(-2, -3).flatten(-2)
    return _dotted(together, rest[0], habit, unit) + (rest[1] if len(rest) > 1 else 0.0)


def _last_positive(weights: Tensor) -> Tensor:
    """The last weight of each row that is not 0, as a mask; none in a row of a single weight."""
    seen = weights > 0
    after = seen.flip(-1).cumsum(dim=-1).flip(-1)
    return seen & (after == 1) & (seen.sum(dim=-1, keepdim=True) > 1)
