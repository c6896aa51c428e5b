"""Gradients by block, against finite differences and backpropagation; logged norms."""

import math
from typing import Any

import pytest
import torch

from vitral.inspection import gradients_by_block, logged_gradient_norms
from vitral.model import ModelConfig, Transformer, next_token_loss

CONTEXT = 8


def config(**changes: Any) -> ModelConfig:
    return ModelConfig.parse({"context_length": CONTEXT, "d_model": 12, "num_heads": 2, "num_layers": 3} | changes)


@pytest.fixture(scope="module")
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets."""
    tokens = torch.randint(7, (5, CONTEXT + 1), generator=torch.Generator().manual_seed(41))
    return tokens[:, :-1], tokens[:, 1:]


def test_the_stream_is_what_a_small_step_along_the_gradient_says(batch: tuple) -> None:
    """(L(x + εg) - L(x - εg)) / 2ε = ‖g‖² for the gradient g with respect to a stream that is moved by hand."""
    model = Transformer(config(initialisation="pytorch"), 7, seed=1).double().eval()
    found = gradients_by_block(model, *batch)
    embedded = (model.token_embedding(batch[0]) + model.positions.embed(0, CONTEXT)).detach()

    def loss(stream: torch.Tensor) -> torch.Tensor:
        x = stream
        for block in model.blocks:
            x = block(x)
        return next_token_loss(model.final_norm(x) @ model.head_weight.T, batch[1], model.mask)

    stream = embedded.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(stream), stream)
    step = 1e-4 / float(gradient.norm())
    with torch.no_grad():
        slope = (loss(stream + step * gradient) - loss(stream - step * gradient)) / (2 * step)
    assert found["stream"][0] == pytest.approx(math.sqrt(float(slope) * batch[0].numel()), rel=1e-4)
    assert found["scale"][0] == pytest.approx(float(embedded.norm(dim=-1).square().mean().sqrt()))


def test_parameters_are_those_of_backpropagation(batch: tuple) -> None:
    model = Transformer(config(), 7, seed=2).eval()
    found = gradients_by_block(model, *batch)
    next_token_loss(model(batch[0]), batch[1], model.mask).backward()
    for layer, block in enumerate(model.blocks):
        squares = sum(float(p.grad.double().square().sum()) for p in block.parameters() if p.grad is not None)
        assert found["parameters"][layer] == pytest.approx(math.sqrt(squares), rel=1e-5)


def test_logged_norms_by_hand() -> None:
    events = [{"step": at, "gradient_norm": norm} for at, norm in enumerate((3.0, 1.0, 8.0, math.inf, 2.0), 1)]
    assert logged_gradient_norms(events, 1) == {"mean": 3.5, "median": 2.5, "largest": 8.0, "num": 4}
    assert logged_gradient_norms([], 1)["mean"] is None
