"""Gradients by block, against finite differences and backpropagation; logged norms."""

import json
import math
from typing import Any

import pytest
import torch

from vitral.core.errors import UsageError
from vitral.inspection import first_over_last, gradients_by_block, logged_gradient_norms, untrained
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


def test_numbers_that_are_not_finite_are_none(batch: tuple) -> None:
    model = Transformer(config(), 7).eval()
    with torch.no_grad():
        model.get_parameter("blocks.1.mlp.up.weight").fill_(math.inf)
    found = gradients_by_block(model, *batch)
    assert found["stream"][0] is None
    json.dumps(found, allow_nan=False)


def test_a_model_without_blocks_is_refused(batch: tuple) -> None:
    with pytest.raises(UsageError, match="without blocks"):
        gradients_by_block(Transformer(config(num_layers=0), 7), *batch)


def test_no_gradient_is_left_in_the_model_and_the_untrained_one_is_another(batch: tuple) -> None:
    model = Transformer(config(), 7, seed=2).double().eval()
    with torch.no_grad():
        model.token_embedding.weight.add_(1.0)
    fresh = untrained(model, 2)
    assert gradients_by_block(model, *batch) != gradients_by_block(fresh, *batch)
    assert gradients_by_block(fresh, *batch) == gradients_by_block(Transformer(config(), 7, seed=2).double(), *batch)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert fresh.token_embedding.weight.dtype == torch.float64
    assert not fresh.training


@pytest.mark.parametrize(
    ("state", "kind", "expected"),
    [
        ({"stream": [2.0, 9.0, 1.0]}, "stream", 2.0),
        ({"stream": [20.0, 1.0], "scale": [0.05, 1.0]}, "share", 1.0),
        ({"parameters": [0.5, 4.0]}, "parameters", 0.125),
        ({"stream": [None, 1.0]}, "stream", None),
        ({"stream": [1.0, 0.0]}, "stream", None),
        ({"stream": [1.0, 1.0], "scale": [1.0, None]}, "share", None),
    ],
)
def test_the_ratio_of_first_to_last_block_by_hand(state: dict, kind: str, expected: float | None) -> None:
    assert first_over_last(state, kind) == (None if expected is None else pytest.approx(expected))


def test_logged_norms_by_hand() -> None:
    events = [{"step": at, "gradient_norm": norm} for at, norm in enumerate((3.0, 1.0, 8.0, math.inf, 2.0), 1)]
    assert logged_gradient_norms(events, 1) == {"mean": 3.5, "median": 2.5, "largest": 8.0, "num": 4}
    assert logged_gradient_norms([], 1)["mean"] is None


def test_logged_norms_are_the_same_however_often_a_run_was_interrupted() -> None:
    whole = [{"step": step, "gradient_norm": float(step)} for step in (5, 10, 13)]
    extra = [{"step": step, "gradient_norm": 100.0} for step in (1, 7)]
    assert logged_gradient_norms(whole + extra, 5) == logged_gradient_norms(whole, 5)
    assert logged_gradient_norms(whole, 5)["num"] == 3
