"""Rewrites: another configuration and other weights of the same function, for forms that can express only the other."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitral.model import ModelConfig
from vitral.model.positions import sinusoids


def model_config(plain: dict[str, Any], where: str) -> ModelConfig:
    """The configuration of plain data."""
    return ModelConfig.parse(plain, where)


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
        """The same with further weights and other keys of the configuration."""
        plain = {**self.config.plain(), **keys}
        config = model_config({key: value for key, value in plain.items() if value is not None}, "model")
        return Weighted(config, {**self.weights, **weights})

    def zeros(self, *shape: int) -> Tensor:
        """Zeros of the weights' precision."""
        return torch.zeros(shape, dtype=self.weights["token_embedding.weight"].dtype)

    def norm(self, name: str) -> dict[str, Tensor]:
        """The weights of a norm that changes nothing but what all norms change."""
        width, config = self.config.d_model, self.config
        has_bias = config.biases.norm and config.norm_type == "layernorm"
        return {f"{name}.weight": self.zeros(width) + 1} | ({f"{name}.bias": self.zeros(width)} if has_bias else {})

    @property
    def blocks(self) -> Iterator[str]:
        """The names of the blocks."""
        return (f"blocks.{layer}" for layer in range(self.config.num_layers))


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
        learned = {name: f"{name}.attn.scale.factor" for name in model.blocks}
        if scale in ("learned", "learned-per-head"):
            factors = {name: model.weights[key].double().flatten() for name, key in learned.items()}
        elif isinstance(scale, float | int) or scale in known:
            number = known[scale] if isinstance(scale, str) else scale
            factors = dict.fromkeys(learned, torch.tensor([number], dtype=torch.float64))
        else:
            return model
        folded: dict[str, Tensor] = {}
        for name, factor in factors.items():
            heads = (factor / known[into]).expand(config.num_heads)
            for part in ("weight", "bias"):
                key = f"{name}.attn.in_proj.{part}"
                if key in model.weights:
                    folded[key] = _scaled_queries(model.weights[key], heads, config.d_head)
        kept = {key: tensor for key, tensor in model.weights.items() if key not in learned.values()}
        attention = {**config.plain()["attention"], "scale": into}
        return Weighted(config, kept).changed(folded, attention=attention)

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
    shape = (config.context_length, config.d_model)
    table = model.zeros(*shape) if config.positions == "none" else sinusoids(*shape).to(model.zeros(1))
    return model.changed({"positions.weight": table}, positions="learned")


def with_attention(model: Weighted) -> Weighted:
    """Blocks without attention get one that adds zero."""
    config = model.config
    if config.attention != "none" or config.recurrence is not None or config.norm != "pre" or not config.residual:
        return model
    added: dict[str, Tensor] = {}
    rows = (config.num_heads + 2 * config.kv_heads) * config.d_head
    for name in model.blocks:
        added |= model.norm(f"{name}.attn_norm")
        added[f"{name}.attn.in_proj.weight"] = model.zeros(rows, config.d_model)
        added[f"{name}.attn.out_proj.weight"] = model.zeros(config.d_model, config.num_heads * config.d_head)
        if config.biases.qkv:
            added[f"{name}.attn.in_proj.bias"] = model.zeros(rows)
        if config.biases.output:
            added[f"{name}.attn.out_proj.bias"] = model.zeros(config.d_model)
    return model.changed(added, attention={"mask": "causal", "scale": "sqrt"})


def with_feed_forward(kind: str) -> Rewrite:
    """Blocks without a feed-forward get one that adds zero."""

    def add(model: Weighted) -> Weighted:
        config = model.config
        if config.feed_forward != "none" or config.norm != "pre" or not config.residual:
            return model
        width, hidden = config.d_model, 4 * config.d_model
        added: dict[str, Tensor] = {}
        for name in model.blocks:
            added |= model.norm(f"{name}.mlp_norm")
            for part in ("gate", "up") if kind == "swiglu" else ("up",):
                added[f"{name}.mlp.{part}.weight"] = model.zeros(hidden, width)
                if config.biases.feed_forward:
                    added[f"{name}.mlp.{part}.bias"] = model.zeros(hidden)
            added[f"{name}.mlp.down.weight"] = model.zeros(width, hidden)
            if config.biases.feed_forward:
                added[f"{name}.mlp.down.bias"] = model.zeros(width)
        return model.changed(added, feed_forward=kind, d_ff=hidden)

    return add


def with_biases(**wanted: bool) -> Rewrite:
    """Biases of zero where there are none, and none where all of them are zero, as a form wants them.

    Args:
        wanted: "qkv", "output", "feed_forward", "norm" and whether the form has them.
    """

    def set_biases(model: Weighted) -> Weighted:
        biases = model.config.biases.model_dump()
        weights, kept = dict(model.weights), dict(biases)
        for kind, has in wanted.items():
            if has == biases[kind] or (kind == "norm" and model.config.norm_type != "layernorm"):
                continue
            names = [name for name in weights if _bias_kind(name) == kind]
            if has:
                matrices = [name.removesuffix("weight") for name in names if name.endswith("weight")]
                weights |= {f"{name}bias": model.zeros(len(weights[f"{name}weight"])) for name in matrices}
            elif any(bool(weights[name].any()) for name in names if name.endswith("bias")):
                continue
            else:
                weights = {
                    name: tensor for name, tensor in weights.items() if name not in names or name.endswith("weight")
                }
            kept[kind] = has
        return model if kept == biases else Weighted(model.config, weights).changed({}, bias=kept)

    return set_biases


def even_biases(model: Weighted) -> Weighted:
    """Attention's biases are all there or none: zeros fill the gap."""
    biases = model.config.biases
    return model if biases.qkv == biases.output else with_biases(qkv=True, output=True)(model)


_BIASED = {
    ".attn.in_proj.": "qkv",
    ".attn.out_proj.": "output",
    ".mlp.up.": "feed_forward",
    ".mlp.gate.": "feed_forward",
    ".mlp.down.": "feed_forward",
    "_norm.": "norm",
}


def _bias_kind(name: str) -> str | None:
    return next((kind for part, kind in _BIASED.items() if part in name), None)


def with_own_keys(model: Weighted) -> Weighted:
    """Key-value heads that serve several heads, repeated for each of them."""
    config = model.config
    if config.attention == "none" or config.kv_heads == config.num_heads:
        return model
    times, repeated = config.num_heads // config.kv_heads, {}
    widths = [heads * config.d_head for heads in (config.num_heads, config.kv_heads, config.kv_heads)]
    for name in model.blocks:
        for part in ("weight", "bias"):
            key = f"{name}.attn.in_proj.{part}"
            if key in model.weights:
                queries, *others = model.weights[key].split(widths)
                repeated[key] = torch.cat([queries, *(_repeated(one, config.kv_heads, times) for one in others)])
    return model.changed(repeated, num_kv_heads=config.num_heads)


def _repeated(rows: Tensor, heads: int, times: int) -> Tensor:
    return rows.reshape(heads, -1, *rows.shape[1:]).repeat_interleave(times, dim=0).reshape(-1, *rows.shape[1:])


def untied(model: Weighted) -> Weighted:
    """A head of its own."""
    if not model.config.tie_head:
        return model
    return model.changed({"head.weight": model.weights["token_embedding.weight"].clone()}, tie_head=False)
