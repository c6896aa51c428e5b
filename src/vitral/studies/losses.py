"""Claims about the losses of a study: the rank of its base among the n-gram baselines, floors, and every contrast.

The contrasts of losses are one family (`vitral.studies.judging.judge_losses`). A run fails when its loss is not finite,
or not below the bigram baseline although the model sees more than one token; no mean contains it. Competence is asked
of the base only: where it fails, nothing is compared. A failure of any other arm is a result.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from vitral.core.language import N_, _, number
from vitral.core.text import capital, nats, signed, unbroken
from vitral.evaluation import baseline_name, neighbours, rank_among_baselines
from vitral.evaluation.intervals import Interval, bootstrap_interval, mean_interval
from vitral.runs.objectives import loss_unit
from vitral.studies.claims import Check, Claim, Comparison, Failures, Judged, Note, Quantity, every
from vitral.studies.estimator import LEAST_SEEDS
from vitral.studies.judging import judge_losses
from vitral.studies.resolution import is_causal_lm
from vitral.studies.results import ArmResult, StudyResult, trial_error

BIGRAM = 2
BELOW_THE_FLOOR = 0.005
"""Nats below the floor that rounding and a last short window can explain."""
ONE_TOKEN = "one-token-floor"
"""The probe that measures what a position can know that sees one token and its place."""
IN_ATTENTION = ("rotary", "alibi", "relative", "none")
"""Positions that a model without attention does not see; others are embedded."""
CHOICE = 0.3
"""See `choice_variance`."""
ONE_WORK = "one-work"
"""The split whose parts come from one work, drawn by the seed where seeds draw the text."""


class LossClaims(NamedTuple):
    """Every claim about the losses of a study.

    Attributes:
        rank: the base's loss beside the n-gram baselines.
        floors: of each arm whose positions see one token, its lowest loss beside the bigram entropy of the test text.
        contrasts: each compared arm against its baseline arm, one family.
        notes: runs that stopped, seeds that are too few or were added later.
        untuned: that no arm was tuned; empty where arms were.
    """

    rank: Note
    floors: tuple[Check, ...]
    contrasts: tuple[Claim, ...]
    notes: tuple[Note, ...]
    untuned: tuple[Note, ...] = ()

    @property
    def all(self) -> tuple[Judged, ...]:
        """In the order of a report."""
        return (self.rank, *self.floors, *self.contrasts, *self.untuned, *self.notes)


def loss_claims(result: StudyResult) -> LossClaims:
    """Judge the losses of a study; its arms have the titles of the current language."""
    result = result.translated
    contrasts = judge_losses(loss_comparisons(result), margin=result.study.margin)
    untuned = (Note(_("No arm is tuned.")),) if contrasts and not result.tuning else ()
    return LossClaims(rank(result), floors(result), contrasts, tuple(_notes(result, contrasts)), untuned)


def headline(losses: LossClaims, probes: Sequence[Judged] = ()) -> tuple[Judged, ...]:
    """The claims for a hurried reader.

    The base's rank; every arm that fails from every seed, unless its baseline arm does too; the first floor, or else
    the largest contrast that was shown, an arm that fails before all others; that no arm is tuned; of the probes the
    decided comparison of least p value, or else the first decided check.
    """
    dead = [claim for claim in losses.contrasts if claim.failures is not None and claim.failures.alone]
    shown = sorted((claim for claim in losses.contrasts if claim.shown and claim not in dead), key=_size)
    compared = sorted((one for one in probes if isinstance(one, Claim) and one.shown), key=lambda one: one.p or 0.0)
    decided = compared or [one for one in probes if one.shown is not None and not isinstance(one, Claim)]
    return (losses.rank, *dead, *(losses.floors or shown)[:1], *losses.untuned, *decided[:1])


def _size(claim: Claim) -> tuple[bool, float]:
    """For an order by size: failures first, then large differences."""
    return claim.verdict != "fails", -abs(claim.difference) if math.isfinite(claim.difference) else 0.0


def loss_quantity(result: StudyResult) -> Quantity:
    """The test loss in the study's unit; probes may put it into a run's data."""
    unit = result.study.unit.replace("nats per token", "nats")
    return Quantity(N_("test loss"), "loss", unit, "lower")


def baseline_arm(result: StudyResult, arm: ArmResult) -> ArmResult:
    """The arm that this one is compared with."""
    return result.arms[0] if arm.arm.against is None else result.arm(arm.arm.against)


def loss_comparisons(result: StudyResult) -> list[Comparison]:
    """Each compared arm against its baseline arm; excluded where the base fails."""
    quantity, base_fails = loss_quantity(result), too_early(result, result.arms[0])
    comparisons = []
    for arm in result.arms[1:]:
        if not (arm.arm.compared and arm.arm.contrast):
            continue
        rival = baseline_arm(result, arm)
        failed, others = failed_seeds(result, arm), failed_seeds(result, rival)
        one = Comparison(
            arm.arm.title,
            rival.arm.title,
            quantity,
            trained_losses(result, arm),
            trained_losses(result, rival),
            arm.arm.name,
            base_fails,
            rival=rival.arm.name,
            failures=Failures(len(failed), len(arm.runs), len(others), len(rival.runs)) if failed or others else None,
            choice=choice_variance(result, arm, rival),
            untuned={each.arm.title: why for each in (arm, rival) if (why := untuned(result, each))},
        )
        comparisons.append(one)
    return comparisons


def untuned(result: StudyResult, arm: ArmResult) -> str:
    """The reason why an arm is untuned in a study that tunes; empty where it is tuned."""
    tuned = next((one for one in result.tuning if one.arm == arm.arm.name), None)
    if tuned is None:
        return _("no value was tried") if result.tuning else ""
    why = N_("the base's value, by a tie") if tuned.by_tie else N_("a better value may lie beyond those tried")
    return _(why) if tuned.at_edge else ""


def choice_variance(result: StudyResult, arm: ArmResult, rival: ArmResult) -> float:
    """The variance that the choice of tuned values adds to that of the log ratio of two arms' losses.

    It is zero where both arms run with the same values, since a worse one is then worse for both. Else it is `CHOICE`
    times s², the squared standard error of the difference of two trials (`results.trial_error`). A choice between two
    values that truly differ by g takes the worse one with probability Φ(-g / s), which gives its loss a variance of
    g² Φ(-g / s) Φ(g / s), at most 0.15 s²; and both arms choose.
    """
    keys = {key for one in result.tuning if one.arm in (arm.arm.name, rival.arm.name) for key in one.trials[0].values}
    own, other = ([every(one.config, key.replace(".", "/")) for key in sorted(keys)] for one in (arm, rival))
    return 0.0 if own == other else CHOICE * trial_error(trial for one in result.tuning for trial in one.trials) ** 2


def trained_losses(result: StudyResult, arm: ArmResult) -> dict[int, float]:
    """The arm's losses by seed, without those of runs that fail."""
    failed = failed_seeds(result, arm)
    return {seed: loss for seed, loss in arm.losses.items() if seed not in failed}


def failed_seeds(result: StudyResult, arm: ArmResult) -> tuple[int, ...]:
    """Seeds from which the arm fails: the loss is not finite, or not below the bigram baseline.

    An arm that sees one token cannot be below the bigram baseline, and a loss of another task is not compared with it.
    """
    comparable = arm.arm.compared and not arm.sees_one_token and is_causal_lm(arm.config)
    return tuple(
        run.seed
        for run in arm.runs
        if run.stopped is not None
        or (comparable and run.seed in arm.losses and arm.losses[run.seed] >= bigram_baseline(result, run.seed))
    )


def title_with_failures(result: StudyResult, arm: ArmResult) -> str:
    """The arm's title, with the number of seeds that trained where some failed."""
    failed, n = len(failed_seeds(result, arm)), len(arm.runs)
    if not failed:
        return arm.arm.title
    text = N_("{arm} (trained seeds only, {k} of {n})") if failed < n else N_("{arm} (fails)")
    return _(text, arm=arm.arm.title, k=n - failed, n=n)


def bigram_baseline(result: StudyResult, seed: int) -> float:
    """The bigram baseline of a seed's own text, in the study's unit.

    Where seeds draw the text it is the base's loss from this seed minus their difference. Where that was not measured,
    since the text is too short or too long or the base did not finish, it is the mean over the seeds.
    """
    base, blocks = result.arms[0], result.beside_ngrams.get(BIGRAM, {}).get(seed)
    if not result.study.draws_text or not blocks or seed not in base.losses:
        return result.baseline(BIGRAM)
    return base.losses[seed] - fmean(blocks) * base.factor


def too_early(result: StudyResult, base: ArmResult) -> str:
    """The reason why nothing is compared with this arm: it fails; empty where it does not."""
    failed = failed_seeds(result, base)
    if not failed:
        return ""
    runs = [run for run in base.runs if run.seed in failed]
    losses = []
    for run in runs:
        if run.stopped is not None:
            losses.append(_("seed {seed}: {why}", seed=run.seed, why=_(run.stopped)))
            continue
        line = nats(bigram_baseline(result, run.seed))
        text = N_("{loss} from seed {seed}, bigram baseline {bigram}")
        losses.append(_(text, loss=nats(base.losses[run.seed]), seed=run.seed, bigram=line))
    given = {"arm": base.arm.title, "failed": len(failed), "n": len(base.runs), "losses": "; ".join(losses)}
    if any(run.stopped is None for run in runs):
        return _("{arm} fails in {failed} of {n} seeds ({losses}); train for longer", **given)
    return _("{arm} fails in {failed} of {n} seeds ({losses})", **given)


def _notes(result: StudyResult, contrasts: Sequence[Claim]) -> list[Note]:
    notes = []
    seen = [claim.detectable for claim in contrasts if claim.detectable is not None]
    if seen:
        notes.append(Note(_seen(seen)))
    for arm in result.arms:
        stopped = [run for run in arm.runs if run.stopped]
        if stopped:
            seeds = ", ".join(str(run.seed) for run in stopped)
            title, why = capital(arm.arm.title), _(stopped[0].stopped or "")
            text = _("{arm} did not finish from seed {seeds}: {why}.", arm=title, seeds=seeds, why=why)
            notes.append(Note(text, arm.arm.name))
    if len(result.seeds) < LEAST_SEEDS:
        notes.append(Note(_("{n} of the {least} seeds that a verdict needs.", n=len(result.seeds), least=LEAST_SEEDS)))
    added = [str(seed) for seed in result.seeds if seed not in result.first_seeds]
    if added:
        text = _(
            "Seeds added to a study that already had results: {seeds}. Intervals and p values ignore that choice; if "
            "it was made because of the results, they are too narrow and too small.",
            seeds=", ".join(added),
        )
        notes.append(Note(text))
    return notes


def _seen(detectable: Sequence[float]) -> str:
    """The smallest difference that the design could have seen."""
    least, most = (number(100 * end, ".2g") for end in (min(detectable), max(detectable)))
    if least == most:
        return _("A true difference of {least}% would have been found with a probability of 0.7 to 0.8.", least=least)
    return _(
        "A true difference of {least}% to {most}%, depending on the contrast, would have been found with a probability "
        "of 0.7 to 0.8.",
        least=least,
        most=most,
    )


def difference_text(claim: Claim) -> str:
    """A comparison in a table: `+0.770 (+0.751 to +0.789)`; a dash where there is none."""
    if not math.isfinite(claim.difference):
        return "\N{EN DASH}"
    span = f" ({unbroken(claim.span)})" if claim.span else ""
    return f"{signed(claim.difference, claim.comparison.quantity.digits)}{span}"


# ---------------------------------------------------------------- beside counts


def mean_loss(result: StudyResult, arm: ArmResult) -> Interval | None:
    """The arm's mean test loss over the seeds from which it does not fail, in the study's unit; None without one."""
    losses = trained_losses(result, arm)
    return mean_interval([*losses.values()]) if losses else None


def rank(result: StudyResult) -> Note:
    """The base among the n-gram baselines, with the uncertainty of the seeds and of the test text."""
    base = result.arms[0]
    if (mean := mean_loss(result, base)) is None:
        return Note(
            _("{arm} fails from every seed, so nothing is compared with it.", arm=capital(base.arm.title)),
            base.arm.name,
        )
    given = {
        "arm": capital(title_with_failures(result, base)),
        "loss": nats(mean.mean),
        "unit": _(result.study.unit).replace(
            _("nats per token"), loss_unit(base.config["training"].get("objective", ""))
        ),
    }
    if not is_causal_lm(base.config):
        return Note(_("{arm}: test loss {loss} {unit}, of another task.", **given), base.arm.name)
    orders = {order: result.baseline(order) for order in result.baselines.orders}
    problems = result.corpus.get("problems", ())
    standing = rank_among_baselines(mean.mean, orders, problems)
    beside = {} if problems else result.beside_ngrams
    beside = {order: _beside(result, order) for order in neighbours(mean.mean, orders) if order and beside.get(order)}
    zero = lambda one: one and one.low is not None and one.low <= 0 <= one.high  # noqa: E731
    equal = [baseline_name(order) for order, intervals in beside.items() if any(map(zero, intervals))]
    if equal:
        standing = _("not distinguishable from the {ngram} table", ngram=_(" and ").join(equal))
    differences = (_difference_sentence(result, order, *intervals) for order, intervals in beside.items())
    return Note(
        " ".join([_("{arm}: test loss {loss} {unit}, {rank}.", **given, rank=standing), *differences]), base.arm.name
    )


def _beside(result: StudyResult, order: int) -> tuple[Interval, Interval | None]:
    """The base minus one n-gram baseline, over seeds and over blocks of the test text.

    Where every seed has a test text of its own, the seeds' interval contains the choice of the text.
    """
    base = result.arms[0]
    failed = failed_seeds(result, base)
    by_seed = {seed: blocks for seed, blocks in result.beside_ngrams[order].items() if seed not in failed}
    seeds = mean_interval([fmean(one) * base.factor for one in by_seed.values()])
    if result.study.draws_text and result.base["corpus"]["split"] == ONE_WORK:
        return seeds, None
    return seeds, bootstrap_interval([fmean(one) * base.factor for one in zip(*by_seed.values(), strict=True)])


def _difference_sentence(result: StudyResult, order: int, seeds: Interval, text: Interval | None) -> str:
    spans = []
    if seeds.low is not None and seeds.high is not None:
        over = N_("over seeds {low} to {high}")
        if text is None:
            over = N_("over seeds, each with its own test text, {low} to {high}")
        spans.append(_(over, low=signed(seeds.low, 3), high=signed(seeds.high, 3)))
    if text is not None:
        over = N_("over {n} blocks of the test text {low} to {high}")
        spans.append(_(over, n=text.num, low=signed(text.low or 0.0, 3), high=signed(text.high or 0.0, 3)))
    return _(
        "Against the {ngram} baseline {difference} {unit}{span}.",
        ngram=baseline_name(order),
        difference=signed(seeds.mean, 3),
        unit=_(result.study.unit),
        span=_(" (95% interval {spans})", spans=", ".join(spans)) if spans else "",
    )


def floors(result: StudyResult) -> tuple[Check, ...]:
    """Arms whose positions see one token, beside the entropy of the next token given what they see.

    The mean loss on a text of any function of the current token, and of its position in the window where positions are
    embedded, is at least that text's own conditional entropy of the next token (Gibbs' inequality).
    """
    base, measured, checks = result.arms[0], result.measured.get(ONE_TOKEN), list[Check]()
    for arm in result.arms:
        same_text = arm.config["corpus"] == base.config["corpus"]
        if not (arm.losses and arm.sees_one_token and same_text and is_causal_lm(arm.config)):
            continue
        positions = arm.config["model"]["positions"]
        if (positions["name"] if isinstance(positions, Mapping) else positions) in IN_ATTENTION:
            floor = result.baselines.test_bigram_entropy * base.factor
            meaning = _("the bigram entropy of the test text, since each position sees one token")
        elif measured:
            floor = measured["given_place"] * base.factor
            meaning = _(
                "the entropy of the next token given the token and its position in the window, since each position "
                "sees no more"
            )
        else:
            continue
        expected = _(
            "at least {floor}, {meaning} (mean {mean}, bigram baseline {baseline})",
            floor=nats(floor),
            meaning=meaning,
            mean=nats(fmean(arm.losses.values())),
            baseline=nats(result.baseline(BIGRAM)),
        )
        checks.append(
            Check(
                title_with_failures(result, arm),
                _("lowest test loss"),
                min(arm.losses.values()),
                floor - BELOW_THE_FLOOR,
                None,
                expected,
                result.study.unit,
                arm=arm.arm.name,
            )
        )
    return tuple(checks)
