"""What a check found, in words and as plain data."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from vitral.explain.checking import ORDER, Checked, Finding, Report, Verdict, printed_word
from vitral.explain.correcting import rounded
from vitral.explain.guessing import WORDS, Slip
from vitral.explain.notation import Equation, Expression, Name, Number
from vitral.explain.phrases import Phrases
from vitral.explain.scripts import text
from vitral.explain.sheet import Sheet


@dataclass(frozen=True)
class Row:
    """One row of a claimed quantity in which something is not right.

    Attributes:
        step: the quantity.
        where: which row, and which head.
        claimed: the author's numbers as printed.
        expected: the true ones, as many digits.
        verdicts: of each cell.
        verdict: the worst of them.
        guess: what may have gone wrong, or empty.
        working: the arithmetic of the row's first wrong cell; of none in rows that only follow.
    """

    step: str
    where: str
    claimed: tuple[str, ...]
    expected: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    verdict: Verdict
    guess: str
    working: str


def summary(report: Report, say: Phrases) -> str:
    """One sentence: how many numbers are right."""
    counts = report.counts()
    total = sum(counts.values()) - counts["unknown"]
    if not total:
        return say("check.nothing")
    if report.worst is Verdict.right:
        return say("check.all_right", count=total)
    if report.worst is Verdict.rounding:
        return say("check.all_fine", count=total, **counts)
    return say("check.summary", count=total, **counts)


def first_wrong(report: Report, say: Phrases) -> str:
    """The first cell that is wrong in itself, or empty."""
    finding = report.first_wrong
    if finding is None:
        return ""
    cell = text(_named(report, finding), report.example.decimals, say)
    return say("check.first", step=f"{_step(report, finding.name)} ({cell})")


def told(report: Report, say: Phrases) -> str:
    """All of it as lines of plain text."""
    lines = [report.example.title, summary(report, say), first_wrong(report, say)]
    for row in rows(report, say):
        claimed, expected = "  ".join(row.claimed), "  ".join(row.expected)
        verdict = "; ".join(filter(None, [say(f"check.{row.verdict}"), row.guess]))
        lines.append(f"{row.step} {row.where}: {claimed} | {say('check.expected')} {expected} | {verdict}")
        lines += [f"  {row.working}"] if row.working else []
    return "\n".join(filter(None, lines))


def rows(report: Report, say: Phrases) -> Iterator[Row]:
    """Every row in which something is not right, in the order of the computation."""
    for checked in report.quantities:
        seen: set[tuple[int, ...]] = set()
        for finding in checked.findings:
            place = finding.index[:-1] if len(finding.index) > 1 else ()
            if place not in seen:
                seen.add(place)
                yield _row(report, checked, place, say)


def _row(report: Report, checked: Checked, place: tuple[int, ...], say: Phrases) -> Row:
    example, name = report.example, checked.claim.name
    of_row = [finding for finding in checked.findings if finding.index[:-1] == place]
    verdicts, claimed, expected = (
        (values[place] if place else values) for values in (checked.verdicts, checked.claim.values, checked.expected)
    )
    if not place:  # a list: only what is not right is shown
        keep = [finding.index[-1] for finding in of_row]
        verdicts, claimed, expected = verdicts[keep], claimed[keep], expected[keep]
    worst = max((finding.verdict for finding in of_row), key=ORDER.index)
    wrong = [finding for finding in of_row if finding.verdict is Verdict.wrong]
    guesses = list(dict.fromkeys(guess(finding, report, say) for finding in wrong if finding.slip))
    return Row(
        step=_step(report, name),
        where=_where(example.sheet, name, place, of_row, say),
        claimed=_printed_row(report, name, claimed.tolist()),
        expected=_printed_row(report, name, expected.tolist()),
        verdicts=tuple(ORDER[code] for code in verdicts.tolist()),
        verdict=worst,
        guess="; ".join(guesses),
        working=_against(wrong[0], report, say) if wrong else "",
    )


def _where(sheet: Sheet, name: str, place: tuple[int, ...], findings: list[Finding], say: Phrases) -> str:
    if not place:
        labels = [
            sheet.vocabulary[finding.index[0]] for finding in findings if len(sheet.vocabulary) > finding.index[0]
        ]
        return ", ".join(labels) if name not in ("total", "greedy", "beam", "beam_probability") else ""
    first = sheet.scribe.first
    token = f" ({sheet.tokens[place[-1]]})" if len(sheet.tokens) > place[-1] else ""
    row = f"{place[-1] + first}{token}"
    if len(place) == 2 and sheet.num_heads > 1:
        return say("check.head_row", head=place[0] + first, row=row)
    return say("check.row", row=row)


def guess(finding: Finding, report: Report, say: Phrases) -> str:
    """The slip in words."""
    slip = finding.slip
    if slip is None:
        return ""
    sheet = report.example.sheet
    how = f"_{slip.places['how']}" if "how" in slip.places else ""
    words = say(f"slips.{slip.kind}{how}", **_places(slip, finding, report))
    return words if slip.step == finding.name or slip.step not in sheet else say("slips.at", slip=words, step=slip.step)


def _places(slip: Slip, finding: Finding, report: Report) -> dict[str, object]:
    places: dict[str, object] = {"expected": _printed(report, finding.name, finding.expected), **slip.places}
    first = report.example.sheet.scribe.first
    if "term" in places:
        places["term"] = int(str(places["term"])) + first
    row = places.get("row")
    if isinstance(row, tuple):
        places["row"] = f"{row[0]}[{row[1] + first}]"
    return places


def working(report: Report, finding: Finding, say: Phrases) -> str:
    """A cell's arithmetic in one line."""
    sides = (_named(report, finding), *finding.arithmetic.stages, Number(finding.arithmetic.value))
    return text(Equation(sides), report.example.decimals, say)


def _named(report: Report, finding: Finding) -> Expression:
    """A cell by the name the file has for its quantity."""
    cell = report.example.sheet.cell(finding.name, finding.index)
    return replace(cell, letters=_step(report, finding.name)) if isinstance(cell, Name) else cell


def _against(finding: Finding, report: Report, say: Phrases) -> str:
    """A cell's arithmetic, and what was printed instead."""
    line = working(report, finding, say)
    if finding.name in WORDS:
        line = line.rpartition(" = ")[0]  # its number is a word's place
    return say("check.printed", working=line, claimed=_printed(report, finding.name, finding.claimed))


def _step(report: Report, name: str) -> str:
    """The quantity as the file calls it."""
    for checked in report.quantities:
        if checked.claim.name == name:
            return checked.claim.key[-1]
    return name


def _printed_row(report: Report, name: str, values: list[float]) -> tuple[str, ...]:
    """A row's numbers with as many decimals each; none where all are whole."""
    whole = all(not math.isfinite(value) or value == round(value) for value in values)
    return tuple(_printed(report, name, value, whole=whole) for value in values)


def _printed(report: Report, name: str, value: float, *, whole: bool = True) -> str:
    if math.isnan(value):
        return "?"
    word = printed_word(report.example.sheet, name, value)
    if word is not None:
        return word
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return rounded(value, report.example.decimals, whole=whole).replace("-", "−")


def plain(report: Report, say: Phrases) -> dict[str, Any]:
    """Everything as plain data for JSON; rows, columns and heads counted from 1."""
    first = report.first_wrong
    return {
        "file": str(report.example.path) if report.example.path else None,
        "title": report.example.title,
        "verdict": report.worst.value,
        "counts": report.counts(),
        "summary": summary(report, say),
        "first_wrong": None if first is None else _finding(report, first, say),
        "findings": [_finding(report, finding, say) for checked in report.quantities for finding in checked.findings],
    }


def _finding(report: Report, finding: Finding, say: Phrases) -> dict[str, Any]:
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
        "guess": guess(finding, report, say),
        "arithmetic": working(report, finding, say),
    }
