"""Scores of independent queries and keys: variances, rows, medians and the cost of a head's width."""

import json
import math
from typing import Any

import pytest
import torch

from vitral.core.streams import torch_stream
from vitral.inspection import head_costs, random_scores, score_statistics
from vitral.model import ModelConfig, count_parameters

BASE = ModelConfig.parse({"context_length": 7, "d_model": 64, "num_heads": 4, "num_kv_heads": 2})
COSTS = head_costs(BASE, 31)


@pytest.fixture(scope="module")
def few() -> dict[str, Any]:
    """Statistics of few pairs and rows, at all four widths."""
    return json.loads(json.dumps(score_statistics(30_000, 150, 1), allow_nan=False))


def test_variances_are_within_five_standard_errors(few: dict[str, Any]) -> None:
    for index, d_k in enumerate(few["d_ks"]):
        usual = math.sqrt((2 + 6 / d_k) / few["pairs"])
        for scale in random_scores.FIXED:
            numbers, expected = few["scales"][scale], random_scores.expected_variance(scale, d_k)
            assert abs(numbers["variance"][index] / expected - 1) < 5 * usual
            assert numbers["variance_error"][index] / expected == pytest.approx(usual, rel=0.2)


def test_adaptive_rows_have_variance_one(few: dict[str, Any]) -> None:
    assert few["scales"]["adaptive"]["row_variance"] == pytest.approx([1] * 4, abs=1e-4)
    assert few["scales"]["adaptive"]["variance"] == [None] * 4


def test_costs_are_those_of_the_models(few: dict[str, Any]) -> None:
    heads = [row for row in COSTS if row["varies"] == "heads"]
    assert [(row["d_k"], row["num_heads"], row["d_model"]) for row in heads] == [(16, 4, 64), (64, 1, 64)]
    assert len({row["parameters"] for row in heads}) == 1
    wide = next(row for row in COSTS if row["varies"] == "d_model" and row["d_k"] == 64)
    config = ModelConfig.parse({"context_length": 7, "d_model": 256, "num_heads": 4})
    assert wide["parameters"] == count_parameters(config, 31)


@pytest.mark.parametrize(
    ("sqrt", "error", "named"),
    [
        (2.0, 0.001, ["sqrt"]),
        (16.0, 0.001, ["linear"]),
        # 4 may be as much as 5.2 and 5 as little as 3.5; 4 up to 4.12 and 5 from 4.85 on are apart.
        (4.0, 0.1, ["sqrt", "linear"]),
        (4.0, 0.01, ["sqrt"]),
        (5.5, 0.1, ["linear", "sqrt"]),
    ],
)
def test_the_least_change_is_named_only_where_it_is_told_from_the_next(
    few: dict[str, Any], sqrt: float, error: float, named: list[str]
) -> None:
    other = json.loads(json.dumps(few))
    for scale, ratio in (("none", 1e6), ("sqrt", sqrt), ("linear", 5.0)):
        other["scales"][scale] |= {
            "sensitivity_median": [1.0, 1.0, 1.0, ratio],
            "sensitivity_median_error": [0.0, 0.0, 0.0, ratio * error],
        }
    assert random_scores.least_changed(other) == named


def test_a_measurement_without_errors_of_medians_is_judged_by_those_of_means(few: dict[str, Any]) -> None:
    other = json.loads(json.dumps(few))
    for scale in random_scores.FIXED:
        del other["scales"][scale]["sensitivity_median_error"]
    assert random_scores.least_changed(other) == ["sqrt", "none"]
    other["scales"]["none"]["sensitivity_error"] = [0.1 * e for e in few["scales"]["none"]["sensitivity_error"]]
    assert random_scores.least_changed(other) == ["sqrt"]
    other["scales"]["sqrt"]["sensitivity_error"] = list(other["scales"]["sqrt"]["sensitivity"])
    assert random_scores.least_changed(other) == ["sqrt", "none", "linear"]


def test_the_range_of_a_change_by_hand() -> None:
    """From 2 ± 3 · 0.1 to 1 ± 3 · 0.1 it is between 1.3 / 1.7 and 0.7 / 2.3."""
    low, high = random_scores.change_range([2.0, 9.0, 1.0], [0.1, 9.0, 0.1])
    assert (low, high) == pytest.approx((math.log(1.7 / 1.3), math.log(2.3 / 0.7)))
    assert random_scores.change_range([2.0, 1.5], [0.1, 0.1])[0] == 0.0
    assert random_scores.change_range([2.0, 0.001], [0.1, 0.01])[0] == pytest.approx(math.log(1.7 / 0.031))


def test_a_median_and_its_error_by_hand() -> None:
    """Of 0 … 24 the ranks 12 ± 2.5, widened to whole ones, are 9 and 15."""
    values = torch.arange(25.0)[torch.randperm(25, generator=torch_stream(1, "order"))]
    assert random_scores.median_of(values) == (12.0, 3.0)
    normal = torch.randn(40_001, dtype=torch.float64, generator=torch_stream(1, "normal"))
    usual = math.sqrt(math.pi / 2) * float(normal.std()) / math.sqrt(len(normal))
    assert random_scores.median_of(normal)[1] == pytest.approx(usual, rel=0.2)
