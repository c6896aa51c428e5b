"""Diagnosis of wrong numbers: the slip whose result is what the author printed.

A slip is named only if it gives every wrong number that it is about, and if it is much more probable than all others
and than an unknown reason: a kind of slip has a share of probability, divided among the hypotheses of the kind; a
number that is wrong for an unknown reason could be any other, near ones more likely. A step has one cause, or two.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.explanation.checks.hypotheses import WORDS, Supposed, Supposer, Work
from vitral.explanation.checks.slips import COMMONNESS, GENERIC, MISPRINTS, SKIPPED, Slip, misprints
from vitral.explanation.checks.units import Unit
from vitral.explanation.sheet import Index, Sheet, SheetQuantity, Values

SURE, PROBABLE = 0.985, 0.9
"""Smallest probabilities of a slip named alone, and with "probably"; two candidates need `PROBABLE` together."""
UNKNOWN, UNKNOWN_CELL, UNKNOWN_WORD = 0.15, 0.4, 1e-6
"""The probability that numbers are wrong for none of the known reasons; of a single number; of a word."""
REPRODUCED = 0.56
"""Units between a wrong number and what a slip gives."""
HIDDEN_BY = 1000.0
"""Units between a number and −∞."""
MOST_TOGETHER = 3_000_000
"""Numbers of all hypotheses about one quantity; those that come first are the more probable ones."""
PART = 4.0
"""Bits for a slip that is made everywhere by its nature, but in some rows or columns only."""
_REACHES = ("all", "row", "column", "cell")
_REACH_COSTS = torch.tensor(
    [
        [0.0, 0.0, 0.0, 0.0],
        [PART, 0.0, PART, math.inf],
        [2 * PART, 2 * PART, 0.0, math.inf],
        [math.inf, math.inf, math.inf, 0.0],
    ],
    dtype=torch.float64,
)
"""By reach, then grain: a slip of rows may fit everywhere, a slip of a cell only in its cells."""


@dataclass(frozen=True)
class Mismatch:
    """A quantity with cells that are wrong in themselves.

    Attributes:
        quantity: the quantity.
        values: the printed numbers.
        known: whether a cell is printed.
        wrong: whether it is wrong in itself.
        unit: of the printed numbers.
    """

    quantity: SheetQuantity
    values: Tensor
    known: Tensor
    wrong: Tensor
    unit: Unit


@dataclass(frozen=True)
class SlipMatch:
    """A slip and its result before rounding.

    Attributes:
        slip: the slip.
        made: the quantity under the slip; None for a misprint.
        grain: the extent of the slip: "all", a "row", a "column" or a "cell".
    """

    slip: Slip
    made: Tensor | None
    grain: str


def diagnose(
    sheet: Sheet, claimed: Set[str], computations: tuple[Values, ...], work: Work, mismatch: Mismatch
) -> dict[Index, SlipMatch]:
    """The slip behind each wrong cell: one that explains all of them, or two, or none.

    Args:
        sheet: the computation.
        claimed: the printed quantities.
        computations: the values that the author may have continued from; the first are exact.
        work: how the author computes.
        mismatch: the wrong cells.
    """
    bases: list[Supposer] = []
    for place, base in enumerate(computations):
        made = Supposer(sheet, claimed, mismatch.quantity, base, work if place else Work())
        if not any(made.same(other) for other in bases):
            bases.append(made)
    search = _Search(bases, mismatch, work)
    every = mismatch.wrong
    first = search.named(every)
    if first is not None or not search.supposed:
        return {} if first is None else _of(first, every)
    part = search.best(every)
    if part is None or bool((part == every).all()):
        return {}
    one, other = search.named(part), search.named(every & ~part)
    return {} if one is None or other is None else _of(one, part) | _of(other, every & ~part)


def _of(match: SlipMatch, cells: Tensor) -> dict[Index, SlipMatch]:
    return dict.fromkeys(map(tuple, cells.nonzero().tolist()), match)


class _Search:
    """The hypotheses about one quantity, and where each gives what is printed."""

    def __init__(self, bases: list[Supposer], mismatch: Mismatch, work: Work) -> None:
        self.mismatch = mismatch
        values, shape = mismatch.values, mismatch.values.shape
        self.unit = mismatch.unit.of(values)
        most = max(1, MOST_TOGETHER // max(1, values.numel()) // len(bases))
        supposed: list[Supposed] = []
        made: list[Tensor] = []
        for base in bases:
            room = most
            for some, result in base.all(values):
                supposed += some[:room]
                made.append(result.reshape(-1, *shape)[:room])
                room -= len(made[-1])
                if room <= 0:
                    break
        self.truths = [base.base[mismatch.quantity.name] for base in bases]
        for one, meant in self.misprinted():
            supposed.append(one)
            made.append(meant[None])
        everything = torch.cat([*made, values[None][:0]])
        off = (everything - values).abs() / self.unit
        if work.rule.cuts:
            off = torch.minimum(off, (work.rule.rounded(everything, self.unit) - values).abs() / self.unit)
        fits = ((everything == values) | (off <= REPRODUCED)) | ~mismatch.known
        counts = Counter(one.kind for one in supposed)
        some = (fits & mismatch.wrong).flatten(1).any(dim=1).nonzero().flatten().tolist()
        kept = [some[place] for place in _distinct([supposed[place] for place in some], everything[some])]
        self.supposed, self.made, self.fits = [supposed[place] for place in kept], everything[kept], fits[kept]
        shares = [math.log2(COMMONNESS[one.kind] / 100 / counts[one.kind]) - one.cost for one in self.supposed]
        self.prior = torch.tensor(shares, dtype=torch.float64)
        self.grains = torch.tensor([_REACHES.index(one.grain) for one in self.supposed], dtype=torch.long)
        self.bits = self.surprise()

    def misprinted(self) -> Iterator[tuple[Supposed, Tensor]]:
        """Misprints: the truth, with one wrong number as it is printed."""
        name, values = self.mismatch.quantity.name, self.mismatch.values
        if name in WORDS:
            return
        for place in self.mismatch.wrong.nonzero().tolist():
            index = tuple(place)
            value = float(values[index])
            half = float(self.mismatch.unit.of(values[index])) * REPRODUCED
            for kind, meant in misprints(value, self.mismatch.unit.decimals_of(value)):
                truth = next((each for each in self.truths if abs(float(each[index]) - meant) <= half), None)
                if truth is not None:
                    made = truth.clone()
                    made[index] = value
                    yield Supposed(kind, name, {}, "cell"), made

    def surprise(self) -> Tensor:
        """How many bits each wrong number carries, if the reason is unknown: those near the truth carry fewer."""
        values = self.mismatch.values
        far = [((values - truth).abs() / self.unit).nan_to_num(nan=0.0, posinf=HIDDEN_BY) for truth in self.truths]
        off = torch.stack(far).amin(dim=0)
        finite = torch.cat([each[each.isfinite()].flatten() for each in (values, *self.truths)])
        span = float(finite.max() - finite.min()) if len(finite) else 1.0
        room = (span / self.unit + 10).maximum(off)
        chance = 0.5 / room + 0.5 / (2 * (off + 1) * (room + 2).log())
        return -chance.log2() - math.log2(2 * REPRODUCED)

    def areas(self, reach: str) -> Tensor:
        """The cells of the areas that fit completely: everything, rows, columns, or cells.

        A cell counts alone only if it is the only wrong one of its row: several slips in one row are unlikely.
        """
        fits = self.fits
        if reach == "cell":
            wrong = self.mismatch.wrong
            return fits & (wrong.sum(dim=-1, keepdim=True) == 1)
        if reach == "all" or fits.dim() < 3:
            return fits.flatten(1).all(dim=1).reshape(-1, *(1,) * (fits.dim() - 1)).expand_as(fits)
        return fits.all(dim=-1 if reach == "row" else -2, keepdim=True).expand_as(fits)

    def best(self, left: Tensor) -> Tensor | None:
        """The cells of the best explanation of some of those that are left; None without one."""
        best, cells = 0.0, None
        for place, reach in enumerate(_REACHES):
            area = self.areas(reach) & left
            scores = (area * self.bits).flatten(1).sum(dim=1) + self.prior - _REACH_COSTS[place][self.grains]
            scores = torch.where(area.flatten(1).any(dim=1), scores, -math.inf)
            if len(scores) and float(scores.max()) > best:
                best, cells = float(scores.max()), area[int(scores.argmax())]
        return cells

    def named(self, cells: Tensor) -> SlipMatch | None:
        """The slip behind these cells, if it is much more probable than others; or two, or none."""
        if not self.supposed:
            return None
        worth = torch.full((len(self.supposed),), -math.inf, dtype=torch.float64)
        gain = float((self.bits * cells).sum())
        for place, reach in enumerate(_REACHES):
            covers = (self.areas(reach) | ~cells).flatten(1).all(dim=1)
            value = gain + self.prior - _REACH_COSTS[place][self.grains]
            worth = torch.maximum(worth, torch.where(covers, value, -math.inf))
        is_word = self.mismatch.quantity.name in WORDS
        unknown = math.log2(UNKNOWN_WORD if is_word else UNKNOWN_CELL if int(cells.sum()) == 1 else UNKNOWN)
        top = max(float(worth.max()), unknown)
        mass = 2.0 ** (worth - top)
        total = float(mass.sum()) + 2.0 ** (unknown - top)
        names: dict[tuple[str, str], float] = defaultdict(float)
        for place in (mass > 1e-6).nonzero().flatten().tolist():
            names[self.supposed[place].kind, self.supposed[place].step] += float(mass[place]) / total
        ranked = sorted(names, key=lambda name: -names[name])[:2]
        if not ranked or sum(names[name] for name in ranked) < PROBABLE:
            return None
        if names[ranked[0]] >= PROBABLE:
            ranked = ranked[:1]
        return self.match(ranked, worth, sure=names[ranked[0]] >= SURE)

    def match(self, names: list[tuple[str, str]], worth: Tensor, *, sure: bool) -> SlipMatch:
        slips, places = [], []
        for kind, step in names:
            alike = torch.tensor([one.kind == kind and one.step == step for one in self.supposed])
            places.append(int(torch.where(alike, worth, -math.inf).argmax()))
            slips.append(Slip(kind, step, self.supposed[places[-1]].places, sure=sure))
        first, *others = slips
        slip = Slip(first.kind, first.step, first.places, sure, others[0] if others else None)
        one = self.supposed[places[0]]
        return SlipMatch(slip, None if one.kind in MISPRINTS else self.made[places[0]], one.grain)


def _distinct(supposed: list[Supposed], made: Tensor) -> list[int]:
    """The hypotheses without those that another one makes needless: the same numbers, by a name that says more."""
    alike: dict[bytes, list[int]] = {}
    rounded = (made + 0.0).float().flatten(1).numpy()
    for place in range(len(supposed)):
        alike.setdefault(rounded[place].tobytes(), []).append(place)
    kept: dict[tuple[bytes, str, str], int] = {}
    for numbers, places in alike.items():
        named = [place for place in places if supposed[place].kind not in GENERIC] or places
        if any(supposed[place].kind in SKIPPED for place in named):  # the scores in place of the scaled scores
            named = [place for place in named if supposed[place].kind not in ("operand-other", "temperature")]
        for place in named:
            one = supposed[place]
            kept.setdefault((numbers, one.kind, one.step if one.kind in ("other-row", "operand-other") else ""), place)
    return sorted(kept.values())
