"""Units and rounding rules: the digits that an author writes, and the ways to compute a sheet by hand.

All numbers of a quantity have as many decimals as the longest of them; a shorter one has lost its zeros. An author may
count significant digits instead, as in 12.3, 1.23 and 0.123: then fewer zeros have been lost.

A rule says which numbers are carried on, how numbers are rounded, and which numbers inside a step are rounded too. It
computes a quantity as the author does; a check chooses the rule that explains most of a sheet.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitral.explanation.examples.example import Example
from vitral.explanation.examples.numerals import Digits, digits, most_decimals
from vitral.explanation.examples.schema import WORDS
from vitral.explanation.expressions import Call, compute, every
from vitral.explanation.recipe import SheetQuantity, Values

COUNTED = (*WORDS, "rows", "total")
"""Quantities whose numbers are whole: indices of words, and counts."""
OF_FRACTIONS = 9
"""Decimals of a quantity whose numbers are all fractions: these are exact."""
CLEARLY = 3
"""An author counts significant digits if at least so many zeros less have been lost then."""
MANY = 6
"""So many numbers with equally many significant digits, and not with equally many decimals, are enough as well."""


@dataclass(frozen=True)
class Unit:
    """The digits of one quantity.

    Attributes:
        decimals: digits after the point, the most that any number has.
        significant: significant digits, if the author counts those; None if the decimals count.
    """

    decimals: int
    significant: int | None = None

    def of(self, values: Tensor) -> Tensor:
        """One unit of the last digit of each number."""
        if self.significant is None:
            return torch.full_like(values, 10.0**-self.decimals)
        sizes = values.abs().nan_to_num(nan=1.0, posinf=1.0).clamp(min=1e-300)
        return 10.0 ** ((sizes.log10() + 1e-12).floor() - self.significant + 1).clamp(min=-self.decimals)

    def decimals_of(self, value: float) -> int:
        """The digits after the point of one number."""
        if self.significant is None:
            return self.decimals
        return max(0, -round(math.log10(float(self.of(torch.tensor([value], dtype=torch.float64))))))

    def finer(self, more: int) -> "Unit":
        """The unit with more digits."""
        return Unit(self.decimals + more, None if self.significant is None else self.significant + more)


def is_whole(values: Tensor, size: Tensor | float) -> Tensor:
    """Whether numbers are whole multiples of a unit; sin 0.001 is not 0.001."""
    scaled = values / size
    return ((scaled - scaled.round()).abs() <= 1e-10 + 1e-13 * scaled.abs()) | ~values.isfinite()


def units(example: Example) -> dict[str, Unit]:
    """The unit of every claimed quantity."""
    whole = {claim.name: Unit(0) for claim in example.claims if claim.name in COUNTED}
    if example.states_decimals:
        return {claim.name: Unit(example.decimals) for claim in example.claims} | whole
    typed: dict[str, list[str]] = {}
    for claim in example.claims:
        indices = map(tuple, claim.values.isfinite().nonzero().tolist())
        typed[claim.name] = [text for index in indices if (text := example.typed(claim, index)) is not None]
    most = {name: most_decimals(texts) for name, texts in typed.items()}
    by_decimals = {
        name: Unit(OF_FRACTIONS if most[name] is None and typed[name] else most[name] or 0) for name in typed
    }
    return by_decimals | _significant(typed) | whole


def usual(claimed: Iterable[Unit], otherwise: int) -> Unit:
    """The unit of most quantities that have decimals; of the unprinted ones too."""
    counts = Counter(unit for unit in claimed if unit.decimals)
    significant = [unit for unit in counts if unit.significant is not None]
    return max(significant or counts, key=lambda unit: (counts[unit], unit.decimals), default=Unit(otherwise))


def _significant(typed: Mapping[str, list[str]]) -> dict[str, Unit]:
    """The units of an author who counts significant digits; empty if decimals fit as well."""
    parsed = {name: filter(None, map(digits, texts)) for name, texts in typed.items()}
    pointed = {
        name: [number for number in numbers if number.has_point and number.significant]
        for name, numbers in parsed.items()
    }
    numbers = [number for numbers in pointed.values() for number in numbers]
    best, most, gained = 0, 0, dict[str, int]()
    # 0.9996 with three significant digits is typed 1.00 or 1.000; such a number shows nothing.
    for significant in sorted({number.significant for number in numbers if not number.is_power}):
        gains = dict(_zeros_gained(pointed, significant))
        total = sum(gain for gain in gains.values() if gain > 0)
        if total > most:
            best, most, gained = significant, total, gains
    uniform = all(number.significant == best for number in numbers)
    if not best or most < (1 if uniform and len(numbers) >= MANY else CLEARLY - uniform):
        return {}
    return {
        name: Unit(max(number.decimals for number in pointed[name]), best)
        for name, gain in gained.items()
        if gain > -CLEARLY
    }


def _zeros_gained(pointed: Mapping[str, list[Digits]], significant: int) -> Iterator[tuple[str, int]]:
    """For each quantity without longer numbers: the zeros lost if decimals count, less those if digits count."""
    for name, numbers in pointed.items():
        if numbers and all(number.significant <= significant or number.is_power for number in numbers):
            most = max(number.decimals for number in numbers)
            yield name, sum(most - number.decimals - max(0, significant - number.significant) for number in numbers)


TOLERANCE = 0.55
"""Units between a printed number and the rule's: half of the last digit, and a little for rounding twice."""
EXACTLY = 1e-6
"""Units that floating point may differ by."""
FARTHEST = 20.0
"""Units beyond which no rule explains a number, unless the digits of what is printed before it do."""
HALF_ULP = 2.0**-10
"""One unit in the last place of a float16, relative to the number."""
SITES = {"_power": "power", "_root": "root", "σ_row": "root"}
"""By name of a number on the side: what a rule may round there."""
FEW_CELLS = 2.0
"""Cells that 16-bit numbers must explain besides: a notebook has many of them."""
PART, MANY_PARTS = 0.3, 0.7
"""Cells that each part of a rule must explain, and further ones that each part from the third on must."""


@dataclass(frozen=True)
class RoundingRule:
    """A way to compute a sheet by hand.

    Attributes:
        carry: numbers used for later steps: "full" precision, the "printed" ones, "steps": each rounded, printed or
            not, or "float16": each a 16-bit number.
        cuts: whether digits are cut off, and not rounded: "" (no), "cuts" (towards 0) or "floor" (downwards).
        roots: decimals of √d_k, rounded even if other numbers are cut; None for full precision.
        powers: decimals of exponentials; None for full precision.
        guards: further digits of what is carried on, if each step is rounded.
        products: each product of a sum is rounded.
        repairs: the last weight of a row is what the others leave of 1.
        given: the given numbers are rounded on the sheet, the others computed from those before.
    """

    carry: str = "full"
    cuts: str = ""
    roots: int | None = None
    powers: int | None = None
    guards: int = 0
    products: bool = False
    repairs: bool = False
    given: bool = False

    @property
    def price(self) -> float:
        """The number of cells that it must explain beyond full precision; few authors do many things at once."""
        inside = (self.roots is not None, self.powers is not None, self.products)
        parts = sum((self.carry != "full", self.cuts != "", *inside, self.repairs))
        return PART * parts + MANY_PARTS * max(0, parts - 2) + (FEW_CELLS if self.carry == "float16" else 0.0)

    def inside(self, quantity: SheetQuantity) -> tuple[object, ...]:
        """What matters of the rule inside a step; empty if the step is computed as it is."""
        if (self.roots, self.powers, self.products) == (None, None, False):
            return ()
        sites = {site(call) for call in every(quantity.tree)}
        parts: tuple[object, ...] = ()
        if self.products and "product" in sites:
            parts += ("products", self.cuts, self.guards)
        if self.roots is not None and "root" in sites:
            parts += ("roots", self.roots)
        return (*parts, "powers", self.powers, self.cuts) if self.powers is not None and "power" in sites else parts

    def make(self, quantity: SheetQuantity, values: Values, unit: Unit) -> Tensor:
        """A quantity from the author's values, before the result is rounded.

        Args:
            quantity: the quantity.
            values: what the author carries on.
            unit: of the quantity, for numbers that are rounded on the way.
        """

        def by_hand(call: Call, parts: list[Tensor]) -> Tensor | None:
            where, first = site(call), parts[0]
            if where == "power" and self.powers is not None:
                return self.rounded(first.exp() if call.function == "exp" else first, 10.0**-self.powers)
            if where == "root" and self.roots is not None:
                size = 10.0**-self.roots
                return ((first / size).round() * size).clamp(min=size)
            if where == "product" and self.products and min(part.dim() for part in parts) > 1:
                products = first[..., :, :, None] * parts[1][..., None, :, :]
                return self.rounded(products, unit.finer(self.guards).of(products)).sum(dim=-2)
            return None

        return compute(quantity.tree, values, by_hand) if self.inside(quantity) else quantity.make(values)

    def started(self, given: Values) -> Values:
        """The given numbers as the author's machine holds them."""
        return {name: value.half().double() for name, value in given.items()} if self.carry == "float16" else given

    def rounded(self, values: Tensor, size: Tensor | float) -> Tensor:
        """Numbers rounded or cut to multiples of `size`."""
        if self.cuts == "floor":
            return torch.where(values.isfinite(), (values / size + EXACTLY).floor() * size, values)
        scaled = values.abs() / size + EXACTLY + (0.0 if self.cuts else 0.5)
        return torch.where(values.isfinite(), scaled.floor() * size * values.sign(), values)

    def carried(self, values: Tensor, unit: Unit) -> Tensor:
        """What is carried on of a step whose number is not printed, or was not right."""
        if self.carry in ("full", "float16"):
            return values if self.carry == "full" else values.half().double()
        finer = unit.finer(self.guards if self.carry == "steps" else 0)
        return self.rounded(values, finer.of(values))

    def printed(self, quantity: SheetQuantity, values: Tensor, unit: Unit) -> Tensor:
        """What is printed of a computed step: rounded where that is not up to the check's tolerance."""
        if not self.repairs or not quantity.is_share:
            return values
        written, seen = self.rounded(values, unit.of(values)), values > 0
        # The last weight that is not 0, of a row with several.
        last = seen & (seen.flip(-1).cumsum(dim=-1).flip(-1) == 1) & (seen.sum(dim=-1, keepdim=True) > 1)
        rest = 1 - written.masked_fill(last, 0.0).sum(dim=-1, keepdim=True)
        return torch.where(last, rest.expand_as(values), values)

    def explains(self, printed: Tensor, values: Tensor, size: Tensor) -> Tensor:
        """Whether printed numbers are these values, rounded or cut to units of `size`."""
        off, above = (values - printed) * self.towards(values), TOLERANCE + (0.5 if self.cuts else 0.0)
        below = above - 1 if self.cuts else above
        room = (HALF_ULP if self.carry == "float16" else 1e-12) * values.abs().nan_to_num(posinf=0.0, neginf=0.0)
        near = (off >= -below * size - room) & (off <= above * size + room)
        if self.carry == "float16":
            near &= (printed.half().double() - printed).abs() <= above * size
        return (printed == values) | near

    def towards(self, values: Tensor) -> Tensor:
        """The side on which a number lies of what is left when its digits are cut off: 1 or −1."""
        return torch.where((values < 0) & (self.cuts != "floor"), -1.0, 1.0).to(values.dtype)

    def side(self, name: str, size: float) -> float:
        """The unit to which a number on the side may be rounded, if its quantity has this unit."""
        decimals = {"root": self.roots, "power": self.powers}.get(SITES.get(name, ""))
        return size if decimals is None else max(size, 10.0**-decimals)

    @property
    def named(self) -> tuple[tuple[str, int], ...]:
        """Its parts as keys of phrases, each with a number of decimals (0 where it has none)."""
        if self.given:
            return (("given", 0),)
        carry = f"guard_{self.guards}" if self.carry == "steps" and self.guards else self.carry
        parts = [(carry, 0), *([(self.cuts, 0)] if self.cuts else [])]
        if self.roots is not None:
            parts.append(("roots", self.roots))
        if self.powers is not None:
            parts.append(("powers", self.powers))
        return (*parts, *((name, 0) for name in ("products", "repairs") if getattr(self, name)))


def rules(quantities: Sequence[SheetQuantity], decimals: int) -> list[RoundingRule]:
    """The rules that may matter for these quantities, from the simplest on; numbers have so many decimals."""
    roots = [None, *(digits for digits in (2, 3, 4) if digits >= decimals - 1)][:3]
    inner = [RoundingRule(roots=root, powers=power) for root in roots for power in (None, 2, 3, 4)]
    inner += [RoundingRule(products=True), RoundingRule(repairs=True)]
    matters = [rule for rule in inner if rule in (RoundingRule(), inner[-1]) or any(map(rule.inside, quantities))]
    ways = [(carry, cuts) for carry in ("full", "printed", "steps") for cuts in ("", "cuts")]
    combined = [replace(rule, carry=carry, cuts=cuts) for carry, cuts in ways for rule in matters]
    combined += [RoundingRule(carry, "floor") for carry, cuts in ways if cuts]
    combined += [RoundingRule("steps", cuts, guards=guards) for cuts in ("", "cuts") for guards in (1, 2)]
    return sorted([*combined, RoundingRule("float16")], key=lambda rule: (rule.price, rule.products, rule.repairs))


def within(values: Tensor, truth: Tensor, tolerance: Tensor | float) -> Tensor:
    """Whether values agree up to a tolerance; equal infinities agree."""
    room = tolerance * (1 + 1e-6) + 1e-12 * truth.abs().nan_to_num(posinf=0.0, neginf=0.0)
    return (values == truth) | ((values - truth).abs() <= room)


def site(call: Call) -> str:
    """What a rule may round here: a "product" of a sum, a "root", a "power", or nothing."""
    if call.function == "aside":
        return SITES.get(call.settings[0], "")
    return {"matmul": "product", "exp": "power"}.get(call.function, "")
