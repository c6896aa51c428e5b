"""The view of the probe `strategies`: prompts are the sample, and claims and tables follow from made-up numbers."""

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.studies.conftest import measures
from vitral.inspection.strategies import TRUTH
from vitral.studies.claims import Claim
from vitral.studies.judging import judge
from vitral.studies.probe import ArmMeasures, View
from vitral.studies.probes.words import COMPARED, NGRAM, STRATEGIES, by_prompt


def made_up(by_strategy: Mapping[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Measures of one run: by strategy, repeated share and n-gram nats of each prompt; all else the same."""
    rest = {
        "text": "a b",
        "looping": 0.0,
        "words": [1.0] * 4,
        "letters": 1.0,
        "copied": 5,
        "novel": 0.5,
        "model": 2.0,
    }
    return {
        "length": 5,
        "prompts": ["p"] * len(next(iter(by_strategy.values()))),
        "strategies": {
            name: [rest | {"repeated": repeated, "ngram": ngram} for repeated, ngram in rows]
            for name, rows in by_strategy.items()
        },
    }


def shown(*arms: Mapping[int, Any], of: int = 1) -> View:
    """The view of made-up arms in a study of so many."""
    result: Any = SimpleNamespace(arms=[None] * of)
    return STRATEGIES.view(result, measures({f"arm-{n}": runs for n, runs in enumerate(arms)}))


def claims(data: Mapping[str, Any], quantity: str, against: str = TRUTH) -> dict[str, Claim]:
    """By strategy, the claims about a quantity against something."""
    judged = judge(shown({1: data}).comparisons)
    return {
        one.comparison.subject: one
        for one in judged
        if one.comparison.quantity.name == quantity and one.comparison.against == against
    }


REPEATED = COMPARED[0].name


def test_claims_follow_the_numbers() -> None:
    truth = [(0.01 * i, 2.0 + 0.1 * i) for i in range(5)]
    more = [(a + 0.5 + 0.01 * (i % 2), b - 0.3 - 0.001 * (i % 2)) for i, (a, b) in enumerate(truth)]
    near = [(a + 0.02 * (-1) ** i, b + 0.01 * (-1) ** i) for i, (a, b) in enumerate(truth)]
    data = made_up({TRUTH: truth, "loud": more, "near": near})
    repeated, ngram = claims(data, REPEATED), claims(data, NGRAM.name)
    assert {name: one.verdict for name, one in repeated.items()} == {"loud": "higher", "near": "undecided"}
    assert repeated["loud"].difference == pytest.approx(0.504)
    assert {name: one.verdict for name, one in ngram.items()} == {"loud": "lower", "near": "undecided"}
    # What is the same in every prompt has no test.
    assert {one.p for one in claims(data, COMPARED[4].name).values()} == {None}
    turned = claims(made_up({TRUTH: more, "loud": truth, "near": near}), REPEATED)
    assert turned["loud"].verdict == "lower"


def test_seeds_of_one_prompt_are_averaged_and_prompts_are_the_sample() -> None:
    runs = {seed: made_up({TRUTH: [(0.0, 2.0)] * 4, "one": [(0.1 * seed, 2.0 + seed)] * 4}) for seed in (1, 3)}
    truth, one = by_prompt(ArmMeasures("base", "the model", {}, runs))
    assert (truth.title, one.title) == (TRUTH, "one")
    assert one.values(NGRAM) == dict.fromkeys(range(4), 4.0)
    claim = next(each for each in judge(shown(runs).comparisons) if each.comparison.quantity == NGRAM)
    assert (claim.seeds, claim.difference) == (4, 2.0)


def nearest(by_strategy: Mapping[str, list[float]]) -> tuple[str, dict[str, Claim]]:
    """The nearest strategy, and what is claimed of the others against it."""
    data = made_up({name: [(0.0, value) for value in values] for name, values in by_strategy.items()})
    judged = [one for one in judge(shown({1: data}).comparisons) if one.comparison.quantity.better == "lower"]
    assert len({one.comparison.against for one in judged}) == 1
    return judged[0].comparison.against, {one.comparison.subject: one for one in judged}


def test_the_nearest_strategy_is_told_from_those_further_off() -> None:
    truth = [2.0 + 0.1 * i for i in range(6)]

    def off(mean: float, own: int) -> list[float]:
        return [value + mean + 0.02 * math.sin(1 + own * i) for i, value in enumerate(truth)]

    by_strategy = {TRUTH: truth, "one": off(0.10, 2), "two": off(0.11, 3), "far": off(0.9, 5)}
    first, others = nearest(by_strategy)
    assert first in ("one", "two")
    assert {name: one.verdict for name, one in others.items()} == {
        ({"one", "two"} - {first}).pop(): "undecided",
        "far": "worse",
    }
    # As far off on the other side is as near.
    first, others = nearest(by_strategy | {"two": off(-0.11, 3)})
    assert others[({"one", "two"} - {first}).pop()].verdict == "undecided"
    first, others = nearest(by_strategy | {"two": off(0.5, 3)})
    assert first == "one"
    assert {one.verdict for one in others.values()} == {"worse"}
