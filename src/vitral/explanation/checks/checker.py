"""Checking a worked example: each claimed number against the true one and the author's own.

Each quantity is computed from several sets of numbers:

    exact     the given numbers alone
    right     what an author with the rule of the sheet goes on with, who makes no mistake
    own       the same, with the author's wrong numbers, and the unrounded results of the diagnosed slips
    printed   all printed numbers
    trusted   intervals: the printed numbers that are not wrong, up to their rounding
    reported  intervals: all printed numbers, up to their rounding

A cell is right if it is the true value, rounding if the rule explains it, doubtful or unclear if it lies in the
interval of one step, and follows if one of these holds of the author's own numbers; otherwise it is wrong in itself.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vitral.explanation.checks.author import EXACT, Author, Printed
from vitral.explanation.checks.diagnosis import Explained, diagnose
from vitral.explanation.checks.intervals import Interval
from vitral.explanation.checks.report import (
    FINE,
    ORDER,
    CellFinding,
    CheckedQuantity,
    CheckReport,
    Verdict,
)
from vitral.explanation.checks.rounding import EXACTLY, TOLERANCE, RoundingRule, is_whole, within
from vitral.explanation.checks.unrounded import Unrounded, unrounded
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.faults import KeyPath
from vitral.explanation.recipe import SheetQuantity, follow

MOST_UNEXPLAINED = 2
"""A rule is known if at most so many numbers, or one row, are inside the interval, but not explained."""
ENOUGH_EXPLAINED = 8
"""A number is doubtful, instead of rounding by an unknown rule, if the rule explains so many others."""
SPREAD = 5.0
"""Units that an author may be off after steps that are not printed, besides what the printed numbers are off."""
CODE = {verdict: code for code, verdict in enumerate(ORDER)}


def check(example: Example) -> CheckReport:
    """Compare every claimed cell with the true number and with the results of the author's own numbers."""
    checker = _Checker(example)
    report = checker.report()
    accused = next((quantity for quantity in report.quantities if quantity.worst not in FINE), None)
    if accused is None:
        return report
    before = unrounded(checker.author, accused.claim.name, is_named=bool(accused.slips))
    return report if before is None else _Checker(example, before).report()


def _renamed(checked: CheckedQuantity, before: Verdict, after: Verdict) -> CheckedQuantity:
    codes = torch.where(checked.verdicts == CODE[before], CODE[after], checked.verdicts)
    return replace(checked, verdicts=codes)


class _Checker:
    """Goes through the sheet in order and updates the computations."""

    def __init__(self, example: Example, before: Unrounded | None = None) -> None:
        """Start from the given numbers, or from what they were before they were rounded."""
        self.example, self.unrounded = example, before
        if before is not None:
            values = dict(before.values)
            follow(iter(example.sheet.quantities), values)
            example = replace(example, sheet=replace(example.sheet, values=values))
        self.sheet = example.sheet
        self.author = author = Author(example, before.boxes if before else None)
        self.rule = author.rule
        self.exact = dict(self.sheet.values)
        if "greedy" in self.sheet:
            self.exact["greedy"] = author.make(EXACT, self.sheet["greedy"], self.exact)
        self.true = self.exact if before is None else self.example.sheet.values
        start = author.rule.started(author.given)
        self.right, self.own = dict(start), dict(start)
        self.trusted = dict(author.start)
        self.reported = dict(self.trusted)
        self.explained = 0
        self.tainted: set[str] = set()  # quantities with wrong numbers, and all that are computed from them

    def report(self) -> CheckReport:
        judged = {quantity.name: self.judge(quantity) for quantity in self.author.quantities}
        checked = [
            CheckedQuantity(claim, self.true[claim.name], *judged[claim.name], self.author.printed[claim.name].unit)
            for claim in self.example.claims
        ]
        unclear = [quantity.verdicts == CODE[Verdict.unclear] for quantity in checked]
        cells = sum(int(mask.sum()) for mask in unclear)
        rows = sum(int(mask.any(dim=-1).sum()) if mask.dim() else int(mask) for mask in unclear)
        rule = self.rule if cells <= MOST_UNEXPLAINED or rows == 1 or cells * 10 <= self.explained else None
        if self.unrounded is not None:
            rule = RoundingRule(given=True)
            checked = [_renamed(quantity, Verdict.unclear, Verdict.rounding) for quantity in checked]
        elif rule is None:
            checked = [_renamed(quantity, Verdict.rounding, Verdict.unclear) for quantity in checked]
        elif self.explained >= ENOUGH_EXPLAINED:
            checked = [_renamed(quantity, Verdict.unclear, Verdict.doubtful) for quantity in checked]
        return CheckReport(self.example, tuple(checked), rule)

    def judge(self, quantity: SheetQuantity) -> tuple[Tensor, tuple[Explained, ...]]:
        """The verdicts on a quantity, and the slips behind wrong numbers."""
        name, author, rule = quantity.name, self.author, self.rule
        printed = author.printed[name]
        (value, own_value), (fits, follows) = author.step(rule, quantity, self.right, self.own)
        stepwise, shown = author.from_printed[0][name], author.from_printed[1]
        trusted = author.propagated(quantity, self.trusted, value, rule)
        reported = author.propagated(quantity, self.reported, stepwise, rule)
        is_tainted = not self.tainted.isdisjoint(quantity.inputs)
        steps = (name, *quantity.inputs)
        if self.unrounded is None and any(step not in author.claimed and step not in author.given for step in steps):
            # not wider than rules can explain; otherwise an interval soon holds anything
            moved = 0.0 if is_tainted else (stepwise - value).abs().nan_to_num().amax(dim=-1, keepdim=True)
            trusted = trusted.within(Interval.around(value, SPREAD * printed.unit.of(value) + moved))
        true = within(printed.values, self.true[name], printed.size / 2)
        certain, fits, inside = self.fitting(trusted, printed, value, fits)
        _, follows, inside_reported = self.fitting(reported, printed, own_value, follows)
        follows |= within(printed.values, stepwise, printed.size / 2)
        verdicts = torch.full(printed.values.shape, CODE[Verdict.wrong])
        if is_tainted:
            verdicts[inside_reported | follows] = CODE[Verdict.follows]
        else:  # the author's own numbers differ by rounding
            inside |= follows & ~certain
        inside &= author.plausible(rule, quantity)
        differs = (own_value - value).abs() > TOLERANCE * printed.size
        verdicts[inside & ~(follows & differs)] = CODE[Verdict.unclear]
        verdicts[fits] = CODE[Verdict.rounding]
        verdicts[true] = CODE[Verdict.right]
        verdicts[~printed.known] = CODE[Verdict.unknown]
        self.explained += int((printed.known & (true | fits | follows)).sum())
        if is_tainted or bool((verdicts >= CODE[Verdict.follows]).any()):
            self.tainted.add(name)
        slips: list[Explained] = []
        wrong = verdicts == CODE[Verdict.wrong]
        if name in self.sheet and bool(wrong.any()):
            bases = [{**self.right, name: value}, {**self.own, name: own_value}, {**shown, name: stepwise}]
            slips = diagnose(author, quantity, [self.exact, *bases], wrong)
        fine = (verdicts < CODE[Verdict.follows]) & printed.known
        unexplained = fine & ~fits & ~(true & torch.tensor(rule.carry == "full"))
        self.right[name] = torch.where(unexplained, printed.values, self.right[name])
        known = printed.known | self.apply_slips(name, slips)
        own = torch.where(printed.known, printed.values, self.own[name])
        fine_values = torch.where(fine, printed.values, value)
        self.trusted[name] = self.printed_interval(trusted, name, fine_values, printed.known, value)
        self.reported[name] = self.printed_interval(reported, name, own, known, value)
        return verdicts, tuple(slips)

    def fitting(
        self, interval: Interval, printed: Printed, value: Tensor, fits: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Whether a cell must be equal, whether the rule explains it, and whether it lies in the interval of the step.

        A cell that is computed from exact numbers and needs no more digits than it has must be equal.
        """
        certain = interval.is_point & is_whole(interval.middle, printed.size) & (self.rule.carry != "float16")
        equal = within(printed.values, interval.middle, EXACTLY * printed.size)
        written = printed.values
        if self.rule.cuts:  # the number that was cut lies half a unit further from 0 than its digits, on average
            written = written + printed.size / 2 * self.rule.towards(value)
        inside = interval.wider(TOLERANCE * printed.size).contains(written)
        return certain, torch.where(certain, equal, fits), torch.where(certain, equal, inside)

    def apply_slips(self, name: str, slips: Sequence[Explained]) -> Tensor:
        """Where slips reach, in the author's own numbers: besides wrong cells unprinted ones of the row, or of all."""
        reached = torch.zeros_like(self.author.printed[name].known)
        for slip, cells in slips:
            if slip.result is not None:
                rows = cells.any() if slip.grain == "all" else cells.any(dim=-1, keepdim=True)
                silent = rows & ~self.author.printed[name].known
                cells = cells if slip.grain == "cell" else cells | silent
                self.own[name] = torch.where(cells, slip.result, self.own[name])
                reached |= cells
        return reached

    def printed_interval(self, step: Interval, name: str, values: Tensor, known: Tensor, value: Tensor) -> Interval:
        """Where numbers lie that are printed so; elsewhere the interval of the step, rounded."""
        printed = self.author.printed[name]
        size = torch.where(printed.known, printed.size, printed.unit.of(value))
        # A number without any rounding shows that its author has more digits than are printed: 2 may be 2.000.
        usual = torch.minimum(size, self.author.usual.of(value))
        half = torch.where(within(printed.values, value, EXACTLY * usual), usual, size) / 2
        exactly = step.is_point & within(values, step.middle, EXACTLY * size)
        whole = step.is_point & is_whole(step.middle, size)
        return self.cut(values, torch.where(exactly, 0.0, half)).where(known, step.wider(torch.where(whole, 0.0, half)))

    def cut(self, values: Tensor, radius: Tensor) -> Interval:
        """Where numbers lie that are printed so: beyond them, if the author cuts."""
        if not self.rule.cuts:
            return Interval.around(values, radius)
        beyond = values + 2 * radius * self.rule.towards(values)
        return Interval(torch.minimum(values, beyond), torch.maximum(values, beyond))


def corrected(report: CheckReport) -> bytes:
    """The example's file with the true number, in its unit, for every one that is neither right nor doubtful.

    A number that follows from the author's rounded numbers may no longer do so after one of those is corrected; then it
    is corrected as well.
    """
    document = report.example.document
    changes: dict[KeyPath, str] = {}
    while any(_replaced(quantity) for quantity in report.quantities):
        claims = []
        for quantity in report.quantities:
            values = quantity.claim.values.clone()
            for finding in _replaced(quantity):
                path = quantity.claim.path(finding.index)
                is_whole = "." not in (document.typed(path) or "")  # in the style of the replaced number
                changes[path] = report.typed(finding.name, finding.expected, whole=is_whole)
                values[finding.index] = round(finding.expected, quantity.unit.decimals_of(finding.expected))
            claims.append(replace(quantity.claim, values=values))
        report = check(replace(report.example, claims=tuple(claims)))
    return document.rewritten(changes)


def _replaced(quantity: CheckedQuantity) -> list[CellFinding]:
    """The numbers to correct; a doubtful one may be right by its author's way of rounding."""
    return [finding for finding in quantity.findings if finding.verdict is not Verdict.doubtful]
