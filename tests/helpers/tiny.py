"""Tiny computations of every part, by seed: large, small, equal and negative numbers, rows that see nothing."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitral.attention.masks import Bidirectional, Causal, Explicit
from vitral.explanation.recipe import Architecture, SheetQuantity, choice_of, follow, recipe
from vitral.explanation.rows import Beam
from vitral.explanation.sheet import Sheet
from vitral.model.positions import frequencies

SIZES = (0.001, 0.1, 1.0, 1.0, 1.0, 5.0, 100.0, 4000.0)
SCALES = ("none", "sqrt", "linear", "adaptive", "learned", "learned-per-head", 0.37)
WORDS = ("sun", "#", "(", "=", "mar", "céu é", ";", "1", "d'água", "rows")


class _Draw:
    """Random choices and numbers of one seed, of one size and number of decimals."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.size, self.digits = self.pick(*SIZES), int(self.rng.integers(0, 5))

    def pick(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def often(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def numbers(self, *shape: int, scale: float = 1.0) -> Tensor:
        made = self.rng.normal(size=shape) * scale
        return torch.tensor(np.round(made, self.digits) if self.often(0.7) else made, dtype=torch.float64)


def tiny_sheet(seed: int) -> Sheet:
    """A whole computation: embedding, one block or attention alone, head, and choices."""
    draw = _Draw(seed)
    pick, often = draw.pick, draw.often
    heads, d_head, time = pick(1, 2, 4), pick(1, 2, 4), pick(1, 2, 3, 4, 9)
    kind, activation = pick("pre", "post", None, "none"), pick("relu", "gelu", "squared_relu", "swiglu")
    tied, rotary, sinusoidal = often(0.5), d_head % 2 == 0 and often(0.3), often(0.3)
    scale = pick(*SCALES)
    values = _given(draw, heads, d_head, always_projects=kind is not None) | _feed_forward(draw, heads * d_head)
    if not sinusoidal and often(0.5):
        values["position_embedding"] = draw.numbers(time, heads * d_head)
    if not tied:
        values["w_u"] = draw.numbers(heads * d_head, len(WORDS))
    values["factor"] = draw.numbers(heads if scale == "learned-per-head" else 1).abs() + 0.1
    architecture = Architecture(
        stream="x" if kind is None else "resid_pre",
        norm=kind,
        sublayers=pick(("attn", "mlp"), ("attn",), ("mlp",)) if kind is not None else ("attn", "mlp"),
        residual=often(0.8),
        mask=pick(Causal(), Bidirectional(), Explicit(torch.tensor(draw.rng.random((heads, time, time)) < 0.5))),
        scale=scale,
        num_heads=heads,
        bias=draw.numbers(heads, time, time) if often(0.3) else None,
        frequencies=frequencies(d_head) if rotary else None,
        activation=activation,
        norm_type=pick("layernorm", "rmsnorm"),
        epsilon=pick(1e-5, 1e-5, 1e-3, 1e-12),
        final_norm=often(0.5),
        tied=tied,
        rows=tuple(int(row) for row in draw.rng.integers(len(WORDS), size=time)),
        sinusoidal=sinusoidal,
    )

    def lines() -> Iterator[SheetQuantity]:
        yield from recipe(architecture, values)
        yield from _choices(draw.rng, values)

    quantities = follow(lines(), values)
    first = int(draw.rng.integers(0, 2))
    return Sheet(quantities, values, (), WORDS, first, heads, architecture=architecture)


def _given(draw: _Draw, heads: int, d_head: int, *, always_projects: bool) -> dict[str, Tensor]:
    width, kv = heads * d_head, heads // draw.pick(1, 2) if heads > 1 else 1
    values = {
        "embedding": draw.numbers(len(WORDS), width, scale=draw.size),
        "w_q": draw.numbers(heads, width, d_head),
        "w_k": draw.numbers(kv, width, d_head),
        "w_v": draw.numbers(kv, width, d_head),
    }
    if draw.often(0.2):
        values["embedding"][:] = values["embedding"][:1]  # equal rows: equal scores
    if draw.often(0.2):
        values["embedding"][:, :] = values["embedding"][:, :1]  # a norm of equal numbers
    for name in "qkv":
        if draw.often(0.5):
            values[f"b_{name}"] = draw.numbers(*values[f"w_{name}"][:, 0].shape)
    if draw.often(0.6) or always_projects:
        values |= {"w_o": draw.numbers(width, width)} | ({"b_o": draw.numbers(width)} if draw.often(0.5) else {})
    for norm in ("attn_norm", "mlp_norm", "final_norm"):
        if draw.often(0.5):
            values |= {f"{norm}_gain": draw.numbers(width), f"{norm}_bias": draw.numbers(width)}
    return values


def _feed_forward(draw: _Draw, width: int) -> dict[str, Tensor]:
    d_ff = draw.pick(1, 3, 8)
    shapes = {"w_up": (width, d_ff), "w_down": (d_ff, width), "w_gate": (width, d_ff)}
    biases = {"b_up": (d_ff,), "b_down": (width,), "b_gate": (d_ff,)}
    kept = shapes | {name: shape for name, shape in biases.items() if draw.often(0.5)}
    return {name: draw.numbers(*shape) for name, shape in kept.items()}


def _choices(rng: np.random.Generator, values: dict[str, Tensor]) -> Iterator[SheetQuantity]:
    table = rng.random((len(WORDS), len(WORDS))) ** 3
    values["next"] = torch.tensor(table / table.sum(axis=1, keepdims=True))
    yield choice_of("greedy")
    rules = {
        "temperature": (0.0, 0.02, 0.3, 1.0, 2.5),
        "top_k": (1.0, 3.0, 9.0),
        "top_p": (0.2, 0.9, 1.0),
        "min_p": (0.1, 0.5),
    }
    for rule, options in rules.items():
        yield choice_of(f"{rule}_{float(rng.choice(options)):g}")
    beam = Beam(int(rng.integers(len(WORDS))), int(rng.integers(1, 4)), int(rng.integers(1, 5)))
    yield choice_of("beam", beam)
    yield choice_of("beam_probability", beam)
