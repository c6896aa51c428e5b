"""Tiny computations of every part, by seed: odd sizes, large, small, equal and negative numbers, rows that see nothing."""

import numpy as np
import torch
from torch import Tensor

from vitral.attention.masks import Bidirectional, Causal, Explicit
from vitral.explanation.operations import CellNamer
from vitral.explanation.operations.decoding import Beam, Filtered, Greedy
from vitral.explanation.recipe import Architecture, RecipeLine, follow, recipe
from vitral.explanation.sheet import Sheet
from vitral.model.positions import frequencies

SIZES = (0.001, 0.1, 1.0, 1.0, 1.0, 5.0, 100.0, 4000.0)
SCALES = ("none", "sqrt", "linear", "adaptive", "learned", "learned-per-head", 0.37)
WORDS = ("sun", "#", "(", "=", "mar", "céu é", ";", "1", "d'água", "rows")


def tiny_sheet(seed: int) -> Sheet:
    """A whole computation: embedding, one block or attention alone, head, and choices."""
    rng = np.random.default_rng(seed)
    pick = lambda *options: options[rng.integers(len(options))]  # noqa: E731
    heads, d_head, time = pick(1, 2, 4), pick(1, 2, 4), pick(1, 2, 3, 4, 9)
    kv = heads // pick(1, 2) if heads > 1 else 1
    width, d_ff, vocab = heads * d_head, pick(1, 3, 8), len(WORDS)
    size, digits = pick(*SIZES), int(rng.integers(0, 5))

    def numbers(*shape: int, scale: float = 1.0) -> Tensor:
        made = rng.normal(size=shape) * scale
        return torch.tensor(np.round(made, digits) if rng.random() < 0.7 else made, dtype=torch.float64)

    kind = pick("pre", "post", None, "none")
    gated = pick("relu", "gelu", "squared_relu", "swiglu")
    tied, rotary, sinusoidal = bool(rng.random() < 0.5), d_head % 2 == 0 and rng.random() < 0.3, rng.random() < 0.3
    stream = "x" if kind is None else "resid_pre"
    values = {
        "embedding": numbers(vocab, width, scale=size),
        "w_q": numbers(heads, width, d_head),
        "w_k": numbers(kv, width, d_head),
        "w_v": numbers(kv, width, d_head),
        "w_up": numbers(width, d_ff),
        "w_down": numbers(d_ff, width),
        "factor": numbers(heads if True else 1).abs() + 0.1,
    }
    if rng.random() < 0.2:
        values["embedding"][:] = values["embedding"][:1]  # equal rows: equal scores
    if rng.random() < 0.2:
        values["embedding"][:, :] = values["embedding"][:, :1]  # a norm of equal numbers
    if not sinusoidal and rng.random() < 0.5:
        values["position_embedding"] = numbers(time, width)
    for name in ("q", "k", "v"):
        if rng.random() < 0.5:
            values[f"b_{name}"] = numbers(*values[f"w_{name}"][:, 0].shape)
    for name, shape in {"b_up": d_ff, "b_down": width}.items():
        if rng.random() < 0.5:
            values[name] = numbers(shape)
    if gated == "swiglu":
        values |= {"w_gate": numbers(width, d_ff), "b_gate": numbers(d_ff)}
    if rng.random() < 0.6 or kind is not None:
        values |= {"w_o": numbers(width, width)} | ({"b_o": numbers(width)} if rng.random() < 0.5 else {})
    if not tied:
        values["w_u"] = numbers(width, vocab)
    for norm in ("attn_norm", "mlp_norm", "final_norm"):
        if rng.random() < 0.5:
            values |= {f"{norm}_gain": numbers(width), f"{norm}_bias": numbers(width)}
    scale = pick(*SCALES)
    values["factor"] = values["factor"][: heads if scale == "learned-per-head" else 1]
    allowed = torch.tensor(rng.random((heads, time, time)) < 0.5)
    architecture = Architecture(
        stream=stream,
        norm=kind,
        sublayers=pick(("attn", "mlp"), ("attn",), ("mlp",)) if kind is not None else ("attn", "mlp"),
        residual=bool(rng.random() < 0.8),
        mask=pick(Causal(), Bidirectional(), Explicit(allowed)),
        scale=scale,
        num_heads=heads,
        bias=numbers(heads, time, time) if rng.random() < 0.3 else None,
        frequencies=frequencies(d_head) if rotary else None,
        activation=gated,
        norm_type=pick("layernorm", "rmsnorm"),
        epsilon=pick(1e-5, 1e-5, 1e-3, 1e-12),
        final_norm=bool(rng.random() < 0.5),
        tied=tied,
        rows=tuple(int(row) for row in rng.integers(vocab, size=time)),
        sinusoidal=sinusoidal,
    )

    def lines():
        yield from recipe(architecture, values)
        yield from _choices(rng, values)

    quantities = follow(lines(), values)
    namer = CellNamer(first=int(rng.integers(0, 2)))
    return Sheet(quantities, values, (), WORDS, namer, heads)


def _choices(rng: np.random.Generator, values: dict[str, Tensor]):
    table = rng.random((len(WORDS), len(WORDS))) ** 3
    values["next"] = torch.tensor(table / table.sum(axis=1, keepdims=True))
    yield RecipeLine("greedy", ("choice",), ("probabilities",), lambda _: Greedy())
    rules = {
        "temperature": (0.0, 0.02, 0.3, 1.0, 2.5),
        "top_k": (1.0, 3.0, 9.0),
        "top_p": (0.2, 0.9, 1.0),
        "min_p": (0.1, 0.5),
    }
    for rule, options in rules.items():
        value = float(rng.choice(options))
        yield RecipeLine(
            f"{rule}_{value:g}", ("vocab",), ("probabilities",), lambda _, made=Filtered(rule, value): made
        )
    beam = Beam(int(rng.integers(len(WORDS))), int(rng.integers(1, 4)), int(rng.integers(1, 5)))
    yield RecipeLine("beam", ("choice",), ("next",), lambda _: beam)
    chance = Beam(beam.start, beam.num_beams, beam.length, probability=True)
    yield RecipeLine("beam_probability", ("choice",), ("next",), lambda _: chance)
