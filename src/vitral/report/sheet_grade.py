"""The grade of one sheet in words: its points, the rule behind them, and what is to be said of each step."""

from vitral.core.language import _, number
from vitral.core.text import NONE, unbroken
from vitral.explanation.checks.report import Verdict
from vitral.explanation.grading.grading import SheetGrade
from vitral.explanation.grading.rule import GradingRule
from vitral.explanation.phrasebook import phrases
from vitral.report.checked_example import check_sections
from vitral.report.sections import (
    Listing,
    Paragraph,
    Section,
    Table,
)

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
        "Credit: right {right}, rounding {rounding}, doubtful {doubtful}, rounding by an unknown habit {unclear}, "
        "following from an earlier wrong number {follows}, wrong in itself {wrong}, blank {blank}.",
        **{name: points_text(getattr(rule, name)) for name in CREDITS},
    )
    total = "" if rule.total is None else _("The sum is scaled to {total} points.", total=points_text(rule.total))
    return " ".join(filter(None, (first, share, credit, total)))


def points_text(points: float) -> str:
    """Points with at most two digits after the point."""
    written = number(points, ".2f")
    return written[:-3] if written.endswith("00") else written


def shared_text(points: float, most: float) -> str:
    """Points of the most possible, on one line."""
    return unbroken(f"{points_text(points)} / {points_text(most)}")


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
    told: list[Section] = [Table(_("Points of each step"), columns, rows)]
    changed = tuple(map(_, grade.edited))
    if changed:
        told += [
            Paragraph(_("Given numbers were changed; the sheet is graded with those of the key:")),
            Listing(changed),
        ]
    if grade.unreadable:
        told += [Paragraph(_("Could not be read:")), Listing(tuple(map(_, grade.unreadable)))]
    if grade.unasked:
        names = ", ".join(grade.unasked[:MOST_NAMES]) + (", …" if len(grade.unasked) > MOST_NAMES else "")
        told += [Paragraph(_("Not graded, since the key does not ask for it: {names}.", names=names))]
    told += [Listing(tuple(map(_, grade.notes)))] if grade.notes else []
    return [*told, *check_sections(grade.report, say)]
