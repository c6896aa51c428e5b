"""Checking a worked example: each claimed number against the true one and the author's own.

Each quantity is computed from several sets of numbers:

    exact     the given numbers alone
    right     what an author with the rule of the sheet goes on with, who makes no mistake
    own       the same, with the author's wrong numbers, and the unrounded results of the diagnosed slips
    again     all printed numbers
    near      intervals: the printed numbers that are not wrong, up to their rounding
    about     intervals: all printed numbers, up to their rounding

A cell is right if it is the true value, rounding if the rule explains it, doubtful or unclear if it lies in the
interval of one step, and follows if one of these holds of the author's own numbers; otherwise it is wrong in itself.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vitral.explanation.checks.author import EXACT, Author, Printed
from vitral.explanation.checks.diagnosis import Explained, diagnose
from vitral.explanation.checks.given import Unrounded, unrounded
from vitral.explanation.checks.intervals import Interval
from vitral.explanation.checks.report import (
    FINE,
    ORDER,
    CellFinding,
    CheckedQuantity,
    CheckReport,
    Verdict,
    printed_word,
    rounded,
)
from vitral.explanation.checks.rounding import EXACTLY, TOLERANCE, RoundingRule, is_whole, within
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.places import KeyPath
from vitral.explanation.recipe import SheetQuantity, follow

MOST_ODD = 2
"""A rule is known if at most so many numbers, or one row, are inside the interval, but not explained."""
ENOUGH_EXPLAINED = 8
"""A number is doubtful, instead of rounding by an unknown rule, if the rule explains so many others."""
SPREAD = 5.0
"""Units that an author may be off after steps that are not printed, besides what the printed numbers are off."""
CODE = {verdict: place for place, verdict in enumerate(ORDER)}


def check(example: Example) -> CheckReport:
    """Compare every claimed cell with the true number and with the results of the author's own numbers."""
    checker = _Checker(example)
    report = checker.report()
    accused = next((each for each in report.quantities if each.worst not in FINE), None)
    if accused is None:
        return report
    given = unrounded(checker.author, accused.claim.name, is_named=bool(accused.slips))
    return report if given is None else _Checker(example, given).report()


def _renamed(checked: CheckedQuantity, before: Verdict, after: Verdict) -> CheckedQuantity:
    codes = torch.where(checked.verdicts == CODE[before], CODE[after], checked.verdicts)
    return replace(checked, verdicts=codes)


class _Checker:
    """Goes through the sheet in order and updates the computations."""

    def __init__(self, example: Example, given: Unrounded | None = None) -> None:
        """Start from the given numbers, or from what they were before they were rounded."""
        self.example, self.given = example, given
        if given is not None:
            values = dict(given.values)
            follow(iter(example.sheet.quantities), values)
            example = replace(example, sheet=replace(example.sheet, values=values))
        self.sheet = example.sheet
        self.author = author = Author(example, given.boxes if given else None)
        self.rule = author.rule
        self.exact = dict(self.sheet.values)
        if "greedy" in self.sheet:
            self.exact["greedy"] = author.make(EXACT, self.sheet["greedy"], self.exact)
        self.true = self.exact if given is None else self.example.sheet.values
        start = author.rule.started(author.given)
        self.right, self.own = dict(start), dict(start)
        self.near = dict(author.start)
        self.about = dict(self.near)
        self.explained = 0
        self.astray: set[str] = set()  # quantities with wrong numbers, and all that are computed from them

    def report(self) -> CheckReport:
        made = {quantity.name: self.judge(quantity) for quantity in self.author.quantities}
        judged = [
            CheckedQuantity(claim, self.true[claim.name], *made[claim.name], self.author.printed[claim.name].unit)
            for claim in self.example.claims
        ]
        unclear = [each.verdicts == CODE[Verdict.unclear] for each in judged]
        odd = sum(int(each.sum()) for each in unclear)
        rows = sum(int(each.any(dim=-1).sum()) if each.dim() else int(each) for each in unclear)
        rule = self.rule if odd <= MOST_ODD or rows == 1 or odd * 10 <= self.explained else None
        if self.given is not None:
            rule = RoundingRule(given=True)
            judged = [_renamed(each, Verdict.unclear, Verdict.rounding) for each in judged]
        elif rule is None:
            judged = [_renamed(each, Verdict.rounding, Verdict.unclear) for each in judged]
        elif self.explained >= ENOUGH_EXPLAINED:
            judged = [_renamed(each, Verdict.unclear, Verdict.doubtful) for each in judged]
        return CheckReport(self.example, tuple(judged), rule)

    def judge(self, quantity: SheetQuantity) -> tuple[Tensor, tuple[Explained, ...]]:
        """The verdicts on a quantity, and the slips behind wrong numbers."""
        name, author, rule = quantity.name, self.author, self.rule
        printed = author.printed[name]
        (value, other), (fits, follows) = author.step(rule, quantity, self.right, self.own)
        again, shown = author.again[0][name], author.again[1]
        near, about = (
            author.reached(quantity, boxes, values, rule) for boxes, values in ((self.near, value), (self.about, again))
        )
        is_astray = not self.astray.isdisjoint(quantity.inputs)
        silent = any(each not in author.claimed and each not in author.given for each in (name, *quantity.inputs))
        if silent and self.given is None:
            # not wider than rules can explain; otherwise an interval soon holds anything
            moved = 0.0 if is_astray else (again - value).abs().nan_to_num().amax(dim=-1, keepdim=True)
            near = near.within(Interval.around(value, SPREAD * printed.unit.of(value) + moved))
        true = within(printed.values, self.true[name], printed.size / 2)
        certain = self.certain(near, printed)
        fits, inside = self.fitting(near, printed, value, fits)
        follows, after = self.fitting(about, printed, other, follows)
        follows |= within(printed.values, again, printed.size / 2)
        verdicts = torch.full(printed.values.shape, CODE[Verdict.wrong])
        if is_astray:
            verdicts[after | follows] = CODE[Verdict.follows]
        else:  # the author's own numbers differ by rounding
            inside |= follows & ~certain
        inside &= author.near(rule, quantity)
        moved = (other - value).abs() > TOLERANCE * printed.size
        verdicts[inside & ~(follows & moved)] = CODE[Verdict.unclear]
        verdicts[fits] = CODE[Verdict.rounding]
        verdicts[true] = CODE[Verdict.right]
        verdicts[~printed.known] = CODE[Verdict.unknown]
        self.explained += int((printed.known & (true | fits | follows)).sum())
        if is_astray or bool((verdicts >= CODE[Verdict.follows]).any()):
            self.astray.add(name)
        slips: list[Explained] = []
        wrong = verdicts == CODE[Verdict.wrong]
        if name in self.sheet and bool(wrong.any()):
            bases = [{**self.right, name: value}, {**self.own, name: other}, {**shown, name: again}]
            slips = diagnose(author, quantity, [self.exact, *bases], wrong)
        fine = (verdicts < CODE[Verdict.follows]) & printed.known
        odd = fine & ~fits & ~(true & torch.tensor(rule.carry == "full"))
        self.right[name] = torch.where(odd, printed.values, self.right[name])
        known = printed.known | self.reached(name, slips)
        told = torch.where(printed.known, printed.values, self.own[name])
        self.near[name] = self.shown(near, name, torch.where(fine, printed.values, value), printed.known, value)
        self.about[name] = self.shown(about, name, told, known, value)
        return verdicts, tuple(slips)

    def fitting(self, interval: Interval, printed: Printed, value: Tensor, fits: Tensor) -> tuple[Tensor, Tensor]:
        """Whether the rule explains each cell, and whether a cell lies in the interval of the step.

        A cell that is computed from exact numbers and needs no more digits than it has must be equal.
        """
        certain = self.certain(interval, printed)
        equal = within(printed.values, interval.middle, EXACTLY * printed.size)
        written = printed.values
        if self.rule.cuts:  # the number that was cut lies half a unit further from 0 than its digits, on average
            written = written + printed.size / 2 * self.rule.towards(value)
        inside = interval.wider(TOLERANCE * printed.size).contains(written)
        return torch.where(certain, equal, fits), torch.where(certain, equal, inside)

    def certain(self, interval: Interval, printed: Printed) -> Tensor:
        """Where a number is computed from exact ones and needs no more digits than it has."""
        return interval.is_point & is_whole(interval.middle, printed.size) & (self.rule.carry != "float16")

    def reached(self, name: str, slips: Sequence[Explained]) -> Tensor:
        """Where slips reach, in the author's own numbers: besides wrong cells unprinted ones of the row, or of all."""
        every = torch.zeros_like(self.author.printed[name].known)
        for slip, cells in slips:
            if slip.made is not None:
                rows = cells.any() if slip.grain == "all" else cells.any(dim=-1, keepdim=True)
                silent = rows & ~self.author.printed[name].known
                cells = cells if slip.grain == "cell" else cells | silent
                self.own[name], every = torch.where(cells, slip.made, self.own[name]), every | cells
        return every

    def shown(self, made: Interval, name: str, values: Tensor, known: Tensor, value: Tensor) -> Interval:
        """Where numbers lie that are printed so; elsewhere the interval of the step, rounded."""
        printed = self.author.printed[name]
        size = torch.where(printed.known, printed.size, printed.unit.of(value))
        # A number without any rounding tells that its author has more digits than it shows: 2 may be 2.000.
        usual = torch.minimum(size, self.author.usual.of(value))
        half = torch.where(within(printed.values, value, EXACTLY * usual), usual, size) / 2
        exactly = made.is_point & within(values, made.middle, EXACTLY * size)
        whole = made.is_point & is_whole(made.middle, size)
        return self.cut(values, torch.where(exactly, 0.0, half)).where(known, made.wider(torch.where(whole, 0.0, half)))

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
                changes[path] = _written(report, finding, document.typed(path) or "")
                values[finding.index] = round(finding.expected, quantity.unit.decimals_of(finding.expected))
            claims.append(replace(quantity.claim, values=values))
        report = check(replace(report.example, claims=tuple(claims)))
    return document.rewritten(changes)


def _replaced(quantity: CheckedQuantity) -> list[CellFinding]:
    """The numbers to correct; a doubtful one may be right by its author's way of rounding."""
    return [finding for finding in quantity.findings if finding.verdict is not Verdict.doubtful]


def _written(report: CheckReport, finding: CellFinding, before: str) -> str:
    """The true value, in the style of the replaced one."""
    word = printed_word(report.example.sheet, finding.name, finding.expected)
    if word is not None:
        return word
    if math.isinf(finding.expected):
        return "-inf" if finding.expected < 0 else "inf"
    decimals = report.of(finding.name).unit.decimals_of(finding.expected)
    return rounded(finding.expected, decimals, whole="." not in before)
