"""The figures of a study: losses while training and at the end, with the n-gram baselines."""

from collections.abc import Sequence

from vitral.core.language import N_, _
from vitral.evaluation import NgramBaselines, baseline_name
from vitral.figures.intervals import IntervalRow, interval_dots
from vitral.figures.lines import Line, band, loss_plot
from vitral.figures.margin import Reference
from vitral.figures.sections import Section
from vitral.figures.text import nats
from vitral.reports.folder import ReportFolder
from vitral.studies.losses import baseline_arm, mean_loss
from vitral.studies.probe import Plot
from vitral.studies.results import ArmResult, StudyResult

MOST_CURVES = 8
"""More cannot be told apart."""
OFTEN = 4
"""Evaluations that make a curve; where there are fewer, the batches' own losses do."""
TESTED = N_(
    "Test loss by optimizer step, {over}, on the part of the test split that is measured while training. Dotted: "
    "n-gram baselines counted on the training split and scored on the same text."
)
TRAINED = N_(
    "Training loss by optimizer step, {over}. Each point is the mean of the batches logged since the previous one, "
    "with dropout where there is any."
)
NEAR, NEAR_AT_LEAST = 0.5, 0.25


def references(result: StudyResult, lines: NgramBaselines) -> list[Reference]:
    """N-gram baselines in the study's unit, by name."""
    factor = result.arms[0].factor
    return [Reference(baseline_name(order), loss * factor) for order, loss in sorted(lines.orders.items())]


def study_figures(result: StudyResult, report: ReportFolder) -> list[Section]:
    """Draw the curves and the losses at the end; an arm that finished from no seed is not in the last figure."""
    curves = (_curves(result, arms, number, report) for number, arms in enumerate(_groups(result), start=1))
    return [drawn for drawn in (*curves, _intervals(result, report)) if drawn is not None]


def _groups(result: StudyResult) -> list[list[ArmResult]]:
    """Arms that are compared with one another, so that no figure has more lines than can be told apart.

    Each baseline arm with the arms against it; groups of two are drawn together.
    """
    compared = [arm for arm in result.arms if arm.arm.compared]
    if len(compared) <= MOST_CURVES:
        return [compared]
    families: dict[str, list[ArmResult]] = {}
    for arm in compared[1:]:
        base = baseline_arm(result, arm)
        families.setdefault(base.arm.name, [base]).append(arm)
    groups = [family for family in families.values() if len(family) > 2]
    pairs = [arm for family in families.values() if len(family) == 2 for arm in family]
    groups += [pairs] if pairs else []
    cut = []
    for first, *others in groups:
        size = len(others) if len(others) < MOST_CURVES else -(-len(others) // -(-len(others) // (MOST_CURVES - 1)))
        cut += [[first, *others[begin : begin + size]] for begin in range(0, len(others), size)]
    return cut


def _curves(result: StudyResult, arms: Sequence[ArmResult], number: int, report: ReportFolder) -> Section | None:
    tested = min((len(run.curve) for arm in arms for run in arm.runs if run.seed in arm.losses), default=0)
    often = tested >= OFTEN
    curves = [_curve(arm, tested=often) for arm in arms]
    if not any(len(curve.x) > 1 for curve in curves):
        return None
    lines = _near(references(result, result.curve_baselines), curves) if often else []
    unit = _(result.study.unit)
    label = _("test loss ({unit})", unit=unit) if often else _("training loss ({unit})", unit=unit)
    title = _("Test loss while training") if often else _("Training loss while training")
    figure = loss_plot(curves, references=lines, title=title, y_label=label)
    caption = _(TESTED if often else TRAINED, over=_over(result))
    ends = "; ".join(
        _("{arm} ends at {loss}", arm=curve.label, loss=nats(curve.y[-1] or 0.0)) for curve in curves if curve.x
    )
    name = "curves" if number == 1 else f"curves-{number}"
    return added(Plot(figure, name, caption, _("Loss curves of the arms. {ends}.", ends=ends)), report)


def _curve(arm: ArmResult, *, tested: bool) -> Line:
    """Mean and range over the seeds that finished, or over those that did not if none did."""
    curves = {
        run.seed: [(step, loss * arm.factor) for step, loss in (run.curve if tested else run.training_curve)]
        for run in arm.runs
    }
    finished = [curve for seed, curve in curves.items() if seed in arm.losses]
    label = arm.arm.title if finished else _("{arm} (stopped early)", arm=arm.arm.title)
    return band(label, finished or list(curves.values()))


def _near(lines: Sequence[Reference], curves: Sequence[Line]) -> list[Reference]:
    """The lines that stand among the measured losses or beside them: others would only press these together."""
    values = [value for curve in curves for value in curve.y[-1:] if value is not None]
    low, high = min(values), max(values)
    room = max(NEAR * (high - low), NEAR_AT_LEAST)
    return [reference for reference in lines if low - room <= reference.value <= high + room]


def _intervals(result: StudyResult, report: ReportFolder) -> Section | None:
    rows, told = [], []
    for arm in result.arms:
        mean = mean_loss(arm)
        if mean is not None and arm.arm.compared:
            rows.append(IntervalRow(arm.arm.title, list(arm.losses.values()), mean.mean, mean.low, mean.high))
            told.append(f"{arm.arm.title} {nats(mean.mean)}")
    if len(rows) < 2:  # nothing to stand beside
        return None
    ends = [Line(row.label, (0,), (row.mean,)) for row in rows]
    lines = _near(references(result, result.baselines), ends)
    title, label = _("Test loss at the last step"), _("test loss ({unit})", unit=_(result.study.unit))
    figure = interval_dots(rows, references=lines, title=title, x_label=label)
    caption = (
        _(
            "Test loss at the last step, on the whole test split: small dots are seeds, the large mark is their mean "
            "with its 95% t interval. Dotted: n-gram baselines."
        )
        if len(result.seeds) > 1
        else _(
            "Test loss at the last step, on the whole test split: small dots are seeds, the large mark is their mean "
            "with its 95% t interval (none from a single seed). Dotted: n-gram baselines."
        )
    )
    return added(Plot(figure, "intervals", caption, _("Mean test losses: {losses}.", losses="; ".join(told))), report)


def added(plot: Plot, report: ReportFolder) -> Section:
    """A figure, added to the report, as one of its sections."""
    return report.figure(plot.figure, plot.name, plot.caption, plot.alt)


def _over(result: StudyResult) -> str:
    num = len(result.seeds)
    if num > 1:
        return _("mean of {n} seeds with their range", n=num)
    return _("one seed ({seed})", seed=result.seeds[0])
