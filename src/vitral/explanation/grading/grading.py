"""The grade of a sheet: points for each step by a stated rule, the first wrong one, and what a lecturer should see."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from vitral.core.config import Config, nearest
from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.explanation.checks.checker import check
from vitral.explanation.checks.diagnosis import REPRODUCED
from vitral.explanation.checks.report import ORDER, CheckedQuantity, CheckReport, Verdict
from vitral.explanation.examples.document import Document
from vitral.explanation.grading.answers import AnswerKey, read_answers

Credit = Annotated[float, Field(ge=0, le=1)]
Points = Annotated[float, Field(ge=0, le=1e6)]
WRONG, FOLLOWS, RIGHT = (ORDER.index(verdict) for verdict in (Verdict.wrong, Verdict.follows, Verdict.right))
OF_NUMBERS = ("copied", "digit", "sign", "point", "other-row", "term", "total", "constant", "operand")
"""Beginnings of the kinds of slips with numbers; with any other slip the rule of the step is wrong."""


class GradingRule(Config):
    """Points for each step, and the credit of each verdict.

    A number has the credit of its verdict; a step has its points times the mean credit of its numbers.

    Attributes:
        points: of steps, by name; 1 for a step that is not named.
        total: points of a sheet without fault; None: the sum of the steps' points.
        per: "number": a step counts in proportion to its numbers; "step": it has all its points, or none if a number
            has less than full credit.
        right: credit of a right number.
        rounding: credit of a number that a habit of rounding explains.
        doubtful: credit of a number that is shown but not accused.
        unclear: credit of rounding by an unknown habit.
        follows: credit of a number that follows from an earlier wrong one.
        wrong: credit of a wrong number.
        blank: credit of an empty box.
        concept: the most of its points that a step has whose rule is wrong, as one with the mask forgotten.
    """

    points: dict[str, Points] = Field(default_factory=dict)
    total: Points | None = None
    per: Literal["number", "step"] = "number"
    right: Credit = 1.0
    rounding: Credit = 1.0
    doubtful: Credit = 1.0
    unclear: Credit = 1.0
    follows: Credit = 1.0
    wrong: Credit = 0.0
    blank: Credit = 0.0
    concept: Credit = 0.5

    def of_step(self, counts: Mapping[str, int]) -> float:
        """The share of a step's points that its numbers have.

        Args:
            counts: the numbers of each verdict.
        """
        credit = {name: getattr(self, "blank" if name == Verdict.unknown else name) for name in counts}
        if self.per == "step":
            return float(all(credit[name] == 1 for name, count in counts.items() if count))
        total = sum(counts.values())
        return sum(credit[name] * count for name, count in counts.items()) / total if total else 0.0


@dataclass(frozen=True)
class StepGrade:
    """The points of one step.

    Attributes:
        name: the quantity, as the key's file calls it.
        points: that the step has.
        most: that it can have.
        counts: the asked numbers of each verdict; "unknown" are empty boxes.
    """

    name: str
    points: float
    most: float
    counts: Mapping[str, int]


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
        unreadable: complaints about what cannot be read.
        unasked: names of claims for which the key does not ask; they are not graded.
        notes: one sentence for each part of the file that is not read, and for what a lecturer should look at.
    """

    key: AnswerKey
    report: CheckReport
    steps: tuple[StepGrade, ...]
    points: float
    most: float
    edited: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def first_wrong(self) -> str:
        """The first step with a number that is wrong in itself; empty if there is none."""
        return next((step.name for step in self.steps if step.counts[Verdict.wrong]), "")

    @property
    def unexplained(self) -> frozenset[tuple[Any, ...]]:
        """The wrong numbers that no slip explains, with their indices; two sheets seldom have the same."""
        findings = (found for found in self.report.findings if found.verdict is Verdict.wrong and found.slip is None)
        return frozenset((found.name, found.index, found.claimed) for found in findings)

    def plain(self) -> dict[str, Any]:
        """As plain data, in English where it is made in English."""
        remarks = {name: list(getattr(self, name)) for name in ("edited", "unreadable", "unasked", "notes")}
        head = {"exercise": self.key.title, "points": self.points, "most": self.most}
        steps = [
            {"step": step.name, "points": step.points, "most": step.most, "counts": dict(step.counts)}
            for step in self.steps
        ]
        return {**head, "first_wrong": self.first_wrong or None, **remarks, "steps": steps}


def grade_document(student: Document, key: AnswerKey, rule: GradingRule) -> SheetGrade:
    """Grade a student's document with the given numbers of the key.

    Raises:
        UsageError: the document is no worked example.
    """
    example, remarks = read_answers(student, key)
    if student.faults and not example.claims:  # what is left is no sheet
        raise UsageError(student.faults[0])
    report = check(example)
    checked = {quantity.claim.name: quantity for quantity in report.quantities}
    empty = {name: torch.zeros_like(asked, dtype=torch.int64) for name, asked in key.asked.items()}
    verdicts = empty | {name: checked[name].verdicts for name in key.labels if name in checked}
    for name, explained in copied_once(report):
        verdicts[name] = torch.where(explained & (verdicts[name] == WRONG), FOLLOWS, verdicts[name])
    most = [rule.points.get(label, 1.0) for label in key.labels.values()]
    scale = 1.0 if rule.total is None or not sum(most) else rule.total / sum(most)
    steps: list[StepGrade] = []
    for (name, label), points in zip(key.labels.items(), most, strict=True):
        codes = verdicts[name][key.asked[name]].tolist()
        counts = {str(verdict): codes.count(code) for code, verdict in enumerate(ORDER)}
        limit = rule.concept if counts[Verdict.wrong] and _is_concept(checked[name]) else 1.0
        steps.append(StepGrade(label, points * scale * min(limit, rule.of_step(counts)), points * scale, counts))
    return SheetGrade(
        key,
        report,
        tuple(steps),
        points=sum(step.points for step in steps),
        most=sum(step.most for step in steps),
        notes=(*student.notes, *_too_right(report)),
        **remarks,
    )


def _is_concept(checked: CheckedQuantity) -> bool:
    """Whether a slip changes the rule of the step, and not a number of it; of two candidates both must."""
    slips = [finding.slip for finding in checked.findings if finding.slip and (finding.slip.sure or finding.slip.other)]
    return any(not any(one.kind.startswith(OF_NUMBERS) for one in slip.candidates) for slip in slips)


def copied_once(report: CheckReport) -> Iterator[tuple[str, Tensor]]:
    """The cells of later steps that a number explains which an earlier one copied wrongly: one cause."""
    sheet = report.example.sheet
    slips = [slip for checked in report.quantities for explained, _ in checked.slips for slip in explained.candidates]
    for slip in (slip for slip in slips if slip.kind == "copied-wrong"):
        name, index, used = (slip.values[key] for key in ("table", "index", "used"))
        values = {**sheet.values, name: sheet.values[name].clone()}
        values[name][index] = used
        same = list[tuple[str, Tensor]]()
        for checked in report.quantities:
            wrong, claim = checked.verdicts == WRONG, checked.claim
            if bool(wrong.any()) and claim.name in sheet and name in sheet[claim.name].inputs:
                off = (sheet[claim.name].make(values) - claim.values).abs()
                same.append((claim.name, wrong & (off <= REPRODUCED * 10.0**-checked.unit.decimals)))
        yield from same[1:]


def _too_right(report: CheckReport) -> Iterator[str]:
    """Steps that are right although they do not follow from the sheet's own wrong numbers: copied?"""
    sheet, checked = report.example.sheet, {quantity.claim.name: quantity for quantity in report.quantities}
    for quantity in report.quantities:
        claim = quantity.claim
        inputs = sheet[claim.name].inputs if claim.name in sheet else ()
        claimed = [checked[name] for name in inputs if name in checked]
        earlier = [step for step in claimed if bool((step.verdicts == WRONG).any())]
        if not earlier:
            continue
        own = {
            step.claim.name: torch.where(step.claim.values.isnan(), step.expected, step.claim.values)
            for step in earlier
        }
        follows = sheet[claim.name].make({**sheet.values, **own})
        differs = (follows - quantity.expected).abs() > 2 * 10.0**-quantity.unit.decimals
        if bool(differs.any()) and bool((quantity.verdicts[differs] == RIGHT).all()):
            note = N_("{step} is right although it does not follow from the sheet's own {earlier}: copied?")
            yield note.format(step=claim.label, earlier=earlier[0].claim.label)


def check_rule(rule: GradingRule, keys: list[AnswerKey]) -> None:
    """Refuse points for a step that no key asks for.

    Raises:
        UsageError: naming the steps that there are.
    """
    known = list(dict.fromkeys(label for key in keys for label in key.labels.values()))
    for name in rule.points:
        if name not in known:
            raise UsageError("points: step {name!r}, {hint}", name=name, hint=nearest(name, known))
