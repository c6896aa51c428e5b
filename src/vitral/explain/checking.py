"""Checking a computation done by hand: each printed number against what is true and against the author's own.

A cell is compared with up to four computations of the same sheet:

    exact     from what is given alone
    right     from the author's earlier printed numbers, those of them that are right
    printed   from all the author's earlier printed numbers, wrong ones too
    slipped   from what the guessed slips gave before they were rounded

and is right, a matter of rounding, following from an earlier wrong number, or wrong in itself.
"""

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.explain.example import Claim, Example
from vitral.explain.operations import Index
from vitral.explain.sheet import Quantity, Sheet
from vitral.explain.slips import CERTAIN, KINDS, Variant, misprints, variants
from vitral.explain.walkthrough import Arithmetic

MASKED_ENOUGH = -1e4
"""The −1e9 habit: a masked score this low stands for −∞."""
WORDS = ("greedy", "beam")
"""Quantities whose numbers are places of words."""


class Verdict(enum.StrEnum):
    """What a claimed cell is, from best to worst."""

    unknown = "unknown"
    right = "right"
    rounding = "rounding"
    follows = "follows"
    wrong = "wrong"


ORDER = tuple(Verdict)


@dataclass(frozen=True)
class Slip:
    """A guess at what went wrong.

    Attributes:
        kind: one of `slips.KINDS`.
        step: the quantity in whose making it happened.
        places: for the words of the guess.
    """

    kind: str
    step: str
    places: Mapping[str, object]


@dataclass(frozen=True)
class Finding:
    """One claimed cell that is not right.

    Attributes:
        name: the quantity.
        index: of the cell.
        claimed: what the author printed.
        expected: what is true.
        verdict: rounding, follows or wrong.
        slip: a guess at the reason, for cells that are wrong in themselves.
        arithmetic: how the true number comes about.
    """

    name: str
    index: Index
    claimed: float
    expected: float
    verdict: Verdict
    slip: Slip | None
    arithmetic: Arithmetic


@dataclass(frozen=True)
class Checked:
    """A quantity with its verdicts.

    Attributes:
        claim: what was claimed.
        expected: what is true.
        verdicts: places in `ORDER`, of the claim's shape.
        findings: the cells that are not right.
    """

    claim: Claim
    expected: Tensor
    verdicts: Tensor
    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Verdict:
        """The worst verdict of its cells."""
        return ORDER[int(self.verdicts.max())]


@dataclass(frozen=True)
class Report:
    """A checked example.

    Attributes:
        example: what was checked.
        quantities: the claimed ones, in the order of the computation.
    """

    example: Example
    quantities: tuple[Checked, ...]

    @property
    def worst(self) -> Verdict:
        """The worst verdict of all cells."""
        return max((checked.worst for checked in self.quantities), key=ORDER.index, default=Verdict.unknown)

    @property
    def first_wrong(self) -> Finding | None:
        """The first cell that is wrong in itself."""
        findings = (finding for checked in self.quantities for finding in checked.findings)
        return next((finding for finding in findings if finding.verdict is Verdict.wrong), None)

    def __str__(self) -> str:
        """What was found, as text in English."""
        from vitral.explain.phrases import phrases
        from vitral.explain.verdicts import told

        return told(self, phrases("en"))

    def counts(self) -> dict[str, int]:
        """How many cells of each verdict."""
        counts = dict.fromkeys(map(str, Verdict), 0)
        for checked in self.quantities:
            for place in checked.verdicts.flatten().tolist():
                counts[ORDER[place]] += 1
        return counts


def check(example: Example) -> Report:
    """Compare every claimed cell with what is true and with what the author's own numbers give."""
    return Report(example, tuple(_Checker(example).run()))


class _Checker:
    """Goes through the sheet in order, keeping four computations of it up to date."""

    def __init__(self, example: Example) -> None:
        self.example, self.sheet = example, example.sheet
        self.half = example.unit / 2
        computed = {quantity.name for quantity in self.sheet.quantities}
        given = {name: value for name, value in self.sheet.values.items() if name not in computed}
        self.exact = self.sheet.values
        self.right, self.near, self.printed, self.slipped = (dict(given) for _ in range(4))
        self.claims = {claim.name: claim for claim in example.claims}
        self.unprinted = computed - set(self.claims)

    def run(self) -> Iterator[Checked]:
        for name, claim in self.claims.items():
            if name not in self.sheet:
                yield self.compare_given(claim)
        for quantity in self.sheet.quantities:
            for values in (self.right, self.near, self.printed, self.slipped):
                values[quantity.name] = quantity.make(values)
            if quantity.name in self.claims:
                yield self.compare(quantity, self.claims[quantity.name])

    def compare_given(self, claim: Claim) -> Checked:
        """A claim about what is given itself."""
        exact = self.exact[claim.name]
        close = _within(claim.values, exact, self.half) | claim.values.isnan()
        verdicts = torch.where(close, ORDER.index(Verdict.right), ORDER.index(Verdict.wrong))
        return Checked(claim, exact, verdicts, ())

    def compare(self, quantity: Quantity, claim: Claim) -> Checked:
        name = quantity.name
        known, values = ~claim.values.isnan(), self.habit(name, claim.values)
        verdicts = self.verdicts(name, values, known)
        wrong = verdicts == ORDER.index(Verdict.wrong)
        guesses = self.guess(quantity, values, known, wrong) if bool(wrong.any()) else {}
        self.keep(name, values, verdicts, guesses)
        findings = tuple(self.findings(name, claim, verdicts, guesses))
        return Checked(claim, self.exact[name], verdicts, findings)

    def habit(self, name: str, values: Tensor) -> Tensor:
        """Masked scores as low as people write for −∞ are read as that."""
        low = (self.exact[name] == -math.inf) & (values <= MASKED_ENOUGH)
        return torch.where(low, -math.inf, values)

    def verdicts(self, name: str, values: Tensor, known: Tensor) -> Tensor:
        """The verdict on each cell, as places in `ORDER`; the best that applies."""
        half, unit_off = self.half, 3 * self.half
        if name in WORDS or name == "total":
            half = unit_off = 0.5
        verdicts = torch.full(values.shape, ORDER.index(Verdict.wrong))
        follows = _within(values, self.printed[name], unit_off) | _within(values, self.slipped[name], unit_off)
        verdicts[follows] = ORDER.index(Verdict.follows)
        truths = (self.exact[name], self.right[name], self.near[name])
        exactly = _within(values, self.printed[name], half) & ~_within(self.printed[name], self.near[name], half)
        off = torch.stack([_within(values, truth, unit_off) for truth in truths]).any(dim=0)
        verdicts[off & ~exactly] = ORDER.index(Verdict.rounding)
        for truth in truths[:2]:
            verdicts[_within(values, truth, half)] = ORDER.index(Verdict.right)
        verdicts[~known] = ORDER.index(Verdict.unknown)
        return verdicts

    def keep(self, name: str, values: Tensor, verdicts: Tensor, guesses: "Mapping[Index, _Guess]") -> None:
        """Go on with the author's numbers in the four computations."""

        def at_most(verdict: Verdict) -> Tensor:
            return (verdicts > 0) & (verdicts <= ORDER.index(verdict))

        self.right[name] = torch.where(at_most(Verdict.right), values, self.right[name])
        self.near[name] = torch.where(at_most(Verdict.rounding), values, self.near[name])
        self.printed[name] = torch.where(verdicts > 0, values, self.printed[name])
        consistent = _within(values, self.slipped[name], 3 * self.half) | (verdicts == 0)
        fallback = torch.where(at_most(Verdict.rounding), self.exact[name], values)
        slipped = torch.where(consistent, self.slipped[name], fallback)
        for index, guess in guesses.items():
            if guess.made is not None:
                slipped[index] = guess.made[index]
                # What is not printed of the row, or of all, went the same way.
                reached = (slice(None),) * len(index) if guess.grain == "all" else (*index[:-1], slice(None))
                silent = verdicts[reached] == 0
                slipped[reached] = torch.where(silent, guess.made[reached], slipped[reached])
        self.slipped[name] = slipped

    def findings(
        self, name: str, claim: Claim, verdicts: Tensor, guesses: "Mapping[Index, _Guess]"
    ) -> Iterator[Finding]:
        for place in (verdicts >= ORDER.index(Verdict.rounding)).nonzero().tolist():
            index = tuple(place)
            guess = guesses.get(index)
            yield Finding(
                name,
                index,
                float(claim.values[index]),
                float(self.exact[name][index]),
                ORDER[int(verdicts[index])],
                guess.slip if guess else None,
                self.sheet.arithmetic(name, index, through=self.unprinted),
            )

    def guess(self, quantity: Quantity, values: Tensor, known: Tensor, wrong: Tensor) -> "dict[Index, _Guess]":
        """The slip that explains most wrong cells, then the one that explains most of the rest, and so on."""
        ranked = sorted(self.candidates(quantity, values, known, wrong), key=lambda guess: guess.rank)
        guesses: dict[Index, _Guess] = {}
        left = wrong.clone()
        while ranked and bool(left.any()):
            best = min(ranked, key=lambda guess: (-int((guess.explains & left).sum()), guess.rank))
            cells = (best.explains & left).nonzero().tolist()
            if not cells:
                break
            guesses |= {tuple(cell): best for cell in cells}
            left &= ~best.explains
        return guesses

    def candidates(self, quantity: Quantity, values: Tensor, known: Tensor, wrong: Tensor) -> "Iterator[_Guess]":
        yield from self.misprinted(quantity, values, wrong)
        for step, tolerance in ((0, self.half), (1, 3 * self.half)):
            found = False
            for guess in self.slipped_up(quantity, values, known, wrong, tolerance):
                found = True
                yield guess.ranked(step)
            if found:
                return

    def misprinted(self, quantity: Quantity, values: Tensor, wrong: Tensor) -> "Iterator[_Guess]":
        """Cells that would be right with two digits swapped, another sign, or the point elsewhere."""
        if quantity.name in WORDS:
            return
        for place in (wrong & _alone(wrong)).nonzero().tolist():
            index = tuple(place)
            truths = [float(made[quantity.name][index]) for made in (self.exact, self.right, self.printed)]
            for kind, meant in misprints(float(values[index]), self.example.decimals):
                if any(abs(meant - truth) <= self.half * (1 + 1e-6) for truth in truths):
                    explains = torch.zeros_like(wrong)
                    explains[index] = True
                    yield _Guess(Slip(kind, quantity.name, {}), explains, None, "cell")

    def slipped_up(
        self, quantity: Quantity, values: Tensor, known: Tensor, wrong: Tensor, tolerance: float
    ) -> "Iterator[_Guess]":
        """Slips in making this quantity, or one on the way to it, that give what is printed."""
        for base in self.bases(quantity):
            for step in self.on_the_way(quantity):
                for variant in variants(step, base):
                    for made, grain in self.outcomes(step, quantity, variant, base):
                        explains = _explained(made, grain, values, known, wrong, tolerance)
                        plain = tolerance <= self.half or variant.kind in KINDS[:CERTAIN]
                        if plain and bool(explains.any()):
                            yield _Guess(Slip(variant.kind, step.name, variant.places), explains, made, grain)

    def bases(self, quantity: Quantity) -> list[Mapping[str, Tensor]]:
        """Those of the computations that differ in what the quantity is made of."""
        inputs = {name for step in self.on_the_way(quantity) for name in step.inputs}
        bases: list[Mapping[str, Tensor]] = []
        for base in (self.exact, self.right, self.printed, self.slipped):
            if not any(all(torch.equal(base[name], other[name]) for name in inputs) for other in bases):
                bases.append(base)
        return bases

    def on_the_way(self, quantity: Quantity) -> list[Quantity]:
        """The quantity, and what it is made of without having been printed; the softmax's inputs in any case."""
        steps, waiting = [quantity], list(quantity.inputs)
        while waiting:
            name = waiting.pop()
            through = quantity.name == "weights" and name in ("masked", "scaled")
            if name in self.sheet and (name not in self.claims or through) and self.sheet[name] not in steps:
                steps.append(self.sheet[name])
                waiting += self.sheet[name].inputs
        return steps

    def outcomes(
        self, step: Quantity, quantity: Quantity, variant: Variant, base: Mapping[str, Tensor]
    ) -> Iterator[tuple[Tensor, str]]:
        """What the quantity comes to when the slip is made in a step before it."""
        if step is quantity:
            yield variant.made, variant.grain
            return
        usual = step.make(base)
        for piece in _pieces(usual.shape, variant.grain):
            made = dict(base) | {step.name: torch.where(piece, variant.made, usual)}
            for later in self.sheet.quantities[self.sheet.quantities.index(step) + 1 :]:
                if later.name not in self.claims or later is quantity:
                    made[later.name] = later.make(made)
                if later is quantity:
                    break
            yield made[quantity.name], "row" if variant.grain != "all" else "all"


@dataclass(frozen=True)
class _Guess:
    """A slip, the wrong cells it explains, and what the quantity was before rounding."""

    slip: Slip
    explains: Tensor
    made: Tensor | None
    grain: str
    step: int = 0

    def ranked(self, step: int) -> "_Guess":
        return _Guess(self.slip, self.explains, self.made, self.grain, step)

    @property
    def rank(self) -> tuple[int, ...]:
        """Smaller is likelier: exact, reaching as far as what is wrong, of a kind that is common."""
        several = int(self.explains.sum()) > 1
        reach = ("all", "column", "row", "cell").index(self.grain)
        return (self.step, reach if several else -reach, KINDS.index(self.slip.kind))


def _explained(made: Tensor, grain: str, values: Tensor, known: Tensor, wrong: Tensor, tolerance: float) -> Tensor:
    """The wrong cells of those pieces of a quantity in which everything that is known fits a slip's outcome."""
    fits = _within(values, made, tolerance) | ~known
    if grain == "cell" or fits.dim() < 2:
        return fits & wrong & _alone(wrong)
    if bool(fits.all()):
        return wrong
    axes = {"all": -1, "row": -1, "column": -2}
    return fits.all(dim=axes[grain], keepdim=True).expand_as(wrong) & wrong


def _alone(wrong: Tensor) -> Tensor:
    """Where a wrong cell is the only one of its row: a row that is wrong throughout was not misprinted cell by cell."""
    return wrong.sum(dim=-1, keepdim=True).expand_as(wrong) == 1


def _pieces(shape: tuple[int, ...], grain: str) -> Iterator[Tensor]:
    """The parts of a quantity that a slip of this grain reaches one at a time, as masks; all heads alike."""
    if grain == "all":
        yield torch.ones(shape, dtype=torch.bool)
        return
    rows, columns = shape[-2:]
    for row in range(rows if grain != "column" else 1):
        for column in range(columns if grain != "row" else 1):
            piece = torch.zeros(shape, dtype=torch.bool)
            piece[..., slice(None) if grain == "column" else row, slice(None) if grain == "row" else column] = True
            yield piece


def _within(values: Tensor, truth: Tensor, tolerance: float) -> Tensor:
    """Where two agree; the same infinity agrees with itself."""
    room = tolerance * (1 + 1e-6) + 1e-12 * truth.abs().nan_to_num(posinf=0.0, neginf=0.0)
    return (values == truth) | ((values - truth).abs() <= room)


def printed_word(sheet: Sheet, name: str, value: float) -> str | None:
    """The word that a number stands for, if the quantity's numbers are places of words."""
    return sheet.vocabulary[int(value)] if name in WORDS else None
