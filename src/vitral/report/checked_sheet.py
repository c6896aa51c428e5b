"""A checked example as a page, with the arithmetic of all that is not right; and a sheet graded and marked."""

from collections.abc import Iterator

from vitral.core.language import _, number
from vitral.core.text import NONE, unbroken
from vitral.explanation import CheckReport, walk_example
from vitral.explanation.checks.report import ORDER, CheckedQuantity, ReportText, Verdict
from vitral.explanation.grading.grading import GradingRule, SheetGrade
from vitral.explanation.phrasebook import Phrases, phrases
from vitral.explanation.sheet import Index
from vitral.report.html import page
from vitral.report.sections import Callout, Heading, Listing, Paragraph, Preformatted, Section, Table
from vitral.report.walkthrough import to_sections

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


def check_sections(report: CheckReport, say: Phrases) -> list[Section]:
    """The verdict and the rows that are not right, as sections of a page."""
    text = ReportText(report, say)
    sections: list[Section] = [Callout(text.summary())]
    if problems := list(text.rows()):
        columns = tuple(say(f"check.{key}") for key in ("step", "place", "claimed", "expected", "verdict", "guess"))
        lines = tuple(
            (
                row.step,
                row.where,
                "  ".join(row.claimed),
                "  ".join(row.expected),
                say(f"check.{row.verdict}"),
                row.guess,
            )
            for row in problems
        )
        sections.append(Table(text.first_wrong(), columns, lines, prose=tuple(range(1, 6))))
        sections += [Preformatted("\n".join(row.working for row in problems if row.working))]
    return sections


def page_of(report: CheckReport) -> str:
    """The verdict, what is not right, and the computation."""
    example = report.example.told()
    sections = [*check_sections(report, phrases()), *to_sections(walk_example(example))]
    return page(example.title, sections, lead=example.note)


def marked_page(name: str, grade: SheetGrade) -> str:
    """The page of one sheet.

    Args:
        name: the student's, as a file name.
        grade: of the sheet.
    """
    verdict = _("{points} of {most} points.", points=points_text(grade.points), most=points_text(grade.most))
    if grade.first_wrong:
        verdict = f"{verdict} {_('The first wrong step is {step}.', step=grade.first_wrong)}"
    legend = _("✓ right, ≈ rounding, ↳ follows from an earlier wrong number, ✗ wrong in itself.")
    sections: list[Section] = [Callout(verdict), *sheet_sections(grade), Heading(_("Your numbers")), Paragraph(legend)]
    for quantity in grade.report.quantities:
        sections += _marked(quantity, grade)
    return page(f"{grade.key.title}: {name}", sections, footer=_("Made by vitral grade."))


def _marked(quantity: CheckedQuantity, grade: SheetGrade) -> Iterator[Table]:
    """A table for each matrix of a quantity."""
    shape, label = tuple(quantity.verdicts.shape), quantity.claim.label
    heads, height, width = (1,) * (3 - len(shape)) + shape
    for head in range(heads):
        rows = [
            (
                str(row + 1),
                *(_cell(quantity, (head, row, column)[-len(shape) :], grade) for column in range(width)),
            )
            for row in range(height)
        ]
        name = f"{label}, {phrases()('explain.head', number=head + 1)}" if heads > 1 else label
        yield Table(name, ("", *(str(column + 1) for column in range(width))), rows)


def _cell(quantity: CheckedQuantity, index: Index, grade: SheetGrade) -> str:
    typed = grade.report.example.document.typed(quantity.claim.path(index)) or "?"
    return f"{typed} {MARKS[ORDER[int(quantity.verdicts[index])]]}".rstrip()


MOST_NAMES = 20
"""Names that are listed of those for which the key does not ask."""
CREDITS = ("right", "rounding", "doubtful", "unclear", "follows", "wrong", "blank")
"""Kinds of numbers, each with its own share of the points."""
FINE = (Verdict.right, Verdict.rounding, Verdict.doubtful, Verdict.unclear)


def rule_text(rule: GradingRule) -> str:
    """The rule of the points in words."""
    with_points = "; ".join(f"{name} {points_text(points)}" for name, points in rule.points.items())
    first = _("Each step has 1 point.")
    if with_points:
        first = _("Points of the steps: {points}; 1 for each other step.", points=with_points)
    share = _("A step's points are shared equally among its numbers.")
    if rule.per == "step":
        share = _("A step has all its points if each of its numbers has full credit, and otherwise none.")
    credit = _(
        "Credit: right {right}, rounding {rounding}, doubtful {doubtful}, rounding by an unknown rule {unclear}, "
        "following from an earlier wrong number {follows}, wrong in itself {wrong}, blank {blank}.",
        **{name: points_text(getattr(rule, name)) for name in CREDITS},
    )
    concept = _(
        "A step whose rule is wrong, as one with the mask forgotten, has at most {share} of its points. A number "
        "copied wrongly costs once, in the first step that it spoils.",
        share=f"{number(100 * rule.concept, '.0f')}%",
    )
    total = "" if rule.total is None else _("The sum is scaled to {total} points.", total=points_text(rule.total))
    return " ".join(filter(None, (first, share, credit, concept, total)))


def points_text(points: float) -> str:
    """Points with at most two digits after the point."""
    written = number(points, ".2f")
    return written[:-3] if written.endswith("00") else written


def shared_text(points: float, most: float, spec: str = "") -> str:
    """Points of the most possible, on one line; `spec`: how the points are written."""
    return unbroken(f"{number(points, spec) if spec else points_text(points)} / {points_text(most)}")


def sheet_sections(grade: SheetGrade) -> list[Section]:
    """The points of each step of a sheet, and its rows that are not right."""
    say = phrases()
    fine = _("right or rounding")
    columns = (_("step"), _("points"), fine, say("check.follows"), say("check.wrong"), _("blank"))
    rows = tuple(
        (
            step.name,
            shared_text(step.points, step.most),
            str(sum(step.counts[verdict] for verdict in FINE)),
            *(str(step.counts[verdict] or NONE) for verdict in (Verdict.follows, Verdict.wrong, Verdict.unknown)),
        )
        for step in grade.steps
    )
    sections: list[Section] = [Table(_("Points of each step"), columns, rows)]
    changed = tuple(map(_, grade.edited))
    if changed:
        sections += [
            Paragraph(_("Given numbers were changed; the sheet is graded with those of the key:")),
            Listing(changed),
        ]
    if grade.unreadable:
        sections += [Paragraph(_("Could not be read:")), Listing(tuple(map(_, grade.unreadable)))]
    if grade.unasked:
        names = ", ".join(grade.unasked[:MOST_NAMES]) + (", …" if len(grade.unasked) > MOST_NAMES else "")
        sections += [Paragraph(_("Not graded, since the key does not ask for it: {names}.", names=names))]
    sections += [Listing(tuple(map(_, grade.notes)))] if grade.notes else []
    return [*sections, *check_sections(grade.report, say)]
