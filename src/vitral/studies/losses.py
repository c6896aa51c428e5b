"""Claims about the losses of a study: the rank of its base among the n-gram baselines, floors, and every contrast.

The contrasts of losses are one family (`vitral.studies.judging.judge_losses`). A run fails when its loss is not finite,
or not below the bigram baseline although the model sees more than one token. Competence is asked of the base only:
where it fails, nothing is compared. A failure of any other arm is a result.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from vitral.core.language import N_, _, ngettext, number
from vitral.core.text import capital, nats, signed, unbroken
from vitral.evaluation import rank_among_baselines
from vitral.studies.beside_counts import BIGRAM, floors, rank
from vitral.studies.claims import ENOUGH_SEEDS, Check, Claim, Comparison, Failures, Judged, Note, Quantity
from vitral.studies.design import LONGER_STEPS
from vitral.studies.judging import judge_losses
from vitral.studies.resolution import is_causal_lm
from vitral.studies.results import ArmResult, RunResult, StudyResult

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


def against_counts(result: StudyResult, order: int) -> AgainstCounts:
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


def loss_claims(result: StudyResult) -> LossClaims:
    """Judge the losses of a study; its arms have the titles of the current language."""
    result = result.told
    contrasts = judge_losses(loss_comparisons(result), margin=result.study.margin, failures=_failures(result))
    return LossClaims(rank(result), floors(result), contrasts, tuple(_notes(result, contrasts)))


def headline(losses: LossClaims, probes: Sequence[Judged] = ()) -> tuple[Judged, ...]:
    """The claims for a hurried reader.

    The base's rank; every arm that fails from every seed, unless its baseline arm does too; the first floor, or else
    the largest contrast that was shown, an arm that fails before all others; of the probes the decided comparison of
    least p value, or else the first decided check.
    """
    dead = [claim for claim in losses.contrasts if claim.failures is not None and claim.failures.alone]
    shown = sorted((claim for claim in losses.contrasts if claim.shown and claim not in dead), key=_size)
    compared = sorted((one for one in probes if isinstance(one, Claim) and one.shown), key=lambda one: one.p or 0.0)
    decided = compared or [one for one in probes if one.shown is not None and not isinstance(one, Claim)]
    return (losses.rank, *dead, *(losses.floors or shown)[:1], *decided[:1])


def _size(claim: Claim) -> tuple[bool, float]:
    """For an order by size: failures first, then large differences."""
    return claim.failures is None, -abs(claim.difference) if math.isfinite(claim.difference) else 0.0


def loss_quantity(result: StudyResult) -> Quantity:
    """The test loss in the study's unit."""
    unit = "nats" if result.study.unit == "nats per token" else result.study.unit
    return Quantity(N_("test loss"), unit=unit, better="lower")


def baseline_arm(result: StudyResult, arm: ArmResult) -> ArmResult:
    """The arm that this one is compared with."""
    return result.arms[0] if arm.arm.against is None else result.arm(arm.arm.against)


def loss_comparisons(result: StudyResult) -> list[Comparison]:
    """Each compared arm against its baseline arm; excluded where the base or the baseline arm fails."""
    quantity, base_fails = loss_quantity(result), too_early(result, result.arms[0])
    return [
        Comparison(
            arm.arm.title,
            rival.arm.title,
            quantity,
            arm.losses,
            rival.losses,
            arm.arm.name,
            base_fails or too_early(result, rival),
            rival=rival.arm.name,
        )
        for arm in result.arms[1:]
        if arm.arm.compared and arm.arm.contrast
        for rival in (baseline_arm(result, arm),)
    ]


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


def bigram_baseline(result: StudyResult, seed: int) -> float:
    """The bigram baseline of a seed's own text, in the study's unit.

    Where seeds draw the text it is the base's loss from this seed minus their difference. Where that was not measured,
    since the text is too short or too long or the base did not finish, it is the mean over the seeds.
    """
    base, blocks = result.arms[0], result.beside_ngrams.get(BIGRAM, {}).get(seed)
    if not result.study.draws_text or not blocks or seed not in base.losses:
        return result.baseline(BIGRAM)
    return base.losses[seed] - fmean(blocks) * base.factor


def _failures(result: StudyResult) -> dict[str, Failures]:
    """By arm, of the arms that fail from some seed."""
    found = {}
    for arm in result.arms[1:]:
        rival = baseline_arm(result, arm)
        failed, others = failed_seeds(result, arm), failed_seeds(result, rival)
        if failed:
            found[arm.arm.name] = Failures(len(failed), len(arm.runs), len(others), len(rival.runs))
    return found


def too_early(result: StudyResult, base: ArmResult) -> str:
    """The reason why nothing is compared with this arm: it fails; empty where it does not."""
    failed = failed_seeds(result, base)
    if not failed:
        return ""
    runs = [run for run in base.runs if run.seed in failed]
    told = [*_not_below(result, base, runs), *(_stopped(run) for run in runs if run.stopped is not None)]
    given = {"arm": base.arm.title, "failed": len(failed), "n": len(base.runs), "losses": "; ".join(told)}
    if any(run.stopped is None for run in runs):
        return _("{arm} fails in {failed} of {n} seeds ({losses}); train for longer", **given)
    return _("{arm} fails in {failed} of {n} seeds ({losses})", **given)


def _stopped(run: RunResult) -> str:
    return _("seed {seed}: {why}", seed=run.seed, why=_(run.stopped or ""))


def _not_below(result: StudyResult, arm: ArmResult, runs: Sequence[RunResult]) -> list[str]:
    """The losses that are not below a bigram baseline, by baseline; there is one, unless seeds draw the text."""
    by_line: dict[str, list[str]] = {}
    for run in runs:
        if run.stopped is None:
            told = _("{loss} from seed {seed}", loss=nats(arm.losses[run.seed]), seed=run.seed)
            by_line.setdefault(nats(bigram_baseline(result, run.seed)), []).append(told)
    return [
        _("not below the bigram baseline of {bigram}: {losses}", bigram=line, losses=", ".join(losses))
        for line, losses in by_line.items()
    ]


def _notes(result: StudyResult, contrasts: Sequence[Claim]) -> list[Note]:
    notes = []
    seen = [claim.detectable for claim in contrasts if claim.detectable is not None]
    if seen:
        notes.append(Note(_seen(seen)))
    notes += [
        Note(_closing(result, claim), claim.comparison.arm)
        for claim in contrasts
        if claim.failures is not None and {claim.comparison.arm, claim.comparison.rival} <= result.longer.keys()
    ]
    for arm in result.arms:
        stopped = [run for run in arm.runs if run.stopped]
        if stopped:
            seeds = ", ".join(str(run.seed) for run in stopped)
            title, why = capital(arm.arm.title), _(stopped[0].stopped or "")
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


def last_losses(runs: Sequence[RunResult]) -> dict[int, float]:
    """By seed, the last test loss measured while training, in nats per token."""
    return {run.seed: run.curve[-1][1] for run in runs if run.curve and run.stopped is None}


def _closing(result: StudyResult, claim: Claim) -> str:
    """Whether the gap between an arm that fails and its baseline arm closes with a second budget."""
    arm, rival = result.arm(claim.comparison.arm), result.arm(claim.comparison.rival)
    usual, longer = (
        [last_losses(runs) for runs in both]
        for both in ((arm.runs, rival.runs), [result.longer[one.arm.name] for one in (arm, rival)])
    )
    steps = arm.config["training"]["steps"]
    given = {"rival": rival.arm.title, "steps": steps, "more": steps * LONGER_STEPS}
    for one, finished in zip((arm, rival), longer, strict=True):
        if not finished:
            return _("{arm} finishes from no seed after {more:,} steps.", arm=capital(one.arm.title), **given)
    given["arm"] = capital(arm.arm.title)
    ended = set.intersection(*map(set, longer))
    seeds = ended.intersection(*usual)
    if not ended:
        return _(
            "{arm} against {rival}: no seed finishes in both, neither after {steps:,} nor after {more:,} steps.",
            **given,
        )
    gap = lambda one, other: signed(fmean(one[seed] - other[seed] for seed in sorted(seeds or ended)), 3)  # noqa: E731
    if not seeds:
        return ngettext(
            "{arm} against {rival}: no seed finishes in both after {steps:,} steps; after {more:,} steps the gap is "
            "{gap} nats per token ({n} seed).",
            "{arm} against {rival}: no seed finishes in both after {steps:,} steps; after {more:,} steps the gap is "
            "{gap} nats per token ({n} seeds).",
            len(ended),
            **given,
            gap=gap(*longer),
            n=len(ended),
        )
    return ngettext(
        "{arm} against {rival}: the gap is {before} nats per token after {steps:,} steps and {after} after {more:,} "
        "steps ({n} seed).",
        "{arm} against {rival}: the gap is {before} nats per token after {steps:,} steps and {after} after {more:,} "
        "steps ({n} seeds).",
        len(seeds),
        **given,
        before=gap(*usual),
        after=gap(*longer),
        n=len(seeds),
    )


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


def difference_text(claim: Claim | None, *, percent: bool = True) -> str:
    """A contrast in a table: `+0.770 (+0.751 to +0.789), +43.7%`; a dash where there is none."""
    if claim is None or not math.isfinite(claim.difference):
        return "\N{EN DASH}"
    digits = claim.comparison.quantity.digits
    span = f" ({unbroken(claim.span)})" if claim.span else ""
    share = f", {signed(claim.percent, 1)}%" if percent and claim.percent is not None else ""
    return f"{signed(claim.difference, digits)}{span}{share}"
