"""The grade of a sheet: points for each step, the first wrong one, and the given numbers that were changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.explanation.checks.checker import check
from vitral.explanation.checks.report import ORDER, CheckedQuantity, CheckReport, Verdict
from vitral.explanation.examples.document import Document
from vitral.explanation.grading.answers import read_answers
from vitral.explanation.grading.key import AnswerKey
from vitral.explanation.grading.rule import GradingRule


@dataclass(frozen=True)
class StepGrade:
    """The points of one step.

    Attributes:
        name: the quantity, as the key's file calls it.
        points: that the step has.
        most: that it can have.
        counts: the asked numbers of each verdict; "unknown" are empty boxes.
        unreadable: why it cannot be read, or empty.
    """

    name: str
    points: float
    most: float
    counts: Mapping[str, int]
    unreadable: str = ""


@dataclass(frozen=True)
class SheetGrade:
    """The grade of one sheet.

    Attributes:
        key: of its exercise.
        report: the check of the student's numbers.
        steps: those that are asked, in the order of the computation.
        points: of the sheet.
        most: that it can have.
        edited: given numbers and settings that differ from the key's, one sentence each.
        extra: further complaints about claims that cannot be read.
        unasked: names of claims for which the key does not ask; they are not graded.
        notes: one sentence for each part of the file that is not read.
    """

    key: AnswerKey
    report: CheckReport
    steps: tuple[StepGrade, ...]
    points: float
    most: float
    edited: tuple[str, ...] = ()
    extra: tuple[str, ...] = field(default=())
    unasked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def first_wrong(self) -> str:
        """The first step with a number that is wrong in itself; empty if there is none."""
        return next((step.name for step in self.steps if step.counts[Verdict.wrong]), "")

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Complaints about claims that cannot be read."""
        return (*(step.unreadable for step in self.steps if step.unreadable), *self.extra)

    def plain(self) -> dict[str, Any]:
        """As plain data, in English where it is made in English."""
        return {
            "exercise": self.key.title,
            "points": self.points,
            "most": self.most,
            "first_wrong": self.first_wrong or None,
            "edited": list(self.edited),
            "unreadable": list(self.unreadable),
            "unasked": list(self.unasked),
            "notes": list(self.notes),
            "steps": [
                {"step": step.name, "points": step.points, "most": step.most, "counts": dict(step.counts)}
                for step in self.steps
            ],
        }


def grade_document(student: Document, key: AnswerKey, rule: GradingRule) -> SheetGrade:
    """Grade a student's document with the given numbers of the key.

    Raises:
        UsageError: the document is no worked example.
    """
    answers = read_answers(student, key)
    report = check(answers.example)
    quantities = {quantity.claim.name: quantity for quantity in report.quantities}
    complaints = {name: told[0] for name, told in answers.unreadable.items()}
    steps = [_step(key, name, quantities.get(name), rule, complaints.get(name, "")) for name in key.labels]
    most = sum(step.most for step in steps)
    scale = 1.0 if rule.total is None or not most else rule.total / most
    steps = [
        StepGrade(step.name, step.points * scale, step.most * scale, step.counts, step.unreadable) for step in steps
    ]
    return SheetGrade(
        key,
        report,
        tuple(steps),
        points=sum(step.points for step in steps),
        most=sum(step.most for step in steps),
        edited=answers.edited,
        extra=tuple(each for told in answers.unreadable.values() for each in told[1:]),
        unasked=answers.unasked,
        notes=tuple(student.notes),
    )


def check_rule(rule: GradingRule, keys: list[AnswerKey]) -> None:
    """Refuse points for a step that no key asks for.

    Raises:
        UsageError: naming the steps that there are.
    """
    known = list(dict.fromkeys(label for key in keys for label in key.labels.values()))
    for name in rule.points:
        if name not in known:
            raise UsageError("points: step {name!r}, {hint}", name=name, hint=nearest(name, known))


def _step(key: AnswerKey, name: str, checked_: CheckedQuantity | None, rule: GradingRule, complaint: str) -> StepGrade:
    asked = key.asked[name]
    counts = dict.fromkeys(map(str, Verdict), 0)
    if checked_ is None:
        counts[Verdict.unknown] = int(asked.sum())
    else:
        for verdict in _verdicts(checked_.verdicts, asked):
            counts[verdict] += 1
    label = key.labels[name]
    most = rule.points.get(label, 1.0)
    return StepGrade(label, most * rule.of_step(counts), most, counts, complaint)


def _verdicts(verdicts: Tensor, asked: Tensor) -> list[Verdict]:
    return [ORDER[place] for place in verdicts[asked].tolist()]
