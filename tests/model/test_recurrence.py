"""An LSTM in the place of attention: its equations, its counts, its first numbers, its carried state."""

import math
from typing import Any

import pytest
import torch
from small_models import lively, reached, tokens
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.model import ModelConfig, Transformer, cost, count_parameters
from vitral.training.optimizers import stacked_matrices

LSTM: dict[str, Any] = {"attention": "none", "recurrence": "lstm", "positions": "none"}
CLASSIC = LSTM | {"feed_forward": "none", "norm": "none", "residual": False}
KINDS = [LSTM, LSTM | {"norm": "post"}, LSTM | {"positions": "learned"}, CLASSIC]


def by_hand(model: Transformer, layer: int, x: Tensor) -> Tensor:
    """The hidden states of one layer, gate by gate and position by position."""
    weights = {name: value.detach() for name, value in model.named_parameters()}
    w, u, b, c = (
        weights[f"blocks.{layer}.recurrence.lstm.{name}_l0"]
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    hidden, cell, result = torch.zeros(len(x), x.shape[2]).double(), torch.zeros(len(x), x.shape[2]).double(), []
    for t in range(x.shape[1]):
        i, f, g, o = (x[:, t] @ w.T + hidden @ u.T + b + c).chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        result.append(hidden)
    return torch.stack(result, dim=1)


def test_the_classic_language_model_is_embedding_lstms_and_head() -> None:
    model, ids = lively(**CLASSIC), tokens()
    x = model.token_embedding.weight.detach()[ids]
    for layer in range(2):
        x = by_hand(model, layer, x)
    with torch.inference_mode():
        torch.testing.assert_close(model(ids), x @ model.head_weight.T, rtol=0, atol=1e-12)


def test_in_a_block_it_reads_the_norm_and_adds_to_the_stream() -> None:
    model = lively(**LSTM)
    kept = model.trace(tokens())
    for layer in range(2):
        at = {name.removeprefix(f"blocks.{layer}."): value for name, value in kept.items()}
        torch.testing.assert_close(at["recurrence.out"], by_hand(model, layer, at["recurrence_norm"]))
        torch.testing.assert_close(at["resid_mid"], at["resid_pre"] + at["recurrence.out"])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_token_reaches_its_own_and_all_later_positions(kind: dict[str, Any]) -> None:
    model, ids = lively(**kind), tokens()
    for at in range(7):
        assert reached(model, ids, at) == [position >= at for position in range(7)]


@pytest.mark.parametrize("pieces", [[3, 4], [1] * 7])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_carried_state_equals_recomputation(kind: dict[str, Any], pieces: list[int]) -> None:
    model, ids = lively(**kind), tokens(3)
    cache, result = model.new_cache(3), []
    with torch.inference_mode():
        for piece in ids.split(pieces, dim=1):
            result.append(model(piece, cache=cache))
        torch.testing.assert_close(torch.cat(result, dim=1), model(ids), rtol=0, atol=1e-12)


def test_the_state_is_reordered_forgotten_and_never_half_written() -> None:
    model, ids, rows = lively(**LSTM), tokens(3), torch.tensor([2, 0, 0, 1])
    cache = model.new_cache(3)
    with torch.inference_mode():
        model(ids[:, :5], cache=cache)
        before = [hidden.clone() for hidden, _cell in cache.states]
        with pytest.raises(UsageError, match="allocated for 3 sequences, given 2"):
            model(ids[:2, 5:], cache=cache)
        with pytest.raises(UsageError, match="room for 7 tokens"):
            model(ids, cache=cache)
        assert all(torch.equal(old, new) for old, (new, _cell) in zip(before, cache.states, strict=True))
        cache.select(rows)
        torch.testing.assert_close(model(ids[rows, 5:], cache=cache), model(ids[rows])[:, 5:], rtol=0, atol=1e-12)
        cache.clear()
        torch.testing.assert_close(model(ids[rows], cache=cache), model(ids[rows]), rtol=0, atol=1e-12)


def test_parameters_operations_and_state_by_hand() -> None:
    config = ModelConfig.parse(CLASSIC | {"context_length": 5, "d_model": 6, "num_layers": 2, "num_heads": 1})
    # Each layer: four gates, each with a 6 × 6 matrix for the input, one for the hidden state, and two biases.
    assert count_parameters(config, 7) == 2 * 7 * 6 + 2 * (4 * 6 * 6 + 4 * 6 * 6 + 4 * 6 + 4 * 6)
    result = cost(config, 7)
    # Per token and layer 8 products of a 6 × 6 matrix with a vector; the head; nothing grows with the context.
    assert result.forward_flops == 2 * (2 * 8 * 36 + 7 * 6)
    assert result.backward_flops == 2 * result.forward_flops
    assert result.cache_bytes == 4 * 2 * 2 * 6
    cache = Transformer(config, 7).new_cache(1)
    assert cache.keys == []
    assert sum(state.nbytes for states in cache.states for state in states) == result.cache_bytes


def test_it_begins_with_an_open_forget_gate_and_the_drawn_matrices() -> None:
    model = Transformer(ModelConfig.parse(LSTM | {"d_model": 60, "num_heads": 1}), 11)
    for name, value in model.named_parameters():
        if ".lstm.bias" in name:
            expected = [0.0, 1.0, 0.0, 0.0] if "bias_ih" in name else [0.0] * 4
            assert [part.unique().tolist() for part in value.chunk(4)] == [[gate] for gate in expected]
        elif ".lstm." in name:
            assert float(value.detach().std()) == pytest.approx(0.02, rel=5 / math.sqrt(2 * value.numel()))
    uniform = Transformer(ModelConfig.parse(LSTM | {"d_model": 60, "num_heads": 1, "initialisation": "pytorch"}), 11)
    largest = [
        float(value.detach().abs().max()) for name, value in uniform.named_parameters() if ".lstm.weight" in name
    ]
    assert all(0.99 / math.sqrt(60) < one <= 1 / math.sqrt(60) for one in largest)


def test_muon_steps_the_eight_matrices_of_a_layer_one_by_one() -> None:
    model = Transformer(ModelConfig.parse(LSTM | {"d_model": 6, "num_heads": 1, "num_layers": 1}), 11)
    names = [f"blocks.0.recurrence.lstm.weight_{of}_l0" for of in ("ih", "hh")]
    assert {name: rows for name, rows in stacked_matrices(model).items() if "lstm" in name} == dict.fromkeys(
        names, (6,) * 4
    )
