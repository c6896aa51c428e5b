"""A graded class: points of each sheet, the steps that go wrong first, and the slips behind them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from os.path import commonprefix
from statistics import fmean
from typing import Any

from vitral.core.language import N_, _, in_language, ngettext, number
from vitral.core.shown import Shown, Tabular
from vitral.core.text import NONE
from vitral.explanation.checks.report import Verdict
from vitral.explanation.grading.answers import AnswerKey
from vitral.explanation.grading.grading import GradingRule, SheetGrade
from vitral.explanation.grading.sheets import GradedSheet
from vitral.report.checked_sheet import CREDITS, points_text, rule_text, shared_text, sheet_sections
from vitral.report.html import page
from vitral.report.markdown import markdown, plain_text
from vitral.report.sections import (
    Callout,
    Details,
    Heading,
    Paragraph,
    Section,
)
from vitral.report.tables import Column, Table

SCHEMA = 1
LEAST_ALIKE = 2
"""Equal wrong numbers of two sheets that are worth a remark."""


@dataclass(frozen=True)
class StepOfClass:
    """A step over the class, of one exercise or of all with the same steps.

    Attributes:
        exercise: its title, or the beginning of their titles.
        step: its name.
        sheets: graded ones of this exercise.
        points: mean.
        most: that it can have.
        full: sheets with all points of the step.
        wrong: sheets with a number that is wrong in itself.
        first: sheets in which it is the first wrong step.
        blank: sheets with an empty box.
        slips: the guesses where it is the first wrong step, with their numbers, most frequent first.
    """

    exercise: str
    step: str
    sheets: int
    points: float
    most: float
    full: int
    wrong: int
    first: int
    blank: int
    slips: tuple[tuple[str, int], ...]

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {**vars(self), "slips": [{"slip": slip, "sheets": count} for slip, count in self.slips]}


@dataclass(frozen=True, repr=False)
class GradedClass(Shown, Tabular):
    """The sheets of a class with their points; print it to read it.

    Attributes:
        keys: of the exercises.
        rule: of the points.
        sheets: in the order of their names.
        notes: on the keys, in English.
    """

    keys: tuple[AnswerKey, ...]
    rule: GradingRule
    sheets: tuple[GradedSheet, ...]
    notes: tuple[str, ...] = ()

    @property
    def graded(self) -> tuple[GradedSheet, ...]:
        """The sheets that can be read."""
        return tuple(sheet for sheet in self.sheets if sheet.grade is not None)

    @property
    def grades(self) -> tuple[SheetGrade, ...]:
        """The grades of these sheets."""
        return tuple(sheet.grade for sheet in self.sheets if sheet.grade is not None)

    @property
    def unreadable(self) -> tuple[GradedSheet, ...]:
        """The files that cannot be read."""
        return tuple(sheet for sheet in self.sheets if sheet.grade is None)

    def steps(self) -> tuple[StepOfClass, ...]:
        """The steps of each exercise, of exercises with the same steps once."""
        return tuple(step for keys in self.groups for step in _steps(keys, self.graded))

    @cached_property
    def groups(self) -> tuple[tuple[AnswerKey, ...], ...]:
        """The keys with the same steps together, as where each student has another exercise of one kind."""
        by_steps: dict[tuple[str, ...], list[AnswerKey]] = {}
        for key in self.keys:
            by_steps.setdefault(tuple(key.labels.values()), []).append(key)
        return tuple(map(tuple, by_steps.values()))

    def alike(self, sheet: GradedSheet) -> list[str]:
        """Other sheets of the same exercise with the same wrong numbers that no slip explains."""
        grade = sheet.grade
        if grade is None or len(grade.unexplained) < LEAST_ALIKE:
            return []
        same = grade.key, grade.unexplained
        others = (other for other in self.graded if other is not sheet)
        return [other.name for other in others if other.grade and (other.grade.key, other.grade.unexplained) == same]

    def plain(self) -> dict[str, Any]:
        """Everything as plain data, in English."""
        with in_language("en"):
            steps = [step.plain() for step in self.steps()]
        graded = self.grades
        return {
            "schema": SCHEMA,
            "keys": [{"file": key.example.document.name, "title": key.title} for key in self.keys],
            "rule": self.rule.plain(),
            "graded": len(graded),
            "unreadable": len(self.unreadable),
            "mean": fmean(grade.points for grade in graded) if graded else None,
            "steps": steps,
            "sheets": [sheet.plain() for sheet in self.sheets],
            "notes": list(self.notes),
        }

    def records(self) -> list[dict[str, Any]]:
        """One row for each sheet, with the points of each step."""
        return self.data().plain()

    def data(self) -> Table:
        """The table of data, with every number in full precision."""
        names = dict.fromkeys(f"points_{step.name}" for grade in self.grades for step in grade.steps)
        keys = ("sheet", "exercise", "points", "most", "first_wrong", "slip", *CREDITS, *LISTED, "error", *names)
        return Table(self.title, keys, [_record(sheet) for sheet in self.sheets])

    def table(self) -> Table:
        """The table for people."""
        return Table(
            self.title,
            _columns(SHOWN, self.keys),
            [_shown(sheet, self.alike(sheet)) for sheet in self.sheets],
            is_sortable=True,
        )

    def steps_table(self) -> Table:
        """The table of the steps, for people."""
        rows = [
            {**vars(step), "points": shared_text(step.points, step.most, ".2f")} for step in self.steps() if step.sheets
        ]
        return Table(_("Steps"), _columns(OF_STEPS, self.groups), rows)

    @property
    def title(self) -> str:
        """The caption."""
        count = len(self.graded)
        titles = "; ".join(key.title for key in self.keys) if len(self.keys) < 3 else ""
        counted = ngettext("{n:,} sheet graded", "{n:,} sheets graded", count, n=count)
        return f"{counted}: {titles}" if titles else counted

    @property
    def summary(self) -> str:
        """Mean points, and the step that goes wrong first most often, in a sentence or two."""
        grades = self.grades
        if not grades:
            return _("No sheet could be graded.")
        mean = number(fmean(grade.points for grade in grades), ".1f")
        most = "; ".join(dict.fromkeys(points_text(grade.most) for grade in grades))
        counted = ngettext(
            "{n:,} sheet graded, mean {mean} of {most} points.",
            "{n:,} sheets graded, mean {mean} of {most} points.",
            len(grades),
            n=len(grades),
            mean=mean,
            most=most,
        )
        first = max(self.steps(), key=lambda step: step.first)
        if not first.first:
            return f"{counted} {_('No number is wrong in itself.')}"
        if [step.first for step in self.steps()].count(first.first) > 1:
            return counted  # several, equally often
        where = _(
            "The step that goes wrong first most often: {step}, in {n:,} of them.", step=first.step, n=first.first
        )
        return f"{counted} {where}"

    @property
    def advice(self) -> tuple[str, ...]:
        """What is to be said of the keys and of the files that cannot be read."""
        return (*map(_, self.notes), *(_(sheet.error) for sheet in self.unreadable))

    def __str__(self) -> str:
        """The tables in aligned lines."""
        parts = [self.table(), self.steps_table(), *map(Paragraph, self.advice)]
        return plain_text(self.summary, parts)

    def page(self) -> str:
        """The page of the class: the steps that go wrong first, the slips, the points, and each sheet."""
        title = self.keys[0].title if len(self.keys) == 1 else _("A graded class")
        return page(title, self.sections(), lead=self.title, footer=_("Made by vitral grade."))

    def markdown(self) -> str:
        """The page as Markdown."""
        return markdown(_("A graded class"), self.sections(), lead=self.title)

    def sections(self) -> list[Section]:
        """The page as sections."""
        return [
            Callout(self.summary),
            *map(Paragraph, self.advice),
            Heading(_("Where sheets go wrong first")),
            self.steps_table(),
            *_slip_table(self),
            Paragraph(rule_text(self.rule)),
            Heading(_("Points")),
            self.table(),
            Heading(_("Each sheet")),
            *map(_sheet, self.graded),
        ]


SHOWN = (
    Column("sheet", N_("sheet")),
    Column("exercise", N_("exercise"), is_prose=True),
    Column("points", N_("points"), sort="sort_points"),
    Column("first_wrong", N_("first wrong step"), is_prose=True),
    Column("slip", N_("probable slip"), is_prose=True),
    Column("remark", N_("remark"), is_prose=True),
)
OF_STEPS = (
    Column("step", N_("step")),
    Column("exercise", N_("exercise"), is_prose=True),
    Column("points", N_("mean points")),
    Column("full", N_("full points")),
    Column("wrong", N_("wrong in itself")),
    Column("first", N_("wrong first")),
    Column("blank", N_("blank")),
)


LISTED = ("edited", "unreadable", "unasked", "notes")
"""What is listed of a sheet."""


def _columns(columns: Sequence[Column], several: Sequence[object]) -> list[Column]:
    """The columns; that of the exercise where there are several."""
    return [column for column in columns if len(several) > 1 or column.key != "exercise"]


def _steps(keys: Sequence[AnswerKey], graded: Sequence[GradedSheet]) -> Iterator[StepOfClass]:
    of_keys = [(sheet, sheet.grade) for sheet in graded if sheet.grade is not None and sheet.grade.key in keys]
    for index, name in enumerate(keys[0].labels.values()):
        steps = [grade.steps[index] for _sheet, grade in of_keys]
        first = [sheet for sheet, grade in of_keys if grade.first_wrong == name]
        slips = Counter(sheet.slip for sheet in first if sheet.slip)
        yield StepOfClass(
            exercise=_common_title([key.title for key in keys]),
            step=name,
            sheets=len(steps),
            points=fmean(step.points for step in steps) if steps else 0.0,
            most=steps[0].most if steps else 0.0,
            full=sum(step.points >= step.most - 1e-9 for step in steps),
            wrong=sum(step.counts[Verdict.wrong] > 0 for step in steps),
            first=len(first),
            blank=sum(step.counts[Verdict.unknown] > 0 for step in steps),
            slips=tuple(slips.most_common()),
        )


def _common_title(titles: Sequence[str]) -> str:
    """A title, or the beginning that several have in common.

    >>> _common_title(["Attention: exercise 1", "Attention: exercise 2"])
    'Attention: exercise'
    """
    common = commonprefix(titles)  # noqa: RUF071  (letters, not folders)
    return titles[0] if len(titles) == 1 else common.rstrip(" :,0123456789") or "…"


def _record(sheet: GradedSheet) -> dict[str, Any]:
    plain = sheet.plain()
    if sheet.grade is None:
        return plain
    counts = {verdict: sum(step.counts[verdict] for step in sheet.grade.steps) for verdict in Verdict}
    points = {f"points_{step.name}": step.points for step in sheet.grade.steps}
    listed = {name: "; ".join(plain[name]) for name in LISTED}
    return {**plain, **counts, "blank": counts[Verdict.unknown], **listed, **points}


def _shown(sheet: GradedSheet, alike: Sequence[str]) -> dict[str, Any]:
    if sheet.grade is None:
        return {"sheet": sheet.name, "points": NONE, "remark": _("cannot be read")}
    grade = sheet.grade
    points = shared_text(grade.points, grade.most)
    row = {"sheet": sheet.name, "exercise": grade.key.title, "points": points, "sort_points": grade.points}
    return {**row, "first_wrong": grade.first_wrong, "slip": sheet.slip, "remark": "; ".join(_remarks(grade, alike))}


def _remarks(grade: SheetGrade, alike: Sequence[str]) -> Iterator[str]:
    blank = sum(step.counts[Verdict.unknown] for step in grade.steps)
    if blank:
        yield ngettext("{n:,} empty box", "{n:,} empty boxes", blank, n=blank)
    if grade.edited:
        yield _("given numbers changed")
    if grade.unreadable:
        n = len(grade.unreadable)
        yield ngettext("{n:,} part cannot be read", "{n:,} parts cannot be read", n, n=n)
    if grade.unasked:
        count = len(grade.unasked)
        yield ngettext("{n:,} name is not asked", "{n:,} names are not asked", count, n=count)
    yield from map(_, grade.notes)
    if alike:
        yield _("the same wrong numbers as {sheets}", sheets=", ".join(alike))


def _slip_table(graded: GradedClass) -> list[Section]:
    """The guessed slips of the first wrong steps, most frequent first."""
    several = len(graded.groups) > 1
    lines = [
        (slip, f"{step.step} ({step.exercise})" if several else step.step, count)
        for step in graded.steps()
        for slip, count in step.slips
    ]
    lines.sort(key=lambda line: -line[2])
    if not lines:
        return []
    rows = tuple((slip, step, str(count)) for slip, step, count in lines)
    caption = _("Probable slips where a step goes wrong first")
    return [Table(caption, (_("slip"), _("step"), _("sheets")), rows, prose=(1,))]


def _sheet(sheet: GradedSheet) -> Details:
    grade = sheet.grade
    assert grade is not None
    line = f"{sheet.name}: {shared_text(grade.points, grade.most)}"
    line = f"{line}, {_('first wrong step: {step}', step=grade.first_wrong)}" if grade.first_wrong else line
    return Details(line, tuple(sheet_sections(grade)))
