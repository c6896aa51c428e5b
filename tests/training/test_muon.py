"""Muon: orthogonal directions by matrix products alone, all matrices of a shape together, nothing left out."""

from typing import Any

import pytest
import torch

from vitral.model import ModelConfig, Transformer
from vitral.runs.optimizers import MuonConfig
from vitral.training.optimizers import (
    AdamW,
    Muon,
    build_optimizer,
    orthogonalise,
    stacked_matrices,
)

SIZES: dict[str, Any] = {"context_length": 5, "d_model": 6, "num_layers": 2, "num_heads": 3, "d_ff": 11}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(3, 7, 7), (2, 5, 13)])
def test_singular_values_come_to_about_one_and_directions_stay(shape: tuple[int, int, int]) -> None:
    matrices = drawn(*shape)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    made = left.mT @ orthogonalise(matrices) @ right.mT
    values = made.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(made, torch.diag_embed(values), rtol=0, atol=1e-9)
    assert 0.75 < float(values.min()) <= float(values.max()) < 1.25


@pytest.mark.parametrize("shape", [(3, 31, 31), (2, 29, 101)])
def test_in_bfloat16_the_directions_are_the_same_within_its_precision(shape: tuple[int, int, int]) -> None:
    """Singular values from 1 to 0.003, as those of gradients."""
    left, _, right = torch.linalg.svd(drawn(*shape), full_matrices=False)
    matrices = ((left * torch.logspace(0, -2.5, shape[1])) @ right).float()
    exact, rounded = orthogonalise(matrices), orthogonalise(matrices, in_bfloat16=True)
    assert rounded.dtype == torch.bfloat16
    assert float((rounded - exact).norm() / exact.norm()) < 0.05
    largest = [float(torch.linalg.matrix_norm(made.float(), ord=2).max()) for made in (rounded, exact)]
    assert largest[0] < 1.1 * largest[1]


def test_a_first_step_by_hand() -> None:
    """G = (3, 4): B = 0.2 G, N = 0.2 G + 0.8 · 0.2 G = 0.36 G, of direction (0.6, 0.8), up to the polynomials' error.

    Standing, 2 × 1, it goes √2 times as far.
    """
    for shape, factor in (((1, 2), 1.0), ((2, 1), 2**0.5)):
        weight = torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64))
        optimizer = Muon([(weight, [shape[0]])], lr=0.1, momentum=0.8, weight_decay=0.0)
        weight.grad = torch.tensor([3.0, 4.0], dtype=torch.float64).view(shape)
        optimizer.step()
        moved = -weight.detach().flatten() / (0.1 * factor)
        expected = orthogonalise(torch.tensor([[[3.0, 4.0]]], dtype=torch.float64)).flatten()
        torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-6)
        averages = optimizer.state[weight]["momentum_buffer"].flatten()
        torch.testing.assert_close(averages, torch.tensor([0.6, 0.8], dtype=torch.float64))


def test_decay_shrinks_before_the_step() -> None:
    weight = torch.nn.Parameter(torch.full((2, 2), 8.0, dtype=torch.float64))
    optimizer = Muon([(weight, [2])], lr=0.5, momentum=0.0, weight_decay=0.25)
    weight.grad = torch.zeros_like(weight)
    optimizer.step()
    assert weight.tolist() == [[7.0, 7.0], [7.0, 7.0]]


def test_stacked_matrices_are_stepped_each_by_itself() -> None:
    gradient = drawn(7, 4)
    together = torch.nn.Parameter(torch.zeros(7, 4, dtype=torch.float64))
    apart = [torch.nn.Parameter(torch.zeros(rows, 4, dtype=torch.float64)) for rows in (4, 2, 1)]
    together.grad = gradient
    for parameter, piece in zip(apart, gradient.split((4, 2, 1)), strict=True):
        parameter.grad = piece
    settings: dict[str, Any] = {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.0}
    Muon([(together, (4, 2, 1))], **settings).step()
    Muon([(parameter, [len(parameter)]) for parameter in apart], **settings).step()
    torch.testing.assert_close(together.detach(), torch.cat([parameter.detach() for parameter in apart]))


@pytest.mark.parametrize("changes", [{}, {"num_kv_heads": 1}, {"feed_forward": "swiglu"}, {"attention": "none"}])
def test_every_parameter_has_exactly_one_optimizer(changes: dict[str, Any]) -> None:
    model = Transformer(ModelConfig.parse({**SIZES, **changes}), 7)
    optimizer = build_optimizer(model, MuonConfig())
    listed = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(listed) == sorted(id(parameter) for parameter in model.parameters())
    matrices = {name for name, p in model.named_parameters() if name.startswith("blocks.") and p.dim() == 2}
    assert set(stacked_matrices(model)) == matrices
    for name, rows in stacked_matrices(model).items():
        assert sum(rows) == len(model.get_parameter(name))
        assert len(rows) == (3 if name.endswith("in_proj.weight") else 1)
    named = dict(model.named_parameters())
    expected = {name: Muon if name in matrices else AdamW for name in named}
    assert {name: type(optimizer.member_of(parameter)) for name, parameter in named.items()} == expected
