"""Counts made before a model exists are those of the model."""

from typing import Any

import torch
from configs import configs, encoder_decoders
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from vitral.core.taps import Recorder
from vitral.model import ModelConfig, Transformer, cost, count_parameters, parameter_table

SHAKESPEARE = {"context_length": 50, "d_model": 128, "num_layers": 2, "num_heads": 2, "d_ff": 512}


def source_of(config: ModelConfig) -> Tensor | None:
    return None if config.source_length is None else torch.zeros(1, config.source_length, dtype=torch.long)


@given(configs() | encoder_decoders(), st.integers(1, 17), st.integers(1, 11))
def test_the_counts_are_the_models_and_the_configuration_is_its_plain_data(
    chosen: dict[str, Any], vocab_size: int, context_length: int
) -> None:
    config = ModelConfig.parse({**chosen, "context_length": context_length})
    model, rows = Transformer(config, vocab_size), parameter_table(config, vocab_size)
    assert {row.name: row.shape for row in rows} == {n: tuple(p.shape) for n, p in model.named_parameters()}
    assert count_parameters(config, vocab_size) == sum(p.numel() for p in model.parameters())
    names = {"vocab": vocab_size, "d_ff": config.hidden_width, "num_kv_heads": config.kv_heads}
    given_names = ("context_length", "source_length", "d_model", "num_heads", "d_head")
    names |= {name: getattr(config, name) for name in given_names}
    for row in rows:
        formula = row.formula.replace("·", "*").replace("2 ", "2 * ").replace("3 ", "3 * ").replace("4 ", "4 * ")
        assert eval(formula, {}, names) == row.count, row
    cache = model.new_cache(1, source=source_of(config))
    kept = [*zip(cache.keys, cache.values, strict=True), *cache.states, *(given[:2] for given in cache.source or ())]
    held = sum(tensor.nbytes for pair in kept for tensor in pair)
    assert held == cost(config, vocab_size).cache_bytes
    assert ModelConfig.parse(config.plain()) == config


def test_the_shakespeare_model_has_431104_parameters() -> None:
    config = ModelConfig.parse(SHAKESPEARE)
    assert count_parameters(config, 109) == 431_104
    per_block = (3 * 128 * 128 + 3 * 128) + (128 * 128 + 128) + (512 * 128 + 512) + (128 * 512 + 128) + 2 * 2 * 128
    assert 2 * 109 * 128 + 50 * 128 + 2 * per_block + 2 * 128 == 431_104
    assert count_parameters(ModelConfig.parse(SHAKESPEARE | {"tie_head": True}), 109) == 431_104 - 109 * 128
    assert sum(p.numel() for p in Transformer(config, 109).parameters()) == 431_104


def test_operations_and_bytes_by_hand() -> None:
    sizes = {"context_length": 5, "d_model": 6, "num_layers": 1, "num_heads": 2, "d_ff": 11}
    result = cost(ModelConfig.parse(sizes), 7, batch_size=3)
    matrices = 18 * 6 + 6 * 6 + 11 * 6 + 6 * 11 + 7 * 6
    assert result.forward_flops == 2 * matrices + 4 * 5 * 6
    assert result.backward_flops == 2 * result.forward_flops
    parameters = matrices + 7 * 6 + 5 * 6 + (18 + 6 + 11 + 6) + 3 * 2 * 6
    assert result.parameters == parameters
    assert result.weight_bytes == result.gradient_bytes == 4 * parameters
    assert result.optimizer_bytes == 8 * parameters
    assert result.cache_bytes == 4 * 2 * 5 * 6
    # Per token: two norms' inputs and outputs, q, k, v, z, the hidden layer twice, the last norm, logits and softmax.
    kept = 4 * 6 + 2 * 6 + 2 * 6 + 2 * 11 + 2 * 6 + 2 * 7
    assert result.activation_bytes == 4 * 3 * 5 * kept
    # In parallel one norm is read twice; heads of 7 numbers are wider than the stream.
    wide = cost(
        ModelConfig.parse({**sizes, "parallel": True, "d_head": 7, "feed_forward": "gelu_tanh", "bias": False}), 7
    )
    assert wide.activation_bytes == 4 * 5 * (2 * 6 + 6 + 4 * 2 * 7 + 2 * 11 + 2 * 6 + 2 * 7)


@given(configs() | encoder_decoders(), st.integers(1, 17))
def test_forward_operations_are_those_that_pytorch_counts(chosen: dict[str, Any], vocab_size: int) -> None:
    # The adaptive scale computes the scores twice; of a learned one PyTorch's counter cannot follow the module.
    assume(chosen["attention"] == "none" or chosen["attention"]["scale"] in ("none", "sqrt", 0.5))
    config = ModelConfig.parse(chosen)
    model = Transformer(config, vocab_size).double()  # oneDNN, which the counter does not see, has no LSTM in float64
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        # The traced execution is made of plain products.
        model(torch.zeros(1, 11, dtype=torch.long), source=source_of(config), tap=Recorder())
    assert counter.get_total_flops() // 11 == cost(config, vocab_size).forward_flops
