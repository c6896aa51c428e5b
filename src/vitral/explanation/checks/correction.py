"""The corrected example: the author's file with the numbers that are not right replaced."""

import math
from dataclasses import replace

from vitral.explanation.checks.checker import check
from vitral.explanation.checks.report import CellFinding, CheckedQuantity, CheckReport, Verdict, printed_word, rounded
from vitral.explanation.examples.places import KeyPath


def corrected(report: CheckReport) -> str:
    """The example's text with the true number, in its unit, for every one that is neither right nor doubtful."""
    return corrected_file(report).decode()


def corrected_file(report: CheckReport) -> bytes:
    """The corrected example in the format of its file; see `corrected`.

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
