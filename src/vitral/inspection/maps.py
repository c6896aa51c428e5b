"""Attention maps of a text, and the kind of every head.

Legend of axes: batch = rows of tokens, heads, time = queries, source = keys.
"""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Int
from torch import Tensor

from vitral.data import Tokenizer
from vitral.inspection.attention import head_patterns
from vitral.inspection.numbers import number, numbers
from vitral.inspection.targets import text_tokens
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
    found = head_patterns(model, tokenizer, tokens)
    layers = [[_head(head) for head in layer["heads"]] for layer in found["layers"]]
    return {"uniform": _rounded(found["uniform"]), "layers": layers}


def _head(pattern: Mapping[str, Any]) -> dict[str, Any]:
    distance, entropy = number(pattern["distance"]), number(pattern["entropy"])
    return {"kind": pattern["name"], "share": _rounded(pattern["share"]), "distance": distance, "entropy": entropy}


def _rounded(shares: Mapping[str, float | None]) -> dict[str, float | None]:
    return {kind: None if share is None else number(share) for kind, share in shares.items()}
