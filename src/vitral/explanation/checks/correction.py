"""The corrected example: the author's file with the numbers that are not right replaced."""

import math
from dataclasses import replace

from vitral.core.checked import checked
from vitral.explanation.checks.checker import check
from vitral.explanation.checks.report import CellFinding, CheckReport, printed_word, rounded
from vitral.explanation.examples.places import KeyPath


@checked(first=True)
def corrected(report: CheckReport) -> str:
    """The example's text with the true number, rounded to its decimals, for every one that is not right."""
    return corrected_file(report).decode()


def corrected_file(report: CheckReport) -> bytes:
    """The corrected example in the format of its file; see `corrected`.

    A number that follows from the author's rounded numbers may no longer do so after one of those is corrected; then it
    is corrected as well.
    """
    document = report.example.document
    changes: dict[KeyPath, str] = {}
    while any(quantity.findings for quantity in report.quantities):
        claims = []
        for quantity in report.quantities:
            values = quantity.claim.values.clone()
            for finding in quantity.findings:
                path = quantity.claim.path(finding.index)
                changes[path] = _written(report, finding, document.typed(path) or "")
                values[finding.index] = round(finding.expected, report.example.decimals)
            claims.append(replace(quantity.claim, values=values))
        report = check(replace(report.example, claims=tuple(claims)))
    return document.rewritten(changes)


def _written(report: CheckReport, finding: CellFinding, before: str) -> str:
    """The true value, in the style of the replaced one."""
    word = printed_word(report.example.sheet, finding.name, finding.expected)
    if word is not None:
        return word
    if math.isinf(finding.expected):
        return "-inf" if finding.expected < 0 else "inf"
    return rounded(finding.expected, report.example.decimals, whole="." not in before)
