"""Sharpness of softmax rows, by hand and against automatic differentiation."""

import math

import pytest
import torch

from vitral.attention import scales, steps
from vitral.core.streams import torch_stream
from vitral.inspection.random_scores import statistics_of_rows
from vitral.inspection.softmax import entropy_share, jacobian_norm, mutual_information, saturated


def test_jacobian_norm_is_that_of_the_matrix() -> None:
    weights = torch.softmax(3 * torch.randn(5, 11, dtype=torch.float64, generator=torch_stream(1, "w")), dim=-1)
    matrices = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    expected = torch.linalg.matrix_norm(matrices)
    torch.testing.assert_close(jacobian_norm(weights), expected)


def test_jacobian_norm_of_uniform_and_one_hot() -> None:
    uniform, one_hot = torch.full((7,), 1 / 7, dtype=torch.float64), torch.eye(7, dtype=torch.float64)[2]
    assert jacobian_norm(uniform).item() == pytest.approx(math.sqrt(6) / 7)
    assert jacobian_norm(one_hot).item() == 0


def test_entropy_counts_visible_keys_only() -> None:
    weights = torch.tensor([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0]])
    visible = torch.tensor([2.0, 4.0, 3.0])
    assert entropy_share(weights, visible).tolist() == pytest.approx([1, 1, 0])


def test_saturated_is_above_the_line() -> None:
    weights = torch.tensor([[0.995, 0.005], [0.985, 0.015]])
    assert saturated(weights).tolist() == [True, False]


@pytest.mark.parametrize("scale", ["none", "sqrt", "linear", "adaptive"])
def test_sensitivity_is_that_of_autograd(scale: str) -> None:
    stream = torch_stream(2, "sensitivity")
    q = torch.randn(3, 1, 5, dtype=torch.float64, generator=stream)
    k = torch.randn(3, 7, 5, dtype=torch.float64, generator=stream)

    def weights_of(query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return steps.normalise(query @ keys.mT * scales.factor_of(scale, query, keys, None))

    found = statistics_of_rows(q, k, scale)["sensitivity"]
    for row in range(3):
        keys = k[row]
        jacobian = torch.autograd.functional.jacobian(lambda query, keys=keys: weights_of(query, keys), q[row])
        assert isinstance(jacobian, torch.Tensor)
        assert found[row].item() == pytest.approx(jacobian.norm().item())


def test_mutual_information_by_hand() -> None:
    same = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    # p(j) = 3/4, 1/4: H = 0.8113 bits, less the rows' mean entropy (0 + 1) / 2
    causal = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert mutual_information(same).item() == pytest.approx(0, abs=1e-6)
    assert mutual_information(causal).item() == pytest.approx(0.31128, abs=1e-5)
