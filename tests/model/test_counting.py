"""Counts made before a model exists are those of the model."""

from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from vitral.core.taps import Recorder
from vitral.model import ModelConfig, Transformer, cost, count_parameters, parameter_table

SHAKESPEARE = {"context_length": 50, "d_model": 128, "num_layers": 2, "num_heads": 2, "d_ff": 512}


LSTM: dict[str, Any] = {"attention": "none", "recurrence": "lstm"}


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Any model of small sizes."""
    heads, kv_divisor = draw(st.sampled_from([(1, 1), (2, 1), (2, 2), (3, 3), (6, 3), (6, 2)]))
    positions = draw(st.sampled_from(["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]))
    d_head = draw(st.sampled_from([2, 4] if positions == "rotary" else [1, 2, 3, 5]))
    scale = draw(st.sampled_from(["sqrt", "adaptive", "learned", "learned-per-head", 0.5]))
    chosen: dict[str, Any] = {
        "context_length": draw(st.integers(1, 11)),
        "d_model": heads * d_head,
        "num_layers": draw(st.integers(0, 3)),
        "num_heads": heads,
        "num_kv_heads": heads // kv_divisor,
        "norm": draw(st.sampled_from(["pre", "post", "none"])),
        "norm_type": draw(st.sampled_from(["layernorm", "rmsnorm"])),
        "positions": positions,
        **draw(st.sampled_from([{"attention": "none"}, {"attention": {"scale": scale}}, LSTM])),
        "feed_forward": draw(st.sampled_from(["gelu", "relu", "squared_relu", "swiglu", "none"])),
        "residual": draw(st.booleans()),
        "tie_head": draw(st.booleans()),
        "bias": draw(st.booleans()),
    }
    if draw(st.booleans()):
        chosen["d_ff"] = draw(st.integers(1, 13))
    return ModelConfig.parse(chosen)


@settings(deadline=None, max_examples=200)
@given(configs(), st.integers(1, 17))
def test_the_table_is_the_model(config: ModelConfig, vocab_size: int) -> None:
    model = Transformer(config, vocab_size)
    rows = parameter_table(config, vocab_size)
    assert {row.name: row.shape for row in rows} == {n: tuple(p.shape) for n, p in model.named_parameters()}
    assert len({row.name for row in rows}) == len(rows)
    assert count_parameters(config, vocab_size) == sum(p.numel() for p in model.parameters())
    names = {
        "vocab": vocab_size,
        "d_ff": config.hidden_width,
        "num_kv_heads": config.kv_heads,
        **{name: getattr(config, name) for name in ("context_length", "d_model", "num_heads", "d_head")},
    }
    for row in rows:
        formula = row.formula.replace("·", "*").replace("2 ", "2 * ").replace("3 ", "3 * ").replace("4 ", "4 * ")
        assert eval(formula, {}, names) == row.count == model.get_parameter(row.name).numel(), row


def test_the_shakespeare_model_has_431104_parameters() -> None:
    config = ModelConfig.parse(SHAKESPEARE)
    assert count_parameters(config, 109) == 431_104
    per_block = (3 * 128 * 128 + 3 * 128) + (128 * 128 + 128) + (512 * 128 + 512) + (128 * 512 + 128) + 2 * 2 * 128
    assert 2 * 109 * 128 + 50 * 128 + 2 * per_block + 2 * 128 == 431_104
    assert count_parameters(ModelConfig.parse(SHAKESPEARE | {"tie_head": True}), 109) == 431_104 - 109 * 128
    assert sum(p.numel() for p in Transformer(config, 109).parameters()) == 431_104


def test_operations_and_bytes_by_hand() -> None:
    sizes = {"context_length": 5, "d_model": 6, "num_layers": 1, "num_heads": 2, "d_ff": 11}
    found = cost(ModelConfig.parse(sizes), 7, batch_size=3)
    matrices = 18 * 6 + 6 * 6 + 11 * 6 + 6 * 11 + 7 * 6
    assert found.forward_flops == 2 * matrices + 4 * 5 * 6
    assert found.backward_flops == 2 * found.forward_flops
    parameters = matrices + 7 * 6 + 5 * 6 + (18 + 6 + 11 + 6) + 3 * 2 * 6
    assert found.parameters == parameters
    assert found.weight_bytes == found.gradient_bytes == 4 * parameters
    assert found.optimizer_bytes == 8 * parameters
    assert found.cache_bytes == 4 * 2 * 5 * 6
    # Per token: two norms' inputs and outputs, q, k, v, z, the hidden layer twice, the last norm, logits and softmax.
    kept = 4 * 6 + 2 * 6 + 2 * 6 + 2 * 11 + 2 * 6 + 2 * 7
    assert found.activation_bytes == 4 * 3 * 5 * kept


@settings(deadline=None, max_examples=25)
@given(configs(), st.integers(1, 17))
def test_forward_operations_are_those_that_pytorch_counts(config: ModelConfig, vocab_size: int) -> None:
    # The adaptive scale computes the scores twice; of a learned one PyTorch's counter cannot follow the module.
    assume(config.attention == "none" or config.attention.scale in ("sqrt", 0.5))
    model = Transformer(config, vocab_size).double()  # oneDNN, which the counter does not see, has no LSTM in float64
    tokens = torch.zeros(1, config.context_length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(tokens, tap=Recorder())  # the traced execution is made of plain products
    assert counter.get_total_flops() == config.context_length * cost(config, vocab_size).forward_flops


@pytest.mark.parametrize(("kv_heads", "factor"), [(6, 1), (3, 2), (1, 6)])
def test_fewer_key_value_heads_make_a_smaller_cache(kv_heads: int, factor: int) -> None:
    config = ModelConfig.parse({"d_model": 30, "num_heads": 6, "num_kv_heads": kv_heads, "context_length": 7})
    cache = Transformer(config, 5).new_cache(1)
    held = sum(t.numel() * t.element_size() for t in (*cache.keys, *cache.values))
    assert held == cost(config, 5).cache_bytes == 4 * 2 * 2 * 7 * 30 // factor
