"""The claims about a study's losses follow from the numbers: other numbers, other claims."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from vitral.evaluation import neighbours, rank_among_baselines
from vitral.studies import StudyResult, loss_claims
from vitral.studies.claims import Check, Claim
from vitral.studies.judging import judge_losses
from vitral.studies.losses import CHOICE, failed_seeds, headline, loss_comparisons, mean_loss
from vitral.studies.results import Trial, Tuned, trial_error

FULL = [1.76, 1.77, 1.75]
WITHOUT = [2.531, 2.528, 2.533]
LINEAR = [1.93, 1.95, 1.92]
SIX = [1.76, 1.77, 1.75, 1.765, 1.755, 1.77]
NEAR = [1.80, 1.82, 1.79, 1.80, 1.79, 1.82]
RATE = "training.optimizer.learning_rate"


def contrast(result: StudyResult, arm: str = "no-attention") -> Claim:
    """The contrast of this arm."""
    (claim,) = (one for one in loss_claims(result).contrasts if one.comparison.arm == arm)
    return claim


def with_floor(result: StudyResult, given_place: float = 2.513) -> StudyResult:
    """The result with a measured floor: its models have learned positions."""
    return replace(result, measured={"one-token-floor": {"given_token": 2.6, "given_place": given_place}})


def floor(result: StudyResult) -> Check:
    """The one floor."""
    (check,) = loss_claims(with_floor(result)).floors
    return check


def test_an_arm_far_above_its_base_is_worse_and_stands_on_its_floor(made) -> None:
    result = made({"full": FULL, "no-attention": WITHOUT, "no-feed-forward": LINEAR})
    claims = loss_claims(with_floor(result))
    assert [(check.arm, check.value, check.shown) for check in claims.floors] == [("no-attention", 2.528, True)]
    claim = contrast(result)
    assert (claim.verdict, claim.family, claim.seeds) == ("worse", 2, 3)
    assert claim.difference == pytest.approx(2.53067 - 1.76, abs=1e-4)
    assert headline(claims) == (claims.rank, *claims.floors, *claims.untuned)


def test_the_floor_of_embedded_positions_is_given_the_place_too(made) -> None:
    """A loss between both entropies contradicts theory only where the place in the window is not seen."""
    result = made({"full": FULL, "no-attention": [2.45, 2.46, 2.47]})
    (below,) = loss_claims(with_floor(result, 2.4375)).floors
    assert (below.low, below.shown) == (pytest.approx(2.4375 - 0.005), True)
    assert loss_claims(result).floors == ()  # not measured
    *others, last = result.arms
    bare = {**last.config, "model": {**last.config["model"], "positions": "none"}}
    (token,) = loss_claims(replace(result, arms=(*others, replace(last, config=bare)))).floors
    assert (token.low, token.shown) == (pytest.approx(result.baselines.test_bigram_entropy - 0.005), False)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [([2.53, 2.53, 2.49], False), ([2.510, 2.511, 2.512], True), ([2.70, 2.71, 2.72], True)],
    ids=["below the floor", "rounding below it", "above it"],
)
def test_a_loss_below_the_bigram_entropy_contradicts_theory(made, losses: list[float], expected: bool) -> None:
    assert floor(made({"full": FULL, "no-attention": losses})).shown is expected


def test_nothing_is_judged_against_a_base_that_fails(made) -> None:
    claim = contrast(made({"full": [2.5, 2.51, 2.53], "no-feed-forward": [1.9, 1.91, 1.92]}), "no-feed-forward")
    assert (claim.p, claim.verdict) == (None, "undecided")
    assert "2.520" in claim.why


@pytest.mark.parametrize("dead", [[3.26, 3.27, 3.25, 3.26, 3.28, 3.26], [None] * 6, [2.53, 3, None, None, 4, 2.521]])
def test_an_arm_that_fails_from_every_seed_is_said_to_fail(made, dead: list[float | None]) -> None:
    """Every run of the one above every run of the other: p = 2 / C(12, 6), times the two comparisons of the family."""
    result = made({"full": SIX, "no-feed-forward": dead, "no-attention-matched": NEAR})
    failing, other = contrast(result, "no-feed-forward"), contrast(result, "no-attention-matched")
    assert (failing.verdict, failing.shown, "6 of 6" in failing.text) == ("fails", True, True)
    assert failing.p == pytest.approx(2 * 2 / 924)
    assert (other.verdict, other.family) == ("worse", 2)


@pytest.mark.parametrize("dead", [2.6, None])
def test_a_harm_that_every_seed_shows_is_seen_where_one_run_failed(made, dead: float | None) -> None:
    """Nine contrasts, six seeds: by Fisher's exact test of 1 in 6 p is 1. No mean contains the dead run."""
    arm = [1.80, 1.82, dead, 1.80, 1.79, 1.82]
    result = made({"full": SIX, "no-feed-forward": arm, "no-attention": WITHOUT * 2})
    one = next(one for one in loss_comparisons(result) if one.arm == "no-feed-forward")
    claim = judge_losses([one] * 9, margin=0.01)[0]
    assert (claim.verdict, claim.seeds, claim.shown) == ("fails", 5, True)
    assert claim.p == pytest.approx(9 * 2 / 924)
    assert claim.difference == pytest.approx(0.042, abs=1e-3)  # 1.806 less 1.764, over five seeds
    assert "5 of 6" in claim.text
    assert getattr(mean_loss(result, result.arm("no-feed-forward")), "num", 0) == 5
    # The arm that is compared with it is better in each seed, although it fails in none.
    against = rearranged(result, "no-attention", against="no-feed-forward")
    low = replace(against.arm("no-attention"), runs=made({"full": [1.7] * 5 + [1.69]}).arms[0].runs)
    other = contrast(replace(against, arms=(result.arms[0], low, result.arm("no-feed-forward"))))
    assert (other.verdict, other.seeds, other.p) == ("better", 5, pytest.approx(2 * 2 / 924))


def test_a_harm_that_each_seed_shows_and_the_ranks_do_not_is_said_in_words(made) -> None:
    text = contrast(made({"full": SIX, "no-attention": [*(loss + 0.001 for loss in SIX[:5]), None]})).text
    assert "worse in each of 6 seeds" in text
    assert "p = " not in text


def test_ranks_that_can_show_nothing_have_no_p_value(made) -> None:
    """Five seeds in nine contrasts, and two arms of which every run fails."""
    one = loss_comparisons(made({"full": SIX[:5], "no-feed-forward": [None] * 5}))[0]
    assert judge_losses([one] * 6, margin=0.01)[0].p == pytest.approx(6 * 2 / 252)
    assert judge_losses([one] * 9, margin=0.01)[0].p is None
    dead = made({"full": SIX, "no-attention": [None] * 6, "no-feed-forward": [None] * 6})
    claim = contrast(rearranged(dead, "no-feed-forward", against="no-attention"), "no-feed-forward")
    assert (claim.p, claim.verdict) == (None, "fails")


def tuned(result: StudyResult, chosen: Mapping[str, float], *, at_edge: Collection[str] = ()) -> StudyResult:
    """The result with these chosen learning rates; every run of a trial scatters by about 1 %."""
    arms, tuning = [], []
    for arm in result.arms:
        rate = chosen[arm.arm.name]
        trials = tuple(Trial(one, {RATE: one}, (1.8 * one, 1.8 * one * (1 + 0.02 * (one - 1.5)))) for one in (1.0, 2.0))
        tuning.append(Tuned(arm.arm.name, trials, rate, arm.arm.name in at_edge))
        training = {**arm.config["training"], "optimizer": {"learning_rate": rate}}
        arms.append(replace(arm, config={**arm.config, "training": training}))
    return replace(result, arms=tuple(arms), tuning=tuple(tuning))


def test_the_choice_of_another_value_widens_the_interval(made) -> None:
    result = made({"full": SIX, "no-feed-forward": NEAR})
    same, other = (
        contrast(tuned(result, {"full": 1.0, "no-feed-forward": rate}), "no-feed-forward") for rate in (1, 2)
    )
    untuned = contrast(result, "no-feed-forward")
    assert (same.low, same.high) == (untuned.low, untuned.high)
    widths = [(one.high or 0.0) - (one.low or 0.0) for one in (same, other)]
    assert widths[0] < widths[1]
    assert other.difference == same.difference
    tuning = tuned(result, {"full": 1.0, "no-feed-forward": 2.0}).tuning
    error = trial_error(trial for one in tuning for trial in one.trials)
    assert other.comparison.choice == pytest.approx(CHOICE * error**2)


def test_an_untuned_arm_is_said_to_be_in_its_verdict_and_in_the_headline(made) -> None:
    result = made({"full": SIX, "no-feed-forward": NEAR})
    assert "No arm is tuned" in " ".join(one.text for one in headline(loss_claims(result)))
    rates = {"full": 1.0, "no-feed-forward": 2.0}
    text = " ".join(one.text for one in headline(loss_claims(tuned(result, rates, at_edge=["no-feed-forward"]))))
    assert "Untuned: without feed-forward (a better value may lie beyond those tried)" in text
    whole = tuned(result, rates)
    assert "ntuned" not in " ".join(one.text for one in loss_claims(whole).all)
    assert "no value was tried" in contrast(replace(whole, tuning=whole.tuning[:1]), "no-feed-forward").text


def test_an_arm_that_fails_from_every_seed_is_always_in_the_headline(made) -> None:
    """Beside a floor, and with three seeds, of which ranks show nothing (p = 0.1)."""
    result = with_floor(made({"full": FULL, "no-attention": WITHOUT, "no-feed-forward": [3.2, 3.3, None]}))
    claims = loss_claims(result)
    dead = contrast(result, "no-feed-forward")
    assert dead.shown is None
    assert headline(claims) == (claims.rank, dead, *claims.floors, *claims.untuned)
    once = loss_claims(with_floor(made({"full": FULL, "no-attention": WITHOUT, "no-feed-forward": [3.2, 1.8, 1.8]})))
    assert headline(once) == (once.rank, *once.floors, *once.untuned)


def test_failures_do_not_make_a_family_small_enough_for_a_test(made) -> None:
    """Three contrasts from three seeds have no verdict, whatever number of arms fails."""
    arms = {"full": FULL, "no-feed-forward": [3.2] * 3, "no-attention-matched": LINEAR, "no-attention": WITHOUT}
    claims = loss_claims(made(arms))
    assert [claim.verdict for claim in claims.contrasts if claim.failures] == ["fails"]
    assert {claim.p for claim in claims.contrasts if not claim.failures} == {None}


def drawing(result: StudyResult, **corpus: object) -> StudyResult:
    """The result of a study whose seeds draw the text."""
    study = result.study.model_copy(update={"draws_text": True})
    return replace(result, study=study, base={**result.base, "corpus": {**result.base["corpus"], **corpus}})


def test_where_seeds_draw_the_text_each_is_judged_by_its_own_bigrams(made) -> None:
    """By hand: the texts' bigram baselines are 2.0 and 3.0; 2.4 fails on the first and 2.6 passes on the second."""
    result = drawing(made({"full": [1.75, 1.75], "no-feed-forward": [2.4, 2.6]}))
    known = replace(result, beside_ngrams={2: {1: [-0.2, -0.3], 2: [-1.25, -1.25]}})
    assert failed_seeds(known, known.arms[1]) == (1,)
    assert failed_seeds(result, result.arms[1]) == (2,)  # not measured: their mean, 2.520
    fixed = replace(known, study=result.study.model_copy(update={"draws_text": False}))
    assert failed_seeds(fixed, fixed.arms[1]) == (2,)


def test_different_test_texts_are_not_mixed_block_by_block(made) -> None:
    """Each seed has its own test text, of its own length: the interval is that of the two seeds' means, 0.1 and 0.3."""
    blocks = {3: [0.0, 0.2], 5: [0.1, 0.3, 0.5]}
    result = replace(made({"full": [1.70, 1.90]}), beside_ngrams={3: blocks, 4: blocks})
    rank = loss_claims(drawing(result, split="one-work")).rank.text
    half = 12.7062 * 0.1  # t(0.975, 1) s / sqrt(2), s = 0.1414
    assert rank.count(f"{0.2 - half:+.3f} to {0.2 + half:+.3f}".replace("-", "\N{MINUS SIGN}")) == 2
    assert "blocks" not in rank
    alone = replace(result, beside_ngrams={3: {3: blocks[3]}, 4: {3: blocks[3]}})
    assert "+0.100" in loss_claims(drawing(alone, split="one-work")).rank.text


def test_a_rank_and_its_interval_do_not_contradict_each_other(made) -> None:
    """A base whose distance from a baseline may be 0 is said to be neither above nor below it."""
    result = made({"full": [1.70, 1.90, 1.80]})
    unclear, clear = {seed: [-0.3, 0.3, 0.1] for seed in (1, 2, 3)}, {seed: [0.1, 0.2, 0.3] for seed in (1, 2, 3)}
    above, below = neighbours(1.8, result.baselines.orders)
    plain = rank_among_baselines(1.8, result.baselines.orders)
    said = [
        loss_claims(replace(result, beside_ngrams={above: one, below: other})).rank.text
        for one, other in ((clear, clear), (unclear, clear), (clear, unclear))
    ]
    assert [plain in text for text in said] == [True, False, False]
    assert len(set(said)) == 3


def test_arms_within_the_margin_are_equivalent(made) -> None:
    full = SIX
    same = [loss + bit for loss, bit in zip(full, (0.001, -0.001, 0.0, 0.002, -0.002, 0.0005), strict=True)]
    claim = contrast(made({"full": full, "no-feed-forward": same}), "no-feed-forward")
    assert (claim.verdict, claim.within_margin, claim.shown) == ("equivalent", True, False)
    shifted = contrast(made({"full": full, "no-feed-forward": [loss + 0.007 for loss in same]}), "no-feed-forward")
    assert (shifted.verdict, shifted.within_margin) == ("worse", True)


def test_an_arm_or_a_base_that_never_finished_leaves_nothing_to_compare(made) -> None:
    nothing = [None, None, None]
    arm = made({"full": FULL, "no-attention": nothing})
    assert contrast(arm).seeds == 0
    assert not loss_claims(arm).floors
    assert mean_loss(arm, arm.arms[1]) is None
    base = loss_claims(made({"full": nothing, "no-attention": WITHOUT}))
    assert base.contrasts[0].seeds == 0
    assert all(one.text for one in base.all)


def rearranged(result: StudyResult, arm: str, **changes) -> StudyResult:
    """The result with one arm designed otherwise."""
    arms = tuple(
        replace(one, arm=one.arm.model_copy(update=changes)) if one.arm.name == arm else one for one in result.arms
    )
    return replace(result, arms=arms)
