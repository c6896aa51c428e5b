"""Checking a worked example: each claimed number against the true one and the author's own.

The same sheet is computed up to seven times:

    exact     from the given numbers alone
    right     from the author's earlier printed numbers, those of them that are right
    near      the same, with those that are off by rounding as well
    rounded   as `right`, with the true number, rounded, in place of a printed one that is not right
    stepwise  as `right`, with every step rounded, printed or not
    printed   from all of the author's earlier printed numbers, wrong ones too
    slipped   from the unrounded results of the diagnosed slips

The verdict on a cell is right, rounding, follows (from an earlier wrong number) or wrong in itself.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from vitral.core.checked import checked
from vitral.core.errors import UsageError
from vitral.explanation.checks.diagnosis import Diagnoser, Mismatch, SlipMatch, within
from vitral.explanation.checks.hypotheses import WORDS
from vitral.explanation.checks.report import ORDER, CellFinding, CheckedQuantity, CheckReport, Verdict
from vitral.explanation.checks.units import Unit
from vitral.explanation.examples.example import AuthorClaim, Example
from vitral.explanation.operations import Index
from vitral.explanation.sheet import SheetQuantity

MASKED_ENOUGH = -1e4
"""Masked scores at most this low stand for −∞, as −1e9 does."""


@checked(first=True)
def check(example: Example) -> CheckReport:
    """Compare every claimed cell with the true number and with the results of the author's own numbers."""
    return CheckReport(example, tuple(_Checker(example).run()))


class _Checker:
    """Goes through the sheet in order and updates the seven computations."""

    def __init__(self, example: Example) -> None:
        self.example, self.sheet = example, example.sheet
        self.half = example.unit / 2
        computed = {quantity.name for quantity in self.sheet.quantities}
        given = {name: value for name, value in self.sheet.values.items() if name not in computed}
        self.exact = dict(self.sheet.values)
        self.right, self.near, self.rounded, self.stepwise, self.printed, self.slipped = (dict(given) for _ in range(6))
        self.claims = {claim.name: claim for claim in example.claims}
        self.unprinted = computed - set(self.claims)

    def run(self) -> Iterator[CheckedQuantity]:
        for name, claim in self.claims.items():
            if name not in self.sheet:
                yield self.compare_given(claim)
        for quantity in self.sheet.quantities:
            name = quantity.name
            for values in (self.right, self.near, self.rounded, self.stepwise, self.printed, self.slipped):
                try:
                    values[name] = quantity.make(values)
                except UsageError:  # the author's probabilities are not a distribution
                    values[name] = self.exact[name]
            self.stepwise[name] = self.stepwise[name].round(decimals=self.example.decimals)
            if name in self.claims:
                yield self.compare(quantity, self.claims[quantity.name])

    def compare_given(self, claim: AuthorClaim) -> CheckedQuantity:
        """A claim about a given quantity."""
        exact, known = self.exact[claim.name], ~claim.values.isnan()
        values = self.infinite(claim.name, claim.values)
        verdicts = torch.where(
            within(values, exact, 3 * self.half), ORDER.index(Verdict.rounding), ORDER.index(Verdict.wrong)
        )
        verdicts[within(values, exact, self.half)] = ORDER.index(Verdict.right)
        verdicts[~known] = ORDER.index(Verdict.unknown)
        self.printed[claim.name] = torch.where(known, values, exact)
        return CheckedQuantity(claim, exact, verdicts, tuple(self.findings(claim.name, claim, verdicts, {})))

    def compare(self, quantity: SheetQuantity, claim: AuthorClaim) -> CheckedQuantity:
        name = quantity.name
        known, values = ~claim.values.isnan(), self.infinite(name, claim.values)
        if name == "greedy":
            self.break_ties(values)
        verdicts = self.verdicts(name, values, known)
        wrong = verdicts == ORDER.index(Verdict.wrong)
        diagnoses = (
            self.diagnoses(Mismatch(quantity, values, known, wrong, Unit(self.example.decimals)))
            if bool(wrong.any())
            else {}
        )
        self.keep(name, values, verdicts, diagnoses)
        findings = tuple(self.findings(name, claim, verdicts, diagnoses))
        return CheckedQuantity(claim, self.exact[name], verdicts, findings)

    def diagnoses(self, mismatch: Mismatch) -> Mapping[Index, SlipMatch]:
        """The diagnosis of each wrong cell that a slip explains."""
        computations = (self.exact, self.right, self.printed, self.slipped)
        return Diagnoser(self.sheet, set(self.claims), computations).diagnose(mismatch)

    def break_ties(self, values: Tensor) -> None:
        """Any of equally probable words may be chosen."""
        for made in (self.exact, self.right, self.near, self.rounded, self.stepwise, self.printed, self.slipped):
            shares = made["probabilities"][-1]
            if bool(values.isfinite().all()) and shares[int(values)] == shares.max():
                made["greedy"] = values

    def infinite(self, name: str, values: Tensor) -> Tensor:
        """The claimed values, with very low masked scores replaced by −∞."""
        low = (self.exact[name] == -math.inf) & (values <= MASKED_ENOUGH)
        return torch.where(low, -math.inf, values)

    def verdicts(self, name: str, values: Tensor, known: Tensor) -> Tensor:
        """The best applicable verdict on each cell, as indices in `ORDER`."""
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

    def keep(self, name: str, values: Tensor, verdicts: Tensor, diagnoses: Mapping[Index, SlipMatch]) -> None:
        """Update the computations with the author's numbers."""

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
        for index, diagnosis in diagnoses.items():
            if diagnosis.made is not None:
                slipped[index] = diagnosis.made[index]
                # The slip is assumed to reach the unprinted cells of the row, or of the whole quantity.
                reached = (slice(None),) * len(index) if diagnosis.grain == "all" else (*index[:-1], slice(None))
                silent = verdicts[reached] == 0
                slipped[reached] = torch.where(silent, diagnosis.made[reached], slipped[reached])
                as_printed = diagnosis.made[reached].round(decimals=self.example.decimals)
                self.printed[name][reached] = torch.where(silent, as_printed, self.printed[name][reached])
        self.slipped[name] = slipped

    def findings(
        self, name: str, claim: AuthorClaim, verdicts: Tensor, diagnoses: Mapping[Index, SlipMatch]
    ) -> Iterator[CellFinding]:
        for place in (verdicts >= ORDER.index(Verdict.rounding)).nonzero().tolist():
            index = tuple(place)
            diagnosis = diagnoses.get(index)
            yield CellFinding(
                name,
                index,
                float(claim.values[index]),
                float(self.exact[name][index]),
                ORDER[int(verdicts[index])],
                diagnosis.slip if diagnosis else None,
                self.sheet.arithmetic(name, index, through=self.unprinted),
            )
