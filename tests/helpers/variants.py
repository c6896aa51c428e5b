"""A small model of every kind, with a tokenizer and a text for it."""

from typing import Any

import torch

from vitral.data import char_tokenizer
from vitral.model import ModelConfig, Transformer

TOKENIZER = char_tokenizer("\n abcdefgh")
TEXT = "abc\nha b"
VARIANTS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm": "post"},
    "no norm": {"norm": "none"},
    "no residual": {"residual": False},
    "post without residual": {"norm": "post", "residual": False},
    "rmsnorm": {"norm_type": "rmsnorm", "bias": False},
    "no attention": {"attention": "none"},
    "no feed-forward": {"feed_forward": "none"},
    "neither": {"attention": "none", "feed_forward": "none"},
    "lstm": {"attention": "none", "recurrence": "lstm"},
    "lstm alone": {
        "attention": "none",
        "recurrence": "lstm",
        "feed_forward": "none",
        "norm": "none",
        "residual": False,
        "positions": "none",
    },
    "one layer": {"num_layers": 1},
    "no layer": {"num_layers": 0},
    "tied": {"tie_head": True},
    "grouped": {"d_model": 12, "num_heads": 6, "num_kv_heads": 2},
    "multi-query": {"num_kv_heads": 1},
    "swiglu": {"feed_forward": "swiglu"},
    "bidirectional": {"attention": {"mask": "bidirectional"}},
    "window": {"attention": {"mask": {"name": "window", "size": 3}}},
    "prefix": {"attention": {"mask": {"name": "prefix", "length": 3}}},
    "long prefix": {"attention": {"mask": {"name": "prefix", "length": 11}}},
    "adaptive": {"attention": {"scale": "adaptive"}},
    "rotary": {"d_model": 12, "positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "sinusoidal": {"positions": "sinusoidal"},
    "no positions": {"positions": "none"},
    "dropout": {"dropout": 0.5},
    "gelu by tanh, large epsilon": {"feed_forward": "gelu_tanh", "norm_epsilon": 0.1},
    "rotary of interleaved pairs": {
        "d_head": 7,
        "positions": {
            "name": "rotary",
            "base": 100.0,
            "fraction": 0.6,
            "pairing": "interleaved",
            "scaling": {"name": "linear", "factor": 3.0},
        },
    },
    "rotary as in Llama 3": {
        "d_head": 6,
        "positions": {
            "name": "rotary",
            "base": 50.0,
            "fraction": 0.7,
            "scaling": {"name": "llama3", "factor": 3.0, "original_context_length": 17},
        },
    },
    "parallel, wide heads": {"parallel": True, "d_head": 7},
    "masks by block, some biases": {
        "attention": {"mask": ["causal", {"name": "window", "size": 3}]},
        "bias": {"qkv": False, "norm": False, "head": True},
    },
    "final norm after post-norm": {"norm": "post", "final_norm": True},
    "no final norm": {"final_norm": False, "bias": {"output": False, "feed_forward": False}},
    "like BERT, causal": {
        **{"norm": "post", "embedding_norm": True, "head_transform": True, "tie_head": True, "bias": {"head": True}},
    },
}
GENERATED: dict[str, dict[str, Any]] = {name: parts for name, parts in VARIANTS.items() if "BERT" not in name} | {
    "relu, parallel without norms": {"feed_forward": "relu", "parallel": True, "norm": "none"},
    "squared relu, scores as they are": {"feed_forward": "squared_relu", "attention": {"scale": "none"}},
    "scale 1/d_k": {"attention": {"scale": "linear"}},
    "scale of a number": {"attention": {"scale": 0.3}},
    "learned scale": {"attention": {"scale": "learned"}},
    "learned scale of each head": {"num_kv_heads": 1, "attention": {"scale": "learned-per-head"}},
    "alibi, both ways": {"positions": "alibi", "attention": {"mask": "bidirectional"}},
    "relative, both ways": {"positions": "relative", "attention": {"mask": "bidirectional"}},
    "lstm without biases": {"attention": "none", "recurrence": "lstm", "bias": False},
}
"""With these every branch runs of the two that generate faster, model/decode_step.py and model/native."""
TRACED = [name for name, parts in (VARIANTS | GENERATED).items() if "recurrence" not in parts]
"""All that can be explained step by step: an LSTM's steps are not known."""
BASE = {"context_length": 13, "d_model": 15, "num_heads": 3, "num_layers": 2, "d_ff": 7}

WIDE: dict[str, Any] = {"context_length": 150, "d_model": 72, "num_heads": 6, "num_kv_heads": 3, "d_head": 127}
"""Widths with whole vectors and a rest, and more positions than `step.c` reads at once."""


def made(variant: str | dict[str, Any], seed: int = 3) -> Transformer:
    """A model of a variant, by name or by its settings, whose parameters are all large and distinct."""
    changes = (VARIANTS | GENERATED)[variant] if isinstance(variant, str) else variant
    return enlarged(Transformer(ModelConfig.parse(BASE | changes), TOKENIZER.vocab_size, seed=seed).eval(), seed)


def enlarged(model: Transformer, seed: int = 3) -> Transformer:
    """The model with parameters that are all large and distinct."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def made_wide(variant: str) -> Transformer:
    """The model of a variant by name, as wide as `WIDE`."""
    changes = {"d_ff": 77} | GENERATED[variant]
    sizes = WIDE | {name: value for name, value in changes.items() if name not in ("d_model", "num_heads", "d_head")}
    if "num_kv_heads" in changes:
        sizes["num_kv_heads"] = 1
    if isinstance(changes.get("positions"), dict) or changes.get("positions") == "rotary":
        sizes["d_head"] = 24
    return made(sizes)
