"""Attention maps of a text, and the kind of every head.

Legend of axes: batch = rows of tokens, heads, time = queries, source = keys.
"""

from collections import defaultdict
from typing import Any

from jaxtyping import Bool, Int
from torch import Tensor

from vitral.data import Tokenizer
from vitral.inspection.ablation import RunningMean
from vitral.inspection.attention import (
    KINDS,
    attended_distance,
    attended_share,
    kind_masks,
    landmarks,
    mean_entropy_share,
    name_of,
    patient_queries,
    seeing_queries,
    uniform_weights,
)
from vitral.inspection.numbers import number, numbers
from vitral.inspection.targets import rows_at_once, text_tokens
from vitral.model import Transformer


def attention_maps(model: Transformer, tokenizer: Tokenizer, text: str) -> list[dict[str, Any]]:
    """The attention weights of all heads on a text.

    Returns:
        For each block {"layer", "heads"}, where `heads` are the maps as nested lists [heads][time][source]: rows are
        queries and sum to 1, columns are keys. An empty list for a model without attention.

    Raises:
        UsageError: an empty text, one longer than the context, or a character without a token.
    """
    tokens = text_tokens(model, tokenizer, text)
    names = weight_names(model)
    seen = model.trace(tokens, names) if names else {}
    return [{"layer": layer, "heads": numbers(seen[name][0])} for layer, name in enumerate(names)]


def weight_names(model: Transformer) -> list[str]:
    """Names of the attention weights of every block; none for a model without attention."""
    layers = 0 if model.mask is None else model.config.num_layers
    return [f"blocks.{layer}.attn.weights" for layer in range(layers)]


def head_kinds(model: Transformer, tokenizer: Tokenizer, tokens: Int[Tensor, "batch time"]) -> dict[str, Any]:
    """The kind of every head: the kind of key on which it has most weight beyond uniform attention.

    Shares are means over the queries that see at least `LEAST_KEYS` keys, or, in shorter rows, the most.

    Args:
        model: in evaluation mode.
        tokenizer: the model's; gives the borders of words and lines.
        tokens: rows of equal length, as the model reads them.

    Returns:
        `uniform`: for each kind (`vitral.inspection.KINDS`) the share of a head with equal weights on all visible keys,
        None where no query sees such a key. `layers`: for each block a list of its heads, each with `kind` (a key of
        `KINDS`, or "broad"), `share` (by kind), `distance` (mean positions between query and key) and `entropy` (as a
        share of the largest possible).
    """
    mask, time = model.mask, tokens.shape[1]
    if mask is None:
        return {"uniform": {}, "layers": []}
    visible = mask.allowed(time, time)
    uniform: dict[str, RunningMean] = defaultdict(RunningMean)
    layers: list[dict[str, RunningMean]] = [defaultdict(RunningMean) for _ in weight_names(model)]
    marks = landmarks(tokenizer)
    for rows in rows_at_once(model, tokens):
        keys = kind_masks(tokens[rows].cpu(), marks, visible)
        seen = model.trace(tokens[rows], weight_names(model)) if layers else {}
        _add(uniform, uniform_weights(visible), keys, visible)
        for means, name in zip(layers, weight_names(model), strict=True):
            _add(means, seen[name].cpu().double(), keys, visible)
    even = {kind: number(uniform[kind].value[0]) if kind in uniform else None for kind in KINDS}
    heads = range(model.config.num_heads)
    return {"uniform": even, "layers": [[_head(means, head, even) for head in heads] for means in layers]}


def _add(
    means: dict[str, RunningMean],
    weights: Tensor,
    keys: dict[str, Bool[Tensor, "batch time time"]],
    visible: Bool[Tensor, "time time"],
) -> None:
    """Take in the shares, distance and entropy of some rows' weights."""
    queries = patient_queries(visible)
    for kind, where in keys.items():
        share = attended_share(weights, where, queries)
        if share is not None:
            means[kind].add(share, seeing_queries(where, queries))
    means["distance"].add(attended_distance(weights, queries), len(weights))
    means["entropy"].add(mean_entropy_share(weights, visible, queries), len(weights))


def _head(means: dict[str, RunningMean], head: int, uniform: dict[str, float | None]) -> dict[str, Any]:
    share = {kind: number(means[kind].value[head]) if kind in means else None for kind in KINDS}
    distance, entropy = (number(means[name].value[head]) for name in ("distance", "entropy"))
    return {"kind": name_of(share, uniform), "share": share, "distance": distance, "entropy": entropy}
