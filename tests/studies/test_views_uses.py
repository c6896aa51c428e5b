"""The probe of capabilities: what it measures of a run, and the numbers its view compares, checks and tabulates."""

import math
from typing import Any

import pytest

from tests.studies.conftest import NO_STUDY, fresh, is_plain
from vitral.core.config import merge
from vitral.studies import study_named
from vitral.studies.judging import judge
from vitral.studies.probe import ArmMeasures
from vitral.studies.probes import masks
from vitral.training import RunConfig

MASK = study_named("mask")


def arms(seeds: int, **changes: dict[str, Any]) -> list[ArmMeasures]:
    """Measures of three arms: losses and accuracies that differ by arm by a shift, with some spread over seeds."""

    def one(seed: int, shift: float, visible: bool, moved: float) -> dict[str, Any]:
        noise = 0.01 * math.sin(7 * seed + 50 * shift)

        def answer(nats: float) -> dict[str, Any]:
            return {"accuracy": 0.5 - shift / 4 + noise, "nats": nats + shift + noise}

        spot = {"position": 16, "visible": visible, "moved": moved}
        result = {"accuracy": 0.4 + noise, "low": 0.35, "high": 0.45, "majority": 0.25}
        return {
            "context": 64,
            "gap": 32,
            "right": 8,
            "targets": 10 if visible else 64,
            "leak": {"early": spot, "late": {**spot, "position": 48}},
            "filling": {"both": answer(1.0), "left": answer(2.0 + noise)},
            "continuing": answer(2.0),
            "classifying": {
                "titles": ["one", "two", "three", "four"],
                "passages": {"train": 100, "validation": 50, "test": 96},
                "activations": result,
                "frequencies": {**result, "accuracy": 0.5},
            },
            "probes": {
                task: {
                    "trained": {**result, "accuracy": 0.8 + noise},
                    "untrained": {**result, "accuracy": 0.6 + noise / 2},
                    "tokens": {**result, "accuracy": 0.5},
                }
                for task in masks.TASKS
            },
        }

    made = {"causal": (0.0, False, 0.0), "bidirectional": (-0.5, True, 0.3), "prefix": (0.001, False, 0.0)}
    made |= {name: (each["shift"], each["visible"], each["moved"]) for name, each in changes.items()}
    return [
        ArmMeasures(name, f"title of {name}", {}, {seed: one(seed, *numbers) for seed in range(1, 1 + seeds)})
        for name, numbers in made.items()
    ]


def test_each_use_is_compared_with_the_base_and_both_sides_with_one() -> None:
    claims = judge(masks.USES.view(NO_STUDY, arms(4)).comparisons)
    by_quantity = {(claim.comparison.arm, claim.comparison.quantity.name): claim for claim in claims[:6]}
    both = by_quantity["bidirectional", "loss (infilling, both sides)"]
    assert (both.verdict, both.difference) == ("better", pytest.approx(-0.5, abs=0.02))
    assert by_quantity["prefix", "loss (infilling, both sides)"].verdict == "undecided"
    right_side = claims[6:9]
    assert [claim.comparison.arm for claim in right_side] == ["causal", "bidirectional", "prefix"]
    assert all(claim.verdict == "better" for claim in right_side)
    assert all(claim.difference == pytest.approx(-1.0, abs=0.01) for claim in right_side)
    counts = claims[-3:]
    assert all(
        (claim.verdict, claim.comparison.quantity.name) == ("worse", "accuracy (probe on activations)")
        for claim in counts
    )
    probes = [claim for claim in claims if claim.comparison.quantity.name.startswith("tokens until the word ends")]
    assert [claim.verdict for claim in probes] == ["better"] * 6 + ["undecided"] * 2
    assert [claim.comparison.against.rpartition(": ")[2] for claim in probes[:6]] == 3 * ["untrained"] + 3 * [
        "tokens alone"
    ]
    assert {claim.family for claim in claims} == {12 + 3 * 8}


@pytest.mark.parametrize(
    ("visible", "moved", "shown"),
    [(False, 0.0, True), (False, 1e-7, True), (False, 0.2, False), (True, 0.2, True), (True, 1e-5, False)],
)
def test_a_prediction_moves_with_the_next_token_exactly_where_the_mask_shows_it(
    visible: bool, moved: float, shown: bool
) -> None:
    view = masks.USES.view(NO_STUDY, arms(3, causal={"shift": 0.0, "visible": visible, "moved": moved}))
    leaks = [check for check in view.checks if check.arm == "causal" and check.value == moved]
    assert [check.shown for check in leaks] == [shown, shown]


@pytest.mark.parametrize("name", ["bidirectional", "leak"])
def test_every_arm_is_measured_and_the_measure_is_plain(
    name: str, tiny: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks, "PASSAGES", ((12, 6, 6),))
    monkeypatch.setattr(masks, "WINDOWS", ((30, 8),))
    monkeypatch.setattr(masks, "PROBING", ((20, 20, 20),))
    changes: dict[str, Any] = next(arm.changes for arm in MASK.arms if arm.name == name)
    run = fresh(RunConfig.parse(merge(tiny.plain(), changes)))
    measured = masks.uses(run)
    assert is_plain(measured)
    assert measured == masks.uses(run)
    assert (measured["filling"]["both"] is None) is (name == "leak")
    assert measured["classifying"] is None  # the last tenth of a text is no segment that was trained on
    assert masks.USES.view(NO_STUDY, [ArmMeasures(name, name, {}, {1: measured})]).checks
