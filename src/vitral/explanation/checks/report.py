"""The report of a check: the verdict on each claimed number, as data, in words and as plain data for JSON."""

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.explanation.checks.hypotheses import WORDS
from vitral.explanation.checks.rounding import RoundingRule, is_softmax
from vitral.explanation.checks.slips import Slip
from vitral.explanation.checks.units import Unit
from vitral.explanation.checks.wording import slip_words
from vitral.explanation.examples.example import AuthorClaim, Example
from vitral.explanation.formulas import text
from vitral.explanation.formulas.notation import Expression, Name
from vitral.explanation.phrasebook import Phrases, phrases
from vitral.explanation.sheet import Index, Sheet
from vitral.explanation.steps import Arithmetic


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
        gives: the numbers of the cell's row under the slip; empty for a misprint.
        arithmetic: the computation of the true number.
    """

    name: str
    index: Index
    claimed: float
    expected: float
    verdict: Verdict
    slip: Slip | None
    gives: tuple[float, ...]
    arithmetic: Arithmetic


@dataclass(frozen=True)
class CheckedQuantity:
    """A claimed quantity with its verdicts.

    Attributes:
        claim: the author's numbers.
        expected: the true numbers.
        verdicts: indices in `ORDER`, of the claim's shape.
        findings: the cells that are not right.
        unit: of the numbers.
    """

    claim: AuthorClaim
    expected: Tensor
    verdicts: Tensor
    findings: tuple[CellFinding, ...]
    unit: Unit

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

    def unit(self, name: str) -> Unit:
        """The unit of a quantity; of one that is not claimed, that of the example."""
        return next(
            (checked.unit for checked in self.quantities if checked.claim.name == name), Unit(self.example.decimals)
        )

    @property
    def worst(self) -> Verdict:
        """The worst verdict of all cells."""
        return max((checked.worst for checked in self.quantities), key=ORDER.index, default=Verdict.unknown)

    @property
    def first_wrong(self) -> CellFinding | None:
        """The first cell that is wrong in itself."""
        findings = (finding for checked in self.quantities for finding in checked.findings)
        return next((finding for finding in findings if finding.verdict is Verdict.wrong), None)

    def __str__(self) -> str:
        """The report as plain text in the current language."""
        return report_text(self, phrases())

    def plain(self) -> dict[str, Any]:
        """The whole report as plain data for JSON, in English; rows, columns and heads are counted from 1."""
        say, first = phrases("en"), self.first_wrong
        return {
            "file": str(self.example.path) if self.example.path else None,
            "title": self.example.title,
            "verdict": self.worst.value,
            "counts": self.counts(),
            "habit": None if self.rule is None else rule_words(self, say),
            "summary": summary(self, say),
            "first_wrong": None if first is None else _finding(self, first, say),
            "findings": [_finding(self, finding, say) for checked in self.quantities for finding in checked.findings],
        }

    def records(self) -> list[dict[str, Any]]:
        """One row for each number that is not right."""
        return self.plain()["findings"]

    def counts(self) -> dict[str, int]:
        """The number of cells with each verdict."""
        counts = dict.fromkeys(map(str, Verdict), 0)
        for checked in self.quantities:
            for place in checked.verdicts.flatten().tolist():
                counts[ORDER[place]] += 1
        return counts


@dataclass(frozen=True)
class RowFinding:
    """A row of a claimed quantity in which a cell is not right.

    Attributes:
        step: the quantity, as the file calls it.
        where: the row, and the head if there are several.
        claimed: the author's numbers.
        expected: the true numbers, with as many digits.
        verdicts: of each cell.
        verdict: the worst of them.
        guess: the diagnosis, or empty.
        working: the arithmetic of the row's first cell that is wrong in itself, or empty.
    """

    step: str
    where: str
    claimed: tuple[str, ...]
    expected: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    verdict: Verdict
    guess: str
    working: str


def summary(report: CheckReport, say: Phrases) -> str:
    """One sentence with the number of cells of each verdict."""
    counts = report.counts()
    total = sum(counts.values()) - counts["unknown"]
    if not total:
        return say("check.nothing")
    if report.worst is Verdict.right:
        return say("check.all_right", count=total)
    key = "check.all_fine" if report.worst in FINE else "check.summary"
    doubts = counts["doubtful"] + counts["unclear"] > 0
    return say(f"{key}_doubts" if doubts else key, count=total, **counts)


def rule_words(report: CheckReport, say: Phrases) -> str:
    """The author's rounding rule in words; empty if it is not known."""
    if report.rule is None:
        return ""
    return ", ".join(
        say(f"rounding.{key}", unit=say.number(f"{10.0**-decimals:.{decimals}f}"))
        for key, decimals in report.rule.named
    )


def rule_line(report: CheckReport, say: Phrases) -> str:
    """The rule as a sentence, if a number is right only by it; empty otherwise."""
    counts = report.counts()
    if counts["rounding"] and report.rule is not None:
        return say("check.rule", rule=rule_words(report, say))
    return say("check.no_rule") if counts["unclear"] and report.rule is None else ""


def first_wrong(report: CheckReport, say: Phrases) -> str:
    """The first cell that is wrong in itself, as a sentence; empty if there is none."""
    finding = report.first_wrong
    if finding is None:
        return ""
    cell = text(_named(report, finding), report.example.decimals, say)
    step = _step(report, finding.name)
    return say("check.first", step=f"{step} ({_of_head(finding, report, say)}{cell})")


def report_text(report: CheckReport, say: Phrases) -> str:
    """The whole report as lines of plain text."""
    lines = [report.example.told(say.language).title, summary(report, say), rule_line(report, say)]
    lines.append(first_wrong(report, say))
    for row in rows(report, say):
        claimed, expected = "  ".join(row.claimed), "  ".join(row.expected)
        verdict = "; ".join(filter(None, [say(f"check.{row.verdict}"), row.guess]))
        lines.append(f"{row.step} {row.where}: {claimed} | {say('check.expected')} {expected} | {verdict}")
        lines += [f"  {row.working}"] if row.working else []
    return "\n".join(filter(None, lines))


def rows(report: CheckReport, say: Phrases) -> Iterator[RowFinding]:
    """The rows in which a cell is not right, in the order of the computation."""
    for checked in report.quantities:
        seen: set[tuple[int, ...]] = set()
        for finding in checked.findings:
            place = finding.index[:-1] if len(finding.index) > 1 else ()
            if place not in seen:
                seen.add(place)
                yield _row(report, checked, place, say)


def _row(report: CheckReport, checked: CheckedQuantity, place: tuple[int, ...], say: Phrases) -> RowFinding:
    example, name = report.example, checked.claim.name
    of_row = [finding for finding in checked.findings if finding.index[:-1] == place]
    verdicts, claimed, expected = (
        (values[place] if place else values) for values in (checked.verdicts, checked.claim.values, checked.expected)
    )
    if not place:  # a list: only the cells that are not right are shown
        keep = [finding.index[-1] for finding in of_row]
        verdicts, claimed, expected = verdicts[keep], claimed[keep], expected[keep]
    worst = max((finding.verdict for finding in of_row), key=ORDER.index)
    wrong = [finding for finding in of_row if finding.verdict is Verdict.wrong]
    guesses = list(dict.fromkeys(guess(finding, report, say) for finding in wrong if finding.slip))
    if wrong and not guesses and name in example.sheet and is_softmax(example.sheet[name]):
        total = float(claimed.sum())
        if place and abs(total - 1) > 0.5 * len(claimed) * checked.unit.of(claimed).max() + 1e-9:
            guesses.append(say("check.total", total=_printed(report, name, total, say)))
    return RowFinding(
        step=_step(report, name),
        where=_where(example.sheet, name, place, of_row, say),
        claimed=_printed_row(report, name, claimed.tolist(), say),
        expected=_printed_row(report, name, expected.tolist(), say),
        verdicts=tuple(ORDER[code] for code in verdicts.tolist()),
        verdict=worst,
        guess="; ".join(guesses),
        working=_against(wrong[0], report, say) if wrong else "",
    )


def _where(sheet: Sheet, name: str, place: tuple[int, ...], findings: list[CellFinding], say: Phrases) -> str:
    if not place:
        labels = [
            sheet.vocabulary[finding.index[0]] for finding in findings if len(sheet.vocabulary) > finding.index[0]
        ]
        of_words = name in sheet and sheet[name].axes[-1] in ("vocab", "row")
        return ", ".join(labels) if of_words or name == "logits" else ""
    first = sheet.namer.first
    names = sheet.sources if name in sheet and sheet[name].axes[-2:-1] == ("source",) else sheet.tokens
    token = f" ({names[place[-1]]})" if len(names) > place[-1] else ""
    row = f"{place[-1] + first}{token}"
    line = "column" if sheet.conventions.turned(name) else "row"
    if len(place) == 2 and sheet.num_heads > 1:
        return say(f"check.head_{line}", head=place[0] + first, row=row)
    return say(f"check.{line}", row=row)


def guess(finding: CellFinding, report: CheckReport, say: Phrases) -> str:
    """The diagnosis in words."""
    slip = finding.slip
    if slip is None:
        return ""
    sheet = report.example.sheet
    expected = _printed(report, finding.name, finding.expected, say)
    words = slip_words(slip, finding.name, expected, (sheet.namer, sheet), say)
    numbers = "  ".join(_printed_row(report, finding.name, list(finding.gives), say))
    return say("check.gives", slip=words, numbers=numbers) if finding.gives and slip.other is None else words


def working(report: CheckReport, finding: CellFinding, say: Phrases) -> str:
    """A cell's arithmetic in one line."""
    arithmetic = replace(finding.arithmetic, target=_named(report, finding))
    return text(arithmetic.equation(), report.example.decimals, say)


def _named(report: CheckReport, finding: CellFinding) -> Expression:
    """The cell's name, with the quantity as the file calls it."""
    cell = report.example.sheet.cell(finding.name, finding.index)
    return replace(cell, letters=_step(report, finding.name)) if isinstance(cell, Name) else cell


def _against(finding: CellFinding, report: CheckReport, say: Phrases) -> str:
    """A cell's arithmetic and the printed number."""
    line = _of_head(finding, report, say) + working(report, finding, say)
    return say("check.printed", working=line, claimed=_printed(report, finding.name, finding.claimed, say))


def _of_head(finding: CellFinding, report: CheckReport, say: Phrases) -> str:
    """The head of a cell before its name, if there are several."""
    sheet = report.example.sheet
    if len(finding.index) < 3 or sheet.num_heads == 1:
        return ""
    return f"{say('explain.head', number=finding.index[0] + sheet.namer.first)}: "


def _step(report: CheckReport, name: str) -> str:
    """The quantity's name in the file."""
    for checked in report.quantities:
        if checked.claim.name == name:
            return checked.claim.label
    return name


def _printed_row(report: CheckReport, name: str, values: list[float], say: Phrases) -> tuple[str, ...]:
    """A row's numbers with equal numbers of decimals, none if all are whole."""
    whole = all(not math.isfinite(value) or value == round(value) for value in values)
    return tuple(_printed(report, name, value, say, whole=whole) for value in values)


def _printed(report: CheckReport, name: str, value: float, say: Phrases, *, whole: bool = True) -> str:
    if math.isnan(value):
        return "?"
    word = printed_word(report.example.sheet, name, value)
    if word is not None:
        return word
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return say.number(rounded(value, report.unit(name).decimals_of(value), whole=whole).replace("-", "−"))


def _finding(report: CheckReport, finding: CellFinding, say: Phrases) -> dict[str, Any]:
    def value(number: float) -> float | str:
        word = printed_word(report.example.sheet, finding.name, number)
        return word if word is not None else number if math.isfinite(number) else "inf" if number > 0 else "-inf"

    slip = finding.slip
    return {
        "step": _step(report, finding.name),
        "cell": [place + 1 for place in finding.index],
        "claimed": value(finding.claimed),
        "expected": value(finding.expected),
        "verdict": finding.verdict.value,
        "slip": None if slip is None else slip.kind,
        "slip_in": None if slip is None else slip.step,
        "slip_sure": None if slip is None else slip.sure,
        "slip_or": None if slip is None or slip.other is None else slip.other.kind,
        "guess": guess(finding, report, say),
        "arithmetic": working(report, finding, say),
    }


def printed_word(sheet: Sheet, name: str, value: float) -> str | None:
    """The word that a number stands for, if the quantity's numbers are indices of words."""
    return sheet.vocabulary[int(value)] if name in WORDS else None


def rounded(value: float, decimals: int, *, whole: bool = True) -> str:
    """A number with a fixed number of decimals; a whole one without a point, if `whole`.

    >>> rounded(6.3, 2), rounded(7.0, 2), rounded(-0.001, 2)
    ('6.30', '7', '0')
    """
    written = f"{value:.{decimals}f}"
    if float(written) == 0:
        written = written.removeprefix("-")
    return str(int(float(written))) if whole and float(written) == int(float(written)) else written
