"""One token at a time equals the forward pass with the same cache, whatever the model is made of."""

from typing import Any

import pytest
import torch
from variants import GENERATED, made

from vitral.model import Transformer, decode_step
from vitral.model.decode_step import DecodeStep, can_decode_step

UNKNOWN = ("lstm", "lstm alone", "lstm without biases", "adaptive")
UNCACHED = ("bidirectional", "alibi, both ways", "relative, both ways")


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("variant", [name for name in GENERATED if name not in (*UNKNOWN, *UNCACHED)])
@torch.inference_mode()
def test_it_equals_the_forward_pass(variant: str, rows: int) -> None:
    model = made(variant).double()
    assert can_decode_step(model, rows)
    tokens = torch.randint(11, (rows, 13), generator=torch.Generator().manual_seed(5))
    step, cache, other = DecodeStep(model), model.new_cache(rows), model.new_cache(rows)
    model(tokens[:, :11], cache=cache)
    model(tokens[:, :11], cache=other)
    for place in (11, 12):
        expected = model(tokens[:, place : place + 1], cache=other)[:, 0]
        torch.testing.assert_close(step(tokens[:, place], cache), expected, rtol=1e-11, atol=1e-11)
    for mine, theirs in zip(cache.keys + cache.values, other.keys + other.values, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-11)
    assert cache.length == other.length == 13


def test_it_leaves_alone_what_it_does_not_know() -> None:
    assert not any(can_decode_step(made(name), 1) for name in UNKNOWN)
    assert not can_decode_step(made("pre"), decode_step.MOST_ROWS + 1)
    hooked = made("pre")
    hooked.blocks[1].register_forward_hook(lambda *_: None)
    assert not can_decode_step(hooked, 1)

    replaced = made("pre")
    replaced.blocks[0].register_forward_pre_hook(lambda *_: None)
    assert not can_decode_step(replaced, 1)
    wrapped = made("pre")
    wrapped.forward = wrapped.forward
    assert not can_decode_step(wrapped, 1)

    class Larger(torch.nn.Linear):
        pass

    adapted = made("pre")
    adapted.head = Larger(15, 11, bias=False)
    assert not can_decode_step(adapted, 1)

    class Other(Transformer):
        def forward(self, *tokens: torch.Tensor, **options: Any) -> torch.Tensor:
            return super().forward(*tokens, **options)

    assert not can_decode_step(Other(made("pre").config, 11), 1)


def test_a_table_in_float64_beside_weights_in_float32() -> None:
    model = made("sinusoidal")
    with torch.inference_mode():
        step, cache = DecodeStep(model), model.new_cache(1)
        model(torch.tensor([[1, 2]]), cache=cache)
        assert step(torch.tensor([3]), cache).dtype == torch.float32
