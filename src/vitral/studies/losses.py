"""Claims about the losses of a study: the rank of its base among the n-gram baselines, floors, and every contrast.

The contrasts of losses are one family (`vitral.studies.claims.judge`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from vitral.core.checked import Count, checked
from vitral.core.language import N_, _, ngettext, retold
from vitral.evaluation import rank_among_baselines
from vitral.figures.text import capital, nats, signed, unbroken
from vitral.studies.claims import (
    ENOUGH_SEEDS,
    Check,
    Claim,
    Comparison,
    Interval,
    Judged,
    Note,
    Quantity,
    judge,
    mean_interval,
)
from vitral.studies.probe import is_causal_lm
from vitral.studies.results import ArmResult, StudyResult

BELOW_THE_FLOOR = 0.005
"""Nats below the floor that rounding and a last short window can explain."""
BIGRAM, TRIGRAM = 2, 3
_NGRAMS = {1: N_("unigrams"), 2: N_("bigrams"), 3: N_("trigrams")}


@dataclass(frozen=True)
class LossClaims:
    """Every claim about the losses of a study.

    Attributes:
        rank: the base's loss beside the n-gram baselines.
        floors: of each arm whose positions see one token, its lowest loss beside the bigram entropy of the test text.
        contrasts: each compared arm against its baseline arm, one family.
        notes: runs that stopped, seeds that are too few or were added later.
    """

    rank: Note
    floors: tuple[Check, ...]
    contrasts: tuple[Claim, ...]
    notes: tuple[Note, ...]

    @property
    def all(self) -> tuple[Judged, ...]:
        """In the order of a report."""
        return (self.rank, *self.floors, *self.contrasts, *self.notes)

    def contrast(self, arm: str) -> Claim | None:
        """The contrast of this arm; None for the base and for arms that are not compared."""
        return next((claim for claim in self.contrasts if claim.comparison.arm == arm), None)


@dataclass(frozen=True)
class AgainstCounts:
    """The base's loss beside the n-gram baseline of one order.

    Attributes:
        loss: mean test loss of the base over its finished seeds, in nats per token; None where no seed finished.
        seeds: that finished.
        order: of the n-grams.
        counted: their loss.
        rank: of the base among all n-gram baselines; empty where no seed finished.
        lowest: the step at which the test loss, averaged over the seeds, was lowest.
        last: the last step.
        passes: how often the base saw each training token.
    """

    loss: float | None
    seeds: int
    order: int
    counted: float
    rank: str
    lowest: int
    last: int
    passes: float

    @property
    def beats(self) -> bool:
        """Whether the model predicts better than the counts."""
        return self.loss is not None and self.loss < self.counted

    @property
    def text(self) -> str:
        """One or two sentences; the second says why the counts are not beaten."""
        ngrams = _(_NGRAMS[self.order]) if self.order in _NGRAMS else _("{n}-grams", n=self.order)
        if self.loss is None:
            return _("The model does not beat counting {ngrams}: it finished from no seed.", ngrams=ngrams)
        given = {"ngrams": ngrams, "loss": nats(self.loss), "counted": nats(self.counted), "n": self.seeds}
        if self.beats:
            return ngettext(
                "The model beats counting {ngrams}: its test loss is {loss} nats per token (mean of {n} seed), theirs "
                "{counted}. It is {rank}.",
                "The model beats counting {ngrams}: its test loss is {loss} nats per token (mean of {n} seeds), theirs "
                "{counted}. It is {rank}.",
                self.seeds,
                **given,
                rank=self.rank,
            )
        told = ngettext(
            "The model does not beat counting {ngrams}: its test loss is {loss} nats per token (mean of {n} seed), "
            "theirs {counted}.",
            "The model does not beat counting {ngrams}: its test loss is {loss} nats per token (mean of {n} seeds), "
            "theirs {counted}.",
            self.seeds,
            **given,
        )
        return f"{told} {self._why()}"

    def _why(self) -> str:
        seen = {"last": self.last, "passes": self.passes}
        if self.lowest == self.last:
            return _(
                "Its loss was still falling after {last:,} steps, {passes:.1f} passes over the text: it needs more "
                "steps.",
                **seen,
            )
        return _(
            "Its loss was lowest after step {lowest:,} of {last:,} steps, {passes:.1f} passes over the text: it needs "
            "more text, not more steps.",
            **seen,
            lowest=self.lowest,
        )


@checked(first=True)
def against_counts(result: StudyResult, order: Count) -> AgainstCounts:
    """The base of a study beside the n-gram baseline of this order."""
    base = result.arms[0]
    finished = [run for run in base.runs if run.test_loss is not None]
    mean = fmean(run.test_loss for run in finished if run.test_loss is not None) if finished else None
    curves = [dict(run.curve) for run in finished]
    common = sorted(set.intersection(*map(set, curves))) if curves else []
    training_tokens = result.corpus["split"]["tokens"]["train"]
    return AgainstCounts(
        loss=mean,
        seeds=len(finished),
        order=order,
        counted=result.baselines.orders[order],
        rank="" if mean is None else rank_among_baselines(mean, result.baselines),
        lowest=min(common, key=lambda step: fmean(curve[step] for curve in curves), default=0),
        last=base.config["training"]["steps"],
        passes=base.num_tokens / training_tokens,
    )


@checked(first=True)
def loss_claims(result: StudyResult) -> LossClaims:
    """Judge the losses of a study; its arms have the titles of the current language."""
    result = result.told
    return LossClaims(_rank(result), _floors(result), judge(loss_comparisons(result)), tuple(_notes(result)))


def headline(losses: LossClaims, probes: Sequence[Judged] = ()) -> tuple[Judged, ...]:
    """The claims for a hurried reader.

    The base's rank; the first floor, or else the largest contrast that was shown; the first decided claim of a probe.
    """
    shown = sorted((claim for claim in losses.contrasts if claim.shown), key=lambda claim: -abs(claim.difference))
    decided = [one for one in probes if one.shown is not None]
    return (losses.rank, *(losses.floors or shown)[:1], *decided[:1])


def loss_quantity(result: StudyResult) -> Quantity:
    """The test loss in the study's unit."""
    unit = "nats" if result.study.unit == "nats per token" else result.study.unit
    return Quantity(N_("test loss"), lambda run: None, unit, "lower")


def baseline_arm(result: StudyResult, arm: ArmResult) -> ArmResult:
    """The arm that this one is compared with."""
    return result.arms[0] if arm.arm.against is None else result.arm(arm.arm.against)


def loss_comparisons(result: StudyResult) -> list[Comparison]:
    """Each compared arm against its baseline arm; excluded where the baseline arm has not passed the trigram baseline.

    A baseline arm above the trigram baseline has learned too little for a difference to it to mean anything. An arm
    that sees one token cannot pass that baseline, so its loss is no sign of too few steps.
    """
    quantity = loss_quantity(result)
    pairs = [(arm.arm, arm.losses, baseline_arm(result, arm)) for arm in result.arms[1:] if arm.arm.compared]
    return [
        Comparison(arm.title, base.arm.title, quantity, losses, base.losses, arm.name, too_early(result, base))
        for arm, losses, base in pairs
    ]


def too_early(result: StudyResult, base: ArmResult) -> str:
    """The reason why nothing is compared with this arm: it has not passed the trigram baseline; empty otherwise."""
    if not base.losses or base.sees_one_token or fmean(base.losses.values()) <= result.baseline(TRIGRAM):
        return ""
    return _(
        "the loss of {arm} is not below the trigram baseline ({loss}); train for longer",
        arm=base.arm.title,
        loss=nats(result.baseline(TRIGRAM)),
    )


def mean_loss(arm: ArmResult) -> Interval | None:
    """The arm's mean test loss over its finished seeds, in the study's unit; None where no seed finished."""
    return mean_interval(list(arm.losses.values())) if arm.losses else None


def _rank(result: StudyResult) -> Note:
    base = result.arms[0]
    mean, title = mean_loss(base), capital(base.arm.title)
    if mean is None:
        return Note(_("{arm} finished from no seed, so nothing is compared with it.", arm=title), base.arm.name)
    given = {"arm": title, "loss": nats(mean.mean), "unit": _(result.study.unit)}
    if not is_causal_lm(base.config):
        return Note(_("{arm}: test loss {loss} {unit}, of another task.", **given), base.arm.name)
    rank = rank_among_baselines(mean.mean / base.factor, result.baselines)
    return Note(_("{arm}: test loss {loss} {unit}, {rank}.", **given, rank=rank), base.arm.name)


def _floors(result: StudyResult) -> tuple[Check, ...]:
    """Arms whose positions see one token, beside the bigram entropy of the test text.

    The mean loss on a text of any function of the current token is at least that text's own conditional entropy of the
    next token given the current one (Gibbs' inequality).
    """
    floor = result.baselines.test_bigram_entropy * result.arms[0].factor
    return tuple(
        Check(
            subject=arm.arm.title,
            what=_("lowest test loss"),
            value=min(arm.losses.values()),
            low=floor - BELOW_THE_FLOOR,
            expected=_(
                "at least {floor}, the bigram entropy of the test text, since each position sees one token "
                "(mean {mean}, bigram baseline {baseline})",
                floor=nats(floor),
                mean=nats(fmean(arm.losses.values())),
                baseline=nats(result.baseline(BIGRAM)),
            ),
            unit=result.study.unit,
            arm=arm.arm.name,
        )
        for arm in result.arms
        if arm.losses and _has_the_floor(result, arm)
    )


def _has_the_floor(result: StudyResult, arm: ArmResult) -> bool:
    same_text = arm.config["corpus"] == result.arms[0].config["corpus"]
    return arm.sees_one_token and same_text and is_causal_lm(arm.config)


def _notes(result: StudyResult) -> list[Note]:
    notes = []
    for arm in result.arms:
        stopped = [run for run in arm.runs if run.stopped]
        if stopped:
            seeds = ", ".join(str(run.seed) for run in stopped)
            title, why = capital(arm.arm.title), retold(stopped[0].stopped or "")
            text = _("{arm} did not finish from seed {seeds}: {why}.", arm=title, seeds=seeds, why=why)
            notes.append(Note(text, arm.arm.name))
    if len(result.seeds) < ENOUGH_SEEDS:
        notes.append(Note(_("{n} of the {least} seeds that a verdict needs.", n=len(result.seeds), least=ENOUGH_SEEDS)))
    added = [str(seed) for seed in result.seeds if seed not in result.first_seeds]
    if added:
        text = _(
            "Seed {seeds} was added to a study that already had results. Intervals and p values ignore that choice; if "
            "it was made because of the results, they are too narrow and too small.",
            seeds=", ".join(added),
        )
        notes.append(Note(text))
    return notes


def difference_text(claim: Claim | None, *, percent: bool = True) -> str:
    """A contrast in a table: `+0.770 (+0.751 to +0.789), +43.7%`; a dash where there is none."""
    if claim is None or not claim.seeds:
        return "\N{EN DASH}"
    digits = claim.comparison.quantity.digits
    span = f" ({unbroken(claim.span)})" if claim.span else ""
    share = f", {signed(claim.percent, 1)}%" if percent and claim.percent is not None else ""
    return f"{signed(claim.difference, digits)}{span}{share}"
