"""The probes `context` and `recall`: what is known of made-up runs is what their pages say."""

from typing import Any

import pytest

from tests.studies.conftest import viewed
from vitral.studies.judging import judge


def losses(far: float) -> dict[int, Any]:
    nats = [3.0, 2.5, 2.2, 2.0, 1.9]
    runs = {seed: [*nats, 1.8 - far * (1 + 0.01 * seed)] for seed in range(1, 7)}
    return {seed: {"context": [1, 2, 4, 8, 16, 32], "nats": run} for seed, run in runs.items()}


def test_the_gain_from_far_context_is_compared_with_the_bases() -> None:
    (gain,) = judge(viewed("context", {"attention": losses(0.2), "lstm": losses(0.1)}).comparisons)
    assert gain.difference == pytest.approx(-0.1, abs=0.01)
    assert gain.verdict == "worse"  # it gains less
    assert not viewed("context", {"alone": losses(0.2)}).comparisons


def recalled(far: float) -> dict[int, Any]:
    def run(seed: int) -> dict[str, Any]:
        near, end = 0.9 + 0.001 * seed, far + 0.002 * seed
        groups = [{"from": 3, "to": 9, "accuracy": near}, {"from": 10, "to": 20, "accuracy": end}]
        return {"accuracy": (near + end) / 2, "nats": 1.0, "answers": 100, "chance": 0.125, "distances": groups}

    return {seed: run(seed) for seed in range(1, 7)}


def test_arms_are_compared_within_their_task_and_with_chance() -> None:
    arms = {name: recalled(far) for name, far in {"a1": 0.9, "l1": 0.2, "a4": 0.8, "l4": 0.125}.items()}
    configs = {name: {"corpus": {"task": {"name": "recall", "pairs": name[1]}}} for name in arms}
    claims = judge(viewed("recall", arms, **configs).comparisons)
    measured = {(one.comparison.arm, one.comparison.against, one.comparison.quantity.name): one for one in claims}
    pairs = {(arm, against) for arm, against, _quantity in measured}
    assert {pair for pair in pairs if "arm" in pair[1]} == {("l1", "the arm a1"), ("l4", "the arm a4")}
    assert sum(against == "chance" for _arm, against in pairs) == 4
    assert measured["l1", "the arm a1", "share of right values"].difference == pytest.approx(-0.35)
    assert measured["l1", "the arm a1", "right at the largest distances"].difference == pytest.approx(-0.7)
