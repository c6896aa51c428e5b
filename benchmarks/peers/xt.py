"""x-transformers, made of the same shape."""

import importlib
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.ours import LEARNING_RATE, Feed
from benchmarks.shapes import Shape


def build(shape: Shape) -> Any:
    """Its decoder in its autoregressive wrapper; its feed-forward's dropout sits on the hidden layer."""
    package: Any = importlib.import_module("x_transformers")
    decoder = package.Decoder(
        dim=shape.d_model,
        depth=shape.layers,
        heads=shape.heads,
        attn_dim_head=shape.d_model // shape.heads,
        attn_flash=True,
        attn_dropout=shape.dropout,
        ff_dropout=shape.dropout,
    )
    transformer = package.TransformerWrapper(num_tokens=shape.vocab, max_seq_len=shape.context, attn_layers=decoder)
    return package.AutoregressiveWrapper(transformer)


def trainer(shape: Shape, feed: Feed) -> Callable[[], object]:
    """One training step; its wrapper shifts the tokens itself."""
    model = build(shape).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def step() -> None:
        inputs, _ = feed()
        loss = model(inputs)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def generator(shape: Shape, num_tokens: int) -> Callable[[], object]:
    """`generate` with its cache; past the context it can only crop, for which the cache has to be off."""
    model = build(shape).eval()
    prompt = torch.ones(1, 1, dtype=torch.long)
    cached = num_tokens < shape.context
    return lambda: model.generate(prompt, num_tokens, cache_kv=cached, filter_logits_fn=lambda logits: logits)
