"""The base beside the n-gram baselines, and the floors of arms that see one token: what counts alone say of losses."""

from collections.abc import Mapping
from statistics import fmean

from vitral.core.language import N_, _
from vitral.core.text import capital, nats, signed
from vitral.evaluation import baseline_name, neighbours, rank_among_baselines
from vitral.studies.claims import Check, Note
from vitral.studies.intervals import Interval, bootstrap_interval, mean_interval
from vitral.studies.resolution import is_causal_lm
from vitral.studies.results import ArmResult, StudyResult

BIGRAM = 2
BELOW_THE_FLOOR = 0.005
"""Nats below the floor that rounding and a last short window can explain."""
ONE_TOKEN = "one-token-floor"
"""The probe that measures what a position can know that sees one token and its place."""
IN_ATTENTION = ("rotary", "alibi", "relative", "none")
"""Positions that a model without attention does not see; others are embedded."""
ONE_WORK = "one-work"
"""The split whose parts come from one work, drawn by the seed where seeds draw the text."""


def mean_loss(arm: ArmResult) -> Interval | None:
    """The arm's mean test loss over its finished seeds, in the study's unit; None where no seed finished."""
    return mean_interval(list(arm.losses.values())) if arm.losses else None


def rank(result: StudyResult) -> Note:
    """The base among the n-gram baselines, with the uncertainty of the seeds and of the test text."""
    base = result.arms[0]
    mean, title = mean_loss(base), capital(base.arm.title)
    if mean is None:
        return Note(_("{arm} finished from no seed, so nothing is compared with it.", arm=title), base.arm.name)
    given = {"arm": title, "loss": nats(mean.mean), "unit": _(result.study.unit)}
    if not is_causal_lm(base.config):
        return Note(_("{arm}: test loss {loss} {unit}, of another task.", **given), base.arm.name)
    loss = mean.mean / base.factor
    place = rank_among_baselines(loss, result.baselines)
    near = [order for order in neighbours(loss, result.baselines.orders) if order and result.beside_ngrams.get(order)]
    beside = {order: _beside(result, order) for order in near}
    equal = [baseline_name(order) for order, intervals in beside.items() if any(map(_contains_zero, intervals))]
    if equal:
        place = _("not distinguishable from the {ngram} baseline", ngram=_(" and ").join(equal))
    told = [_("{arm}: test loss {loss} {unit}, {rank}.", **given, rank=place)]
    told += [_told_beside(result, order, *intervals) for order, intervals in beside.items()]
    return Note(" ".join(told), base.arm.name)


def _contains_zero(interval: Interval | None) -> bool:
    return interval is not None and interval.low is not None and interval.low <= 0 <= (interval.high or 0.0)


def _beside(result: StudyResult, order: int) -> tuple[Interval, Interval | None]:
    """The base minus one n-gram baseline, over seeds and over blocks of the test text.

    Where every seed has a test text of its own, the seeds' interval contains the choice of the text.
    """
    base, by_seed = result.arms[0], result.beside_ngrams[order]
    seeds = mean_interval([fmean(one) * base.factor for one in by_seed.values()])
    if _draws_test_text(result):
        return seeds, None
    return seeds, bootstrap_interval([fmean(one) * base.factor for one in zip(*by_seed.values(), strict=True)])


def _told_beside(result: StudyResult, order: int, seeds: Interval, text: Interval | None) -> str:
    span = ""
    ends = {"least": signed(seeds.low or 0.0, 3), "most": signed(seeds.high or 0.0, 3)}
    if text is not None:
        ends |= {"low": signed(text.low or 0.0, 3), "high": signed(text.high or 0.0, 3), "n": str(text.num)}
        span = N_(" (95% interval over {n} blocks of the test text {low} to {high})")
    if seeds.low is not None:
        span = N_(" (95% interval over seeds, each with its own test text, {least} to {most})")
        if text is not None:
            span = N_(" (95% interval over seeds {least} to {most}, over {n} blocks of the test text {low} to {high})")
    given = {"ngram": baseline_name(order), "difference": signed(seeds.mean, 3), "unit": _(result.study.unit)}
    return _("Against the {ngram} baseline {difference} {unit}{span}.", **given, span=_(span, **ends) if span else "")


def _draws_test_text(result: StudyResult) -> bool:
    """Whether the test text depends on the seed."""
    return result.study.draws_text and result.base["corpus"]["split"] == ONE_WORK


def floors(result: StudyResult) -> tuple[Check, ...]:
    """Arms whose positions see one token, beside the entropy of the next token given what they see.

    The mean loss on a text of any function of the current token, and of its position in the window where positions are
    embedded, is at least that text's own conditional entropy of the next token (Gibbs' inequality).
    """
    return tuple(
        Check(
            subject=arm.arm.title,
            what=_("lowest test loss"),
            value=min(arm.losses.values()),
            low=floor - BELOW_THE_FLOOR,
            expected=_(
                "at least {floor}, {meaning} (mean {mean}, bigram baseline {baseline})",
                floor=nats(floor),
                meaning=meaning,
                mean=nats(fmean(arm.losses.values())),
                baseline=nats(result.baseline(BIGRAM)),
            ),
            unit=result.study.unit,
            arm=arm.arm.name,
        )
        for arm in result.arms
        if arm.losses and _has_the_floor(result, arm)
        for floor, meaning in _floor_of(result, arm)
    )


def _floor_of(result: StudyResult, arm: ArmResult) -> list[tuple[float, str]]:
    """The floor in the study's unit, and what it is; none where the study has not measured it."""
    factor = result.arms[0].factor
    positions = arm.config["model"]["positions"]
    if (positions["name"] if isinstance(positions, Mapping) else positions) in IN_ATTENTION:
        meaning = _("the bigram entropy of the test text, since each position sees one token")
        return [(result.baselines.test_bigram_entropy * factor, meaning)]
    measured = result.measured.get(ONE_TOKEN)
    if not measured:
        return []
    meaning = _(
        "the entropy of the next token given the token and its position in the window, since each position sees no more"
    )
    return [(measured["given_place"] * factor, meaning)]


def _has_the_floor(result: StudyResult, arm: ArmResult) -> bool:
    same_text = arm.config["corpus"] == result.arms[0].config["corpus"]
    return arm.sees_one_token and same_text and is_causal_lm(arm.config)
