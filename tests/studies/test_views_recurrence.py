"""The probes `context` and `recall`: what is known of made-up runs is what their pages say."""

from typing import Any

import pytest

from tests.studies.conftest import NO_STUDY
from vitral.studies.judging import judge
from vitral.studies.probe import ArmMeasures
from vitral.studies.probes import probe_named


def told(arm: str, far: float) -> ArmMeasures:
    def run(seed: int) -> dict[str, Any]:
        nats = [3.0, 2.5, 2.2, 2.0, 1.9, 1.8 - far * (1 + 0.01 * seed)]
        return {"context": [1, 2, 4, 8, 16, 32], "nats": nats, "targets": 9}

    return ArmMeasures(arm, arm, {}, {seed: run(seed) for seed in range(1, 7)})


def test_the_gain_from_far_context_is_compared_with_the_bases() -> None:
    view = probe_named("context").view(NO_STUDY, [told("attention", 0.2), told("lstm", 0.1)])
    (gain,) = judge(view.comparisons)
    assert gain.difference == pytest.approx(-0.1, abs=0.01)
    assert gain.verdict == "worse"  # it gains less
    assert not probe_named("context").view(NO_STUDY, [told("alone", 0.2)]).comparisons


def recalled(arm: str, pairs: int, far: float) -> ArmMeasures:
    def run(seed: int) -> dict[str, Any]:
        near, end = 0.9 + 0.001 * seed, far + 0.002 * seed
        groups = [{"from": 3, "to": 9, "accuracy": near}, {"from": 10, "to": 20, "accuracy": end}]
        return {"accuracy": (near + end) / 2, "nats": 1.0, "answers": 100, "chance": 0.125, "distances": groups}

    task = {"name": "recall", "pairs": pairs}
    return ArmMeasures(arm, arm, {"corpus": {"task": task}}, {seed: run(seed) for seed in range(1, 7)})


def test_arms_are_compared_within_their_task_and_with_chance() -> None:
    arms = [recalled("a1", 1, 0.9), recalled("l1", 1, 0.2), recalled("a4", 4, 0.8), recalled("l4", 4, 0.125)]
    view = probe_named("recall").view(NO_STUDY, arms)
    pairs = {(one.subject, one.against) for one in view.comparisons}
    assert {("l1", "a1"), ("l4", "a4")} < pairs
    assert not {("l4", "a1"), ("a4", "a1"), ("l4", "l1")} & pairs
    assert sum(against == "chance" for _subject, against in pairs) == 4
    verdicts = {
        (c.comparison.subject, c.comparison.against, c.comparison.quantity.name): c for c in judge(view.comparisons)
    }
    assert verdicts["l1", "a1", "share of right values"].difference == pytest.approx(-0.35)
    assert verdicts["l1", "a1", "right at the largest distances"].difference == pytest.approx(-0.7)
