"""One token at a time equals the forward pass with the same cache, whatever the model is made of."""

from typing import Any

import pytest
import torch

from vitral.model import ModelConfig, Transformer, decode_step
from vitral.model.decode_step import DecodeStep, can_decode_step, linear

SIZES: dict[str, Any] = {"context_length": 11, "d_model": 12, "num_layers": 3, "num_heads": 3, "d_ff": 7}
GENERATED: dict[str, dict[str, Any]] = {
    "plain": {},
    "post": {"norm": "post"},
    "no norm": {"norm": "none", "residual": False},
    "rms": {"norm_type": "rmsnorm", "bias": False},
    "rotary, shared keys": {"positions": "rotary", "num_kv_heads": 1},
    "alibi, window": {"positions": "alibi", "attention": {"mask": {"name": "window", "size": 3}}},
    "relative, shared keys": {"positions": "relative", "num_heads": 6, "num_kv_heads": 2},
    "sinusoidal, prefix": {"positions": "sinusoidal", "attention": {"mask": {"name": "prefix", "length": 4}}},
    "no positions, swiglu, tied": {"positions": "none", "feed_forward": "swiglu", "tie_head": True},
    "squared relu, 1/d": {"feed_forward": "squared_relu", "attention": {"scale": "linear"}},
    "learned scale": {"attention": {"scale": "learned"}},
    "learned per head": {"attention": {"scale": "learned-per-head"}, "positions": "rotary"},
    "a number": {"attention": {"scale": 0.3}},
    "no attention": {"attention": "none"},
    "no feed-forward": {"feed_forward": "none"},
}


def made(**changes: Any) -> Transformer:
    model = Transformer(ModelConfig.parse({**SIZES, "initialisation": "pytorch", **changes}), 13, seed=3).double()
    with torch.no_grad():  # nothing that could be left out may be zero, and heads must differ
        for place, (name, parameter) in enumerate(model.named_parameters()):
            if name.endswith(("bias", "factor", "by_distance")):
                parameter.add_(torch.linspace(0.1, 0.5, parameter.numel()).view(parameter.shape) / (1 + place % 3))
    return model.eval()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("variant", GENERATED)
@torch.inference_mode()
def test_it_equals_the_forward_pass(variant: str, rows: int) -> None:
    model = made(**GENERATED[variant])
    assert can_decode_step(model, rows)
    tokens = torch.randint(13, (rows, 11), generator=torch.Generator().manual_seed(5))
    step, cache, other = DecodeStep(model), model.new_cache(rows), model.new_cache(rows)
    model(tokens[:, :5], cache=cache)
    model(tokens[:, :5], cache=other)
    for place in range(5, 11):
        expected = model(tokens[:, place : place + 1], cache=other)[:, 0]
        torch.testing.assert_close(step(tokens[:, place], cache), expected, rtol=1e-11, atol=1e-11)
    for mine, theirs in zip(cache.keys + cache.values, other.keys + other.values, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)
    assert cache.length == other.length == 11


def test_it_leaves_alone_what_it_does_not_know() -> None:
    assert not can_decode_step(made(attention={"scale": "adaptive"}), 1)
    assert not can_decode_step(made(), decode_step.MOST_ROWS + 1)
    hooked = made()
    hooked.blocks[1].register_forward_hook(lambda *_: None)
    assert not can_decode_step(hooked, 1)

    replaced = made()
    replaced.blocks[0].register_forward_pre_hook(lambda *_: None)
    assert not can_decode_step(replaced, 1)
    wrapped = made()
    wrapped.forward = wrapped.forward
    assert not can_decode_step(wrapped, 1)

    class Larger(torch.nn.Linear):
        pass

    adapted = made()
    adapted.head = Larger(12, 13, bias=False)
    assert not can_decode_step(adapted, 1)

    class Other(Transformer):
        def forward(self, *tokens: torch.Tensor, **options: Any) -> torch.Tensor:
            return super().forward(*tokens, **options)

    assert not can_decode_step(Other(ModelConfig.parse(SIZES), 13), 1)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(12, 5), (5, 12), (6, 6)])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_matrix_in_pieces_is_the_matrix(
    threads: int, shape: tuple[int, int], has_bias: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_step, "SPLIT_FROM", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    weight = torch.arange(shape[0] * shape[1], dtype=torch.float64).view(shape)
    bias = torch.arange(shape[0], dtype=torch.float64) if has_bias else None
    x = torch.arange(rows * shape[1], dtype=torch.float64).view(rows, -1) - 2
    assert linear(weight, bias)(x).tolist() == torch.nn.functional.linear(x, weight, bias).tolist()


def test_a_table_in_float64_beside_weights_in_float32() -> None:
    model = Transformer(ModelConfig.parse({**SIZES, "positions": "sinusoidal"}), 13, seed=3).eval()
    with torch.inference_mode():
        step, cache = DecodeStep(model), model.new_cache(1)
        model(torch.tensor([[1, 2]]), cache=cache)
        assert step(torch.tensor([3]), cache).dtype == torch.float32
