"""The view of the probe `strategies`: prompts are the sample, and claims and tables follow from made-up numbers."""

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure

from tests.studies.conftest import measures, plots, tables
from vitral.figures.sections import Columns, Details
from vitral.inspection.texts import TRUTH
from vitral.studies import probe
from vitral.studies.claims import Claim
from vitral.studies.judging import judge
from vitral.studies.probe import ArmMeasures, Plot, View
from vitral.studies.probes.strategies import COMPARED, NGRAM, by_prompt, view

DRAWN = probe.interval_plot


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dots and intervals are drawn in one test."""
    monkeypatch.setattr(probe, "interval_plot", lambda name, *_, **__: [Plot(Figure(), name, "", "")])


def made_up(by_strategy: Mapping[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Measures of one run: by strategy, repeated share and n-gram nats of each prompt; all else the same."""
    rest = {
        "text": "a b",
        "loop": 0,
        "looping": 0.0,
        "looped": "",
        "marks": [0, 0],
        "words": [1.0] * 4,
        "characters": [1.0] * 4,
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
    return view(result, measures({f"arm-{n}": runs for n, runs in enumerate(arms)}))


def claims(data: Mapping[str, Any], quantity: str, against: str = TRUTH) -> dict[str, Claim]:
    """By strategy, the claims about a quantity against something."""
    judged = judge(shown({1: data}).comparisons)
    return {
        one.comparison.subject: one
        for one in judged
        if one.comparison.quantity.name == quantity and one.comparison.against == against
    }


def table(found: View, column: str) -> dict[str, str]:
    """By strategy, the cells of the column of that name, whatever the table."""
    section = next(one for one in tables(found) if column in one.columns)
    return {row[0]: row[section.columns.index(column)] for row in section.rows}


REPEATED = COMPARED["repeated"].name


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
    assert {one.p for one in claims(data, COMPARED["longest-copy"].name).values()} == {None}
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


def test_every_number_of_a_continuation_is_in_a_table() -> None:
    """The perplexity is that of the mean loss."""
    data = made_up({TRUTH: [(0.0, 2.0)] * 4, "one": [(0.25, 2.0), (0.25, 3.0)] * 2})
    found = shown({1: data})
    expected = {
        REPEATED: "0.250",
        "loss under the 5-gram model (nats per token)": "2.500",
        "perplexity under the 5-gram model": f"{math.exp(2.5):.2f}",
        "share of tokens in the longest loop": "0.000",
        "longest copy of the training text (characters)": "5.0",
        "novel 12-grams of characters": "0.500",
        "4 words": "1.000",
        "4 characters": "1.000",
    }
    assert {column: table(found, column)["one"] for column in expected} == expected
    samples = next(section for section in found.sections if isinstance(section, Details))
    assert "a b" in str(samples)


def test_every_measured_arm_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "interval_plot", DRAWN)
    data = made_up({TRUTH: [(0.0, 2.0)] * 4, "one": [(0.1, 2.5)] * 4})
    found = shown({1: data}, {1: data}, of=3)
    assert len(plots(found)) == len(set(plots(found))) == 2 * len(COMPARED)
    assert {one.arm for one in found.comparisons} == {"arm-0", "arm-1"}
    assert {one.arm for one in shown({1: data}).comparisons} == {""}


def test_a_number_missing_on_one_side_is_not_tested() -> None:
    """Where a strategy has no value for some prompts, the rest is a selection: the mean says of how many it is."""
    rows = [(0.01 * i, 2.0 + 0.1 * i) for i in range(6)]
    data = made_up({TRUTH: rows, "one": [(a + 0.5 + 0.01 * (i % 2), b) for i, (a, b) in enumerate(rows)]})
    for row in data["strategies"]["one"][3:]:
        row["repeated"] = None
    claim = claims(data, REPEATED)["one"]
    assert (claim.seeds, claim.p, claim.why) == (3, None, "3 of 6 values are undefined on one side only")
    found = shown({1: data})
    assert table(found, REPEATED)["one"] == "0.515 (n = 3)".replace("0.515", f"{0.5 + 0.01 + 0.01 / 3:.3f}")
    assert table(found, "prompts") == {TRUTH: "6", "one": "6"}
    for row in data["strategies"][TRUTH][3:]:
        row["repeated"] = None  # missing on both sides: the prompts decide, not the strategy
    assert claims(data, REPEATED)["one"].verdict == "higher"


def test_loops_are_counted_and_the_repeated_piece_is_shown() -> None:
    data = made_up({TRUTH: [(0.0, 2.0)] * 2, "one": [(0.0, 2.0)] * 2})
    data["strategies"]["one"][1] |= {
        "text": "x a  a  a ",
        "loop": 9,
        "looping": 0.9,
        "looped": " a \n",
        "marks": [1, 10],
    }
    found = shown({1: data, 2: data})
    assert table(found, "loops") == {TRUTH: "0", "one": "2"}
    assert table(found, "texts") == {TRUTH: "4", "one": "4"}
    assert table(found, "repeated piece") == {TRUTH: "–", "one": "␣a␣↵"}
    marked = [one for one in found.sections if isinstance(one, Details)][1].sections[0]
    assert isinstance(marked, Columns)
    assert [item.marks for item in marked.items] == [(), ((1, 10),)]


def test_the_range_over_models_is_of_means_over_prompts() -> None:
    runs = {
        1: made_up({TRUTH: [(0.1, 2.0), (0.3, 2.0)], "one": [(0.5, 2.0), (0.9, 2.0)]}),
        2: made_up({TRUTH: [(0.1, 2.0), (0.3, 2.0)], "one": [(0.2, 2.0), (0.4, 2.0)]}),
    }
    (ranges,) = [one for one in tables(shown(runs)) if "models" in one.columns]
    assert ranges.rows[0][:3] == ("one", "2", "0.100 to 0.500")
