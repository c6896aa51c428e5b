"""A graded class: points of each sheet, the steps that go wrong first, and the slips behind them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any

from vitral.core.language import N_, _, in_language, ngettext, number
from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.core.text import NONE, unbroken
from vitral.explanation.checks.report import Verdict
from vitral.explanation.grading.grading import GradingRule, SheetGrade
from vitral.explanation.grading.key import AnswerKey
from vitral.explanation.grading.sheets import GradedSheet
from vitral.report.graded_sheet import CREDITS, points_text, rule_text, shared_text, sheet_sections
from vitral.report.html import page
from vitral.report.markdown import markdown
from vitral.report.notebook import page_of
from vitral.report.plain import plain_text
from vitral.report.sections import (
    Callout,
    Details,
    Figure,
    Heading,
    Listing,
    Paragraph,
    Section,
)
from vitral.report.tables import Column, Table

SCHEMA = 1
LEAST_ALIKE = 2
"""Equal wrong numbers of two sheets that are worth a remark."""
BINS = 10
"""Bars of the figure of points."""


@dataclass(frozen=True)
class StepOfClass:
    """A step over the class, of one exercise or of all with the same steps.

    Attributes:
        exercise: its title, or the beginning of their titles.
        name: of the step.
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
    name: str
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
        told = {"step": self.name, **vars(self)}
        del told["name"]
        return {**told, "slips": [{"slip": slip, "sheets": count} for slip, count in self.slips]}


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
    notes: tuple[str, ...] = field(default=())

    @property
    def graded(self) -> tuple[GradedSheet, ...]:
        """The sheets that can be read."""
        return tuple(sheet for sheet in self.sheets if sheet.grade is not None)

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
        found: dict[tuple[str, ...], list[AnswerKey]] = {}
        for key in self.keys:
            found.setdefault(tuple(key.labels.values()), []).append(key)
        return tuple(map(tuple, found.values()))

    def alike(self, sheet: GradedSheet) -> list[str]:
        """Other sheets of the same exercise with the same wrong numbers that no slip explains."""
        grade = sheet.grade
        if grade is None or len(grade.unexplained) < LEAST_ALIKE:
            return []
        others = [other for other in self.graded if other is not sheet and other.grade and other.grade.key is grade.key]
        return [other.name for other in others if other.grade and other.grade.unexplained == grade.unexplained]

    def plain(self) -> dict[str, Any]:
        """Everything as plain data, in English."""
        with in_language("en"):
            steps = [step.plain() for step in self.steps()]
        graded = [sheet.grade for sheet in self.sheets if sheet.grade]
        return {
            "schema": SCHEMA,
            "keys": [{"file": key.example.document.name, "title": key.title} for key in self.keys],
            "rule": self.rule.plain(),
            "graded": len(graded),
            "unreadable": len(self.unreadable),
            "mean": sum(grade.points for grade in graded) / len(graded) if graded else None,
            "steps": steps,
            "sheets": [sheet.plain() for sheet in self.sheets],
            "notes": list(self.notes),
        }

    def records(self) -> list[dict[str, Any]]:
        """One row for each sheet, with the points of each step."""
        return self.data().plain()

    def data(self) -> Table:
        """The table of data, with every number in full precision."""
        names = list(dict.fromkeys(step.name for sheet in self.sheets if sheet.grade for step in sheet.grade.steps))
        keys = (
            "sheet",
            "exercise",
            "points",
            "most",
            "first_wrong",
            "slip",
            *CREDITS,
            "edited",
            "unreadable",
            "unasked",
            "notes",
            "error",
        )
        columns = tuple(Column(name, "") for name in (*keys, *(f"points_{name}" for name in names)))
        return Table(self.title, columns, [_record(sheet) for sheet in self.sheets])

    def table(self) -> Table:
        """The table for people."""
        columns = SHOWN if len(self.keys) > 1 else tuple(column for column in SHOWN if column.key != "exercise")
        return Table(self.title, columns, [_shown(sheet, self.alike(sheet)) for sheet in self.sheets], is_sortable=True)

    def steps_table(self) -> Table:
        """The table of the steps, for people."""
        columns = OF_STEPS if len(self.groups) > 1 else tuple(column for column in OF_STEPS if column.key != "exercise")
        return Table(_("Steps"), columns, [_shown_step(step) for step in self.steps() if step.sheets])

    @property
    def title(self) -> str:
        """The caption."""
        count = len(self.graded)
        titles = "; ".join(key.title for key in self.keys) if len(self.keys) < 3 else ""
        told = ngettext("{n:,} sheet graded", "{n:,} sheets graded", count, n=count)
        return f"{told}: {titles}" if titles else told

    @property
    def summary(self) -> str:
        """Mean points, and the step that goes wrong first most often, in a sentence or two."""
        grades = [sheet.grade for sheet in self.graded if sheet.grade]
        if not grades:
            return _("No sheet could be graded.")
        mean = number(sum(grade.points for grade in grades) / len(grades), ".1f")
        most = {round(grade.most, 9) for grade in grades}
        told = _("{n:,} sheets graded, mean {mean} points.", n=len(grades), mean=mean)
        if len(most) == 1:
            of = points_text(most.pop())
            told = _("{n:,} sheets graded, mean {mean} of {most} points.", n=len(grades), mean=mean, most=of)
        first = max(self.steps(), key=lambda step: step.first, default=None)
        if first is None or not first.first:
            return f"{told} {_('No number is wrong in itself.')}"
        where = _(
            "The step that goes wrong first most often: {step}, in {n:,} of them.", step=first.name, n=first.first
        )
        return f"{told} {where}"

    @property
    def advice(self) -> tuple[str, ...]:
        """What is to be said of the keys and of the files that cannot be read."""
        told = [_(note) for note in self.notes]
        return (*told, *(_(sheet.error) for sheet in self.unreadable))

    def __str__(self) -> str:
        """The tables in aligned lines."""
        parts = [self.table(), self.steps_table(), *map(Paragraph, self.advice)]
        return plain_text(self.summary, parts)

    def page(self) -> str:
        """The page of the class: the steps that go wrong first, the slips, the points, and each sheet."""
        title = self.keys[0].title if len(self.keys) == 1 else _("A graded class")
        return page(title, self.sections(), lead=self.title, footer=_("Made by vitral grade."))

    def markdown(self) -> str:
        """The page as Markdown, without figures."""
        return markdown(_("A graded class"), self.sections(drawn=False), lead=self.title)

    def sections(self, *, drawn: bool = True) -> list[Section]:
        """The page as sections.

        Args:
            drawn: whether to include figures.
        """
        told: list[Section] = [Callout(self.summary), *(Paragraph(_(note)) for note in self.notes)]
        told += [Heading(_("Where sheets go wrong first"))]
        told += _figures(self) if drawn else []
        told += [self.steps_table(), *_slip_table(self), Paragraph(rule_text(self.rule))]
        told += [Heading(_("Points")), self.table()]
        told += [Heading(_("Each sheet")), *(_sheet(sheet) for sheet in self.graded)]
        if self.unreadable:
            items = tuple(_(sheet.error) for sheet in self.unreadable)
            told += [Heading(_("Files that could not be read")), Listing(items)]
        return told


@page_of.register
def _class_page(graded: GradedClass) -> str:
    return graded.page()


SHOWN = (
    Column("sheet", N_("sheet")),
    Column("exercise", N_("exercise"), is_prose=True),
    Column("points", N_("points"), sort="sort_points"),
    Column("first_wrong", N_("first wrong step"), is_prose=True),
    Column("slip", N_("probable slip"), is_prose=True, is_long=True),
    Column("remark", N_("remark"), is_prose=True, is_long=True),
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


def _steps(keys: Sequence[AnswerKey], graded: Sequence[GradedSheet]) -> Iterator[StepOfClass]:
    of_keys = [sheet for sheet in graded if sheet.grade is not None and sheet.grade.key in keys]
    for place, name in enumerate(keys[0].labels.values()):
        steps = [sheet.grade.steps[place] for sheet in of_keys if sheet.grade]
        first = [sheet for sheet in of_keys if sheet.grade and sheet.grade.first_wrong == name]
        slips = Counter(sheet.slip for sheet in first if sheet.slip)
        yield StepOfClass(
            exercise=_common_title([key.title for key in keys]),
            name=name,
            sheets=len(steps),
            points=sum(step.points for step in steps) / len(steps) if steps else 0.0,
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
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*titles, strict=False))
    common = "".join(letters[0] for letters in alike)
    return titles[0] if len(titles) == 1 else common.rstrip(" :,0123456789") or "…"


def _record(sheet: GradedSheet) -> dict[str, Any]:
    plain = sheet.plain()
    if sheet.grade is None:
        return plain
    counts = Counter[str]()
    for step in sheet.grade.steps:
        counts.update(step.counts)
    points = {f"points_{step.name}": step.points for step in sheet.grade.steps}
    told = {name: "; ".join(plain[name]) for name in ("edited", "unreadable", "unasked", "notes")}
    return {**plain, **counts, "blank": counts[Verdict.unknown], **told, **points}


def _shown(sheet: GradedSheet, alike: Sequence[str]) -> dict[str, Any]:
    if sheet.grade is None:
        return {"sheet": sheet.name, "points": NONE, "remark": _("cannot be read")}
    grade = sheet.grade
    points = shared_text(grade.points, grade.most)
    told = {"sheet": sheet.name, "exercise": grade.key.title, "points": points, "sort_points": grade.points}
    return {**told, "first_wrong": grade.first_wrong, "slip": sheet.slip, "remark": "; ".join(_remarks(grade, alike))}


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


def _shown_step(step: StepOfClass) -> dict[str, Any]:
    told: dict[str, Any] = {name: str(getattr(step, name)) for name in ("full", "wrong", "first", "blank")}
    points = unbroken(f"{number(step.points, '.2f')} / {points_text(step.most)}")
    return {"step": step.name, "exercise": step.exercise, "points": points, **told}


def _figures(graded: GradedClass) -> list[Section]:
    """Bars of the first wrong steps, and of the points."""
    from vitral.report.bars import count_bars
    from vitral.report.style import svg_bytes

    drawn: list[Section] = []
    for keys in graded.groups:
        steps = [step for step in _steps(keys, graded.graded) if step.sheets]
        if not any(step.first for step in steps):
            continue
        counts = [(step.name, step.first) for step in steps]
        counts.append((_("no wrong number"), steps[0].sheets - sum(step.first for step in steps)))
        alt = "; ".join(f"{name}: {count}" for name, count in counts)
        caption = _("Sheets by their first wrong step.")
        caption = f"{steps[0].exercise}. {caption}" if len(graded.groups) > 1 else caption
        drawn.append(Figure(svg_bytes(count_bars(counts, x_label=_("sheets"))).decode(), caption, alt))
    grades = [sheet.grade for sheet in graded.graded if sheet.grade]
    if len(grades) > 1:
        bins = Counter(min(BINS - 1, int(BINS * grade.points / grade.most)) if grade.most else 0 for grade in grades)
        counts = [(f"{place * 100 // BINS}–{(place + 1) * 100 // BINS} %", bins[place]) for place in range(BINS)]
        alt = "; ".join(f"{name}: {count}" for name, count in counts if count)
        caption = _("Sheets by their share of the points.")
        drawn.append(Figure(svg_bytes(count_bars(counts, x_label=_("sheets"))).decode(), caption, alt))
    return drawn


def _slip_table(graded: GradedClass) -> list[Section]:
    """The guessed slips of the first wrong steps, most frequent first."""
    several = len(graded.groups) > 1
    lines = [
        (slip, f"{step.name} ({step.exercise})" if several else step.name, count)
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
