"""Small models whose numbers a test knows, or in which every number matters; and what to give them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vitral.core.streams import torch_stream
from vitral.model import ModelConfig, Transformer

VOCAB, CONTEXT = 13, 7


def lively(vocab_size: int = VOCAB, **config: Any) -> Transformer:
    """A float64 model with random numbers everywhere: biases, gains, relative positions and learned scales included."""
    sizes = {"context_length": CONTEXT, "d_model": 12, "num_heads": 3, "num_layers": 2, "d_ff": 11}
    model = Transformer(ModelConfig.parse({**sizes, **config}), vocab_size).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=torch_stream(3, name), dtype=torch.float64)
            parameter.copy_(0.4 * noise + (1 if "norm.weight" in name else 0))
    return model


def tokens(batch: int = 2, time: int = CONTEXT, vocab_size: int = VOCAB) -> Tensor:
    """Random ids, [batch, time]."""
    return torch.randint(vocab_size, (batch, time), generator=torch_stream(5, "tokens", batch, time))


def reached(model: Transformer, tokens: Tensor, at: int) -> list[bool]:
    """Which positions' logits change when the token at one position does."""
    changed = tokens.clone()
    changed[:, at] = (changed[:, at] + 1) % model.vocab_size
    with torch.inference_mode():
        return ((model(tokens) - model(changed)).abs().amax(dim=(0, 2)) > 1e-12).tolist()


def table(logits: Sequence[Sequence[float]] | Tensor, context_length: int = 7) -> Transformer:
    """A model whose logits are rows of a table, chosen by the last token: no blocks, the head an identity."""
    rows = torch.as_tensor(logits, dtype=torch.float32)
    config = {"d_model": len(rows), "num_heads": 1, "num_layers": 0, "norm": "none", "positions": "none"}
    model = Transformer(ModelConfig.parse({**config, "context_length": context_length}), len(rows))
    with torch.no_grad():
        model.token_embedding.weight.copy_(rows)
        model.head_weight.copy_(torch.eye(len(rows)))
    return model


def attentive(vocab_size: int = 11, seed: int = 3, *, std: float = 0.5, **config: Any) -> Transformer:
    """A small Transformer with numbers large enough that its past matters."""
    sizes = {"context_length": 7, "d_model": 12, "num_heads": 2, "num_layers": 2}
    model = Transformer(ModelConfig.parse({**sizes, **config}), vocab_size, seed=seed).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(std / 0.02 if parameter.dim() == 2 else 1)
    return model


def normal(*shape: int, purpose: str = "", dtype: torch.dtype = torch.float64) -> Tensor:
    """Independent standard normal numbers, the same for the same shape and purpose."""
    return torch.randn(shape, generator=torch_stream(7, purpose, *shape), dtype=torch.float64).to(dtype)
