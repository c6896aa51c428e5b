"""The probes `attention-sinks` and `relevance`: what is measured of a run, and the numbers and judgements of views."""

from typing import Any

from tests.studies.conftest import fresh, is_plain, tables, viewed
from vitral.studies.judging import judge
from vitral.studies.probes import probe_named
from vitral.training import RunConfig


def a_run(weights: list[list[float]], rise: float) -> dict[str, Any]:
    """A run with these weights by layer and head, whose loss rises by so much without the first position."""
    without = {"increase": rise, "error": 0.0}
    layers = [{"heads": [{"weight": each, "without": without} for each in row], "without": without} for row in weights]
    return {"uniform": 0.1, "loss": 2.0, "layers": layers, "without": without}


def test_every_head_of_a_run_is_measured_and_shown(tiny: RunConfig) -> None:
    measured = probe_named("attention-sinks").measure(fresh(tiny, num_layers=2))
    assert is_plain(measured)
    assert [len(layer["heads"]) for layer in measured["layers"]] == [2, 2]
    assert viewed("attention-sinks", {"base": {1: measured}}).tables


def test_readings_are_compared_with_nearness_and_drawn_by_arm(tiny: RunConfig) -> None:
    measured = probe_named("relevance").measure(fresh(tiny, num_layers=2))
    view = viewed("relevance", {"base": dict.fromkeys((1, 2, 3), measured), "other": {1: measured | {"layers": []}}})
    assert [row.count("\N{EN DASH}") for table in tables(view) for row in table.cells] == [0, 2, 0, 2]
    assert {one.against for one in view.comparisons} == {"correlation of nearness", "zero"}


def test_claims_and_tables_follow_the_numbers() -> None:
    base = {seed: a_run([[0.2, 0.6], [0.3, 0.5]], 0.1 + seed / 1000) for seed in (1, 2, 3)}
    other = {seed: a_run([[0.1, 0.1 + seed / 100]], 0.0) for seed in (1, 2, 3)}
    view = viewed("attention-sinks", {"base": base, "other": other})
    assert tables(view)[0].rows[0] == ("the arm base", "0.400", "0.600", "0.100", "0.102", "0.102", "0.102")
    assert [claim.verdict for claim in judge(view.comparisons)] == [
        "undecided",  # 0.4 against 0.1 in every seed: no spread
        "undecided",
        "higher",
        "undecided",
        "lower",
    ]
