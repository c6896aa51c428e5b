"""Sharpness of softmax rows, by hand and against automatic differentiation; scores of independent queries and keys."""

import json
import math
from typing import Any

import pytest
import torch

from vitral.attention import scales, steps
from vitral.core.streams import torch_stream
from vitral.inspection.softmax import (
    FIXED,
    expected_variance,
    mutual_information,
    score_statistics,
    statistics_of_rows,
)


@pytest.mark.parametrize("scale", ["none", "sqrt", "linear", "adaptive"])
def test_sensitivity_is_that_of_autograd(scale: str) -> None:
    stream = torch_stream(2, "sensitivity")
    q = torch.randn(3, 1, 5, dtype=torch.float64, generator=stream)
    k = torch.randn(3, 7, 5, dtype=torch.float64, generator=stream)

    def weights_of(query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return steps.normalise(query @ keys.mT * scales.factor_of(scale, query, keys, None))

    measured = statistics_of_rows(q, k, scale)["sensitivity"]
    for row in range(3):
        keys = k[row]
        jacobian = torch.autograd.functional.jacobian(lambda query, keys=keys: weights_of(query, keys), q[row])
        assert isinstance(jacobian, torch.Tensor)
        assert measured[row].item() == pytest.approx(jacobian.norm().item())


def test_mutual_information_by_hand() -> None:
    same = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    # p(j) = 3/4, 1/4: H = 0.8113 bits, less the rows' mean entropy (0 + 1) / 2
    causal = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert mutual_information(same).item() == pytest.approx(0, abs=1e-6)
    assert mutual_information(causal).item() == pytest.approx(0.31128, abs=1e-5)


@pytest.fixture(scope="module")
def few() -> dict[str, Any]:
    """Statistics of few pairs and rows, at all four widths."""
    return json.loads(json.dumps(score_statistics(30_000, 150, 1), allow_nan=False))


def test_variances_are_within_five_standard_errors(few: dict[str, Any]) -> None:
    for index, d_k in enumerate(few["d_ks"]):
        usual = math.sqrt((2 + 6 / d_k) / few["pairs"])
        for scale in FIXED:
            numbers, expected = few["scales"][scale], expected_variance(scale, d_k)
            assert abs(numbers["variance"][index] / expected - 1) < 5 * usual
            assert numbers["variance_error"][index] / expected == pytest.approx(usual, rel=0.2)
