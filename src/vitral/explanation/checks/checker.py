"""Checking a worked example: each claimed number against the true one and the author's own.

Each quantity is computed from five sets of numbers:

    exact     the given numbers alone
    right     what an author with the rule of the sheet goes on with, who makes no mistake
    own       the same, with the author's wrong numbers, and the unrounded results of the diagnosed slips
    printed   all printed numbers
    near      intervals: the printed numbers that are not wrong, up to their rounding
    about     intervals: all printed numbers, up to their rounding

A cell is right if it is the true value, rounding if the rule explains it, doubtful or unclear if it lies in the
interval of one step, and follows if one of these holds of the author's own numbers; otherwise it is wrong in itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.explanation.checks.author import Author, Printed
from vitral.explanation.checks.diagnosis import Mismatch, SlipMatch, diagnose
from vitral.explanation.checks.given import explained_by_given
from vitral.explanation.checks.hypotheses import Work
from vitral.explanation.checks.intervals import Interval, reached
from vitral.explanation.checks.report import ORDER, CellFinding, CheckedQuantity, CheckReport, Verdict
from vitral.explanation.checks.rounding import EXACTLY, TOLERANCE, RoundingRule
from vitral.explanation.checks.units import COUNTED, is_whole
from vitral.explanation.examples.example import Example
from vitral.explanation.sheet import Index, SheetQuantity

MOST_ODD = 2
"""A rule is known if at most so many numbers, or one row, are inside the interval, but not explained."""
ENOUGH_EXPLAINED = 8
"""A number is doubtful, instead of rounding by an unknown rule, if the rule explains so many others."""

SPREAD = 1.0
"""How much further than rules an author may be from full precision, after steps that are not printed."""

CODE = {verdict: place for place, verdict in enumerate(ORDER)}


def check(example: Example) -> CheckReport:
    """Compare every claimed cell with the true number and with the results of the author's own numbers."""
    return _Checker(example).report()


@dataclass(frozen=True)
class _Judged:
    """A quantity with the verdicts on its cells, and what explains the wrong ones."""

    name: str
    verdicts: Tensor
    diagnoses: Mapping[Index, SlipMatch]


class _Checker:
    """Goes through the sheet in order and updates the computations."""

    def __init__(self, example: Example) -> None:
        self.example, self.sheet = example, example.sheet
        self.author = Author(example)
        self.rule = self.author.rule
        self.exact = dict(self.sheet.values)
        given = self.author.given
        self.right, self.own, self.printed = dict(given), dict(given), dict(given)
        self.near = {name: Interval(value, value) for name, value in given.items()}
        self.about = dict(self.near)
        if (chosen := self.author.tied(self.exact)) is not None:
            self.exact["greedy"] = chosen
        self.explained = 0
        self.astray: set[str] = set()  # quantities with wrong numbers, and all that are computed from them
        computed = {quantity.name for quantity in self.sheet.quantities}
        self.unprinted = computed - set(self.author.printed)

    def report(self) -> CheckReport:
        judged = [self.given(name) for name in self.author.printed if name not in self.sheet]
        for quantity in self.sheet.quantities:
            if quantity.name in self.author.printed:
                judged.append(self.judge(quantity))
            else:
                self.pass_by(quantity)
        unclear = [each.verdicts == CODE[Verdict.unclear] for each in judged]
        odd = sum(int(each.sum()) for each in unclear)
        rows = sum(int(each.any(dim=-1).sum()) if each.dim() else int(each) for each in unclear)
        worst = max((int(each.verdicts.max()) for each in judged), default=0)
        if worst >= CODE[Verdict.follows] and explained_by_given(self.author):
            return self.excused(judged)
        known = odd <= MOST_ODD or rows == 1 or odd * 10 <= self.explained
        if known and odd and self.explained >= ENOUGH_EXPLAINED:
            judged = [self.renamed(each, Verdict.unclear, Verdict.doubtful) for each in judged]
        if not known:
            judged = [self.renamed(each, Verdict.rounding, Verdict.unclear) for each in judged]
        return self.made(judged, self.rule if known else None)

    def made(self, judged: Sequence[_Judged], rule: RoundingRule | None) -> CheckReport:
        order = {claim.name: place for place, claim in enumerate(self.example.claims)}
        judged = sorted(judged, key=lambda each: order[each.name])
        return CheckReport(self.example, tuple(map(self.checked, judged)), rule)

    def excused(self, judged: Sequence[_Judged]) -> CheckReport:
        """The report on a sheet whose given numbers are rounded: every number is right or rounding."""
        fine = [
            replace(each, verdicts=each.verdicts.clamp(max=CODE[Verdict.rounding]), diagnoses={}) for each in judged
        ]
        return self.made(fine, RoundingRule(given=True))

    def renamed(self, judged: _Judged, before: Verdict, after: Verdict) -> _Judged:
        verdicts = torch.where(judged.verdicts == CODE[before], CODE[after], judged.verdicts)
        return replace(judged, verdicts=verdicts)

    # Verdicts.

    def given(self, name: str) -> _Judged:
        """A claim about a given quantity: rounded, it may be printed again."""
        printed, exact = self.author.printed[name], self.exact[name]
        verdicts = torch.full(exact.shape, CODE[Verdict.wrong])
        fits = self.rule.explains(printed.values, exact, printed.size) & ~is_whole(exact, printed.size)
        verdicts[fits] = CODE[Verdict.rounding]
        verdicts[within(printed.values, exact, printed.size / 2)] = CODE[Verdict.right]
        verdicts[~printed.known] = CODE[Verdict.unknown]
        self.printed[name] = torch.where(printed.known, printed.values, exact)
        radius = torch.where(printed.known, printed.size / 2, 0.0)
        self.about[name] = Interval.around(self.printed[name], radius)
        if bool((verdicts == CODE[Verdict.wrong]).any()):
            self.astray.add(name)
        return _Judged(name, verdicts, {})

    def pass_by(self, quantity: SheetQuantity) -> None:
        """Compute a quantity that is not printed."""
        name, author = quantity.name, self.author
        value, other, printed = (
            author.make(self.rule, quantity, self.right),
            author.make(self.rule, quantity, self.own),
            author.make(RoundingRule(), quantity, self.printed),
        )
        if not self.astray.isdisjoint(quantity.inputs):
            self.astray.add(name)
        size = author.usual.of(value)
        fits = author.fits(self.rule, quantity, value)
        self.right[name] = author.carried(self.rule, quantity, value, fits)
        self.own[name] = author.carried(self.rule, quantity, other, fits)
        self.printed[name] = printed
        for intervals, values in ((self.near, value), (self.about, printed)):
            made = self.interval(quantity, intervals, values)
            intervals[name] = made.wider(torch.where(made.is_point & is_whole(made.middle, size), 0.0, size / 2))
        self.near[name] = self.spread(name, self.near[name], value, size / 2)

    def judge(self, quantity: SheetQuantity) -> _Judged:
        """The verdicts on a printed quantity."""
        name, author, rule = quantity.name, self.author, self.rule
        printed = author.printed[name]
        value, other = (author.make(rule, quantity, values) for values in (self.right, self.own))
        again = author.make(RoundingRule(), quantity, self.printed)
        self.right[name], self.own[name], self.printed[name] = value, other, again
        near, about = (
            self.interval(quantity, intervals, values)
            for intervals, values in ((self.near, value), (self.about, again))
        )
        if any(each in self.unprinted for each in quantity.inputs):
            near = self.spread(name, near, value, torch.zeros_like(value))
        true = within(printed.values, self.exact[name], printed.size / 2)
        certain = self.certain(near, printed)
        fits, inside = self.fitting(quantity, value, near)
        close = author.near(rule, name)
        if not any(each in self.unprinted for each in quantity.inputs):  # a step from printed numbers may be far off
            close = close | within(printed.values, again, printed.size / 2)
        fits, inside = fits & close, inside & close
        follows, after = self.fitting(quantity, other, about)
        follows |= within(printed.values, again, printed.size / 2)
        verdicts = torch.full(printed.values.shape, CODE[Verdict.wrong])
        if self.astray.isdisjoint(quantity.inputs):  # the author's own numbers differ by rounding
            inside = inside | (follows & ~certain & close)
        else:
            verdicts[after | follows] = CODE[Verdict.follows]
        moved = (other - value).abs() > TOLERANCE * printed.size
        verdicts[inside & ~(follows & moved)] = CODE[Verdict.unclear]
        verdicts[fits] = CODE[Verdict.rounding]
        verdicts[true] = CODE[Verdict.right]
        verdicts[~printed.known] = CODE[Verdict.unknown]
        self.explained += int((printed.known & (true | fits | follows)).sum())
        wrong = verdicts == CODE[Verdict.wrong]
        if bool((verdicts >= CODE[Verdict.follows]).any()) or not self.astray.isdisjoint(quantity.inputs):
            self.astray.add(name)
        diagnoses = self.diagnoses(quantity, printed, wrong) if bool(wrong.any()) else {}
        self.keep(quantity, (value, other), verdicts, diagnoses)
        self.narrow(quantity, verdicts, certain, (near, about, value))
        return _Judged(name, verdicts, diagnoses)

    def fitting(self, quantity: SheetQuantity, value: Tensor, interval: Interval) -> tuple[Tensor, Tensor]:
        """Whether the rule explains each cell by these values, and whether a cell lies in the interval of the step.

        A cell that is computed from exact numbers and needs no more digits than it has must be equal.
        """
        printed = self.author.printed[quantity.name]
        certain = self.certain(interval, printed)
        equal = within(printed.values, interval.middle, EXACTLY * printed.size)
        fits = self.author.fits(self.rule, quantity, value)
        if quantity.name in COUNTED:
            return equal, equal
        written = printed.values
        if self.rule.cuts:  # the number that was cut lies half a unit further from 0 than its digits, on average
            written = written + printed.size / 2 * self.rule.towards(value)
        inside = interval.wider(TOLERANCE * printed.size).contains(written)
        return torch.where(certain, equal, fits), torch.where(certain, equal, inside)

    def certain(self, interval: Interval, printed: Printed) -> Tensor:
        """Where a number is computed from exact ones and needs no more digits than it has."""
        return interval.is_point & is_whole(interval.middle, printed.size) & (self.rule.carry != "float16")

    def interval(self, quantity: SheetQuantity, intervals: Mapping[str, Interval], values: Tensor) -> Interval:
        if quantity.name in COUNTED:
            return Interval(values, values)
        size = 10.0 ** -self.author.unit(quantity.name).decimals
        try:
            return reached(quantity.tree, intervals, size)
        except UsageError:  # the author's probabilities are not a distribution
            return Interval(values, values)

    def spread(self, name: str, interval: Interval, value: Tensor, room: Tensor) -> Interval:
        """An interval through unprinted steps, not wider than rules can explain; otherwise it soon holds anything."""
        return interval.within(Interval.around(value, SPREAD * self.author.spread[name] + room))

    def diagnoses(self, quantity: SheetQuantity, printed: Printed, wrong: Tensor) -> Mapping[Index, SlipMatch]:
        """The diagnosis of each wrong cell that a slip explains."""
        computations = (self.exact, self.right, self.printed, self.own)
        mismatch = Mismatch(quantity, printed.values, printed.known, wrong, printed.unit)
        work = Work(self.rule, self.author.unit)
        return diagnose(self.sheet, set(self.author.printed), computations, work, mismatch)

    # What is carried on.

    def keep(
        self,
        quantity: SheetQuantity,
        values: tuple[Tensor, Tensor],
        verdicts: Tensor,
        diagnoses: Mapping[Index, SlipMatch],
    ) -> None:
        """Update the computations with the author's numbers."""
        name, author, rule = quantity.name, self.author, self.rule
        printed = author.printed[name]
        fine = verdicts < CODE[Verdict.follows]
        fits = author.fits(rule, quantity, values[0]) & author.near(rule, name)
        kept = author.carried(rule, quantity, values[0], fits | (fine & printed.known))
        unexplained = fine & ~fits & printed.known & (rule.carry == "full")
        self.right[name] = torch.where(unexplained & (verdicts > CODE[Verdict.right]), printed.values, kept)
        follows = author.fits(rule, quantity, values[1])
        own = torch.where(follows, author.carried(rule, quantity, values[1], follows), printed.values)
        own = torch.where(fine & printed.known, self.right[name], own)
        again = torch.where(printed.known, printed.values, self.printed[name])
        for index, diagnosis in diagnoses.items():
            if diagnosis.made is not None:
                own[index] = diagnosis.made[index]
                # The slip is assumed to reach the unprinted cells of the row, or of the whole quantity.
                reached = (slice(None),) * len(index) if diagnosis.grain == "all" else (*index[:-1], slice(None))
                silent = verdicts[reached] == 0
                own[reached] = torch.where(silent, diagnosis.made[reached], own[reached])
                as_printed = rule.rounded(diagnosis.made[reached], printed.size[reached])
                again[reached] = torch.where(silent, as_printed, again[reached])
        self.own[name], self.printed[name] = own, again

    def narrow(
        self, quantity: SheetQuantity, verdicts: Tensor, certain: Tensor, made: tuple[Interval, Interval, Tensor]
    ) -> None:
        """The intervals of a printed quantity: its printed numbers up to rounding."""
        printed, (near, about, value) = self.author.printed[quantity.name], made
        # A number without any rounding tells that its author has more digits than it shows: 2 may be 2.000.
        usual = torch.minimum(printed.size, self.author.usual.of(value))
        half = torch.where(within(printed.values, value, EXACTLY * usual), usual, printed.size) / 2
        fine = (verdicts < CODE[Verdict.follows]) & printed.known
        exactly = certain & within(printed.values, value, EXACTLY * printed.size)
        centre = torch.where(fine, printed.values, value)
        self.near[quantity.name] = _where(
            printed.known, self.cut(centre, torch.where(exactly, 0.0, half)), near.wider(half)
        )
        whole = about.is_point & within(printed.values, about.middle, EXACTLY * printed.size)
        self.about[quantity.name] = _where(
            printed.known, self.cut(printed.values, torch.where(whole, 0.0, half)), about.wider(half)
        )

    def cut(self, values: Tensor, radius: Tensor) -> Interval:
        """Where numbers lie that are printed so: beyond them, if the author cuts."""
        if not self.rule.cuts:
            return Interval.around(values, radius)
        beyond = values + 2 * radius * self.rule.towards(values)
        return Interval(torch.minimum(values, beyond), torch.maximum(values, beyond))

    # The report.

    def checked(self, judged: _Judged) -> CheckedQuantity:
        [claim] = [claim for claim in self.example.claims if claim.name == judged.name]
        name, verdicts = judged.name, judged.verdicts
        findings = tuple(
            CellFinding(
                name,
                tuple(place),
                float(claim.values[tuple(place)]),
                float(self.exact[name][tuple(place)]),
                ORDER[int(verdicts[tuple(place)])],
                match.slip if (match := judged.diagnoses.get(tuple(place))) else None,
                tuple(match.made[tuple(place[:-1])].tolist()) if match and match.made is not None else (),
                self.sheet.arithmetic(name, tuple(place), through=self.unprinted),
            )
            for place in (verdicts >= CODE[Verdict.rounding]).nonzero().tolist()
        )
        return CheckedQuantity(claim, self.exact[name], verdicts, findings, self.author.unit(name))


def within(values: Tensor, truth: Tensor, tolerance: Tensor | float) -> Tensor:
    """Whether values agree up to a tolerance; equal infinities agree."""
    room = tolerance * (1 + 1e-6) + 1e-12 * truth.abs().nan_to_num(posinf=0.0, neginf=0.0)
    return (values == truth) | ((values - truth).abs() <= room)


def _where(mask: Tensor, yes: Interval, no: Interval) -> Interval:
    return Interval(torch.where(mask, yes.low, no.low), torch.where(mask, yes.high, no.high))
