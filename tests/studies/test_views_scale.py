"""The probes `saturation` and `score-statistics`: what is measured, and the numbers and judgements of their views."""

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from tests.studies.conftest import NO_STUDY, fresh, is_plain, tables
from vitral.inspection.softmax import score_statistics
from vitral.studies import study_named
from vitral.studies.claims import Claim
from vitral.studies.judging import judge
from vitral.studies.probe import ArmMeasures, View
from vitral.studies.probes import probe_named
from vitral.studies.resolution import resolve
from vitral.training import RunConfig

SCALE = study_named("scale")
Plain = dict[str, Any]


def multiplied(run: Plain, by: Mapping[str, float]) -> Plain:
    """A run's measures with quantities of the trained state multiplied."""
    copy = deepcopy(run)
    for layer in copy["trained"]["layers"]:
        for name, factor in by.items():
            layer[name] = [value * factor for value in layer[name]]
    return copy


@pytest.fixture
def by_run(tiny: RunConfig) -> dict[str, dict[int, Plain]]:
    """Three seeds of five arms with two layers; without a scale entropy is a third less, give or take."""
    one = probe_named("saturation").measure(fresh(tiny, attention={"scale": "learned-per-head"}))
    assert is_plain(one)
    for state in ("fresh", "trained"):
        one[state]["layers"] = one[state]["layers"][:1] * 2
    bare: Plain = deepcopy(one)
    for state in ("fresh", "trained"):
        for layer in bare[state]["layers"]:
            layer["factors"] = []
    less = {seed: 1 + seed / 1000 for seed in (1, 2, 3)}
    return {
        "sqrt": {seed: multiplied(bare, {"entropy_share": less[seed]}) for seed in less},
        "none": {seed: multiplied(bare, {"entropy_share": 0.66 + seed / 500}) for seed in less},
        "learned-per-head": {
            seed: multiplied(one, {"entropy_share": 1 + (seed - 2) / 100, "factors": 1.2 + seed / 1000})
            for seed in less
        },
        "d64": dict.fromkeys(less, bare),
        "d64-none": {1: multiplied(bare, {"entropy_share": 1.2})},
    }


def viewed(by_run: Mapping[str, Mapping[int, Plain]]) -> View:
    """The view of these arms of the study `scale`."""
    chosen = [arm for arm in SCALE.arms if arm.name in by_run]
    base = RunConfig.parse({"model": {"context_length": 11, "d_model": 128, "num_heads": 4}})
    arms = [
        ArmMeasures(one.arm.name, one.arm.title, one.config.plain(), by_run[one.arm.name])
        for one in resolve(SCALE.model_copy(update={"arms": tuple(chosen)}), base, 31)
    ]
    for arm in arms:
        for run in arm.runs.values():
            run["d_head"] = arm.config["model"]["d_model"] // arm.config["model"]["num_heads"]
    return probe_named("saturation").view(NO_STUDY, arms)


def claims(view: View, quantity: str) -> dict[str, Claim]:
    """By arm, where a seed has both."""
    measured = [claim for claim in judge(view.comparisons) if claim.comparison.quantity.name == quantity]
    return {f"{one.comparison.subject} against {one.comparison.against}": one for one in measured}


def test_arms_are_compared_with_the_same_model_under_the_usual_scale(by_run: dict[str, dict[int, Plain]]) -> None:
    measured = claims(viewed(by_run), "entropy share")
    assert {name: claim.verdict for name, claim in measured.items()} == {
        "no scale against 1/√d_k": "lower",
        "learned, one per head against 1/√d_k": "undecided",
        "no scale, d_k 64 against 1/√d_k, d_k 64": "undecided",
    }
    assert [claim.shown for claim in measured.values()] == [True, False, None]


def test_the_exponent_of_alignment_is_the_slope_over_d_k(by_run: dict[str, dict[int, Plain]]) -> None:
    """At d_k 32 and 64 with variances 32 · 2 and 64 · 2 · √2 of unit components: the ratio grows as √d_k."""
    arms = {name: deepcopy(by_run["sqrt"]) for name in ("sqrt", "d64")}
    for name, variance in (("sqrt", 64.0), ("d64", 128.0 * math.sqrt(2))):
        for seed, run in arms[name].items():
            own = variance * (1 + 0.001 * seed * (name == "d64"))
            for layer in run["trained"]["layers"]:
                layer |= {"score_variance": [own], "query_square": [1.0], "key_square": [1.0]}
    view = viewed(arms)
    (slope,) = claims(view, "exponent of the score variance over that of independent q and k").values()
    assert slope.difference == pytest.approx(0.5, abs=0.01)
    assert slope.verdict == "higher"
    assert [row[3] for row in tables(view)[2].cells] == ["2.00", "2.83"]
    assert not claims(viewed({"sqrt": arms["sqrt"]}), "exponent of the score variance over that of independent q and k")


# ---------------------------------------------------------------- score-statistics


def scores_view(measured: Plain) -> View:
    return probe_named("score-statistics").view(NO_STUDY, measured)


def test_checks_of_scores_follow_the_numbers() -> None:
    few = score_statistics(30_000, 150, 1)
    assert is_plain(few)
    view = scores_view(few)
    assert [one.shown for one in view.checks] == [True] * 5
    other = deepcopy(few)
    other["scales"]["linear"]["variance"][2] = 1.03 / 256
    other["scales"]["none"]["saturated"] = [0.2] * 4
    changed = scores_view(other)
    assert [check.shown for check in changed.checks] == [True, True, False, False, True]
    assert changed.checks[2].value == pytest.approx(1.03)
