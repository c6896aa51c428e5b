"""Scores of independent queries and keys: variances, rows, medians and the cost of a head's width."""

import json
import math
from typing import Any

import pytest
import torch

from vitral.core.streams import torch_stream
from vitral.inspection import random_scores, score_statistics


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


def test_a_median_and_its_error_by_hand() -> None:
    """Of 0 … 24 the ranks 12 ± 2.5, widened to whole ones, are 9 and 15."""
    values = torch.arange(25.0)[torch.randperm(25, generator=torch_stream(1, "order"))]
    assert random_scores.median_of(values) == (12.0, 3.0)
    normal = torch.randn(40_001, dtype=torch.float64, generator=torch_stream(1, "normal"))
    usual = math.sqrt(math.pi / 2) * float(normal.std()) / math.sqrt(len(normal))
    assert random_scores.median_of(normal)[1] == pytest.approx(usual, rel=0.2)
