"""The tables of a study: its comparisons, arms, runs, tuning, baselines; and all of it as data, `results.json`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from vitral.core.language import N_, _, ngettext, number
from vitral.core.text import NONE, big, nats, p_text, unbroken
from vitral.data import without_folders
from vitral.evaluation import NgramBaselines, baseline_name
from vitral.evaluation.intervals import Interval, mean_interval
from vitral.report.sections import Heading, Paragraph, Section
from vitral.report.tables import Column, Table, as_text, data_table, decimals, whole
from vitral.studies.claims import Check, Claim, Judged, Quantity
from vitral.studies.losses import LossClaims, baseline_arm, difference_text, mean_loss, title_with_failures
from vitral.studies.probe import ArmMeasures, Arms, Means, View
from vitral.studies.resolution import tokens_trained
from vitral.studies.results import ArmResult, RunResult, StudyResult
from vitral.studies.tuning import Tuned

SCHEMA = 1
LOSSES = "losses"
"""Family of the claims about losses; each probe's family has the probe's name."""


def claim_row(claim: Claim) -> dict[str, Any]:
    """A comparison as one row: estimates, interval, p value, word.

    Where runs failed, the difference is of the trained seeds alone, and there are counts of the failed ones; the p
    value of the ranks has a key of its own.
    """
    one, reference, failures = claim.comparison, claim.reference, claim.failures

    def percent(value: float | None) -> float | None:
        value = _finite(value)
        return 100 * value / reference if value is not None and _finite(reference) else None

    return {
        "subject": one.subject,
        "against": one.against,
        "quantity": one.quantity.label,
        "seeds": claim.seeds,
        "difference": _finite(claim.difference),
        "low": claim.low,
        "high": claim.high,
        "percent": percent(claim.difference),
        "p": claim.p if failures is None else None,
        "verdict": claim.verdict if failures is not None or not claim.why else None,
        "percent_low": percent(claim.low),
        "percent_high": percent(claim.high),
        "margin": claim.margin,
        "detectable": claim.detectable,
        "failed": None if failures is None else failures.failed,
        "rival_failed": None if failures is None else failures.others_failed,
        "rival_seeds": None if failures is None else failures.others,
        "rank_p": None if failures is None else claim.p,
        "all_seeds": None if failures is None else failures.seeds,
        "untuned": ", ".join(one.untuned) or None,
        "family": claim.family,
        "why": claim.why or None,
        "arm": one.arm or None,
        "rival": one.rival or None,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def results(
    result: StudyResult,
    families: Mapping[str, Sequence[Judged]],
    headline: Sequence[Judged],
    views: Mapping[str, View],
) -> dict[str, Any]:
    """The whole study as plain data: design, arms with their runs, tuning, claims, means of probes, baselines.

    Args:
        result: the measured study, with English titles.
        families: what was judged: under "losses" and under the name of each probe.
        headline: the claims for a hurried reader.
        views: of the probes, by their names.
    """
    study = result.study
    return {
        "schema": SCHEMA,
        "name": study.name,
        "title": study.title,
        "question": study.question,
        "headline": " ".join(one.text for one in headline),
        "design": study.plain(),
        "budget": result.budget,
        "unit": study.unit,
        "margin": study.margin,
        "seeds": list(result.seeds),
        "first_seeds": list(result.first_seeds),
        "baselines": result.baselines.plain(),
        "arms": [_arm(result, arm) for arm in result.arms],
        "tuning": [tuned.plain() for tuned in result.tuning],
        "claims": [
            {"of": name} | claim_row(one)
            for name, judged in families.items()
            for one in judged
            if isinstance(one, Claim)
        ],
        "checks": [
            {"of": name} | _check(one) for name, judged in families.items() for one in judged if isinstance(one, Check)
        ],
        "measures": [
            {"of": name, "arm": arm.name, "subject": arm.title, "quantity": quantity.label, **asdict(mean)}
            for name, view in views.items()
            for table in view.tables
            if isinstance(table, Means)
            for arm, quantity, _values, mean in means(table.arms, table.quantities)
        ],
        "text": without_folders(result.corpus),
        "environment": dict(result.environment),
    }


def _arm(result: StudyResult, arm: ArmResult) -> dict[str, Any]:
    is_base = arm is result.arms[0]
    return {
        "name": arm.arm.name,
        "title": arm.arm.title,
        "against": None if is_base else baseline_arm(result, arm).arm.name,
        "is_compared": arm.arm.compared and not is_base,
        "is_contrast": arm.arm.compared and arm.arm.contrast and not is_base,
        "parameters": arm.num_parameters,
        "flops_per_token": arm.flops_per_token,
        "flops": arm.flops,
        "tokens": tokens_trained(arm.config),
        "configuration": dict(arm.config),
        "runs": [_run(arm, run) for run in arm.runs],
    }


def _run(arm: ArmResult, run: RunResult) -> dict[str, Any]:
    loss = _finite(run.test_loss)
    return {
        "seed": run.seed,
        "train_loss": _finite(run.train_loss),
        "validation_loss": _finite(run.validation_loss),
        "test_loss": loss,
        "compared_loss": None if loss is None else loss * arm.factor,
        "seconds": run.seconds,
        "stopped": run.stopped,
        "curve": [[step, _finite(one)] for step, one in run.curve],
        "training_curve": [[step, _finite(one)] for step, one in run.training_curve],
    }


def _check(check: Check) -> dict[str, Any]:
    low, high = check.interval or (None, None)
    return {
        "subject": check.subject,
        "quantity": check.what,
        "value": _finite(check.value),
        "low": low,
        "high": high,
        "expected_low": check.low,
        "expected_high": check.high,
        "unit": check.unit,
        "verdict": check.verdict,
        "arm": check.arm or None,
    }


BASELINES = N_(
    "The n-gram baselines are Witten-Bell smoothed counts of the training split, scored on the test split. A model at "
    "the bigram baseline knows which token follows which; one between the trigram and the 4-gram baseline has learned "
    "what two to three preceding tokens predict."
)
CLAIMS = {
    column.key: column
    for column in (
        Column("subject", N_("arm")),
        Column("against", N_("compared with"), is_prose=True),
        Column("quantity", N_("quantity"), is_prose=True),
        Column("seeds", N_("seeds"), whole),
        Column("difference", N_("difference"), decimals(4, sign=True)),
        Column("low", N_("from"), decimals(4, sign=True)),
        Column("high", N_("to"), decimals(4, sign=True)),
        Column("change", N_("difference (simultaneous 95% CI)")),
        Column("percent", N_("in %"), decimals(1, sign=True)),
        Column("p", N_("corrected p"), p_text),
        Column("told", N_("verdict"), is_prose=True),
    )
}
"""Columns of comparisons for people, by key."""


def claims_table(caption: str, keys: Sequence[str], claims: Sequence[Claim]) -> Table:
    """Comparisons for people, decided or not: these of the `CLAIMS`."""
    return Table(caption, [CLAIMS[key] for key in keys], [_claim(claim) for claim in claims])


def _claim(claim: Claim) -> dict[str, Any]:
    verdict = _("no verdict: {why}", why=claim.why) if claim.why else claim.words
    if claim.verdict == "fails" and claim.failures is not None:
        verdict = _("fails in {failed} of {n} seeds", failed=claim.failures.failed, n=claim.failures.seeds)
    if claim.unseen:
        verdict = f"{verdict}; {claim.unseen}"
    if claim.comparison.untuned:
        verdict = _("{verdict}; untuned: {arms}", verdict=verdict, arms=", ".join(claim.comparison.untuned))
    change = difference_text(claim)
    if claim.failures is not None and claim.seeds:
        change = f"{change} ({claim.trained})"
    return claim_row(claim) | {"change": change, "p": None if claim.unseen else claim.p, "told": verdict}


def contrasts_section(losses: LossClaims) -> list[Table]:
    """The table of the contrasts of losses; nothing where there is none."""
    if not losses.contrasts:
        return []
    caption = ngettext(
        "Differences of the test loss ({n} contrast, judged on the log scale). Where runs failed, the difference is of "
        "the trained seeds only, and p is that of the ranks of all runs, failed ones last.",
        "Differences of the test loss ({n} contrasts, one family). Where runs failed, the difference is of the trained "
        "seeds only, and p is that of the ranks of all runs, failed ones last, times the {n} contrasts. The others are "
        "judged together on the log scale, at their share of the level of 5%.",
        len(losses.contrasts),
        n=len(losses.contrasts),
    )
    return [claims_table(caption, ("subject", "against", "change", "percent", "p", "told"), losses.contrasts)]


def arms_table(result: StudyResult) -> Table:
    """Each arm with its size and its loss."""
    rows = []
    for arm in result.arms:
        mean = mean_loss(result, arm)
        seconds = number(sum(run.seconds for run in arm.runs) / max(1, len(arm.runs)), ".0f")
        losses = NONE if mean is None else nats(mean.mean), _interval(mean)
        rows.append(
            (title_with_failures(result, arm), number(arm.num_parameters, ","), big(arm.flops), seconds, *losses)
        )
    columns = (_("arm"), _("parameters"), _("training FLOPs"), _("seconds"), _("test loss"), _("95% interval"))
    caption = ngettext(
        "Means over {n} seed; losses in {unit}, seconds of training for each run.",
        "Means over {n} seeds; losses in {unit}, seconds of training for each run.",
        len(result.seeds),
        n=len(result.seeds),
        unit=_(result.study.unit),
    )
    if names := [arm.arm.title for arm in result.arms if not arm.arm.compared]:
        not_compared = _("Not compared here, because of another task or judged below: {arms}.", arms=", ".join(names))
        caption += f" {not_compared}"
    return Table(caption, columns, rows)


def _interval(mean: Interval | None) -> str:
    if mean is None or mean.low is None or mean.high is None:
        return NONE
    return unbroken(_("{low} to {high}", low=nats(mean.low), high=nats(mean.high)))


def levels(result: StudyResult, lines: NgramBaselines) -> dict[str, float]:
    """N-gram baselines in the study's unit, by name."""
    factor = result.arms[0].factor
    return {baseline_name(order): loss * factor for order, loss in sorted(lines.orders.items())}


def baselines_section(result: StudyResult) -> list[Section]:
    """The n-gram baselines and the bigram entropy."""
    rows = [(name, nats(loss)) for name, loss in levels(result, result.baselines).items()]
    floor = result.baselines.test_bigram_entropy * result.arms[0].factor
    rows.append((_("bigram entropy of the test text"), nats(floor)))
    caption = _("On the test split, in {unit}.", unit=_(result.study.unit))
    table = Table(caption, (_("baseline"), _("loss")), rows)
    return [Heading(_("N-gram baselines")), Paragraph(_(BASELINES)), table]


def tuning_section(result: StudyResult) -> list[Table]:
    """Validation losses of the values that were tried."""
    if not result.tuning:
        return []
    caption = _(
        "Validation loss of each value tried, in nats per token, by its multiple of the arm's own value: geometric "
        "means over the tuning seeds."
    )
    factors = sorted({trial.factor for tuned in result.tuning for trial in tuned.trials})
    columns = (_("arm"), *(f"\N{MULTIPLICATION SIGN}{number(factor, 'g')}" for factor in factors), _("chosen"))
    rows = [(result.arm(one.arm).arm.title, *_tuned(one, factors)) for one in result.tuning]
    return [Table(caption, columns, rows, prose=(len(factors) + 1,))]


def _tuned(tuned: Tuned, factors: Sequence[float]) -> list[str]:
    trials = {trial.factor: trial for trial in tuned.trials}
    losses = [
        NONE if factor not in trials or (loss := trials[factor].loss) is None else nats(loss) for factor in factors
    ]
    values = ", ".join(number(value, ".3g") for value in trials[tuned.chosen].values.values())
    values = _("{values}, by a tie", values=values) if tuned.by_tie else values
    return [*losses, _("{values}, at the edge: untuned", values=values) if tuned.at_edge else values]


def tuning_data(result: StudyResult) -> Table:
    """A row for each value that was tried, as data."""
    rows = [
        {
            "arm": tuned.arm,
            "factor": trial.factor,
            "key": key,
            "value": value,
            "validation_loss": trial.loss,
            "chosen": trial.factor == tuned.chosen,
            "at_edge": tuned.at_edge,
        }
        for tuned in result.tuning
        for trial in tuned.trials
        for key, value in trial.values.items()
    ]
    return data_table("", rows)


def runs_table(result: StudyResult) -> Table:
    """Each run with its losses, for people."""
    columns = (
        Column("arm", N_("arm"), lambda name: result.arm(name).arm.title),
        Column("seed", N_("seed")),
        Column("train_loss", N_("train loss"), decimals(4)),
        Column("validation_loss", N_("validation loss"), decimals(4)),
        Column("test_loss", N_("test loss"), decimals(4)),
        Column("seconds", N_("seconds"), decimals(1)),
        Column("stopped", N_("stopped"), lambda why: as_text(why and _(why)), is_prose=True),
    )
    caption = _(
        "Losses in nats per token. Train: mean over the logged batches between the last two evaluations, with dropout "
        "where there is any. Validation: on the tokens that are measured while training. Test: on the whole test part."
    )
    return Table(caption, columns, runs_data(result).rows)


def runs_data(result: StudyResult) -> Table:
    """One row for each run as data: losses at full precision, None where there is none."""
    rows = [
        {
            "arm": arm.arm.name,
            "seed": run.seed,
            "parameters": arm.num_parameters,
            "steps": arm.config["training"]["steps"],
            "flops": arm.flops,
            "seconds": run.seconds,
            "train_loss": run.train_loss,
            "validation_loss": run.validation_loss,
            "test_loss": run.test_loss,
            "compared_loss": arm.losses.get(run.seed),
            "stopped": run.stopped,
        }
        for arm in result.arms
        for run in arm.runs
    ]
    return data_table("", rows)


def view_tables(view: View) -> list[Table]:
    """The tables of a probe."""
    return [means_table(one) if isinstance(one, Means) else Table(*one) for one in view.tables]


def means(arms: Arms, quantities: Sequence[Quantity]) -> Iterator[tuple[ArmMeasures, Quantity, list[float], Interval]]:
    """Of each quantity and arm that has it the values and their mean with its interval."""
    for quantity, arm in product(quantities, arms):
        if values := [*arm.values(quantity).values()]:
            yield arm, quantity, values, mean_interval(values)


def means_table(spec: Means) -> Table:
    """A row for each arm; a mean over fewer runs than the arm has is followed by their number."""
    used = [quantity for quantity in spec.quantities if any(arm.values(quantity) for arm in spec.arms)]
    rows = tuple((arm.title, *(_mean_cell(arm, one) for one in used)) for arm in spec.arms)
    columns = (spec.rows or _("arm"), *(one.label for one in used))
    return Table(spec.caption or _("Means over seeds."), columns, rows)


def _mean_cell(arm: ArmMeasures, quantity: Quantity) -> str:
    mean, num = quantity.show(arm.mean(quantity)), len(arm.values(quantity))
    return mean if num in (0, len(arm.runs)) else _("{mean} (n = {n})", mean=mean, n=num)
