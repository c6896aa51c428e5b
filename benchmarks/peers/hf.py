"""Hugging Face transformers: its GPT-2, made of the same shape."""

import importlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from benchmarks.ours import LEARNING_RATE, Feed
from benchmarks.shapes import Shape


def build(shape: Shape) -> Any:
    """GPT-2 with exact GELU, a head of its own, and dropout where the shape has it."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is to be downloaded
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # By name at run time: the type checker's environment need not have the peers.
    transformers: Any = importlib.import_module("transformers")
    config = transformers.GPT2Config(
        vocab_size=shape.vocab,
        n_positions=shape.context,
        n_embd=shape.d_model,
        n_layer=shape.layers,
        n_head=shape.heads,
        activation_function="gelu",
        attn_pdrop=shape.dropout,
        resid_pdrop=shape.dropout,
        embd_pdrop=0.0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    model = transformers.GPT2LMHeadModel(config)
    for block in model.transformer.h:
        block.attn.resid_dropout.p = 0.0  # the shape has none there; GPT-2 has one rate for both
    return model


def trainer(shape: Shape, feed: Feed) -> Callable[[], object]:
    """One training step with its own loss, which shifts the labels itself, and its Trainer's default optimizer."""
    model = build(shape).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def step() -> None:
        inputs, _ = feed()
        loss = model(input_ids=inputs, labels=inputs, use_cache=False).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def generator(shape: Shape, num_tokens: int, samples: int = 1) -> Callable[[], object]:
    """`generate` with its cache; positions enough for all tokens, since GPT-2's cannot go past the last one."""
    model = build(replace(shape, context=max(shape.context, num_tokens + 1))).eval()
    prompt = torch.ones(samples, 1, dtype=torch.long)
    wanted = {"max_new_tokens": num_tokens, "min_new_tokens": num_tokens, "do_sample": True, "top_k": 0}
    mask = torch.ones_like(prompt)
    return lambda: model.generate(prompt, attention_mask=mask, use_cache=True, **wanted)
