"""Checking a computation done by hand: each printed number against what is true and against the author's own.

A cell is compared with up to six computations of the same sheet:

    exact     from what is given alone
    right     from the author's earlier printed numbers, those of them that are right
    rounded   the same, and where a cell of what is printed has no right number, the true one rounded as the rest
    stepwise  the same, with every step rounded, printed or not
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

from vitral.core.errors import UsageError
from vitral.explain.example import Claim, Example
from vitral.explain.guessing import WORDS, Guess, Guesser, Puzzle, Slip, within
from vitral.explain.operations import Index
from vitral.explain.sheet import Quantity, Sheet
from vitral.explain.walkthrough import Arithmetic

MASKED_ENOUGH = -1e4
"""The −1e9 habit: a masked score this low stands for −∞."""


class Verdict(enum.StrEnum):
    """What a claimed cell is, from best to worst."""

    unknown = "unknown"
    right = "right"
    rounding = "rounding"
    follows = "follows"
    wrong = "wrong"


ORDER = tuple(Verdict)


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
    """Goes through the sheet in order, keeping six computations of it up to date."""

    def __init__(self, example: Example) -> None:
        self.example, self.sheet = example, example.sheet
        self.half = example.unit / 2
        computed = {quantity.name for quantity in self.sheet.quantities}
        given = {name: value for name, value in self.sheet.values.items() if name not in computed}
        self.exact = dict(self.sheet.values)
        self.right, self.near, self.rounded, self.stepwise, self.printed, self.slipped = (dict(given) for _ in range(6))
        self.claims = {claim.name: claim for claim in example.claims}
        self.unprinted = computed - set(self.claims)

    def run(self) -> Iterator[Checked]:
        for name, claim in self.claims.items():
            if name not in self.sheet:
                yield self.compare_given(claim)
        for quantity in self.sheet.quantities:
            name = quantity.name
            for values in (self.right, self.near, self.rounded, self.stepwise, self.printed, self.slipped):
                try:
                    values[name] = quantity.make(values)
                except UsageError:  # an author's shares that are none: nothing can be chosen by them
                    values[name] = self.exact[name]
            self.stepwise[name] = self.stepwise[name].round(decimals=self.example.decimals)
            if name in self.claims:
                yield self.compare(quantity, self.claims[quantity.name])

    def compare_given(self, claim: Claim) -> Checked:
        """A claim about what is given itself."""
        exact, known = self.exact[claim.name], ~claim.values.isnan()
        values = self.habit(claim.name, claim.values)
        verdicts = torch.where(
            within(values, exact, 3 * self.half), ORDER.index(Verdict.rounding), ORDER.index(Verdict.wrong)
        )
        verdicts[within(values, exact, self.half)] = ORDER.index(Verdict.right)
        verdicts[~known] = ORDER.index(Verdict.unknown)
        self.printed[claim.name] = torch.where(known, values, exact)
        return Checked(claim, exact, verdicts, tuple(self.findings(claim.name, claim, verdicts, {})))

    def compare(self, quantity: Quantity, claim: Claim) -> Checked:
        name = quantity.name
        known, values = ~claim.values.isnan(), self.habit(name, claim.values)
        if name == "greedy":
            self.break_ties(values)
        verdicts = self.verdicts(name, values, known)
        wrong = verdicts == ORDER.index(Verdict.wrong)
        guesses = self.guesses(Puzzle(quantity, values, known, wrong)) if bool(wrong.any()) else {}
        self.keep(name, values, verdicts, guesses)
        findings = tuple(self.findings(name, claim, verdicts, guesses))
        return Checked(claim, self.exact[name], verdicts, findings)

    def guesses(self, puzzle: Puzzle) -> Mapping[Index, Guess]:
        """What may have gone wrong, for each wrong cell that a slip explains."""
        computations = (self.exact, self.right, self.printed, self.slipped)
        return Guesser(self.sheet, set(self.claims), computations, self.example.decimals).guess(puzzle)

    def break_ties(self, values: Tensor) -> None:
        """Of words that are equally likely any may be chosen."""
        for made in (self.exact, self.right, self.near, self.rounded, self.stepwise, self.printed, self.slipped):
            shares = made["probabilities"][-1]
            if bool(values.isfinite().all()) and shares[int(values)] == shares.max():
                made["greedy"] = values

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
        follows = within(values, self.printed[name], unit_off) | within(values, self.slipped[name], unit_off)
        verdicts[follows] = ORDER.index(Verdict.follows)
        truths = (self.exact[name], self.right[name], self.rounded[name], self.near[name])
        exactly = within(values, self.printed[name], half) & ~within(self.printed[name], self.near[name], half)
        off = torch.stack([within(values, truth, unit_off) for truth in truths]).any(dim=0)
        off |= within(values, self.stepwise[name], half)
        verdicts[off & ~exactly] = ORDER.index(Verdict.rounding)
        for truth in truths[:3]:
            verdicts[within(values, truth, half)] = ORDER.index(Verdict.right)
        verdicts[~known] = ORDER.index(Verdict.unknown)
        return verdicts

    def keep(self, name: str, values: Tensor, verdicts: Tensor, guesses: Mapping[Index, Guess]) -> None:
        """Go on with the author's numbers in the computations."""

        def at_most(verdict: Verdict) -> Tensor:
            return (verdicts > 0) & (verdicts <= ORDER.index(verdict))

        self.right[name] = torch.where(at_most(Verdict.right), values, self.right[name])
        self.near[name] = torch.where(at_most(Verdict.rounding), values, self.near[name])
        self.rounded[name] = torch.where(
            at_most(Verdict.right), values, self.rounded[name].round(decimals=self.example.decimals)
        )
        self.stepwise[name] = torch.where(at_most(Verdict.right), values, self.stepwise[name])
        self.printed[name] = torch.where(verdicts > 0, values, self.printed[name])
        consistent = within(values, self.slipped[name], 3 * self.half) | (verdicts == 0)
        fallback = torch.where(at_most(Verdict.rounding), self.exact[name], values)
        slipped = torch.where(consistent, self.slipped[name], fallback)
        for index, guess in guesses.items():
            if guess.made is not None:
                slipped[index] = guess.made[index]
                # What is not printed of the row, or of all, went the same way.
                reached = (slice(None),) * len(index) if guess.grain == "all" else (*index[:-1], slice(None))
                silent = verdicts[reached] == 0
                slipped[reached] = torch.where(silent, guess.made[reached], slipped[reached])
                as_printed = guess.made[reached].round(decimals=self.example.decimals)
                self.printed[name][reached] = torch.where(silent, as_printed, self.printed[name][reached])
        self.slipped[name] = slipped

    def findings(self, name: str, claim: Claim, verdicts: Tensor, guesses: Mapping[Index, Guess]) -> Iterator[Finding]:
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


def printed_word(sheet: Sheet, name: str, value: float) -> str | None:
    """The word that a number stands for, if the quantity's numbers are places of words."""
    return sheet.vocabulary[int(value)] if name in WORDS else None
