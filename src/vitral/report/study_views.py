"""The views of a study's probes: each with its family of comparisons, judged, as sections of the study's page."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vitral.core.language import N_, _, number
from vitral.core.text import minus, p_text, signed
from vitral.report.folder import ReportFolder
from vitral.report.forest import ForestRow, forest_plot
from vitral.report.intervals import IntervalRow, interval_dots
from vitral.report.lines import MOST_LINES, Line, left_out, line_plot
from vitral.report.lines import Axis as DrawnAxis
from vitral.report.margin import Reference
from vitral.report.sections import Columns, Details, Heading, Listing, Paragraph, Preformatted, Section, Table
from vitral.report.study_figures import Plot, added
from vitral.studies.claims import Claim, Judged, Note, Quantity, digits_for
from vitral.studies.intervals import mean_interval
from vitral.studies.judging import judge
from vitral.studies.losses import difference_text
from vitral.studies.probe import ArmMeasures, Axis, Dots, Lines, Means, Rows, View
from vitral.studies.probes import probe_named
from vitral.studies.results import StudyResult

MOST_SENTENCES = 8
"""Decided comparisons of a probe that the verdict says as sentences."""
LEAST_ROWS, MOST_FORESTS = 3, 3
"""Comparisons of one quantity that make a figure, and figures of one probe; the table has all comparisons."""
MOST_DOTS = 12
"""Of a row: the difference of each seed or prompt."""
PAIRED = N_(
    "Paired differences to the one above each group. The line is the simultaneous 95% interval, for the {n} "
    "comparisons of this probe together; small dots are the single differences. A triangle that points down is lower, "
    "one that points up higher, an empty circle undecided; an arrow at the edge is a difference beyond the axis."
)


@dataclass(frozen=True)
class JudgedView:
    """A probe's view with its family of comparisons, judged.

    Attributes:
        view: of the probe.
        claims: one for each of the view's comparisons.
        name: of the probe.
        title: of its part of the page.
    """

    view: View
    claims: tuple[Claim, ...]
    name: str = ""
    title: str = ""

    @property
    def all(self) -> tuple[Judged, ...]:
        """Checks, claims and notes."""
        return (*self.view.checks, *self.claims, *self.view.notes)

    @property
    def listed(self) -> tuple[Judged, ...]:
        """The claims that the verdict lists as sentences.

        The table has undecided comparisons, and the decided ones beyond the MOST_SENTENCES of least p value.
        """
        decided = [claim for claim in self.claims if claim.shown]
        first = sorted(decided, key=lambda claim: claim.p or 0.0)[:MOST_SENTENCES]
        rest = len(decided) - len(first)
        more = [Note(_("{n} more decided comparisons of the same family are in its table.", n=rest))] if rest else []
        return (*self.view.checks, *(claim for claim in self.claims if claim in first), *more, *self.view.notes)


def probe_views(result: StudyResult) -> tuple[JudgedView, ...]:
    """One judged view for each probe of the study, in the design's order, from the measured data alone."""
    views, result = [], result.told
    for name in result.study.probes:
        probe, found = probe_named(name), result.measured.get(name)
        if probe.of_runs and found:
            found = [
                ArmMeasures(arm.arm.name, arm.arm.title, arm.config, dict(sorted(found[arm.arm.name].items())))
                for arm in result.arms
                if found.get(arm.arm.name)
            ]
        view = probe.view(result, found) if found else View()
        views.append(JudgedView(view, judge(view.comparisons), name, _(probe.title)))
    return tuple(views)


def claims_table(claims: Sequence[Claim]) -> Table:
    """Every comparison of one family, decided or not."""
    rows = tuple(
        (
            claim.comparison.subject,
            claim.comparison.against,
            claim.comparison.quantity.label,
            difference_text(claim, percent=False),
            p_text(claim.p),
            _(claim.verdict) if not claim.why else _("no verdict: {why}", why=claim.why),
        )
        for claim in claims
    )
    family = max((claim.family for claim in claims), default=0)
    caption = _(
        "Paired t tests, p values and 95% intervals corrected together for {n} comparisons (Bonferroni).", n=family
    )
    columns = (_("subject"), _("against"), _("quantity"), _("difference (95% CI)"), "p", _("verdict"))
    return Table(caption, columns, rows, prose=(1, 2, 5))


def paired_forests(judged: JudgedView) -> tuple[Plot, ...]:
    """For each quantity of enough tested comparisons their differences with simultaneous intervals, in order."""
    by_quantity: dict[Quantity, list[Claim]] = {}
    for claim in judged.claims:
        if claim.p is not None and math.isfinite(claim.difference):
            by_quantity.setdefault(claim.comparison.quantity, []).append(claim)
    drawn = [(quantity, claims) for quantity, claims in by_quantity.items() if len(claims) >= LEAST_ROWS]
    return tuple(
        _paired_forest(f"{judged.name}-differences{f'-{number}' if number > 1 else ''}", quantity, claims)
        for number, (quantity, claims) in enumerate(drawn[:MOST_FORESTS], start=1)
    )


def _paired_forest(name: str, quantity: Quantity, claims: Sequence[Claim]) -> Plot:
    rows = []
    for claim in claims:
        one, dots = claim.comparison, claim.comparison.differences
        dots = dots if len(dots) <= MOST_DOTS else []
        # Better may be higher or lower: the marker says the side, the text at the right the verdict.
        side = "undecided" if not claim.shown else "higher" if claim.difference > 0 else "lower"
        told = _(claim.verdict)
        rows.append(ForestRow(one.subject, one.against, claim.difference, claim.low, claim.high, dots, side, told))
    least = quantity.digits
    digits = min(least + 2, digits_for((claim.difference for claim in claims), least))
    title = _("Difference of: {quantity}", quantity=quantity.told)
    figure = forest_plot(rows, x_label=_("difference: {quantity}", quantity=quantity.label), title=title, digits=digits)
    largest = max(claims, key=lambda claim: abs(claim.difference))
    alt = _(
        "{quantity}: {decided} of {n} differences are decided; the largest is that of {arm}, {difference}.",
        quantity=quantity.label,
        decided=sum(bool(claim.shown) for claim in claims),
        n=len(claims),
        arm=largest.comparison.subject,
        difference=signed(largest.difference, digits),
    )
    return Plot(figure, name, _(PAIRED, n=claims[0].family), alt)


def probe_sections(judged: JudgedView, report: ReportFolder) -> list[Section]:
    """A view as sections of a page, its figures added to the report; nothing of a probe without results."""
    view, sections = judged.view, list[Section]()
    if view.tables or view.checks or judged.claims or view.notes:
        sections += [Heading(judged.title), *([Paragraph(view.about)] if view.about else [])]
    plot = figure(judged.name, view.figure)
    sections += [added(plot, report)] if plot else []
    sections += [means_table(one) if isinstance(one, Means) else rows_table(one) for one in view.tables]
    sections += [added(each, report) for each in paired_forests(judged)]
    if judged.claims:
        table = claims_table(judged.claims)
        sections.append(Details(_("Every comparison of this probe ({n})", n=len(table.rows)), (table,)))
    if view.texts:
        samples = Columns(tuple(Preformatted(text, caption) for caption, text in view.texts.items()))
        sections.append(Details(_("Samples"), (samples,)))
    return sections


def rows_table(spec: Rows) -> Table:
    """A table of other things than arms."""
    return Table(spec.caption, tuple(spec.columns), tuple(map(tuple, spec.rows)), spec.prose)


def means_table(spec: Means) -> Table:
    """A row for each arm; a mean over fewer runs than the arm has is followed by their number."""
    used = [quantity for quantity in spec.quantities if any(arm.values(quantity) for arm in spec.arms)]
    rows = tuple((arm.title, *(_mean_cell(arm, one) for one in used)) for arm in spec.arms)
    columns = (spec.rows or _("arm"), *(one.label for one in used))
    return Table(spec.caption or _("Means over seeds."), columns, rows)


def _mean_cell(arm: ArmMeasures, quantity: Quantity) -> str:
    mean, num = quantity.show(arm.mean(quantity)), len(arm.values(quantity))
    return mean if num in (0, len(arm.runs)) else _("{mean} (n = {n})", mean=mean, n=num)


def figure(name: str, spec: Dots | Lines | None) -> Plot | None:
    """A probe's figure, drawn; None where it has none, or nothing to draw."""
    if spec is None:
        return None
    return _dots(name, spec) if isinstance(spec, Dots) else _lines(name, spec)


def _dots(name: str, spec: Dots) -> Plot | None:
    rows = []
    for arm in spec.arms:
        if values := list(arm.values(spec.quantity).values()):
            mean = mean_interval(values)
            rows.append(IntervalRow(arm.title, values, mean.mean, mean.low, mean.high))
    if not rows:
        return None
    title = _(spec.title)
    alt = extremes_told(title, {row.label: row.mean for row in rows}, spec.quantity.show)
    marks = _("Small dots are {units}; the large mark is their mean with its 95% t interval.", units=_(spec.sample))
    return Plot(interval_dots(rows, title=title, x_label=spec.quantity.label), name, f"{title}. {marks}", alt)


def _lines(name: str, spec: Lines) -> Plot | None:
    measured = [curve for curve in spec.curves if curve.x and not curve.theory]
    if not measured:
        return None
    drawn = [*measured[:MOST_LINES], *(curve for curve in spec.curves if curve.theory)]
    lines = [Line(one.label, one.x, one.y, one.low, one.high, theory=one.theory) for one in drawn]
    levels = [Reference(label, value) for label, value in (spec.levels or {}).items()]
    title = _(spec.title)
    ends = {curve.label: curve.y[-1] or 0.0 for curve in measured}
    alt = extremes_told(title, ends, lambda value: minus(number(value, ".3g")))
    bands = _("Means over seeds; bands: range over seeds.") if any(curve.low for curve in measured) else ""
    caption = " ".join(filter(None, (f"{title}.", bands, spec.note))) + left_out([curve.label for curve in measured])
    return Plot(line_plot(lines, _axis(spec.x), _axis(spec.y), references=levels, title=title), name, caption, alt)


def _axis(spec: Axis) -> DrawnAxis:
    return DrawnAxis(_(spec.label), log=spec.log, ticks=spec.ticks)


def extremes_told(title: str, values: Mapping[str, float], show: Callable[[float], str]) -> str:
    """The alternative text of a figure in one sentence: its least and its largest value, with their names.

    >>> extremes_told("Loss", {"a": 2.0, "b": 1.0, "c": 3.0}, str)
    'Loss: from 1.0 (b) to 3.0 (c).'
    """
    low, high = min(values, key=lambda name: values[name]), max(values, key=lambda name: values[name])
    if low == high:
        return _("{title}: {value} ({name}).", title=title, value=show(values[low]), name=low)
    told = {"title": title, "low": show(values[low]), "high": show(values[high])}
    return _("{title}: from {low} ({least}) to {high} ({most}).", **told, least=low, most=high)


def not_measured(result: StudyResult) -> list[Section]:
    """Why measurements are missing; nothing where none is."""
    reasons = tuple(
        f"{name}: {f'{result.arm(arm).arm.title}: ' if arm else ''}{_(why)}."
        for name in result.study.probes
        for arm, why in result.unmeasured.get(name, ())
    )
    return [Heading(_("Not measured")), Listing(reasons)] if reasons else []
