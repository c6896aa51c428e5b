"""Saturation of attention: statistics of a model against a plain computation of them."""

import math

import numpy as np
import pytest
import torch

from vitral.core.streams import torch_stream
from vitral.inspection import attention_saturation
from vitral.inspection.saturation import (
    alignment,
    independent_variance,
    shared_directions,
    uniform_mutual_information,
)
from vitral.model import ModelConfig, Transformer, next_token_loss

MODEL = {"context_length": 7, "d_model": 12, "num_layers": 2, "num_heads": 3, "positions": "alibi"}


def tokens(num: int, vocab: int) -> torch.Tensor:
    return torch.randint(vocab, (num, 8), generator=torch_stream(3, "tokens"))


@pytest.mark.parametrize("scale", ["none", "learned-per-head", "adaptive"])
def test_numbers_are_those_of_a_plain_computation(scale: str) -> None:
    config = ModelConfig.parse(MODEL | {"attention": {"scale": scale}})
    model = Transformer(config, 13, seed=3).double()
    ids = tokens(5, 13)
    inputs, targets = ids[:, :-1], ids[:, 1:]
    found = attention_saturation(model, inputs, targets)
    traced = model.trace(inputs)
    lower = torch.ones(7, 7, dtype=torch.bool).tril()
    for layer, numbers in enumerate(found["layers"]):
        raw, weights = (traced[f"blocks.{layer}.attn.{step}"] for step in ("scores", "weights"))
        for head in range(3):
            pairs = raw[:, head, lower].numpy()
            assert numbers["score_variance"][head] == pytest.approx(np.var(pairs))
            rows = [weights[w, head, i, : i + 1].numpy() for w in range(5) for i in range(1, 7)]
            share = np.mean([-(row * np.log(row)).sum() / math.log(len(row)) for row in rows])
            assert numbers["entropy_share"][head] == pytest.approx(share)
            norms = [np.linalg.norm(np.diag(row) - np.outer(row, row)) for row in rows]
            assert numbers["jacobian"][head] == pytest.approx(np.mean(norms))
    with torch.no_grad():
        loss = next_token_loss(model(inputs), targets, model.mask).item()
    assert found["loss"] == pytest.approx(loss)
    if scale == "adaptive":
        spread = [variance for numbers in found["layers"] for variance in numbers["row_variance"]]
        assert spread == pytest.approx([1] * 6)
    assert [len(numbers["factors"]) for numbers in found["layers"]] == [3 * (scale == "learned-per-head")] * 2


def test_the_variance_of_independent_scores_by_hand() -> None:
    """Of two layers and three heads: 4 · mean(1 · 2, 3 · 1, 1 · 1)."""
    layers = [{"query_square": [1.0, 3.0], "key_square": [2.0, 1.0]}, {"query_square": [1.0], "key_square": [1.0]}]
    assert independent_variance({"layers": layers}, 4) == 8.0


def test_alignment_by_hand() -> None:
    """Scores vary six times as much as 2 · mean(1 · 2, 2 · 2) = 6 says; met at random, twice as much."""
    layers = [{"query_square": [1.0, 2.0], "key_square": [2.0, 2.0]}]
    layers[0] |= {"score_variance": [30.0, 42.0], "met_at_random": [10.0, 14.0]}
    assert alignment({"layers": layers}, 2) == 6.0
    assert shared_directions({"layers": layers}, 2) == 2.0


def test_uniform_attention_over_two_positions_by_hand() -> None:
    """Rows (1, 0) and (1/2, 1/2): p(j) is 3/4 and 1/4, with 0.8113 bits, less the mean entropy 1/2 of the rows."""
    assert uniform_mutual_information(2) == pytest.approx(0.31128, abs=1e-5)
