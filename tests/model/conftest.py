"""Small models with random numbers everywhere: biases, gains, relative positions and learned scales included."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from vitral.core.streams import torch_stream
from vitral.model import ModelConfig, Transformer

VOCAB, CONTEXT = 13, 7


@pytest.fixture
def lively() -> Callable[..., Transformer]:
    """`lively(norm="post")`: a float64 model in which every part matters to the logits."""

    def make(vocab_size: int = VOCAB, **config: Any) -> Transformer:
        sizes = {"context_length": CONTEXT, "d_model": 12, "num_heads": 3, "num_layers": 2, "d_ff": 11}
        model = Transformer(ModelConfig.parse({**sizes, **config}), vocab_size).double().eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, generator=torch_stream(3, name), dtype=torch.float64)
                parameter.copy_(0.4 * noise + (1 if "norm.weight" in name else 0))
        return model

    return make


@pytest.fixture
def tokens() -> Callable[..., Tensor]:
    """`tokens(2, 7)`: random ids, [batch, time]."""

    def draw(batch: int = 2, time: int = CONTEXT, vocab_size: int = VOCAB) -> Tensor:
        return torch.randint(vocab_size, (batch, time), generator=torch_stream(5, "tokens", batch, time))

    return draw
