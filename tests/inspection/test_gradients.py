"""Gradients by block and saturation of attention, against plain computations of them."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from vitral.core.streams import torch_stream
from vitral.inspection.gradients import gradients_by_block
from vitral.inspection.saturation import (
    alignment,
    attention_saturation,
)
from vitral.model import ModelConfig, Transformer, next_token_loss

CONTEXT = 8


def config(**changes: Any) -> ModelConfig:
    return ModelConfig.parse({"context_length": CONTEXT, "d_model": 12, "num_heads": 2, "num_layers": 3} | changes)


@pytest.fixture(scope="module")
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets."""
    tokens = torch.randint(7, (5, CONTEXT + 1), generator=torch.Generator().manual_seed(41))
    return tokens[:, :-1], tokens[:, 1:]


def test_the_streams_gradient_is_that_of_the_blocks_after_it(batch: tuple) -> None:
    model = Transformer(config(initialisation="pytorch"), 7, seed=1).double().eval()
    measured = gradients_by_block(model, *batch)
    embedded = (model.token_embedding(batch[0]) + model.positions.embed(0, CONTEXT)).detach()

    def loss(stream: torch.Tensor) -> torch.Tensor:
        x = stream
        for block in model.blocks:
            x = block(x)
        return next_token_loss(model.final_norm(x) @ model.head_weight.T, batch[1], model.mask)

    stream = embedded.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(stream), stream)
    assert measured["stream"][0] == pytest.approx(float(gradient.norm()) * math.sqrt(batch[0].numel()), rel=1e-6)
    assert measured["scale"][0] == pytest.approx(float(embedded.norm(dim=-1).square().mean().sqrt()))


def test_parameters_are_those_of_backpropagation(batch: tuple) -> None:
    model = Transformer(config(), 7, seed=2).eval()
    measured = gradients_by_block(model, *batch)
    next_token_loss(model(batch[0]), batch[1], model.mask).backward()
    for layer, block in enumerate(model.blocks):
        squares = sum(float(p.grad.double().square().sum()) for p in block.parameters() if p.grad is not None)
        assert measured["parameters"][layer] == pytest.approx(math.sqrt(squares), rel=1e-5)


MODEL = {"context_length": 7, "d_model": 12, "num_layers": 2, "num_heads": 3, "positions": "alibi"}


def tokens(num: int, vocab: int) -> torch.Tensor:
    return torch.randint(vocab, (num, 8), generator=torch_stream(3, "tokens"))


@pytest.mark.parametrize("scale", ["none", "learned-per-head", "adaptive"])
def test_numbers_are_those_of_a_plain_computation(scale: str) -> None:
    config = ModelConfig.parse(MODEL | {"attention": {"scale": scale}})
    model = Transformer(config, 13, seed=3).double()
    ids = tokens(5, 13)
    inputs, targets = ids[:, :-1], ids[:, 1:]
    measured = attention_saturation(model, inputs, targets)
    traced = model.trace(inputs)
    lower = torch.ones(7, 7, dtype=torch.bool).tril()
    for layer, numbers in enumerate(measured["layers"]):
        raw, weights = (traced[f"blocks.{layer}.attn.{step}"] for step in ("scores", "weights"))
        for head in range(3):
            pairs = raw[:, head, lower].numpy()
            assert numbers["score_variance"][head] == pytest.approx(np.var(pairs))
            rows = [weights[w, head, i, : i + 1].numpy() for w in range(5) for i in range(1, 7)]
            share = np.mean([-(row * np.log(row)).sum() / math.log(len(row)) for row in rows])
            assert numbers["entropy_share"][head] == pytest.approx(share)
    assert [len(numbers["factors"]) for numbers in measured["layers"]] == [3 * (scale == "learned-per-head")] * 2


def test_alignment_by_hand() -> None:
    """Scores vary six times as much as 2 · mean(1 · 2, 2 · 2) = 6 says."""
    layers = [{"query_square": [1.0, 2.0], "key_square": [2.0, 2.0]}]
    layers[0] |= {"score_variance": [30.0, 42.0]}
    assert alignment({"layers": layers}, 2) == 6.0
