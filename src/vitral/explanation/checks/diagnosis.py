"""Diagnosis of wrong numbers: the slip whose result is what the author printed.

Every hypothesis is scored by the digits that it explains against the number of hypotheses: a kind of slip has a share
of probability, divided among the hypotheses of the kind; a number that is wrong for an unknown reason could be any
other, near ones more likely. A slip is named if it is much more probable than all others and than an unknown reason.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.explanation.checks.habits import Habit
from vitral.explanation.checks.hypotheses import WORDS, Supposed, Supposer
from vitral.explanation.checks.slips import COMMONNESS, GENERIC, Slip, misprints
from vitral.explanation.checks.units import Unit
from vitral.explanation.checks.way import Work
from vitral.explanation.operations import Index
from vitral.explanation.sheet import Sheet, SheetQuantity, Values

SURE = 0.985
PROBABLE = 0.9
"""Smallest probabilities of a slip named alone, and with "probably"; two candidates need `PROBABLE` together."""
UNKNOWN = 0.15
"""The probability that a number is wrong for none of the known reasons."""
UNKNOWN_CELL = 0.4
"""The same, for a single wrong number in its row."""
UNKNOWN_WORD = -20.0
"""Bits for a word chosen for no known reason: that a word is the second best is a fact, not a guess."""
LEVELS = ((0.56, 0.0), (1.5, 2.0), (3.0, 4.0), (6.0, 6.0))
"""How far off a hypothesis may be, in units, and its cost in bits: the author may round on the way."""
HIDDEN_BY = 1000.0
"""Units between a number and −∞."""
MOST_TOGETHER = 3_000_000
"""Numbers of all hypotheses about one quantity; those that come first are the more probable ones."""
PART = 4.0
"""Bits for a slip that is made everywhere by its nature, but in some rows or columns only."""


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
    """A slip, the wrong cells that it explains, and its result before rounding.

    Attributes:
        slip: the slip.
        explains: the cells, as a mask.
        made: the quantity under the slip; None for a misprint.
        grain: the extent of the slip: "all", a "row", a "column" or a "cell".
    """

    slip: Slip
    explains: Tensor
    made: Tensor | None
    grain: str


class Diagnoser:
    """Searches the slip behind printed numbers."""

    def __init__(
        self, sheet: Sheet, claimed: Set[str], computations: tuple[Values, ...], work: Work | None = None
    ) -> None:
        """Keep the computation and what is printed of it.

        Args:
            sheet: the computation.
            claimed: the printed quantities.
            computations: the values that the author may have continued from; the first are exact.
            work: how the author computes; None: exactly.
        """
        self.sheet, self.claimed, self.computations, self.work = sheet, claimed, computations, work or Work()

    def diagnose(self, mismatch: Mismatch) -> dict[Index, SlipMatch]:
        """The slip that explains most wrong cells, then the one that explains most of the others, and so on."""
        search = _Search(self._bases(mismatch.quantity), mismatch, self.work.habit)
        diagnoses: dict[Index, SlipMatch] = {}
        left = mismatch.wrong.clone()
        while bool(left.any()):
            found = search.best(left)
            if found is None:
                break
            explains, match = found
            if match is not None:
                diagnoses |= {tuple(cell): match for cell in (explains & left).nonzero().tolist()}
            left &= ~explains
        return diagnoses

    def _bases(self, quantity: SheetQuantity) -> list[Supposer]:
        """The computations that differ in what the quantity is computed from, or in how."""
        bases: list[Supposer] = []
        for place, base in enumerate(self.computations):
            made = Supposer(self.sheet, self.claimed, quantity, base, self.work if place else None)
            if not any(made.same(other) for other in bases):
                bases.append(made)
        return bases


class _Search:
    """The hypotheses about one quantity, and how well each fits."""

    def __init__(self, bases: list[Supposer], mismatch: Mismatch, habit: Habit | None) -> None:
        self.mismatch = mismatch
        values, shape = mismatch.values, mismatch.values.shape
        supposed: list[Supposed] = []
        most = max(1, MOST_TOGETHER // max(1, values.numel()))
        kept, count = values.new_empty((most, *shape)), 0  # one block: many small ones would scatter the memory
        for place, base in enumerate(bases):
            room = (most - count) // (len(bases) - place)
            for family in base.all():
                supposed += family.supposed[:room]
                part = family.made.reshape(-1, *shape)[:room]
                kept[count : count + len(part)] = part
                count, room = count + len(part), room - len(part)
                if room <= 0:
                    break
        truths = [base.base[mismatch.quantity.name] for base in bases]
        made = [kept[:count]]
        for one, meant in self.misprinted(truths):
            supposed.append(one)
            made.append(meant[None])
        self.drift = float((bases[0].drift(mismatch.unit.decimals) / mismatch.unit.of(values)).max())
        supposed, self.made = _told_apart(supposed, torch.cat([*made, values[None][:0]]), bases[0].order)
        self.supposed = supposed
        self.unit = mismatch.unit.of(values)
        off = (self.made - values).abs() / self.unit
        if habit is not None and habit.cuts:
            off = torch.minimum(off, (habit.rounded(self.made, self.unit) - values).abs() / self.unit)
        off = torch.where(self.made == values, 0.0, off).nan_to_num(nan=math.inf, posinf=math.inf)
        self.off = off.masked_fill(~mismatch.known, 0.0)
        counts = Counter((one.kind, one.partial) for one in supposed)
        shares = [
            math.log2(COMMONNESS[one.kind] / 100 / counts[one.kind, one.partial]) - PART * one.partial
            for one in supposed
        ]
        self.prior = torch.tensor(shares, dtype=torch.float64)
        self.alike = torch.tensor([_GRAINS.index(one.grain) for one in supposed])
        self.bits = self.surprise(truths)

    def misprinted(self, truths: list[Tensor]) -> Iterator[tuple[Supposed, Tensor]]:
        """Misprints: the truth, with one wrong number as it is printed."""
        name, values = self.mismatch.quantity.name, self.mismatch.values
        if name in WORDS:
            return
        for place in self.mismatch.wrong.nonzero().tolist():
            index = tuple(place)
            value = float(values[index])
            half = float(self.mismatch.unit.of(values[index])) * 0.56
            for kind, meant in misprints(value, self.mismatch.unit.decimals_of(value)):
                truth = next((each for each in truths if abs(float(each[index]) - meant) <= half), None)
                if truth is not None:
                    made = truth.clone()
                    made[index] = value
                    yield Supposed(kind, name, {}, "cell"), made

    def surprise(self, truths: list[Tensor]) -> Tensor:
        """How many bits each wrong number carries, if the reason is unknown: those near the truth carry fewer."""
        values = self.mismatch.values
        far = [((values - truth).abs() / self.unit).nan_to_num(nan=0.0, posinf=HIDDEN_BY) for truth in truths]
        off = torch.stack(far).amin(dim=0)
        finite = torch.cat([each[each.isfinite()].flatten() for each in (values, *truths)])
        span = float(finite.max() - finite.min()) if len(finite) else 1.0
        room = (span / self.unit + 10).maximum(off)
        chance = 0.5 / room + 0.5 / (2 * (off + 1) * (room + 2).log())
        return -chance.log2()

    def best(self, left: Tensor) -> tuple[Tensor, SlipMatch | None] | None:
        """The best explanation of some of the cells that are left, or None; without a slip if none is named."""
        if not self.supposed:
            return None
        scores, reaches = self.scores(left)
        best = int(scores.argmax())
        if not float(scores[best]) > -math.inf:
            return None
        explains = self.explained(best, _REACHES[int(reaches[best])], left)
        return explains, self.judged(explains, left)

    def levels(self) -> list[tuple[float, float]]:
        """How far off a hypothesis may be, in units, and its cost; further where rounding on the way moves more."""
        return [*LEVELS, (2 * self.drift, 6.0)] if 2 * self.drift > LEVELS[-1][0] else [*LEVELS]

    def scores(self, left: Tensor) -> tuple[Tensor, Tensor]:
        """The best score of each hypothesis, in bits over an unknown reason, and how far it reaches."""
        gain = torch.where(left, self.bits, 0.0)
        known = self.mismatch.known
        shape = (len(_REACHES), len(self.supposed))
        best = torch.full(shape, -math.inf, dtype=torch.float64)
        for room, cost in self.levels():
            fits = self.off <= room
            blur = math.log2(max(1.0, 2 * room))
            for place, reach in enumerate(_REACHES):
                area = self.areas(fits, reach)
                cells = (area & left).flatten(1).any(dim=1)
                worth = (area * (gain - blur * (known & left))).flatten(1).sum(dim=1) - cost
                worth = worth + self.prior - self.reach_cost(place)
                best[place] = torch.maximum(best[place], torch.where(cells, worth, -math.inf))
        scores, reaches = best.max(dim=0)
        return scores, reaches

    def reach_cost(self, place: int) -> Tensor:
        """Bits for a slip that reaches less far than it would by its nature, in the order of `_REACHES`."""
        table = torch.tensor(_REACH_COSTS, dtype=torch.float64)
        return table[place][self.alike]

    def areas(self, fits: Tensor, reach: str) -> Tensor:
        """The cells of the areas that fit completely: everything, rows, columns, or cells.

        A cell counts alone only if it is the only wrong one of its row: several slips in one row are unlikely.
        """
        if reach == "cell":
            wrong = self.mismatch.wrong
            return fits & (wrong.sum(dim=-1, keepdim=True) == 1).expand_as(wrong)
        if reach == "all" or fits.dim() < 3:
            return fits.flatten(1).all(dim=1).reshape(-1, *(1,) * (fits.dim() - 1)).expand_as(fits)
        return fits.all(dim=-1 if reach == "row" else -2, keepdim=True).expand_as(fits)

    def explained(self, best: int, reach: str, left: Tensor) -> Tensor:
        for room, _ in self.levels():
            explains = self.areas(self.off[best : best + 1] <= room, reach)[0] & left
            if bool(explains.any()):
                return explains
        raise AssertionError("a slip that explains nothing")

    def judged(self, explains: Tensor, left: Tensor) -> SlipMatch | None:
        """The slip behind these cells, if it is much more probable than others; or two, or none."""
        worth = torch.full((len(self.supposed),), -math.inf, dtype=torch.float64)
        gain = float((self.bits * explains).sum())
        known = int(explains.sum())
        for room, cost in self.levels():
            fits = self.off <= room
            for place, reach in enumerate(_REACHES):
                area = self.areas(fits, reach)
                covers = (area | ~explains).flatten(1).all(dim=1)
                value = gain - known * math.log2(max(1.0, 2 * room)) - cost + self.prior - self.reach_cost(place)
                worth = torch.maximum(worth, torch.where(covers, value, -math.inf))
        unknown = math.log2(UNKNOWN_CELL if known == 1 else UNKNOWN)
        if self.mismatch.quantity.name in WORDS:
            unknown = UNKNOWN_WORD
        top = max(float(worth.max()), unknown)
        mass = 2.0 ** (worth - top)
        total = float(mass.sum()) + 2.0 ** (unknown - top)
        names: dict[tuple[str, str], float] = defaultdict(float)
        for place in (mass > 1e-6).nonzero().flatten().tolist():
            names[self.supposed[place].kind, self.supposed[place].step] += float(mass[place]) / total
        ranked = sorted(names, key=lambda name: -names[name])
        if not ranked:
            return None
        first = names[ranked[0]]
        second = names[ranked[1]] if len(ranked) > 1 else 0.0
        if first >= PROBABLE:
            return self.match(ranked[:1], worth, explains, sure=first >= SURE)
        if first + second >= PROBABLE:
            return self.match(ranked[:2], worth, explains, sure=False)
        return None

    def match(self, names: list[tuple[str, str]], worth: Tensor, explains: Tensor, *, sure: bool) -> SlipMatch:
        slips, places = [], []
        for kind, step in names:
            of_name = torch.tensor([one.kind == kind and one.step == step for one in self.supposed])
            place = int(torch.where(of_name, worth, -math.inf).argmax())
            places.append(place)
            slips.append(Slip(kind, step, self.supposed[place].places, sure=sure))
        first, *others = slips
        slip = Slip(first.kind, first.step, first.places, sure, others[0] if others else None)
        one = self.supposed[places[0]]
        misprint = one.kind in ("digits-swapped", "sign-lost", "point-misplaced", "digit-wrong")
        return SlipMatch(slip, explains, None if misprint else self.made[places[0]], one.grain)


def _told_apart(supposed: list[Supposed], made: Tensor, order: Mapping[str, int]) -> tuple[list[Supposed], Tensor]:
    """The hypotheses without those that another one makes needless: the same numbers, by a name that says more.

    Of equal kinds the earliest step is kept, for rows of other positions every step.
    """
    alike: dict[bytes, list[int]] = {}
    rounded = (made + 0.0).float().flatten(1).numpy()
    for place in range(len(supposed)):
        alike.setdefault(rounded[place].tobytes(), []).append(place)
    kept = []
    for places in alike.values():
        told = [place for place in places if supposed[place].kind not in GENERIC] or places
        # The scores in place of the scaled scores: the scale was left out.
        told = [place for place in told if supposed[place].kind != "operand-other"] or told
        seen: set[tuple[str, str]] = set()
        for place in sorted(told, key=lambda place: (supposed[place].partial, order.get(supposed[place].step, -1))):
            one = supposed[place]
            name = (one.kind, one.step if one.kind in ("other-row", "operand-other") else "")
            if name not in seen:
                seen.add(name)
                kept.append(place)
    kept.sort()
    return [supposed[place] for place in kept], made[kept]


_GRAINS = ("all", "row", "column", "cell")
_REACHES = ("all", "row", "column", "cell")
_REACH_COSTS = (
    (0.0, 0.0, 0.0, 0.0),
    (PART, 0.0, PART, math.inf),
    (2 * PART, 2 * PART, 0.0, math.inf),
    (math.inf, math.inf, math.inf, 0.0),
)
"""By reach, then grain: a slip of rows may fit everywhere, a slip of a cell only in its cells."""


def within(values: Tensor, truth: Tensor, tolerance: Tensor | float) -> Tensor:
    """Whether values agree up to a tolerance; equal infinities agree."""
    room = tolerance * (1 + 1e-6) + 1e-12 * truth.abs().nan_to_num(posinf=0.0, neginf=0.0)
    return (values == truth) | ((values - truth).abs() <= room)
