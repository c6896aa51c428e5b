"""The corrected example: the author's file with the numbers that are not right replaced."""

import json
import math
from dataclasses import replace

from vitral.core.checked import checked
from vitral.explanation.checks.checker import check
from vitral.explanation.checks.report import CellFinding, CheckReport, printed_word, rounded
from vitral.explanation.examples.places import Place, places


@checked(first=True)
def corrected(report: CheckReport) -> str:
    """The example's text with every claimed number that is not right replaced by the true one, rounded to its decimals.

    A number that follows from the author's rounded numbers may no longer do so after one of those is corrected; then it
    is corrected as well.
    """
    text, found = report.example.text, places(report.example.text)
    changes: dict[Place, str] = {}
    while any(quantity.findings for quantity in report.quantities):
        claims = []
        for quantity in report.quantities:
            values = quantity.claim.values.clone()
            for finding in quantity.findings:
                place = found[quantity.claim.path(finding.index)]
                changes[place] = _literal(report, finding, text[place.start : place.end])
                values[finding.index] = round(finding.expected, report.example.decimals)
            claims.append(replace(quantity.claim, values=values))
        report = check(replace(report.example, claims=tuple(claims)))
    for place, literal in sorted(changes.items(), key=lambda change: change[0].start, reverse=True):
        text = text[: place.start] + literal + text[place.end :]
    return text


def _literal(report: CheckReport, finding: CellFinding, before: str) -> str:
    """The true value as TOML, in the style of the replaced literal."""
    word = printed_word(report.example.sheet, finding.name, finding.expected)
    if word is not None:
        return json.dumps(word, ensure_ascii=False)
    if math.isinf(finding.expected):
        return '"-inf"' if finding.expected < 0 else '"inf"'
    return rounded(finding.expected, report.example.decimals, whole="." not in before)
