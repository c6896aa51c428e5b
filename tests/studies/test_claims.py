"""The one judge of comparisons: by hand, against scipy, and by its promises over random families."""

import math
import pickle
import re
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vitral.evaluation.intervals import LEVEL
from vitral.studies.claims import Check, Comparison, Quantity, at
from vitral.studies.judging import judge

LOSS = Quantity("test loss", at("loss"), "nats", "lower")


def comparison(differences: list[float], quantity: Quantity = LOSS, base: float = 2.0) -> Comparison:
    """An arm that differs from its baseline arm by these amounts, seed by seed."""
    others = {seed: base + seed / 7 for seed in range(len(differences))}
    values = {seed: others[seed] + difference for seed, difference in enumerate(differences)}
    return Comparison("the arm", "the base", quantity, values, others)


def test_a_claim_worked_by_hand() -> None:
    # differences 1, 2, 3: mean 2, s = 1, t = 2/(1/sqrt(3)) = 3.4641, p = 1 - t/sqrt(t^2+2) = 0.0742 for two degrees
    (claim,) = judge([Comparison("a", "b", LOSS, {1: 2.0, 2: 4.0, 3: 6.0}, {3: 3.0, 2: 2.0, 1: 1.0})])
    assert claim.difference == 2.0
    assert claim.percent == pytest.approx(100.0)
    assert claim.p == pytest.approx(1 - math.sqrt(12 / 14), abs=1e-12)
    assert claim.low == pytest.approx(2 - 4.3027 / math.sqrt(3), abs=1e-4)
    assert claim.shown is False
    assert claim.verdict == "undecided"
    assert claim.text == deepcopy(claim).text == pickle.loads(pickle.dumps(claim)).text


@pytest.mark.parametrize("num", [3, 5, 7, 11])
@pytest.mark.parametrize("family", [1, 3])
def test_agrees_with_scipy_at_bonferronis_level(num: int, family: int) -> None:
    generator = np.random.default_rng(num)
    families = [comparison(generator.normal(0.1, 0.3, size=num).tolist()) for _ in range(family)]
    for claim in judge(families):
        reference = stats.ttest_1samp(claim.comparison.differences, 0.0)
        pvalue = float(reference.pvalue)  # pyright: ignore[reportAttributeAccessIssue]
        ends = reference.confidence_interval(1 - LEVEL / family)
        assert claim.family == family
        assert claim.p == pytest.approx(min(1.0, family * pvalue), rel=1e-6, abs=1e-12)
        assert claim.low == pytest.approx(ends.low, rel=1e-6, abs=1e-9)
        assert claim.high == pytest.approx(ends.high, rel=1e-6, abs=1e-9)


numbers = st.floats(-5.0, 5.0).map(lambda value: round(value, 4))
families = st.lists(st.lists(numbers, min_size=0, max_size=7), min_size=1, max_size=5)


def printed_interval(text: str) -> tuple[float, float] | None:
    """The interval as a reader sees it; None where the sentence has none."""
    measured = re.search(r"95% CI (\S+) to (\S+),", text)
    return None if measured is None else tuple(float(end.replace("\N{MINUS SIGN}", "-")) for end in measured.groups())  # type: ignore[return-value]


@settings(max_examples=300, deadline=None)
@given(families, st.sampled_from(["lower", "higher", "neither"]))
def test_no_sentence_contradicts_its_interval_or_its_p_value(family: list[list[float]], better: str) -> None:
    """Over random studies: undecided exactly where the printed interval contains zero, and p is 0.05 or more."""
    quantity = Quantity("a number", at("x"), "nats", better)  # type: ignore[arg-type]
    for claim in judge([comparison(differences, quantity) for differences in family]):
        interval = printed_interval(claim.text)
        if claim.p is None:
            assert interval is None
            assert claim.verdict == "undecided"
            continue
        assert interval is not None
        low, high = interval
        excludes = low > 0 or high < 0
        assert excludes == (claim.verdict != "undecided") == claim.shown
        assert excludes == (claim.p < LEVEL)
        if excludes:
            better_seen = (claim.difference > 0) == (better == "higher")
            expected = {True: "better", False: "worse"}[better_seen]
            assert claim.verdict == (expected if better != "neither" else "higher" if claim.difference > 0 else "lower")


def test_a_family_counts_only_what_can_be_tested() -> None:
    claims = judge(
        [
            comparison([1.0, 2.0, 3.5]),
            comparison([1.0, 2.0]),
            comparison([]),
            comparison([0.5, 0.5, 0.5]),
            comparison([1.0, 2.0, 3.25]),
            Comparison("c", "d", LOSS, {1: 1.0, 2: 2.0, 3: 4.0}, {1: 0.0, 2: 0.0, 3: 0.0}, excluded="it is not ready"),
        ]
    )
    assert [claim.p is not None for claim in claims] == [True, False, False, False, True, False]
    assert {claim.family for claim in claims} == {2}
    assert [claim.seeds for claim in claims] == [3, 2, 0, 3, 3, 3]
    assert all(claim.why for claim in claims if claim.p is None)
    assert claims[3].shown is None  # a difference that every seed repeats has no known spread


def test_differences_that_rounding_alone_sets_apart_are_the_same() -> None:
    """0.9 - 0.5 and 0.85 - 0.45 are unequal in floating point: a spread of 1e-17 would be called certain."""
    shares = Comparison("a", "b", LOSS, {1: 0.9, 2: 0.85, 3: 0.9}, {1: 0.5, 2: 0.45, 3: 0.5})
    assert len(set(shares.differences)) > 1
    assert judge([shares])[0].p is None


@pytest.mark.parametrize(
    ("value", "interval", "expected"),
    [
        (1.0, None, True),
        (2.5, None, False),
        (1.0, (0.5, 1.5), True),
        (1.9, (1.5, 2.3), None),
        (2.5, (2.25, 2.75), False),
    ],
)
def test_a_check_is_decided_by_its_interval(value: float, interval: tuple | None, expected: bool | None) -> None:
    assert Check("theory", "a number", value, 0.0, 2.0, "0 to 2", interval=interval).shown is expected
