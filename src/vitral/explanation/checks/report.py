"""The report of a check: the verdict on each claimed number, as data, in words and as plain data for JSON."""

import enum
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from vitral.core.shown import Shown, Tabular
from vitral.explanation.checks.diagnosis import Explained
from vitral.explanation.checks.rounding import RoundingRule, Unit
from vitral.explanation.checks.slips import Slip
from vitral.explanation.examples.example import AuthorClaim, Example
from vitral.explanation.examples.schema import WORDS
from vitral.explanation.formulas import text
from vitral.explanation.formulas.notation import Expression, Name
from vitral.explanation.phrasebook import Phrases, phrases
from vitral.explanation.sheet import Index, Sheet


class Verdict(enum.StrEnum):
    """The verdict on a claimed cell, from best to worst.

    Attributes:
        unknown: nothing is claimed.
        right: the true value.
        rounding: explained by the sheet's rounding rule.
        doubtful: inside the interval of one step, while one rule explains all other cells.
        unclear: rounding by a rule that is not known.
        follows: right, rounding or unclear from the author's own wrong numbers.
        wrong: none of these.
    """

    unknown = "unknown"
    right = "right"
    rounding = "rounding"
    doubtful = "doubtful"
    unclear = "unclear"
    follows = "follows"
    wrong = "wrong"


ORDER = tuple(Verdict)
FINE = (Verdict.unknown, Verdict.right, Verdict.rounding, Verdict.doubtful, Verdict.unclear)
"""Verdicts that accuse nobody."""


@dataclass(frozen=True)
class CellFinding:
    """A claimed cell that is not right.

    Attributes:
        name: the quantity.
        index: of the cell.
        claimed: the author's number.
        expected: the true number.
        verdict: not unknown, and not right.
        slip: the diagnosis, for a cell that is wrong in itself.
    """

    name: str
    index: Index
    claimed: float
    expected: float
    verdict: Verdict
    slip: Slip | None


@dataclass(frozen=True)
class CheckedQuantity:
    """A claimed quantity with its verdicts.

    Attributes:
        claim: the author's numbers.
        expected: the true numbers.
        verdicts: indices in `ORDER`, of the claim's shape.
        slips: what explains cells that are wrong in themselves.
        unit: of the numbers.
    """

    claim: AuthorClaim
    expected: Tensor
    verdicts: Tensor
    slips: tuple[Explained, ...]
    unit: Unit

    @cached_property
    def findings(self) -> tuple[CellFinding, ...]:
        """The cells that are not right."""
        return tuple(
            CellFinding(
                self.claim.name,
                index,
                float(self.claim.values[index]),
                float(self.expected[index]),
                ORDER[int(self.verdicts[index])],
                next((slip for slip, cells in self.slips if cells[index]), None),
            )
            for index in map(tuple, (self.verdicts > ORDER.index(Verdict.right)).nonzero().tolist())
        )

    @property
    def worst(self) -> Verdict:
        """The worst verdict of its cells."""
        return ORDER[int(self.verdicts.max())]


@dataclass(frozen=True, repr=False)
class CheckReport(Shown, Tabular):
    """A checked example.

    Attributes:
        example: the example.
        quantities: the claimed ones, in the order of the computation.
        rule: of rounding, which explains the numbers that are off by rounding; None if none does.
    """

    example: Example
    quantities: tuple[CheckedQuantity, ...]
    rule: RoundingRule | None = None

    def of(self, name: str) -> CheckedQuantity:
        """A claimed quantity by name."""
        return next(checked for checked in self.quantities if checked.claim.name == name)

    @property
    def worst(self) -> Verdict:
        """The worst verdict of all cells."""
        return max((checked.worst for checked in self.quantities), key=ORDER.index, default=Verdict.unknown)

    @property
    def findings(self) -> list[CellFinding]:
        """The cells that are not right, in the order of the computation."""
        return [finding for checked in self.quantities for finding in checked.findings]

    @property
    def first_wrong(self) -> CellFinding | None:
        """The first cell that is wrong in itself."""
        return next((finding for finding in self.findings if finding.verdict is Verdict.wrong), None)

    def __str__(self) -> str:
        """The report as plain text in the current language."""
        return ReportText(self, phrases()).text()

    def plain(self) -> dict[str, Any]:
        """The whole report as plain data for JSON, in English; rows, columns and heads are counted from 1."""
        english, first = ReportText(self, phrases("en")), self.first_wrong
        return {
            "file": str(self.example.path) if self.example.path else None,
            "title": self.example.title,
            "verdict": self.worst.value,
            "counts": self.counts(),
            "habit": self.rule and english.rule(self.rule),
            "summary": english.summary(),
            "first_wrong": first and english.plain(first),
            "findings": [*map(english.plain, self.findings)],
        }

    def typed(self, name: str, value: float, *, whole: bool = True) -> str:
        """A number with the digits of its quantity, or the word that it stands for, as a file has it."""
        if name in WORDS:
            return self.example.sheet.vocabulary[int(value)]
        return rounded(value, self.of(name).unit.decimals_of(value), whole=whole)

    def records(self) -> list[dict[str, Any]]:
        """One row for each number that is not right."""
        return self.plain()["findings"]

    def counts(self) -> dict[str, int]:
        """The number of cells with each verdict."""
        counts = dict.fromkeys(map(str, Verdict), 0)
        for checked in self.quantities:
            for code in checked.verdicts.flatten().tolist():
                counts[ORDER[code]] += 1
        return counts


@dataclass(frozen=True)
class RowFinding:
    """A row of a claimed quantity in which a cell is not right.

    Attributes:
        step: the quantity, as the file calls it.
        where: the row, and the head if there are several.
        claimed: the author's numbers.
        expected: the true numbers, with as many digits.
        verdict: the worst of the row.
        guess: the diagnosis, or empty.
        working: the arithmetic of the row's first cell that is wrong in itself, or empty.
    """

    step: str
    where: str
    claimed: tuple[str, ...]
    expected: tuple[str, ...]
    verdict: Verdict
    guess: str
    working: str


@dataclass(frozen=True)
class ReportText:
    """A report in words.

    Attributes:
        report: the report.
        say: the language.
    """

    report: CheckReport
    say: Phrases

    @property
    def sheet(self) -> Sheet:
        """The computation."""
        return self.report.example.sheet

    def summary(self) -> str:
        """One sentence with the number of cells of each verdict."""
        counts = self.report.counts()
        total = sum(counts.values()) - counts["unknown"]
        if not total:
            return self.say("check.nothing")
        if self.report.worst is Verdict.right:
            return self.say("check.all_right", count=total)
        key = "check.all_fine" if self.report.worst in FINE else "check.summary"
        doubts = counts["doubtful"] + counts["unclear"] > 0
        return self.say(f"{key}_doubts" if doubts else key, count=total, **counts)

    def rule(self, rule: RoundingRule) -> str:
        """A rounding rule."""
        return ", ".join(
            self.say(f"rounding.{key}", unit=self.say.number(f"{10.0**-decimals:.{decimals}f}"))
            for key, decimals in rule.named
        )

    def first_wrong(self) -> str:
        """The first cell that is wrong in itself, as a sentence; empty if there is none."""
        finding = self.report.first_wrong
        if finding is None:
            return ""
        cell = text(self._named(finding), self.report.example.decimals, self.say)
        return self.say("check.first", step=f"{self._step(finding.name)} ({self._of_head(finding)}{cell})")

    def text(self) -> str:
        """The whole report as lines of plain text."""
        report, say = self.report, self.say
        counts, rule = report.counts(), ""
        if report.rule is not None and counts["rounding"]:  # a number is right only by the rule
            rule = say("check.rule", rule=self.rule(report.rule))
        elif report.rule is None and counts["unclear"]:
            rule = say("check.no_rule")
        lines = [report.example.told(say.language).title, self.summary(), rule, self.first_wrong()]
        for row in self.rows():
            claimed, expected = "  ".join(row.claimed), "  ".join(row.expected)
            verdict = "; ".join(filter(None, [say(f"check.{row.verdict}"), row.guess]))
            lines.append(f"{row.step} {row.where}: {claimed} | {say('check.expected')} {expected} | {verdict}")
            lines += [f"  {row.working}"] if row.working else []
        return "\n".join(filter(None, lines))

    def rows(self) -> Iterator[RowFinding]:
        """The rows in which a cell is not right, in the order of the computation."""
        for checked in self.report.quantities:
            for row, cells in itertools.groupby(checked.findings, lambda finding: finding.index[:-1]):
                yield self._row(checked, row, list(cells))

    def _row(self, checked: CheckedQuantity, row: Index, cells: list[CellFinding]) -> RowFinding:
        name = checked.claim.name
        claimed, expected = (values[row].tolist() for values in (checked.claim.values, checked.expected))
        if not row:  # a list: only the cells that are not right are shown
            claimed, expected = [cell.claimed for cell in cells], [cell.expected for cell in cells]
        wrong = [cell for cell in cells if cell.verdict is Verdict.wrong]
        guesses = list(dict.fromkeys(self.guess(cell) for cell in wrong if cell.slip))
        if row and wrong and not guesses and name in self.sheet and self.sheet[name].is_share:
            total = sum(claimed)
            if abs(total - 1) > 0.5 * len(claimed) * checked.unit.of(torch.tensor(claimed)).max() + 1e-9:
                guesses.append(self.say("check.total", total=self._printed(name, total)))
        working = ""
        if wrong:
            line = self._of_head(wrong[0]) + self.working(wrong[0])
            working = self.say("check.printed", working=line, claimed=self._printed(name, wrong[0].claimed))
        return RowFinding(
            step=self._step(name),
            where=self._where(name, cells),
            claimed=self._printed_row(name, claimed),
            expected=self._printed_row(name, expected),
            verdict=max((cell.verdict for cell in cells), key=ORDER.index),
            guess="; ".join(guesses),
            working=working,
        )

    def _where(self, name: str, cells: list[CellFinding]) -> str:
        sheet = self.sheet
        axes, index = sheet[name].axes if name in sheet else (), cells[0].index[:-1]
        if not index:
            words = [sheet.vocabulary[cell.index[0]] for cell in cells if len(sheet.vocabulary) > cell.index[0]]
            return ", ".join(words) if axes[-1:] in (("vocab",), ("row",)) or name == "logits" else ""
        row, names, first = index[-1], sheet.sources if axes[-2:-1] == ("source",) else sheet.tokens, sheet.first
        label = f"{row + first} ({names[row]})" if len(names) > row else str(row + first)
        line = "column" if sheet.conventions.turned(name) else "row"
        if len(index) == 2 and sheet.num_heads > 1:
            return self.say(f"check.head_{line}", head=index[0] + first, row=label)
        return self.say(f"check.{line}", row=label)

    def guess(self, finding: CellFinding) -> str:
        """The diagnosis, with the numbers of the row that each candidate gives; empty without one."""
        slip = finding.slip
        if slip is None:
            return ""
        phrase, *others = (self._slip(candidate, finding) for candidate in slip.candidates)
        if others:
            return self.say("slips.or", slip=phrase, other=others[0])
        return phrase if slip.sure else self.say("slips.probably", slip=phrase)

    def _slip(self, slip: Slip, finding: CellFinding) -> str:
        """A slip as a phrase; rows, terms and heads are counted as the sheet counts."""
        sheet, first, printed = self.sheet, self.sheet.first, self._printed(finding.name, finding.expected)
        values: dict[str, Any] = {"expected": printed, "step": slip.step, **slip.values}
        values |= {
            key: text(Name(one), 0, self.say) for key, one in values.items() if isinstance(one, str) and key != "how"
        }
        values |= {name: values[name] + first for name in ("term", "head", "other") if name in values}
        row, index, used = values.get("row"), values.get("index"), values.get("used")
        if row is not None:
            values["row"] = f"{row[0]}[{':,' if sheet.conventions.turned(row[0]) else ''}{row[1] + first}]"
        if index is not None:
            values["cell"] = f"{values['table']}[{','.join(str(number + first) for number in index[-2:])}]"
        if isinstance(used, float):
            values["used"] = self.say.number(f"{used:g}").replace("-", "−")
        how = f"_{values['how']}" if "how" in values else ""
        words = self.say(f"slips.{slip.kind}{how}", **values)
        if slip.step != finding.name and slip.step in sheet:
            words = self.say("slips.at", slip=words, step=values["step"])
        if slip.result is None:
            return words
        result = slip.result[finding.index] if slip.grain == "cell" else slip.result[finding.index[:-1]]
        numbers = self._printed_row(finding.name, result.reshape(-1).tolist())
        return self.say("check.gives", slip=words, numbers="  ".join(numbers))

    def working(self, finding: CellFinding) -> str:
        """A cell's arithmetic in one line."""
        claimed = {claim.name for claim in self.report.example.claims}
        hidden = [quantity.name for quantity in self.sheet.quantities if quantity.name not in claimed]
        arithmetic = self.sheet.arithmetic(finding.name, finding.index, through=hidden)
        return text(replace(arithmetic, target=self._named(finding)).equation(), self.report.example.decimals, self.say)

    def _named(self, finding: CellFinding) -> Expression:
        """The cell's name, with the quantity as the file calls it."""
        cell = self.sheet.cell(finding.name, finding.index)
        return replace(cell, letters=self._step(finding.name)) if isinstance(cell, Name) else cell

    def _of_head(self, finding: CellFinding) -> str:
        """The head of a cell before its name, if there are several."""
        if len(finding.index) < 3 or self.sheet.num_heads == 1:
            return ""
        return f"{self.say('explain.head', number=finding.index[0] + self.sheet.first)}: "

    def _step(self, name: str) -> str:
        """The quantity's name in the file."""
        return self.report.of(name).claim.label

    def _printed_row(self, name: str, values: list[float]) -> tuple[str, ...]:
        """A row's numbers with equal numbers of decimals, none if all are whole."""
        whole = all(not math.isfinite(value) or value == round(value) for value in values)
        return tuple(self._printed(name, value, whole=whole) for value in values)

    def _printed(self, name: str, value: float, *, whole: bool = True) -> str:
        if math.isnan(value):
            return "?"
        typed = self.report.typed(name, value, whole=whole)
        return typed if name in WORDS else self.say.number(typed.replace("-", "−").replace("inf", "∞"))

    def plain(self, finding: CellFinding) -> dict[str, Any]:
        """A finding as plain data."""

        def value(number: float) -> float | str:
            if math.isfinite(number) and finding.name not in WORDS:
                return number
            return self.report.typed(finding.name, number)

        slip = finding.slip
        return {
            "step": self._step(finding.name),
            "cell": [number + 1 for number in finding.index],
            "claimed": value(finding.claimed),
            "expected": value(finding.expected),
            "verdict": finding.verdict.value,
            "slip": slip and slip.kind,
            "slip_in": slip and slip.step,
            "slip_sure": slip and slip.sure,
            "slip_or": slip and slip.other and slip.other.kind,
            "guess": self.guess(finding),
            "arithmetic": self.working(finding),
        }


def rounded(value: float, decimals: int, *, whole: bool = True) -> str:
    """A number with a fixed number of decimals, or inf or -inf; a whole one without a point, if `whole`.

    >>> rounded(6.3, 2), rounded(7.0, 2), rounded(-0.001, 2)
    ('6.30', '7', '0')
    """
    written = f"{value:.{decimals}f}"
    if float(written) == 0:
        written = written.removeprefix("-")
    return str(int(float(written))) if whole and float(written).is_integer() else written
