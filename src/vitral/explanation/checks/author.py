"""The author of a sheet: the printed numbers, and the rule that explains most of them."""

import hashlib
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.checks.intervals import Interval, propagated
from vitral.explanation.checks.rounding import (
    COUNTED,
    FARTHEST,
    HALF_ULP,
    TOLERANCE,
    RoundingRule,
    Unit,
    rules,
    units,
    usual,
    within,
)
from vitral.explanation.examples.example import Example
from vitral.explanation.expressions import Reference
from vitral.explanation.recipe import SheetQuantity, Values

MASKED_ENOUGH = -1e4
"""Masked scores at most this low stand for −∞, as −1e9 does."""
EXACT = RoundingRule()


@dataclass(frozen=True)
class Printed:
    """The printed numbers of one quantity.

    Attributes:
        values: the numbers; NaN where nothing is printed.
        known: whether a number is printed.
        unit: of the numbers; of a quantity that is not printed, that of the sheet.
        size: one unit of each number.
    """

    values: Tensor
    known: Tensor
    unit: Unit
    size: Tensor


Both = tuple[Tensor, Tensor]
"""Something of the right numbers, and of the author's own."""


class Author:
    """Computes a sheet as its author may have done."""

    def __init__(self, example: Example, boxes: Mapping[str, Interval] | None = None) -> None:
        """Read the units of the printed numbers.

        Args:
            example: the sheet.
            boxes: where the given numbers may lie if they were rounded before they were printed.
        """
        self.example, self.sheet = example, example.sheet
        self.given = {name: value for name, value in self.sheet.values.items() if name not in self.sheet}
        self.start = boxes or {name: Interval(value, value) for name, value in self.given.items()}
        self.claimed = {claim.name: claim.values for claim in example.claims}
        copied = [SheetQuantity(name, (), Reference(name)) for name in self.claimed if name in self.given]
        self.quantities = (*copied, *self.sheet.quantities)
        self.cache: dict[tuple[object, ...], Tensor] = {}  # most rules go on with the same numbers
        self.printed: dict[str, Printed] = {}
        by_name = units(example)
        self.usual = usual(by_name.values(), example.decimals)
        for name in (quantity.name for quantity in self.quantities):
            exact, unit = self.sheet.values[name], by_name.get(name, self.usual)
            typed = self.claimed.get(name, torch.full_like(exact, math.nan))
            values = torch.where((exact == -math.inf) & (typed <= MASKED_ENOUGH), -math.inf, typed)
            self.printed[name] = Printed(values, ~values.isnan(), unit, unit.of(values))

    @cached_property
    def rule(self) -> RoundingRule:
        """The rule that explains most printed numbers; each of its parts must explain some more."""
        best, fewest = EXACT, math.inf
        for rule in rules(self.sheet.quantities, self.usual.decimals):
            if rule.price >= fewest:
                break
            score = self.score(rule, fewest)
            if score < fewest:
                best, fewest = rule, score
        return best

    def score(self, rule: RoundingRule, enough: float = math.inf) -> float:
        """The number of printed numbers that a rule does not explain, and its parts; counted up to `enough`."""
        unexplained, start = rule.price, rule.started(self.given)
        right, own = dict(start), dict(start)
        for quantity in self.quantities:
            _, fits = self.step(rule, quantity, right, own)
            unexplained += int((~fits[0] & ~fits[1] & self.informative[quantity.name]).sum())
            if unexplained >= enough:
                break
        return unexplained

    @cached_property
    def informative(self) -> dict[str, Tensor]:
        """The printed numbers that show a rule: those of rows without a number that is far off whatever the rule."""
        masks = dict[str, Tensor]()
        for quantity in self.quantities:
            name, printed = quantity.name, self.printed[quantity.name]
            near = self.plausible(EXACT, quantity) | within(
                printed.values, self.from_printed[0][name], TOLERANCE * printed.size
            )
            masks[name] = near.all(dim=-1, keepdim=True) & printed.known
        return masks

    def step(
        self, rule: RoundingRule, quantity: SheetQuantity, right: dict[str, Tensor], own: dict[str, Tensor]
    ) -> tuple[Both, Both]:
        """Add a quantity to right numbers and to the author's own, where wrong ones are kept.

        Returns:
            Its values before rounding, and whether the rule explains each printed number by them.
        """
        name, printed = quantity.name, self.printed[quantity.name]
        differs = any(own[operand] is not right[operand] for operand in quantity.inputs)
        value = self.make(rule, quantity, right)
        own_value = self.make(rule, quantity, own) if differs else value
        explained = self.fits(rule, quantity, value) & self.plausible(rule, quantity)
        fits = explained, self.fits(rule, quantity, own_value) if differs else explained
        own[name] = right[name] = self.carried(rule, quantity, value, explained)
        if differs or not bool(explained.all()):
            carried = torch.where(fits[1], self.carried(rule, quantity, own_value, fits[1]), printed.values)
            own[name] = torch.where(printed.known & explained, right[name], carried)
        return (value, own_value), fits

    @cached_property
    def from_printed(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Each quantity from all printed numbers before it; and what is printed, with these where nothing is."""
        values, shown = {}, dict(self.given)
        for quantity in self.quantities:
            name, printed = quantity.name, self.printed[quantity.name]
            values[name] = self.make(EXACT, quantity, shown)
            shown[name] = torch.where(printed.known, printed.values, values[name])
        return values, shown

    def make(self, rule: RoundingRule, quantity: SheetQuantity, values: Values) -> Tensor:
        """A quantity as the author computes it from these values; any of equally probable words may be chosen."""
        name, printed = quantity.name, self.printed[quantity.name]
        if name == "greedy" and bool(printed.known.all()):
            shares = values["probabilities"][-1]
            if shares[int(printed.values)] == shares.max():
                return printed.values
        digest = hashlib.sha256(b"".join(values[operand].numpy().tobytes() for operand in quantity.inputs)).digest()
        key = name, rule.inside(quantity), digest
        if key not in self.cache:
            try:
                self.cache[key] = rule.make(quantity, values, printed.unit)
            except UsageError:  # the author's probabilities are not a distribution
                self.cache[key] = self.sheet.values[name]
        return self.cache[key]

    def fits(self, rule: RoundingRule, quantity: SheetQuantity, values: Tensor) -> Tensor:
        """Whether a rule explains each printed number by these values; true where nothing is printed."""
        printed = self.printed[quantity.name]
        if quantity.name in COUNTED or quantity.name not in self.claimed:
            return ~printed.known | (printed.values == values)
        results = rule.printed(quantity, values, printed.unit)
        return ~printed.known | rule.explains(printed.values, results, printed.size)

    def plausible(self, rule: RoundingRule, quantity: SheetQuantity) -> Tensor:
        """Where a printed number is not too far from the true one for the rule; true where nothing is printed.

        A step from printed numbers may be far off.
        """
        name, printed = quantity.name, self.printed[quantity.name]
        key = "plausible", name, rule.carry == "float16"
        if key not in self.cache:
            true, ulps = self.sheet.values[name], 2 * HALF_ULP if rule.carry == "float16" else 0.0
            room = ulps * printed.values.abs().nan_to_num(posinf=0.0, neginf=0.0)
            plausible = ~printed.known | within(printed.values, true, FARTHEST * printed.size + room)
            if not bool(plausible.all()):
                plausible |= self.boxes[name].wider(TOLERANCE * printed.size + room).contains(printed.values)
            self.cache[key] = plausible
        return self.cache[key]

    @cached_property
    def boxes(self) -> dict[str, Interval]:
        """Where each quantity lies if what is printed before it is known up to its rounding."""
        boxes, shown = dict[str, Interval](), dict(self.start)
        for quantity in self.quantities:
            name, printed, value = quantity.name, self.printed[quantity.name], self.from_printed[0][quantity.name]
            boxes[name] = box = self.propagated(quantity, shown, value)
            is_honest = printed.known & box.wider(TOLERANCE * printed.unit.of(value)).contains(printed.values)
            shown[name] = Interval.around(printed.values, printed.size / 2).where(is_honest, box)
        return boxes

    def propagated(
        self, quantity: SheetQuantity, boxes: Mapping[str, Interval], values: Tensor, rule: RoundingRule = EXACT
    ) -> Interval:
        """Where a quantity lies if its inputs do; `values` where it has no interval."""
        if quantity.name not in COUNTED:
            with suppress(UsageError):  # the author's probabilities are not a distribution
                return propagated(quantity.tree, boxes, 10.0 ** -self.printed[quantity.name].unit.decimals, rule)
        return Interval(values, values)

    def carried(
        self, rule: RoundingRule, quantity: SheetQuantity, values: Tensor, fits: Tensor | bool = True
    ) -> Tensor:
        """The numbers with which the author goes on."""
        printed = self.printed[quantity.name]
        if rule.carry == "full" or (rule.carry == "printed" and quantity.name not in self.claimed):
            return values
        shown = rule.carried(rule.printed(quantity, values, printed.unit), printed.unit)
        is_finer = rule.guards > 0 or rule.carry == "float16"
        return shown if is_finer else torch.where(printed.known & fits, printed.values, shown)
