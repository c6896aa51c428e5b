"""The figures of a study's losses, and the views of its probes, each with its family of comparisons, judged."""

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import NamedTuple

from vitral.core.language import N_, _, number
from vitral.core.text import minus, nats, signed
from vitral.report.folder import ReportFolder
from vitral.report.intervals import Row, interval_plot
from vitral.report.lines import MOST_LINES, Line, left_out, line_plot, loss_plot
from vitral.report.sections import Columns, Details, Heading, Listing, Paragraph, Preformatted, Section
from vitral.report.study_tables import claims_table, levels, means, view_tables
from vitral.studies.claims import Claim, Judged, Note, Plain
from vitral.studies.judging import judge
from vitral.studies.losses import LossClaims, failed_seeds, title_with_failures, trained_losses
from vitral.studies.probe import ArmMeasures, Dots, Lines, View
from vitral.studies.probes import probe_named
from vitral.studies.resolution import is_causal_lm
from vitral.studies.results import ArmResult, StudyResult

OFTEN = 4
"""Evaluations that make a curve; where there are fewer, the batches' own losses do."""
FOREST = N_(
    "Difference of the test loss at the last step to the arm above each group, in percent of that arm's loss. The line "
    "is the simultaneous 95% interval, small dots are seeds. Grey: equivalent, within the margin of {margin}%. A "
    "triangle that points down is better, one that points up worse, a square equivalent, an empty circle undecided; an "
    "arrow at the edge is an arm beyond the axis."
)
TESTED = N_(
    "Test loss at every evaluation, on the part of the test split that is measured while training: means over seeds; "
    "bands: range over seeds. Dotted: n-gram baselines, counted on the training split. Early steps may lie above the "
    "frame."
)
TRAINED = N_(
    "Training loss by optimizer step: means over seeds; bands: range over seeds. Each point is the mean of the batches "
    "logged since the previous one, with dropout where there is any. Early steps may lie above the frame."
)


def difference_figure(result: StudyResult, losses: LossClaims, report: ReportFolder) -> list[Section]:
    """The differences at the end."""
    claims = [claim for claim in losses.contrasts if claim.failures is not None or math.isfinite(claim.difference)]
    if not claims:
        return []
    margin, title = 100 * result.study.margin, _("Difference of the test loss")
    figure = interval_plot(
        [_row(claim) for claim in claims],
        _("difference of the test loss (%)"),
        margin=margin,
        title=title,
        unit="%",
    )
    known = {one.comparison.subject: one.percent for one in claims if one.percent is not None}
    alt = extremes_text(title, known, lambda percent: f"{signed(percent, 1)}%") if known else title
    return [report.figure(figure, "differences", _(FOREST, margin=number(margin, ".3g")), alt)]


def _row(claim: Claim) -> Row:
    one, reference = claim.comparison, claim.reference
    failures = claim.failures
    if failures is not None and (claim.verdict == "fails" or not claim.seeds):
        text = _("{failed} of {n} seeds", failed=failures.failed, n=failures.seeds)
        if claim.seeds:
            text += f"; {claim.trained}: {signed(claim.percent or 0.0, 1)}%"
        return Row(one.subject, one.against, word=claim.verdict, verdict=_(claim.verdict), clipped=text)
    low, high = ((None if end is None else 100 * end / reference) for end in (claim.low, claim.high))
    dots = [100 * (one.values[seed] / one.others[seed] - 1) for seed in sorted(one.values) if seed in one.others]
    word = "undecided" if claim.why else claim.verdict
    text = _("no verdict") if claim.why else _(claim.verdict)
    text = "; ".join(filter(None, (text, claim.trained)))
    return Row(one.subject, one.against, claim.percent, low, high, dots, word, text)


def curve_figure(result: StudyResult, report: ReportFolder) -> list[Section]:
    """The losses of the base and of the first other arms; of the training batches where tests are rare."""
    arms = [arm for arm in result.arms if is_causal_lm(arm.config)]
    counts = [len(run.curve) for arm in arms for run in arm.runs if run.seed in arm.losses]
    often = min(counts, default=0) >= OFTEN
    lines = [line for arm in arms if len((line := _line(result, arm, often=often)).x) > 1]
    if not lines:
        return []
    unit, title = _(result.study.unit), _("Test loss while training") if often else _("Training loss while training")
    figure = loss_plot(
        lines[:MOST_LINES],
        references=[*levels(result, result.curve_baselines).items()] if often else (),
        title=title,
        y_label=_("test loss ({unit})", unit=unit) if often else _("training loss ({unit})", unit=unit),
    )
    alt = extremes_text(title, {line.label: line.y[-1] or 0.0 for line in lines}, nats)
    caption = _(TESTED if often else TRAINED) + left_out([line.label for line in lines])
    return [report.figure(figure, "curves", caption, alt)]


def _line(result: StudyResult, arm: ArmResult, *, often: bool) -> Line:
    """The mean over the runs that trained, or over all if none did, at the steps that all have, with its range."""
    runs = [run for run in arm.runs if run.seed in trained_losses(result, arm)] or arm.runs
    curves = [
        {step: loss * arm.factor for step, loss in (run.curve if often else run.training_curve) if math.isfinite(loss)}
        for run in runs
    ]
    steps = sorted(set[int]().union(*curves).intersection(*curves))
    losses = [[curve[step] for curve in curves] for step in steps]
    return Line(
        title_with_failures(result, arm),
        steps,
        list(map(fmean, losses)),
        list(map(min, losses)),
        list(map(max, losses)),
    )


MOST_SENTENCES = 8
"""Decided comparisons of a probe that the verdict says as sentences."""


class JudgedView(NamedTuple):
    """A probe's view with its family of comparisons, judged.

    Attributes:
        view: of the probe.
        claims: one for each of the view's comparisons.
        name: of the probe.
        title: of its part of the page.
    """

    view: View
    claims: tuple[Claim, ...]
    name: str
    title: str

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
    views = []
    for name in result.study.probes:
        probe, measured = probe_named(name), result.measured.get(name)
        if probe.of_runs and measured:
            measured = [
                _measured(result, arm, measured[arm.arm.name]) for arm in result.arms if measured.get(arm.arm.name)
            ]
        view = probe.view(result, measured) if measured else View()
        views.append(JudgedView(view, judge(view.comparisons), name, _(probe.title)))
    return tuple(views)


def _measured(result: StudyResult, arm: ArmResult, measured: Mapping[int, Plain]) -> ArmMeasures:
    """The measures of an arm without those of runs that failed; all, and named so, where no run trained."""
    failed = failed_seeds(result, arm)
    runs = {seed: measured[seed] for seed in sorted(measured) if seed not in failed}
    return ArmMeasures(
        arm.arm.name, title_with_failures(result, arm), arm.config, runs or dict(sorted(measured.items()))
    )


def probe_sections(judged: JudgedView, report: ReportFolder) -> list[Section]:
    """A view as sections of a page, its figures added to the report; nothing of a probe without results."""
    view, sections = judged.view, list[Section]()
    if view.tables or view.checks or judged.claims or view.notes:
        sections += [Heading(judged.title), *([Paragraph(view.about)] if view.about else [])]
    if isinstance(view.figure, Dots):
        sections += _dots(judged.name, view.figure, report)
    elif view.figure is not None:
        sections += _lines(judged.name, view.figure, report)
    sections += view_tables(view)
    if judged.claims:
        caption = _(
            "Paired t tests, p values and 95% intervals corrected together for {n} comparisons (Bonferroni).",
            n=max(claim.family for claim in judged.claims),
        )
        table = claims_table(caption, ("subject", "against", "quantity", "change", "p", "told"), judged.claims)
        sections.append(Details(_("Every comparison of this probe ({n})", n=len(table.rows)), (table,)))
    if view.texts:
        samples = Columns(tuple(Preformatted(text, caption) for caption, text in view.texts.items()))
        sections.append(Details(_("Samples"), (samples,)))
    return sections


def _dots(name: str, spec: Dots, report: ReportFolder) -> list[Section]:
    title, rows, (one, *others) = _(spec.title), list[Row](), spec.quantities
    for arm, quantity, values, mean in means(spec.arms, spec.quantities):
        rows.append(Row(arm.title, quantity.title if others else "", mean.mean, mean.low, mean.high, values))
    if not rows:
        return []
    label = "" if others else one.label
    figure = interval_plot(rows, label, title=title, are_differences=False, digits=one.digits)
    named = {", ".join(filter(None, (row.group, row.label))): row.estimate or 0.0 for row in rows}
    marks = _("Small dots are {units}; the large mark is their mean with its 95% t interval.", units=_(spec.sample))
    return [report.figure(figure, name, f"{title}. {marks}", extremes_text(title, named, one.show))]


def _lines(name: str, spec: Lines, report: ReportFolder) -> list[Section]:
    measured = [curve for curve in spec.curves if curve.x and curve.look != "theory"]
    if not measured:
        return []
    drawn = [*measured[:MOST_LINES], *(curve for curve in spec.curves if curve.look == "theory")]
    x, y = (axis._replace(label=_(axis.label)) for axis in (spec.x, spec.y))
    title, ends = _(spec.title), {curve.label: curve.y[-1] or 0.0 for curve in measured}
    figure = line_plot(drawn, x, y, references=[*(spec.levels or {}).items()], title=title)
    alt = extremes_text(title, ends, lambda value: minus(number(value, ".3g")))
    bands = _("Means over seeds; bands: range over seeds.") if any(curve.low for curve in measured) else ""
    caption = " ".join(filter(None, (f"{title}.", bands, spec.note))) + left_out([curve.label for curve in measured])
    return [report.figure(figure, name, caption, alt)]


def extremes_text(title: str, values: Mapping[str, float], show: Callable[[float], str]) -> str:
    """The alternative text of a figure in one sentence: its least and its largest value, with their names.

    >>> extremes_text("Loss", {"a": 2.0, "b": 1.0, "c": 3.0}, str)
    'Loss: from 1.0 (b) to 3.0 (c).'
    """
    low, high = min(values, key=lambda name: values[name]), max(values, key=lambda name: values[name])
    return _(
        "{title}: from {low} ({least}) to {high} ({most}).",
        title=title,
        low=show(values[low]),
        least=low,
        high=show(values[high]),
        most=high,
    )


def not_measured(result: StudyResult) -> list[Section]:
    """Why measurements are missing; nothing where none is."""
    reasons = tuple(
        f"{name}: {f'{result.arm(arm).arm.title}: ' if arm else ''}{_(why)}."
        for name in result.study.probes
        for arm, why in result.unmeasured.get(name, ())
    )
    return [Heading(_("Not measured")), Listing(reasons)] if reasons else []
