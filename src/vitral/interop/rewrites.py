"""Rewrites: another configuration and other weights of the same function, for forms that can express only the other."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitral.interop.rules import projections
from vitral.model import ModelConfig, parameter_table
from vitral.model.positions import sinusoids


@dataclass(frozen=True)
class Weighted:
    """A configuration and its weights.

    Attributes:
        config: the configuration.
        weights: every tensor by its name.
    """

    config: ModelConfig
    weights: Mapping[str, Tensor]

    def changed(self, weights: Mapping[str, Tensor], **keys: Any) -> "Weighted":
        """The same with other weights and other keys of the configuration.

        A tensor that the new configuration lacks is left out. One that it has in addition is zero, as what adds
        nothing; the gain of a norm is one.
        """
        plain = {**self.config.plain(), **keys}
        config = ModelConfig.parse({key: value for key, value in plain.items() if value is not None}, "model")
        held = {**self.weights, **weights}
        embedding = held["token_embedding.weight"]
        added = {
            row.name: embedding.new_full(row.shape, float(row.name.endswith("norm.weight")))
            for row in parameter_table(config, len(embedding))
        }
        return Weighted(config, {name: held.get(name, tensor) for name, tensor in added.items()})

    @property
    def projections(self) -> Iterator[str]:
        """The names of the weights and biases of queries, keys and values."""
        return (name for name in self.weights if ".attn.in_proj." in name)


Rewrite = Callable[[Weighted], Weighted]


def forget_training(model: Weighted) -> Weighted:
    """Without what matters in training only: dropout, initial values, their parametrisation."""
    return model.changed({}, dropout=None, initialisation=None, parametrisation=None)


def fold_scale(into: str) -> Rewrite:
    """Any scale that is a number for each head becomes "sqrt" or "none"; the rest of it is in W_Q."""

    def fold(model: Weighted) -> Weighted:
        config = model.config
        if config.attention == "none" or config.attention.scale == into:
            return model
        scale, root = config.attention.scale, 1 / math.sqrt(config.d_head)
        known = {"none": 1.0, "sqrt": root, "linear": 1 / config.d_head}
        if scale not in ("learned", "learned-per-head", *known) and not isinstance(scale, float | int):
            return model
        number = known.get(scale, 1.0) if isinstance(scale, str) else scale
        folded = dict[str, Tensor]()
        for key in model.projections:
            learned = f"{key.partition('in_proj')[0]}scale.factor"
            factor = (
                model.weights.get(learned, torch.tensor(number, dtype=torch.float64)).double().flatten() / known[into]
            )
            folded[key] = _scaled_queries(model.weights[key], factor.expand(config.num_heads), config.d_head)
        return model.changed(folded, attention={**config.plain()["attention"], "scale": into})

    return fold


def _scaled_queries(projection: Tensor, heads: Tensor, d_head: int) -> Tensor:
    queries = len(heads) * d_head
    rows = heads.repeat_interleave(d_head).reshape(-1, *([1] * (projection.dim() - 1)))
    scaled = (projection[:queries].double() * rows).to(projection.dtype)
    return torch.cat([scaled, projection[queries:]])


def positions_as_table(model: Weighted) -> Weighted:
    """Sines and no positions as the table of learned ones."""
    config = model.config
    if config.positions not in ("sinusoidal", "none"):
        return model
    sines = sinusoids(config.context_length, config.d_model).to(model.weights["token_embedding.weight"])
    return model.changed({"positions.weight": sines} if config.positions == "sinusoidal" else {}, positions="learned")


def with_attention(model: Weighted) -> Weighted:
    """Blocks without attention get one that adds zero."""
    config = model.config
    if config.attention != "none" or config.recurrence is not None or config.norm != "pre" or not config.residual:
        return model
    return model.changed({}, attention={"mask": "causal", "scale": "sqrt"})


def with_feed_forward(kind: str) -> Rewrite:
    """Blocks without a feed-forward get one that adds zero."""

    def add(model: Weighted) -> Weighted:
        config = model.config
        if config.feed_forward != "none" or config.norm != "pre" or not config.residual:
            return model
        return model.changed({}, feed_forward=kind, d_ff=4 * config.d_model)

    return add


def with_biases(**wanted: bool) -> Rewrite:
    """Biases of zero where there are none, and none where all of them are zero, as a form wants them.

    Args:
        wanted: "qkv", "output", "feed_forward", "norm" and whether the form has them.
    """

    def set_biases(model: Weighted) -> Weighted:
        used = {_bias_kind(name) for name, tensor in model.weights.items() if name.endswith(".bias") and tensor.any()}
        biases = model.config.biases.model_dump()
        set_to = biases | {kind: has for kind, has in wanted.items() if has or kind not in used}
        return model if set_to == biases else model.changed({}, bias=set_to)

    return set_biases


def even_biases(model: Weighted) -> Weighted:
    """Attention's biases are all there or none: zeros fill the gap."""
    biases = model.config.biases
    return model if biases.qkv == biases.output else with_biases(qkv=True, output=True)(model)


def _bias_kind(name: str) -> str:
    kinds = {".in_proj.": "qkv", ".out_proj.": "output", "norm.": "norm"}
    kinds |= dict.fromkeys((".mlp.", ".linear."), "feed_forward")
    return next((kind for part, kind in kinds.items() if part in name), "head")


def with_own_keys(model: Weighted) -> Weighted:
    """Key-value heads that serve several heads, repeated for each of them."""
    config = model.config
    if config.attention == "none" or config.kv_heads == config.num_heads:
        return model
    times, repeated = config.num_heads // config.kv_heads, dict[str, Tensor]()
    for key in model.projections:
        queries, *others = model.weights[key].split(projections(config))
        heads = [one.reshape(config.kv_heads, -1, *one.shape[1:]).repeat_interleave(times, dim=0) for one in others]
        repeated[key] = torch.cat([queries, *(one.reshape(-1, *queries.shape[1:]) for one in heads)])
    return model.changed(repeated, num_kv_heads=config.num_heads)


def untied(model: Weighted) -> Weighted:
    """A head of its own."""
    if not model.config.tie_head:
        return model
    return model.changed({"head.weight": model.weights["token_embedding.weight"].clone()}, tie_head=False)
