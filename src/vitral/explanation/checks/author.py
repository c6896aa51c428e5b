"""The author of a sheet: the printed numbers, and the habit that explains most of them."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.checks.habits import Habit, habits, typical
from vitral.explanation.checks.units import Unit, units, usual
from vitral.explanation.examples.example import Example
from vitral.explanation.sheet import SheetQuantity, Values

MASKED_ENOUGH = -1e4
"""Masked scores at most this low stand for −∞, as −1e9 does."""
FAR = 5.0
"""Units between a number and what any rounding may make of it."""


@dataclass(frozen=True)
class Printed:
    """The printed numbers of one quantity.

    Attributes:
        values: the numbers; NaN where nothing is printed.
        known: whether a number is printed.
        unit: of the numbers.
        size: one unit of each number.
    """

    values: Tensor
    known: Tensor
    unit: Unit
    size: Tensor


class Step(NamedTuple):
    """A quantity as computed with a habit.

    Attributes:
        quantity: the quantity.
        values: from right numbers, and from the author's own, before rounding.
        fits: whether the habit explains each printed number by either.
    """

    quantity: SheetQuantity
    values: tuple[Tensor, Tensor]
    fits: tuple[Tensor, Tensor]


class Author:
    """Computes a sheet as its author may have done."""

    def __init__(self, example: Example) -> None:
        """Read the units of the printed numbers."""
        self.example, self.sheet = example, example.sheet
        self.units = units(example)
        self.usual = usual(self.units.values(), example.decimals)
        self.printed: dict[str, Printed] = {}
        for claim in example.claims:
            exact, unit = self.sheet.values[claim.name], self.units[claim.name]
            low = (exact == -math.inf) & (claim.values <= MASKED_ENOUGH)
            values = torch.where(low, -math.inf, claim.values)
            self.printed[claim.name] = Printed(values, ~values.isnan(), unit, unit.of(values))
        self.made: dict[tuple[object, ...], Tensor] = {}
        self.tensors: dict[tuple[object, ...], Tensor] = {}

    @cached_property
    def given(self) -> dict[str, Tensor]:
        """The given values."""
        return {name: self.one(value) for name, value in self.sheet.values.items() if name not in self.sheet}

    @cached_property
    def habit(self) -> Habit:
        """The habit that explains most printed numbers; each of its parts must explain some more."""
        best, fewest = Habit(), math.inf
        for habit in habits(self.sheet.quantities):
            if habit.price >= fewest:
                break
            score = self.score(habit, fewest)
            if score < fewest:
                best, fewest = habit, score
        return best

    def score(self, habit: Habit, enough: float = math.inf) -> float:
        """The number of printed numbers that a habit does not explain, and its parts; counted up to `enough`."""
        odd = habit.price
        for step in self.steps(habit):
            odd += self.count(step)
            if odd >= enough:
                break
        return odd

    def steps(self, habit: Habit) -> Iterator["Step"]:
        """Go through the sheet with a habit."""
        right, own = dict(self.given), dict(self.given)
        for quantity in self.sheet.quantities:
            name = quantity.name
            values = self.make(habit, quantity, right), self.make(habit, quantity, own)
            fits = self.fits(habit, quantity, values[0]), self.fits(habit, quantity, values[1])
            yield Step(quantity, values, fits)
            right[name] = self.carried(habit, quantity, values[0], fits[0])
            own[name] = self.own(habit, quantity, values, fits, right[name])

    @cached_property
    def typical(self) -> list[list["Step"]]:
        """The sheet with a few habits that lie far apart; full precision first."""
        return [list(self.steps(habit)) for habit in typical(self.usual.decimals)]

    @cached_property
    def spread(self) -> dict[str, Tensor]:
        """How far the values of each quantity move from one habit to another; the same for a whole row."""
        made: dict[str, Tensor] = {}
        for steps in zip(*self.typical, strict=True):
            centre = steps[0].values[0]
            off = torch.stack([(step.values[0] - centre).abs().nan_to_num(nan=0.0) for step in steps]).amax(dim=0)
            made[steps[0].quantity.name] = off.amax(dim=-1, keepdim=True).expand_as(off)
        return made

    @cached_property
    def telling(self) -> dict[str, Tensor]:
        """The printed numbers that tell a habit: those that some habit may explain.

        A row with a number that is far off every time tells nothing. After such a number, neither does one that it has
        moved far: the wrong number is known only up to its rounding.
        """
        made: dict[str, Tensor] = {}
        for steps in self.typical:
            astray: set[str] = set()
            for step in steps:
                name, (value, other) = step.quantity.name, step.values
                if not astray.isdisjoint(step.quantity.inputs):
                    astray.add(name)
                if name not in self.printed:
                    continue
                printed = self.printed[name]
                room = FAR * printed.size
                far = torch.minimum((printed.values - value).abs(), (printed.values - other).abs()) > room
                near = ~far & (((other - value).abs() <= room) | torch.tensor(name not in astray))
                if bool((far & printed.known).any()):
                    astray.add(name)
                made[name] = made.get(name, torch.zeros_like(near)) | near | ~printed.known
        return {name: near.all(dim=-1, keepdim=True) & self.printed[name].known for name, near in made.items()}

    # Values that are equal are one tensor, so that equal computations of different habits are made once.

    def one(self, values: Tensor) -> Tensor:
        """The same tensor for equal values."""
        values = values.contiguous()
        return self.tensors.setdefault((values.dtype, values.shape, values.numpy().tobytes()), values)

    def once(self, key: tuple[object, ...], make: Callable[[], Tensor]) -> Tensor:
        """What `make` returns, computed once for each key."""
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = self.one(make())
        return found

    def make(self, habit: Habit, quantity: SheetQuantity, values: Values) -> Tensor:
        """A quantity as the author computes it from these values."""
        inside = habit.inside(quantity)
        key = ("make", quantity.name, inside, *(id(values[name]) for name in quantity.inputs))

        def make() -> Tensor:
            try:
                made = habit.make(quantity, values, self.unit(quantity.name)) if inside else quantity.make(values)
            except UsageError:  # the author's probabilities are not a distribution
                made = self.sheet.values[quantity.name]
            tied = self.tied(values) if quantity.name == "greedy" else None
            return made if tied is None else tied

        return self.once(key, make)

    def unit(self, name: str) -> Unit:
        """The unit of a quantity; of an unprinted one, that of the sheet."""
        return self.units.get(name, self.usual)

    def tied(self, values: Values) -> Tensor | None:
        """The author's choice if no word is more probable; any of equally probable words may be chosen."""
        if "greedy" not in self.printed or "greedy" not in self.sheet:
            return None
        chosen, shares = self.printed["greedy"].values, values["probabilities"][-1]
        return chosen if bool(chosen.isfinite().all()) and shares[int(chosen)] == shares.max() else None

    def fits(self, habit: Habit, quantity: SheetQuantity, values: Tensor) -> Tensor:
        """Whether a habit explains each printed number by these values; true where nothing is printed."""
        printed = self.printed.get(quantity.name)
        if printed is None:
            return self.all_fit(values.shape)

        def explained() -> Tensor:
            shown = habit.printed(quantity, values, printed.unit)
            return habit.explains(printed.values, shown, printed.size) | ~printed.known

        return self.once(("fits", quantity.name, id(values), habit.cuts, habit.repairs), explained)

    def count(self, step: "Step") -> int:
        """The number of telling cells that neither right numbers nor the author's own explain."""
        name, fits = step.quantity.name, step.fits
        if name not in self.printed:
            return 0
        key = ("count", name, *map(id, fits))
        return int(self.once(key, lambda: (~fits[0] & ~fits[1] & self.telling[name]).sum()))

    def all_fit(self, shape: torch.Size) -> Tensor:
        """A mask of ones."""
        return self.once(("all", shape), lambda: torch.ones(shape, dtype=torch.bool))

    def carried(self, habit: Habit, quantity: SheetQuantity, values: Tensor, fits: Tensor) -> Tensor:
        """What the author goes on with."""
        printed = self.printed.get(quantity.name)
        if habit.carry == "full" or (printed is None and habit.carry == "printed"):
            return values
        key = ("carried", quantity.name, habit.carry, habit.cuts, habit.guards, habit.repairs, id(values), id(fits))

        def carried() -> Tensor:
            unit = self.unit(quantity.name)
            shown = habit.carried(habit.printed(quantity, values, unit), unit)
            if printed is None or habit.guards:
                return shown
            return torch.where(printed.known & fits, printed.values, shown)

        return self.once(key, carried)

    def own(
        self,
        habit: Habit,
        quantity: SheetQuantity,
        values: tuple[Tensor, Tensor],
        fits: tuple[Tensor, Tensor],
        right: Tensor,
    ) -> Tensor:
        """What an author goes on with who keeps the wrong numbers.

        Args:
            habit: the habit.
            quantity: the quantity.
            values: from right numbers, and from the author's own.
            fits: whether the habit explains each printed number by either.
            right: what is carried on of the values from right numbers.
        """
        printed = self.printed.get(quantity.name)
        if printed is None:
            return right if values[0] is values[1] else self.carried(habit, quantity, values[1], fits[1])
        if values[0] is values[1] and bool(fits[0].all()):
            return right
        follows = self.carried(habit, quantity, values[1], fits[1])
        key = ("own", quantity.name, id(right), id(follows), id(fits[0]), id(fits[1]))

        def own() -> Tensor:
            kept = torch.where(fits[1], follows, printed.values)
            return torch.where(printed.known & fits[0], right, kept)

        return self.once(key, own)
