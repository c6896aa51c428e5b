"""A student's sheet, marked: points, the first wrong step, and a mark beside each number."""

from collections.abc import Iterator

from vitral.core.language import _
from vitral.explanation.checks.report import ORDER, CheckedQuantity, Verdict
from vitral.explanation.grading.grading import SheetGrade
from vitral.explanation.operations import Index
from vitral.explanation.phrasebook import phrases
from vitral.report.html import page
from vitral.report.sections import Callout, Heading, Paragraph, Section, Table
from vitral.report.sheet_grade import points_text, sheet_sections

MARKS = {
    Verdict.unknown: "",
    Verdict.right: "✓",
    Verdict.rounding: "≈",
    Verdict.doubtful: "≈",
    Verdict.unclear: "≈",
    Verdict.follows: "↳",
    Verdict.wrong: "✗",
}
"""Beside a number, by its verdict."""


def marked_page(name: str, grade: SheetGrade) -> str:
    """The page of one sheet.

    Args:
        name: the student's, as a file name or a pseudonym.
        grade: of the sheet.
    """
    points = {"points": points_text(grade.points), "most": points_text(grade.most)}
    verdict = _("{points} of {most} points.", **points)
    if grade.first_wrong:
        verdict = f"{verdict} {_('The first wrong step is {step}.', step=grade.first_wrong)}"
    legend = _("✓ right, ≈ rounding, ↳ follows from an earlier wrong number, ✗ wrong in itself.")
    sections: list[Section] = [Callout(verdict), *sheet_sections(grade), Heading(_("Your numbers")), Paragraph(legend)]
    for quantity in grade.report.quantities:
        sections += _marked(quantity, grade)
    return page(f"{grade.key.title}: {name}", sections, footer=_("Made by vitral grade."))


def _marked(quantity: CheckedQuantity, grade: SheetGrade) -> Iterator[Table]:
    """A table for each matrix of a quantity."""
    verdicts, claim = quantity.verdicts, quantity.claim
    heads = verdicts.shape[0] if verdicts.dim() == 3 else 1
    for head in range(heads):
        table = verdicts[head] if verdicts.dim() == 3 else verdicts
        table = table if table.dim() == 2 else table[None]
        outer: Index = (head,) if verdicts.dim() == 3 else ()
        rows = tuple(
            (
                str(row + 1),
                *(
                    _cell(quantity, (*outer, row, column) if verdicts.dim() > 1 else (column,), grade)
                    for column in range(table.shape[1])
                ),
            )
            for row in range(len(table))
        )
        label = f"{claim.label}, {phrases()('explain.head', number=head + 1)}" if heads > 1 else claim.label
        yield Table(label, ("", *(str(column + 1) for column in range(table.shape[1]))), rows)


def _cell(quantity: CheckedQuantity, index: Index, grade: SheetGrade) -> str:
    typed = grade.report.example.document.typed(quantity.claim.path(index)) or "?"
    return f"{typed} {MARKS[ORDER[int(quantity.verdicts[index])]]}".rstrip()
