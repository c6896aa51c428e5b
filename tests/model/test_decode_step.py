"""What the step for one token leaves to the forward pass; `test_parts_of_other_models` compares the two."""

from typing import Any

import torch
from variants import made

from vitral.model import Transformer, decode_step
from vitral.model.decode_step import DecodeStep, can_decode_step

UNKNOWN = ("lstm", "lstm alone", "lstm without biases", "adaptive")


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
