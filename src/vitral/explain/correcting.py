"""The corrected example: the author's file with what is not right put right, and nothing else touched."""

import json
import math
from dataclasses import replace

from vitral.explain.checking import Finding, Report, check, printed_word
from vitral.explain.places import Place, places


def corrected(report: Report) -> str:
    """The example's text with every claimed number that is not right replaced by what is true, rounded as it asks.

    A number that was right for the author's own rounded ones may no longer be, once one of those is corrected; then
    it is corrected, too.
    """
    text, found = report.example.text, places(report.example.text)
    changes: dict[Place, str] = {}
    while any(checked.findings for checked in report.quantities):
        claims = []
        for checked in report.quantities:
            values = checked.claim.values.clone()
            for finding in checked.findings:
                place = found[checked.claim.path(finding.index)]
                changes[place] = _literal(report, finding, text[place.start : place.end])
                values[finding.index] = round(finding.expected, report.example.decimals)
            claims.append(replace(checked.claim, values=values))
        report = check(replace(report.example, claims=tuple(claims)))
    for place, literal in sorted(changes.items(), key=lambda change: change[0].start, reverse=True):
        text = text[: place.start] + literal + text[place.end :]
    return text


def _literal(report: Report, finding: Finding, before: str) -> str:
    """The true value as TOML, written in the manner of what stood there."""
    word = printed_word(report.example.sheet, finding.name, finding.expected)
    if word is not None:
        return json.dumps(word, ensure_ascii=False)
    if math.isinf(finding.expected):
        return '"-inf"' if finding.expected < 0 else '"inf"'
    return rounded(finding.expected, report.example.decimals, whole="." not in before)


def rounded(value: float, decimals: int, *, whole: bool = True) -> str:
    """A number to so many decimals; a whole one without a point, if allowed.

    >>> rounded(6.3, 2), rounded(7.0, 2), rounded(-0.001, 2)
    ('6.30', '7', '0')
    """
    written = f"{value:.{decimals}f}"
    if float(written) == 0:
        written = written.removeprefix("-")
    return str(int(float(written))) if whole and float(written) == int(float(written)) else written
