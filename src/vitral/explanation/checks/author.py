"""The author of a sheet: the printed numbers, and the rule that explains most of them."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.checks.rounding import RoundingRule, rules, typical
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
    """A quantity as computed with a rule.

    Attributes:
        quantity: the quantity.
        values: from right numbers, and from the author's own, before rounding.
        fits: whether the rule explains each printed number by either.
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
        self.made: dict[tuple[object, ...], Tensor] = {}  # most rules go on with the same numbers
        self.printed: dict[str, Printed] = {}
        for claim in example.claims:
            exact, unit = self.sheet.values[claim.name], self.units[claim.name]
            low = (exact == -math.inf) & (claim.values <= MASKED_ENOUGH)
            values = torch.where(low, -math.inf, claim.values)
            self.printed[claim.name] = Printed(values, ~values.isnan(), unit, unit.of(values))

    @cached_property
    def given(self) -> dict[str, Tensor]:
        """The given values."""
        return {name: value for name, value in self.sheet.values.items() if name not in self.sheet}

    @cached_property
    def rule(self) -> RoundingRule:
        """The rule that explains most printed numbers; each of its parts must explain some more."""
        best, fewest = RoundingRule(), math.inf
        for rule in rules(self.sheet.quantities, self.usual.decimals):
            if rule.price >= fewest:
                break
            score = self.score(rule, fewest)
            if score < fewest:
                best, fewest = rule, score
        return best

    def score(self, rule: RoundingRule, enough: float = math.inf) -> float:
        """The number of printed numbers that a rule does not explain, and its parts; counted up to `enough`."""
        odd = rule.price
        for step in self.steps(rule):
            odd += self.count(step)
            if odd >= enough:
                break
        return odd

    def steps(self, rule: RoundingRule) -> Iterator["Step"]:
        """Go through the sheet with a rule; its author keeps the wrong numbers."""
        right, own = dict(self.given), dict(self.given)
        for quantity in self.sheet.quantities:
            name, printed = quantity.name, self.printed.get(quantity.name)
            astray = any(own[each] is not right[each] for each in quantity.inputs)
            value = self.make(rule, quantity, right)
            other = self.make(rule, quantity, own) if astray else value
            near = self.fits(rule, quantity, value) & self.near(rule, name)
            fits = near, self.fits(rule, quantity, other) if astray else near
            yield Step(quantity, (value, other), fits)
            own[name] = right[name] = self.carried(rule, quantity, value, fits[0])
            if astray or (printed is not None and not bool(fits[0].all())):
                follows = self.carried(rule, quantity, other, fits[1])
                own[name] = follows
                if printed is not None:
                    kept = torch.where(fits[1], follows, printed.values)
                    own[name] = torch.where(printed.known & fits[0], right[name], kept)

    @cached_property
    def typical(self) -> list[list["Step"]]:
        """The sheet with a few rules that lie far apart; full precision first."""
        return [list(self.steps(rule)) for rule in typical(self.usual.decimals)]

    @cached_property
    def spread(self) -> dict[str, Tensor]:
        """How far the values of each quantity move from one rule to another; the same for a whole row."""
        made: dict[str, Tensor] = {}
        for steps in zip(*self.typical, strict=True):
            centre = steps[0].values[0]
            off = torch.stack([(step.values[0] - centre).abs().nan_to_num(nan=0.0) for step in steps]).amax(dim=0)
            made[steps[0].quantity.name] = off.amax(dim=-1, keepdim=True).expand_as(off)
        return made

    @cached_property
    def telling(self) -> dict[str, Tensor]:
        """The printed numbers that tell a rule: those that some rule may explain.

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
                far &= ~(step.fits[0] | step.fits[1])
                near = ~far & (((other - value).abs() <= room) | torch.tensor(name not in astray))
                if bool((far & printed.known).any()):
                    astray.add(name)
                made[name] = made.get(name, torch.zeros_like(near)) | near | ~printed.known
        return {name: near.all(dim=-1, keepdim=True) & self.printed[name].known for name, near in made.items()}

    def make(self, rule: RoundingRule, quantity: SheetQuantity, values: Values) -> Tensor:
        """A quantity as the author computes it from these values."""
        read = hashlib.sha256(b"".join(values[each].numpy().tobytes() for each in quantity.inputs)).digest()
        key = quantity.name, rule.inside(quantity), read
        made = self.made.get(key)
        if made is None:
            try:
                made = rule.make(quantity, values, self.unit(quantity.name))
            except UsageError:  # the author's probabilities are not a distribution
                made = self.sheet.values[quantity.name]
            self.made[key] = made
        tied = self.tied(values) if quantity.name == "greedy" else None
        return made if tied is None else tied

    def unit(self, name: str) -> Unit:
        """The unit of a quantity; of an unprinted one, that of the sheet."""
        return self.units.get(name, self.usual)

    def tied(self, values: Values) -> Tensor | None:
        """The author's choice if no word is more probable; any of equally probable words may be chosen."""
        if "greedy" not in self.printed or "greedy" not in self.sheet:
            return None
        chosen, shares = self.printed["greedy"].values, values["probabilities"][-1]
        return chosen if bool(chosen.isfinite().all()) and shares[int(chosen)] == shares.max() else None

    def fits(self, rule: RoundingRule, quantity: SheetQuantity, values: Tensor) -> Tensor:
        """Whether a rule explains each printed number by these values; true where nothing is printed."""
        printed = self.printed.get(quantity.name)
        if printed is None:
            return torch.ones_like(values, dtype=torch.bool)
        return (
            rule.explains(printed.values, rule.printed(quantity, values, printed.unit), printed.size) | ~printed.known
        )

    def near(self, rule: RoundingRule, name: str) -> Tensor:
        """Where a printed number is not too far from the true one for the rule; true where nothing is printed."""
        key = "near", name, rule.carry == "float16"
        if key not in self.made:
            true, printed = self.sheet.values[name], self.printed.get(name)
            near = torch.ones_like(true, dtype=torch.bool)
            self.made[key] = near if printed is None else rule.near(printed.values, true, printed.size) | ~printed.known
        return self.made[key]

    def count(self, step: "Step") -> int:
        """The number of telling cells that neither right numbers nor the author's own explain."""
        name, fits = step.quantity.name, step.fits
        return int((~fits[0] & ~fits[1] & self.telling[name]).sum()) if name in self.printed else 0

    def carried(self, rule: RoundingRule, quantity: SheetQuantity, values: Tensor, fits: Tensor) -> Tensor:
        """What the author goes on with."""
        printed = self.printed.get(quantity.name)
        if rule.carry == "full" or (printed is None and rule.carry == "printed"):
            return values
        unit = self.unit(quantity.name)
        shown = rule.carried(rule.printed(quantity, values, unit), unit)
        is_finer = rule.guards > 0 or rule.carry == "float16"
        return shown if printed is None or is_finer else torch.where(printed.known & fits, printed.values, shown)
