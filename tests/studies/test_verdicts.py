"""The verdict follows from the numbers: other numbers, another verdict."""

from dataclasses import replace

import pytest

from vitral.studies import StudyResult, verdict
from vitral.studies.comparison import compare
from vitral.studies.verdict import Finding, headline

FULL = [1.76, 1.77, 1.75]
WITHOUT = [2.531, 2.528, 2.533]
LINEAR = [1.93, 1.95, 1.92]


def found(result: StudyResult, rule: str, arm: str = "no-attention") -> Finding:
    """The one finding of that rule about that arm."""
    matching = [finding for finding in verdict(result) if finding.rule == rule and finding.arm == arm]
    assert len(matching) == 1
    return matching[0]


def test_what_is_expected_is_said_when_it_is_seen(made) -> None:
    result = made({"full": FULL, "no-attention": WITHOUT, "no-feed-forward": LINEAR})
    assert "1.760 nats per token, between the trigram and the 4-gram" in found(result, "standing", "full").text
    floor = found(result, "floor")
    assert floor.holds is True
    assert "at the bigram line (2.520; +0.011)" in floor.text
    difference = found(result, "difference")
    assert difference.holds is True
    assert "worse, +0.771 nats against the full model" in difference.text
    assert "2 comparisons" in difference.text
    assert [(one.rule, one.arm) for one in headline(verdict(result))] == [
        ("standing", "full"),
        ("floor", "no-attention"),
    ]


def test_nothing_is_said_about_a_floor_of_an_arm_with_attention(made) -> None:
    result = made({"full": FULL, "no-attention": WITHOUT, "no-feed-forward": LINEAR})
    assert {finding.arm for finding in verdict(result) if finding.rule == "floor"} == {"no-attention"}


def test_a_loss_below_the_floor_is_called_a_contradiction(made) -> None:
    floor = found(made({"full": FULL, "no-attention": [2.53, 2.53, 2.49]}), "floor")
    assert floor.holds is False
    assert "2.490" in floor.text
    assert "contradicts theory" in floor.text


def test_rounding_below_the_floor_is_no_contradiction(made) -> None:
    assert found(made({"full": FULL, "no-attention": [2.510, 2.511, 2.512]}), "floor").holds is True


def test_an_arm_on_its_way_to_the_line_is_said_to_be_above_it(made) -> None:
    floor = found(made({"full": FULL, "no-attention": [2.70, 2.71, 2.72]}), "floor")
    assert floor.holds is True
    assert "0.190 above the bigram line" in floor.text


def test_no_difference_is_said_to_be_unseen_rather_than_absent(made) -> None:
    difference = found(made({"full": FULL, "no-feed-forward": [1.80, 1.74, 1.75]}), "difference", "no-feed-forward")
    assert difference.holds is False
    assert "no difference seen at this budget" in difference.text
    assert "any difference in that interval" in difference.text


def test_an_arm_that_does_better_is_said_to(made) -> None:
    better = [loss - 0.1 + bit for loss, bit in zip(FULL, (0.001, 0.0, -0.001), strict=True)]
    difference = found(made({"full": FULL, "no-feed-forward": better}), "difference", "no-feed-forward")
    assert "better, \N{MINUS SIGN}0.100 nats" in difference.text


@pytest.mark.parametrize("arm", [[2.001, 2.002, 2.003], [1.960, 1.961, 1.962]])
def test_small_differences_of_models_above_the_trigram_line_get_no_verdict(made, arm: list[float]) -> None:
    result = made({"full": [1.980, 1.981, 1.9825], "no-feed-forward": arm})
    difference = found(result, "difference", "no-feed-forward")
    assert difference.holds is None
    assert "trigram line (1.949)" in difference.text


def test_one_seed_and_two_seeds_get_no_verdict(made) -> None:
    one = made({"full": [1.76], "no-attention": [2.53]})
    assert found(one, "difference").holds is None
    assert "from one seed" in found(one, "difference").text
    two = made({"full": [1.76, 1.77], "no-attention": [2.53, 2.54]})
    assert found(two, "difference").holds is None
    assert "too few for a verdict" in found(two, "difference").text
    assert [finding.rule for finding in verdict(two)].count("seeds") == 1


def test_a_run_that_stopped_is_a_result_and_its_seed_is_left_out_of_the_pairs(made) -> None:
    result = made({"full": FULL, "no-attention": [2.531, None, 2.533]})
    stopped = found(result, "stopped")
    assert "from seed 2: stopped before step 7: the loss is nan." in stopped.text
    comparison = compare(result)[1]
    assert comparison.paired is not None
    assert comparison.paired.difference.num == 2
    assert comparison.paired.difference.mean == pytest.approx((2.531 - 1.76 + 2.533 - 1.75) / 2)


def test_an_arm_or_a_base_that_never_finished_leaves_nothing_to_compare(made) -> None:
    nothing = [None, None, None]
    arm = made({"full": FULL, "no-attention": nothing})
    assert "there is no comparison" in found(arm, "difference").text
    assert not any(finding.rule == "floor" for finding in verdict(arm))
    base = made({"full": nothing, "no-attention": WITHOUT})
    assert "nothing can be compared" in found(base, "standing", "full").text


def test_seeds_added_after_a_look_at_the_results_are_named(made) -> None:
    result = made({"full": FULL, "no-attention": WITHOUT}, first_seeds=[1, 2])
    assert "already had results: seed 3;" in next(f.text for f in verdict(result) if f.rule == "seeds")


def test_every_p_value_is_corrected_for_all_comparisons(made) -> None:
    _, first, second = compare(made({"full": FULL, "no-attention": WITHOUT, "no-feed-forward": LINEAR}))
    assert first.paired is not None
    assert second.paired is not None
    raw = sorted([first.paired.p_value or 0, second.paired.p_value or 0])
    adjusted = sorted([first.adjusted_p or 0, second.adjusted_p or 0])
    assert adjusted[0] == pytest.approx(2 * raw[0])
    assert adjusted[1] == pytest.approx(max(2 * raw[0], raw[1]))


def rearranged(result: StudyResult, arm: str, **changes) -> StudyResult:
    """The result with one arm designed otherwise."""
    arms = tuple(
        replace(one, arm=one.arm.model_copy(update=changes)) if one.arm.name == arm else one for one in result.arms
    )
    return replace(result, arms=arms)


def test_an_arm_is_compared_with_the_rival_it_names(made) -> None:
    result = made({"full": FULL, "no-attention": WITHOUT, "no-feed-forward": LINEAR})
    against = rearranged(result, "no-feed-forward", against="no-attention")
    paired = compare(against)[2].paired
    assert paired is not None
    assert paired.difference.mean == pytest.approx(sum(LINEAR) / 3 - sum(WITHOUT) / 3)
    text = found(against, "difference", "no-feed-forward").text
    assert "against without attention" in text
    assert "better" in text


def test_an_arm_of_another_task_is_given_no_difference(made) -> None:
    result = made({"full": FULL, "no-attention": WITHOUT, "no-feed-forward": LINEAR})
    apart = rearranged(result, "no-feed-forward", compared=False)
    assert compare(apart)[2].paired is None
    assert not [one for one in verdict(apart) if one.arm == "no-feed-forward"]
    assert "comparisons" not in found(apart, "difference").text  # one is left, which needs no correction


def test_an_arm_above_the_trigram_line_gets_no_verdict_however_far_it_is(made) -> None:
    result = made({"full": FULL, "no-feed-forward": [2.31, 2.32, 2.33]})
    difference = found(result, "difference", "no-feed-forward")
    assert difference.holds is None
    assert "without feed-forward has not passed the trigram line (1.949)" in difference.text


def test_survivors_are_said_to_be_some(made) -> None:
    result = made({"full": [*FULL, 1.74, 1.73], "no-attention": [2.53, None, 2.53, None, 2.54]})
    assert "over the 3 of 5 seeds both finished" in found(result, "difference").text


def test_a_hurried_reader_sees_the_largest_difference_that_was_shown(made) -> None:
    better = [loss - 0.1 + bit for loss, bit in zip(FULL, (0.001, 0.0, -0.001), strict=True)]
    result = made({"full": FULL, "no-feed-forward": better})
    assert [one.rule for one in headline(verdict(result))] == ["standing", "difference"]
    probed = Finding("a-probe", "", "Something else was seen.", holds=True)
    assert headline((*verdict(result), probed))[-1] == probed
