"""The tables of a study's page: its arms, its runs, the n-gram baselines."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from vitral.core.language import N_, _, ngettext, number
from vitral.core.text import NONE, big, nats, p_text, signed, unbroken
from vitral.report.sections import Heading, Paragraph, Section, Table
from vitral.report.study_figures import references
from vitral.report.tables import Column, DataTable, as_csv
from vitral.studies.beside_counts import mean_loss
from vitral.studies.claims import Claim
from vitral.studies.intervals import Interval
from vitral.studies.losses import LossClaims, difference_text, last_losses
from vitral.studies.results import RunResult, StudyResult
from vitral.studies.tuning import Tuned

MOST_NAMED = 6
BASELINES = N_(
    "The n-gram baselines are Witten-Bell smoothed counts of the training split, scored on the test split. A model at "
    "the bigram baseline knows which token follows which; one between the trigram and the 4-gram baseline has learned "
    "what two to three preceding tokens predict."
)


def contrasts_section(losses: LossClaims) -> list[Table]:
    """The table of the contrasts of losses; nothing where there is none."""
    if not losses.contrasts:
        return []
    rows = tuple(_contrast(claim) for claim in losses.contrasts)
    columns = (
        _("arm"),
        _("compared with"),
        _("difference (simultaneous 95% CI)"),
        _("in %"),
        _("corrected p"),
        _("verdict"),
    )
    caption = ngettext(
        "Differences of the test loss ({n} contrast, judged on the log scale). Failures are counted and have no "
        "difference; their p is that of Fisher's exact test.",
        "Differences of the test loss ({n} contrasts, one family). Failures are counted and have no difference; their "
        "p is that of Fisher's exact test, times the {n} contrasts. The others are judged together on the log scale, "
        "at their share of the level of 5%.",
        len(losses.contrasts),
        n=len(losses.contrasts),
    )
    return [Table(caption, columns, rows, prose=(1, 5))]


def _contrast(claim: Claim) -> tuple[str, ...]:
    found, names = claim.failures, (claim.comparison.subject, claim.comparison.against)
    if found is not None:
        word = _("fails in {failed} of {n} seeds", failed=found.failed, n=found.seeds)
        return (*names, NONE, NONE, p_text(claim.p), word)
    word = claim.words if not claim.why else _("no verdict: {why}", why=claim.why)
    percent = NONE if claim.percent is None else signed(claim.percent, 1)
    return (*names, difference_text(claim, percent=False), percent, p_text(claim.p), word)


def arms_table(result: StudyResult) -> Table:
    """Each arm with its size and its loss."""
    rows = []
    for arm in result.arms:
        mean = mean_loss(arm)
        rows.append(
            (
                arm.arm.title,
                number(arm.num_parameters, ","),
                big(arm.flops),
                number(sum(run.seconds for run in arm.runs) / max(1, len(arm.runs)), ".0f"),
                NONE if mean is None else nats(mean.mean),
                _interval(mean),
            )
        )
    columns = (_("arm"), _("parameters"), _("training FLOPs"), _("seconds"), _("test loss"), _("95% interval"))
    return Table(_arms_caption(result), columns, tuple(rows))


def _arms_caption(result: StudyResult) -> str:
    caption = ngettext(
        "Means over {n} seed; losses in {unit}, seconds of training for each run.",
        "Means over {n} seeds; losses in {unit}, seconds of training for each run.",
        len(result.seeds),
        n=len(result.seeds),
        unit=_(result.study.unit),
    )
    names = [arm.arm.title for arm in result.arms if not arm.arm.compared]
    if not names:
        return caption
    apart = ", ".join(names) if len(names) <= MOST_NAMED else _("{n} arms", n=len(names))
    return f"{caption} {_('Not compared here, because of another task or judged below: {arms}.', arms=apart)}"


def _interval(mean: Interval | None) -> str:
    if mean is None or mean.low is None or mean.high is None:
        return NONE
    return unbroken(_("{low} to {high}", low=nats(mean.low), high=nats(mean.high)))


def baselines_section(result: StudyResult) -> list[Section]:
    """The n-gram baselines and the bigram entropy."""
    rows = [(reference.label, nats(reference.value)) for reference in references(result, result.baselines)]
    floor = result.baselines.test_bigram_entropy * result.arms[0].factor
    rows.append((_("bigram entropy of the test text"), nats(floor)))
    caption = _("On the test split, in {unit}.", unit=_(result.study.unit))
    return [
        Heading(_("N-gram baselines")),
        Paragraph(_(BASELINES)),
        Table(caption, (_("baseline"), _("loss")), tuple(rows)),
    ]


def tuning_section(result: StudyResult) -> list[Table]:
    """Validation losses of the values that were tried, and longer runs of arms that fail."""
    sections: list[Table] = []
    if result.tuning:
        caption = _("Validation loss of each value tried, in nats per token, by its multiple of the arm's own value.")
        factors = sorted({trial.factor for tuned in result.tuning for trial in tuned.trials})
        columns = (_("arm"), *(f"\N{MULTIPLICATION SIGN}{number(factor, 'g')}" for factor in factors), _("chosen"))
        rows = tuple(_tuned(result, tuned, factors) for tuned in result.tuning)
        sections.append(Table(caption, columns, rows, prose=(len(factors) + 1,)))
    if result.longer:
        sections.append(_longer(result))
    return sections


def _tuned(result: StudyResult, tuned: Tuned, factors: Sequence[float]) -> tuple[str, ...]:
    trials = {trial.factor: trial for trial in tuned.trials}
    losses = [
        NONE if factor not in trials else _("not finite") if (loss := trials[factor].loss) is None else nats(loss)
        for factor in factors
    ]
    values = ", ".join(number(value, ".3g") for value in trials[tuned.chosen].values.values())
    return (
        result.arm(tuned.arm).arm.title,
        *losses,
        _("{values}, at the edge", values=values) if tuned.at_edge else values,
    )


def _longer(result: StudyResult) -> Table:
    """Mean losses of the same seeds and the same test tokens after the usual steps and after more."""
    rows = []
    for name, runs in result.longer.items():
        arm, tried = result.arm(name), {run.seed for run in runs}
        usual, longer = ({**last_losses(one)} for one in (arm.runs, runs))
        usual = {seed: loss for seed, loss in usual.items() if seed in tried}
        # A mean over seeds of which one finished with one budget only would compare different seeds.
        shared = usual.keys() & longer.keys() or usual.keys() | longer.keys()
        found = ([loss * arm.factor for seed, loss in losses.items() if seed in shared] for losses in (usual, longer))
        cells = (nats(fmean(losses)) if losses else _("not finite") for losses in found)
        rows.append((arm.arm.title, str(len(shared) or len(tried)), *cells))
    caption = _(
        "Mean test loss of arms that fail, and of the arms that they are compared with, after the usual steps and "
        "after twice as many, in {unit}, on the part of the test split that is measured while training.",
        unit=_(result.study.unit),
    )
    return Table(caption, (_("arm"), _("seeds"), _("usual steps"), _("twice as many")), tuple(rows))


def tuning_data(result: StudyResult) -> DataTable:
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
    keys = ("arm", "factor", "key", "value", "validation_loss", "chosen", "at_edge")
    return DataTable("", tuple(Column(key, key, is_name=True) for key in keys), rows)


def runs_table(result: StudyResult) -> Table:
    """Each run with its losses."""
    columns = (_("arm"), _("seed"), _("train loss"), _("validation loss"), _("test loss"), _("seconds"), _("stopped"))
    rows = [
        (
            arm.arm.title,
            str(run.seed),
            *map(_loss, _losses(run)),
            number(run.seconds, ".1f"),
            _(run.stopped) if run.stopped else NONE,
        )
        for arm in result.arms
        for run in arm.runs
    ]
    caption = _(
        "Losses in nats per token. Train: mean over the logged batches between the last two evaluations, with dropout "
        "where there is any. Validation: on the tokens that are measured while training. Test: on the whole test part."
    )
    return Table(caption, columns, tuple(rows), prose=(6,))


def _losses(run: RunResult) -> tuple[float | None, float | None, float | None]:
    return run.train_loss, run.validation_loss, run.test_loss


def _loss(value: float | None) -> str:
    return NONE if value is None else number(value, ".4f")


def runs_csv(result: StudyResult) -> str:
    """One line for each run, losses at full precision, empty where there is none."""
    names = ["train_loss", "validation_loss", "test_loss"]
    rows: list[list[Any]] = [
        ["arm", "seed", "parameters", "steps", "flops", "seconds", *names, "compared_loss", "stopped"]
    ]
    for arm in result.arms:
        steps = arm.config["training"]["steps"]
        for run in arm.runs:
            losses = ["" if loss is None else repr(loss) for loss in _losses(run)]
            compared = repr(arm.losses[run.seed]) if run.seed in arm.losses else ""
            size = [arm.num_parameters, steps, arm.flops, f"{run.seconds:.3f}"]
            rows.append([arm.arm.name, run.seed, *size, *losses, compared, run.stopped or ""])
    return as_csv(rows)
