"""The unit of a claimed number: one step of the last digit that its author writes.

All numbers of a quantity have as many decimals as the longest of them; a shorter one has lost its zeros. An author may
count significant digits instead, as in 12.3, 1.23 and 0.123: then fewer zeros have been lost.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.explanation.examples.example import Example
from vitral.explanation.examples.numerals import Digits, digits, most_decimals
from vitral.explanation.examples.schema import WORDS

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
        places = map(tuple, claim.values.isfinite().nonzero().tolist())
        typed[claim.name] = [text for place in places if (text := example.typed(claim, place)) is not None]
    most = {name: most_decimals(texts) for name, texts in typed.items()}
    found = {name: Unit(OF_FRACTIONS if most[name] is None and typed[name] else most[name] or 0) for name in typed}
    return found | _significant(typed) | whole


def usual(found: Iterable[Unit], otherwise: int) -> Unit:
    """The unit of most quantities that have decimals; of the unprinted ones too."""
    counts = Counter(unit for unit in found if unit.decimals)
    significant = [unit for unit in counts if unit.significant is not None]
    if significant:
        return max(significant, key=lambda unit: (counts[unit], unit.decimals))
    return max(counts, key=lambda unit: (counts[unit], unit.decimals), default=Unit(otherwise))


def _significant(typed: Mapping[str, list[str]]) -> dict[str, Unit]:
    """The units of an author who counts significant digits; empty if decimals fit as well."""
    read = {name: filter(None, map(digits, texts)) for name, texts in typed.items()}
    pointed = {name: [each for each in found if each.has_point and each.significant] for name, found in read.items()}
    every = [each for found in pointed.values() for each in found]
    best, most, gained = 0, 0, dict[str, int]()
    # 0.9996 with three significant digits is typed 1.00 or 1.000; such a number tells nothing.
    for significant in sorted({each.significant for each in every if not each.is_power}):
        gains = dict(_zeros_gained(pointed, significant))
        total = sum(gain for gain in gains.values() if gain > 0)
        if total > most:
            best, most, gained = significant, total, gains
    uniform = all(each.significant == best for each in every)
    if not best or most < (1 if uniform and len(every) >= MANY else CLEARLY - uniform):
        return {}
    return {
        name: Unit(max(each.decimals for each in pointed[name]), best)
        for name, gain in gained.items()
        if gain > -CLEARLY
    }


def _zeros_gained(pointed: Mapping[str, list[Digits]], significant: int) -> Iterator[tuple[str, int]]:
    """For each quantity without longer numbers: the zeros lost if decimals count, less those if digits count."""
    for name, found in pointed.items():
        if found and all(each.significant <= significant or each.is_power for each in found):
            most = max(each.decimals for each in found)
            yield name, sum(most - each.decimals - max(0, significant - each.significant) for each in found)
