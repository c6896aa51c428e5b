"""The probe `meaning`: its study, runs it refuses, and a view whose claims and tables follow from made-up numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.studies.conftest import viewed
from vitral.studies.claims import Claim
from vitral.studies.judging import judge
from vitral.studies.probes.words import CORRELATION, GAIN, RIGHT

HALF = [1.0, -1.0] * 9 + [1.0, 1.0]


def reading(correlation: float, apart: float, preferences: Sequence[float | None], step: float = 1 / 500) -> Any:
    """A run with four words whose senses separate in the block, and minimal pairs of one kind."""
    return {
        "language": "en",
        "neighbours": {"words": 31, "correlation": correlation, "shuffled": [-0.02, 0.03]},
        "senses": [{"within": [1.0, 0.9], "across": [1.0, 0.9 - apart - index * step]} for index in range(4)],
        "pairs": [
            {"kind": "agreement", "good": "Dogs run.", "bad": "Dogs runs.", "preference": each} for each in preferences
        ],
    }


def claims(measured: Mapping[str, Mapping[int, Any]], arm: str = "base") -> dict[str, Claim]:
    """By name of the quantity, the claims about an arm that compare it with no other arm."""
    judged = judge(viewed("meaning", measured).comparisons)
    return {
        one.comparison.quantity.name: one
        for one in judged
        if one.comparison.arm == arm and not one.comparison.against.startswith("the arm")
    }


def with_references(run: Any, fresh: Any, counted: Sequence[float | None]) -> Any:
    pairs = reading(0.0, 0.0, counted)["pairs"]
    return run | {"untrained": fresh, "counted": {"pairs": pairs}}


def test_one_model_is_tested_over_sentences_and_words() -> None:
    """Ten subjects of two pairs: nine of ten right, against half for the untrained model and for n-grams."""
    right = [1.0, 1.0] * 9 + [-1.0, 1.0]
    run = with_references(reading(0.4, 0.1, right), reading(0.0, 0.0, HALF, 1 / 900), HALF)
    measured = {
        (one.comparison.quantity.name, one.comparison.against): one
        for one in judge(viewed("meaning", {"base": {1: run}}).comparisons)
    }
    name = "agreement: right sentence preferred"
    chance = measured[name, "chance (0.5)"]
    assert (chance.seeds, chance.difference) == (10, pytest.approx(0.95 - 0.5))
    assert chance.verdict == "better"
    assert measured[name, "counted 3-grams"].difference == pytest.approx((9 * 0.5 - 0.5) / 10)
    assert measured[name, "the arm base, untrained"].verdict == "better"
    gains = measured[GAIN.name, "none (0)"]
    assert (gains.seeds, gains.difference) == (4, pytest.approx(0.1 + 0.003))


def test_claims_follow_the_numbers() -> None:
    def runs(correlation: float, apart: float, right: int, least: float = 1 / 500) -> dict[str, dict[int, Any]]:
        return {
            "base": {
                seed: with_references(
                    reading(
                        correlation + seed / 1e3,
                        apart * (1 + seed / 1e3),
                        [1.0] * (right + seed % 2) + [-1.0] * (20 - right - seed % 2),
                        least,
                    ),
                    reading(0.0, 0.0, HALF),
                    HALF,
                )
                for seed in (1, 2, 3)
            }
        }

    measured = claims(runs(0.4, 0.1, 18))
    assert {name: one.verdict for name, one in measured.items()} == {
        CORRELATION.name: "higher",
        GAIN.name: "higher",
        RIGHT.name: "higher",
    }
    assert measured[CORRELATION.name].difference == pytest.approx(0.4 + 0.002 - 0.03)
    assert measured[GAIN.name].difference == pytest.approx(0.1 * 1.002 + 0.003)
    assert measured[RIGHT.name].difference == pytest.approx((19 + 18 + 19) / 60 - 0.5)
    measured = claims(runs(-0.4, -0.1, 1))
    assert {one.verdict for one in measured.values()} == {"lower"}
    # Equal vectors, to rounding, have a gain of exactly zero in every seed: no verdict, whatever the rounding.
    same = claims(runs(0.4, 1e-6, 18, 1e-6))[GAIN.name]
    assert (same.difference, same.p) == (0.0, None)
    # Words that separate and words that come together may have a mean near zero: those vectors differ.
    cancelled = claims(runs(0.4, -0.003, 18))[GAIN.name]
    assert cancelled.difference != 0
    assert cancelled.p is not None
