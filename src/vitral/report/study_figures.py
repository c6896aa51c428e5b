"""The figures of a study: the differences of its losses, these differences while training, the losses, the tuning."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.figure import Figure

from vitral.core.language import N_, _, number
from vitral.core.text import nats, signed
from vitral.evaluation import NgramBaselines, baseline_name
from vitral.report.folder import ReportFolder
from vitral.report.forest import ForestRow, SecondAxis, forest_plot
from vitral.report.lines import Axis, Line
from vitral.report.margin import Reference
from vitral.report.panels import MOST_PANELS, Mark, Panel, panel_plot, panels_left_out
from vitral.report.sections import Section
from vitral.studies.claims import Claim
from vitral.studies.losses import LossClaims, baseline_arm
from vitral.studies.resolution import is_causal_lm
from vitral.studies.results import ArmResult, RunResult, StudyResult
from vitral.studies.tuning import Tuned


@dataclass(frozen=True)
class Plot:
    """A figure that the report writes and shows.

    Attributes:
        figure: drawn by `vitral.report`.
        name: of its files; small letters and hyphens.
        caption: its content and how to read it.
        alt: the finding, for a reader who cannot see it.
    """

    figure: Figure
    name: str
    caption: str
    alt: str


OFTEN = 4
"""Evaluations that make a curve; where there are fewer, the batches' own losses do."""
SETTLED = 0.5
"""Share of the steps after which losses decide the scale of a panel."""
RATE = "learning_rate"
Curves = Mapping[int, Mapping[int, float]]
"""Loss by seed and step."""
FOREST = N_(
    "Difference of the test loss at the last step to the arm above each group, in percent of that arm's loss. The line "
    "is the simultaneous 95% interval, small dots are seeds. Grey: equivalent, within the margin of {margin}%. A "
    "triangle that points down is better, one that points up worse, a square equivalent, an empty circle undecided; an "
    "arrow at the edge is an arm beyond the axis."
)
GAPS_TESTED = N_(
    "Test loss minus that of the arm named above the panel at the same step, on the part of the test split that is "
    "measured while training: thin lines are seeds, the thick line their mean. Grey: the margin of {margin}%. Early "
    "steps may lie above the frame."
)
GAPS_TRAINED = N_(
    "Training loss minus that of the arm named above the panel at the same step and on the same batches: thin lines "
    "are seeds, the thick line their mean. Grey: the margin of {margin}%. Early steps may lie above the frame."
)
ABOVE_NGRAMS = N_(
    "Test loss minus the {baseline} baseline, counted on the training split and scored on the same text: thin lines "
    "are seeds, the thick line their mean. Dotted: n-gram baselines. Early steps may lie above the frame."
)
ABOVE_DRAWN = N_(
    "Test loss minus the mean of the seeds' {baseline} baselines, each counted on the seed's own training split: thin "
    "lines are seeds, the thick line their mean. Dotted: n-gram baselines. Early steps may lie above the frame."
)
TRAINED = N_(
    "Training loss by optimizer step: thin lines are seeds, the thick line their mean. Each point is the mean of the "
    "batches logged since the previous one, with dropout where there is any. Early steps may lie above the frame."
)
TRIED = N_(
    "Validation loss of one run for each value tried, from seed {seed}, which is no seed of the results. The diamond "
    "is the value that the arm's runs have; it is empty where it is the first or the last that was tried. Grey: the "
    "arm that this arm is compared with."
)


def references(result: StudyResult, lines: NgramBaselines) -> list[Reference]:
    """N-gram baselines in the study's unit, by name."""
    factor = result.arms[0].factor
    return [Reference(baseline_name(order), loss * factor) for order, loss in sorted(lines.orders.items())]


def study_figures(result: StudyResult, losses: LossClaims, report: ReportFolder) -> list[Section]:
    """Draw what the study found: differences at the end, differences and losses while training, and the tuning."""
    plots = (_forest(result, losses), _gaps(result), _curves(result), _tuning(result))
    return [added(plot, report) for plot in plots if plot is not None]


def added(plot: Plot, report: ReportFolder) -> Section:
    """A figure, added to the report, as one of its sections."""
    return report.figure(plot.figure, plot.name, plot.caption, plot.alt)


def _forest(result: StudyResult, losses: LossClaims) -> Plot | None:
    claims = [claim for claim in losses.contrasts if claim.failures is not None or math.isfinite(claim.difference)]
    if not claims:
        return None
    margin = 100 * result.study.margin
    base = claims[0].reference
    second = None
    if math.isfinite(base):
        unit = _("difference ({unit}; exact at a loss of {loss})", unit=_(result.study.unit), loss=nats(base))
        second = SecondAxis(unit, base / 100)
    figure = forest_plot(
        [_row(claim) for claim in claims],
        x_label=_("difference of the test loss (%)"),
        margin=margin,
        second=second,
        title=_("Difference of the test loss"),
        unit="%",
    )
    return Plot(figure, "differences", _(FOREST, margin=number(margin, ".3g")), _finding(claims))


def _row(claim: Claim) -> ForestRow:
    one, reference = claim.comparison, claim.reference
    found = claim.failures
    if found is not None:
        finite = [value for value in one.values.values() if math.isfinite(value)]
        seeds = _("{failed} of {n} seeds", failed=found.failed, n=found.seeds)
        told = f"{seeds}: {nats(fmean(finite))}" if finite else seeds
        return ForestRow(one.subject, one.against, word="fails", told=_("fails"), clipped=told)
    low, high = ((None if end is None else 100 * end / reference) for end in (claim.low, claim.high))
    shared = [seed for seed in sorted(one.values) if seed in one.others]
    dots = [100 * (one.values[seed] / one.others[seed] - 1) for seed in shared]
    word = "" if claim.why else claim.verdict
    told = _(word) if word else _("no verdict")
    return ForestRow(one.subject, one.against, claim.percent, low, high, dots, word, told)


def _finding(claims: Sequence[Claim]) -> str:
    """One sentence: how many arms differ, and the largest difference."""
    worse, better, fails = (sum(claim.verdict == word for claim in claims) for word in ("worse", "better", "fails"))
    told = _(
        "Of {n} contrasts: {worse} worse, {better} better, {fails} failing, {rest} equivalent, undecided or without a "
        "verdict",
        n=len(claims),
        worse=worse,
        better=better,
        fails=fails,
        rest=len(claims) - worse - better - fails,
    )
    shown = [claim for claim in claims if claim.shown and claim.percent is not None and claim.failures is None]
    if not shown:
        return f"{told}."
    largest = max(shown, key=lambda claim: abs(claim.percent or 0.0))
    return _(
        "{told}; the largest decided difference is that of {arm}, {percent}%.",
        told=told,
        arm=largest.comparison.subject,
        percent=signed(largest.percent or 0.0, 1),
    )


def _gaps(result: StudyResult) -> Plot | None:
    """Each contrasted arm less its baseline arm at the same step, seed by seed."""
    arms = [arm for arm in result.arms[1:] if arm.arm.compared and arm.arm.contrast]
    often = _is_often(result, [*arms, result.arms[0]])
    # Arms that read other texts do not see the same batches.
    if not arms or (result.study.varies_text and not often):
        return None
    panels, ends, left_out = [], [], []
    for arm in arms:
        rival = baseline_arm(result, arm)
        seeds = _less(_of_seeds(arm, tested=often), _of_seeds(rival, tested=often))
        panel = _panel(arm.arm.title, seeds, _("against {arm}", arm=rival.arm.title))
        if panel is None:
            left_out.append(arm.arm.title)
            continue
        panels.append(panel)
        ends.append((arm.arm.title, _end(panel)))
    if not panels:
        return None
    unit = _(result.study.unit)
    margin = result.study.margin
    rivals = [baseline_arm(result, arm).losses for arm in arms]
    known = [loss for losses in rivals for loss in losses.values()]
    half = margin * fmean(known) if known else 0.0
    figure = panel_plot(
        panels[:MOST_PANELS],
        Axis(_("optimizer step")),
        Axis(_("difference of the loss ({unit})", unit=unit)),
        zero=0.0,
        band=(-half, half) if half else None,
        settled=SETTLED,
        title=_("Difference of the loss while training"),
    )
    caption = _(GAPS_TESTED if often else GAPS_TRAINED, margin=number(100 * margin, ".3g"))
    if left_out:
        caption += _(" Not drawn, since its steps are others: {names}.", names=", ".join(left_out))
    low, high = min(ends, key=lambda end: end[1]), max(ends, key=lambda end: end[1])
    alt = _(
        "At the last step the differences lie between {low} ({least}) and {high} ({most}).",
        low=signed(low[1]),
        least=low[0],
        high=signed(high[1]),
        most=high[0],
    )
    return Plot(figure, "gaps", caption + panels_left_out(panels), alt)


def _curves(result: StudyResult) -> Plot | None:
    """Each arm's loss less the n-gram baseline that is nearest to the base's, or its training loss alone."""
    arms = [arm for arm in result.arms if is_causal_lm(arm.config)]
    if not arms:
        return None
    often = _is_often(result, arms)
    lines = references(result, result.curve_baselines) if often else []
    finished = list(arms[0].losses.values())
    near = min(lines, key=lambda line: abs(line.value - fmean(finished))) if lines and finished else None
    zero = 0.0 if near is None else near.value
    panels, ends = [], []
    for arm in arms:
        seeds = {
            seed: {step: loss - zero for step, loss in curve.items()}
            for seed, curve in _of_seeds(arm, tested=often).items()
        }
        panel = _panel(arm.arm.title, seeds, "" if arm.losses else _("stopped early"))
        if panel is not None:
            panels.append(panel)
            ends.append((arm.arm.title, _end(panel) + zero))
    if not panels:
        return None
    unit = _(result.study.unit)
    plain = _("training loss ({unit})", unit=unit) if not often else _("test loss ({unit})", unit=unit)
    less = None if near is None else _("loss minus the {baseline} ({unit})", baseline=near.label, unit=unit)
    title = _("Test loss while training") if often else _("Training loss while training")
    figure = panel_plot(
        panels[:MOST_PANELS],
        Axis(_("optimizer step")),
        Axis(less or plain),
        zero=None if near is None else 0.0,
        references=[Reference(line.label, line.value - zero) for line in lines],
        settled=SETTLED,
        title=title,
    )
    above = ABOVE_DRAWN if result.study.draws_text else ABOVE_NGRAMS
    caption = _(above, baseline=near.label) if near is not None else _(TRAINED)
    low, high = min(ends, key=lambda end: end[1]), max(ends, key=lambda end: end[1])
    alt = _(
        "The losses end between {low} ({least}) and {high} ({most}).",
        low=nats(low[1]),
        least=low[0],
        high=nats(high[1]),
        most=high[0],
    )
    return Plot(figure, "curves", caption + panels_left_out(panels), alt)


def _is_often(result: StudyResult, arms: Sequence[ArmResult]) -> bool:
    """Whether every finished run was measured often enough on the test split."""
    counts = [len(run.curve) for arm in arms for run in arm.runs if run.seed in arm.losses]
    return min(counts, default=0) >= OFTEN


def _of_seeds(arm: ArmResult, *, tested: bool) -> Curves:
    """Losses of the runs that finished, or of those that did not if none did."""
    curves = {run.seed: _curve(run, arm.factor, tested=tested) for run in arm.runs}
    finished = {seed: curve for seed, curve in curves.items() if seed in arm.losses}
    return finished or curves


def _curve(run: RunResult, factor: float, *, tested: bool) -> dict[int, float]:
    points = run.curve if tested else run.training_curve
    return {step: loss * factor for step, loss in points if math.isfinite(loss)}


def _less(curves: Curves, others: Curves) -> Curves:
    return {
        seed: {step: loss - others[seed][step] for step, loss in curve.items() if step in others[seed]}
        for seed, curve in curves.items()
        if seed in others
    }


def _panel(title: str, curves: Curves, note: str) -> Panel | None:
    """Seeds as thin lines, their mean at the steps that all have as the thick one; None without two such steps."""
    known = [curve for curve in curves.values() if curve]
    steps = sorted(set.intersection(*(set(curve) for curve in known))) if known else []
    if len(steps) < 2:
        return None
    mean = Line("", steps, [fmean(curve[step] for curve in known) for step in steps])
    seeds = [Line("", sorted(curve), [curve[step] for step in sorted(curve)]) for curve in known]
    return Panel(title, [mean], seeds if len(seeds) > 1 else (), note=note)


def _end(panel: Panel) -> float:
    return panel.lines[0].y[-1] or 0.0


def _tuning(result: StudyResult) -> Plot | None:
    """Validation loss against the values that were tried, a panel for each tuned arm."""
    lines = {
        one.arm: Line("", [trial.factor for trial in one.trials], [trial.loss for trial in one.trials])
        for one in result.tuning
    }
    tuned = [one for one in result.tuning if any(trial.loss is not None for trial in one.trials)]
    if not tuned:
        return None
    panels = []
    for one in tuned:
        arm = result.arm(one.arm)
        rival = baseline_arm(result, arm).arm.name
        context = [lines[rival]] if rival != one.arm and rival in lines else []
        panels.append(Panel(arm.arm.title, [lines[one.arm]], context=context, marks=_best(one), note=_note(one)))
    factors = sorted({trial.factor for one in tuned for trial in one.trials})
    rates = all(key.endswith(RATE) for one in tuned for trial in one.trials for key in trial.values)
    label = _("learning rate, in multiples of the arm's own") if rates else _("values tried, in multiples of the arm's")
    figure = panel_plot(
        panels[:MOST_PANELS],
        Axis(label, log=True, ticks=factors),
        Axis(_("validation loss (nats per token)")),
        title=_("Tuning"),
    )
    edges = [result.arm(one.arm).arm.title for one in tuned if one.at_edge]
    alt = _(
        "{n} arms were tuned; the best value lies inside the values tried for {inside}.",
        n=len(tuned),
        inside=len(tuned) - len(edges),
    )
    return Plot(figure, "tuning", _(TRIED, seed=0) + panels_left_out(panels), alt)


def _best(one: Tuned) -> list[Mark]:
    return [
        Mark(trial.factor, trial.loss, hollow=one.at_edge)
        for trial in one.trials
        if trial.factor == one.chosen and trial.loss is not None
    ]


def _note(one: Tuned) -> str:
    best = next(trial for trial in one.trials if trial.factor == one.chosen)
    value = number(next(iter(best.values.values())), ".3g")
    return _("best at {value}, an edge", value=value) if one.at_edge else _("best at {value}", value=value)
