"""The canonical names of tensor axes, attention steps and model activations.

Traces, explanations, worked examples, inspection, pages and documentation use these names and no others. The axes:

    batch    sequences in a batch
    time     query positions
    source   key and value positions
    heads    attention heads
    d_model  width of the residual stream
    d_head   width of one head, also written d_k
    d_ff     width of the feed-forward's hidden layer
    vocab    tokens of the vocabulary
    layers   blocks
"""

import re
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from vitral.core.config import closest, nearest
from vitral.core.errors import UsageError

ATTENTION_STEPS = {
    "q": "queries: what each position looks for",
    "k": "keys: what each position offers to be found by",
    "v": "values: what each position hands over when found",
    "scores": "q·k for every query and key",
    "scaled": "scores times the scale",
    "masked": "scaled, with any position bias added and -inf where attention is not allowed",
    "weights": "softmax of masked, over the keys",
    "z": "each head's weighted sum of values",
    "out": "the heads side by side, times W_O",
}
"""Where attention is computed alone, outside a block, its input is called `x`."""

BLOCK_STEPS = {
    "resid_pre": "residual stream before the block",
    "attn_norm": "pre-norm only: the normalised stream, input of attention",
    "attn.q_pre": "rotary positions only: queries before the rotation",
    "attn.k_pre": "rotary positions only: keys before the rotation",
    **{f"attn.{step}": meaning for step, meaning in ATTENTION_STEPS.items()},
    "attn_sum": "post-norm only: resid_pre + attn.out, input of the norm",
    "recurrence_norm": "pre-norm and LSTM only: the normalised stream, input of the LSTM",
    "recurrence.out": "LSTM only: its hidden state",
    "recurrence_sum": "post-norm and LSTM only: resid_pre + recurrence.out, input of the norm",
    "resid_mid": "residual stream after attention or the LSTM",
    "cross_norm": "pre-norm and encoder-decoder only: the normalised stream, input of cross-attention",
    **{f"cross.{step}": f"encoder-decoder only: {meaning}" for step, meaning in ATTENTION_STEPS.items()},
    "cross_sum": "post-norm and encoder-decoder only: resid_mid + cross.out, input of the norm",
    "resid_cross": "encoder-decoder only: residual stream after cross-attention",
    "mlp_norm": "pre-norm only: the normalised stream, input of the feed-forward",
    "mlp.gate": "SwiGLU only: the gate's projection, before SiLU",
    "mlp.pre": "first projection of the feed-forward, before the activation",
    "mlp.hidden": "hidden layer of the feed-forward, after the activation",
    "mlp.out": "output of the feed-forward",
    "mlp_sum": "post-norm only: resid_mid (or resid_cross) + mlp.out, input of the norm",
    "resid_post": "residual stream after the block",
}
"""Activations of one block, in the order in which they are computed.

In post-norm the outputs of the norms are `resid_mid`, `resid_cross` and `resid_post`. In cross-attention the queries
are of the decoder's stream, keys and values of the encoder's states.
"""
CROSS = ("cross", "resid_cross")
"""How the names begin that only the decoder's blocks of an encoder-decoder have."""
BEFORE_BLOCKS = {
    "embed": "token embeddings, with the position vectors that are added to them",
    "embed_norm": "models with a norm after the embedding only: the normalised embeddings",
}
AFTER_BLOCKS = {
    "final_norm": "the normalised stream, input of the head; in post-norm the stream itself",
    "pooled": "models of labels only: mean over the positions",
    "head_transform": "models with BERT's ends only: output of the transform before the head",
    "logits": "scores of the next token, or of the labels",
}
"""Activations outside the blocks, in the order in which they are computed."""
TRANSFORMER_LENS = {
    "hook_embed": ("embed",),
    "hook_resid_pre": ("resid_pre",),
    "ln1.hook_normalized": ("attn_norm",),
    "attn.hook_q": ("attn.q_pre", "attn.q"),
    "attn.hook_k": ("attn.k_pre", "attn.k"),
    "attn.hook_v": ("attn.v",),
    "attn.hook_rot_q": ("attn.q",),
    "attn.hook_rot_k": ("attn.k",),
    "attn.hook_attn_scores": ("attn.masked",),
    "attn.hook_pattern": ("attn.weights",),
    "attn.hook_z": ("attn.z",),
    "hook_attn_out": ("attn.out",),
    "hook_resid_mid": ("resid_mid",),
    "ln2.hook_normalized": ("mlp_norm",),
    "mlp.hook_pre": ("mlp.gate", "mlp.pre"),
    "mlp.hook_pre_linear": ("mlp.pre",),
    "mlp.hook_post": ("mlp.hidden",),
    "hook_mlp_out": ("mlp.out",),
    "hook_resid_post": ("resid_post",),
    "ln_final.hook_normalized": ("final_norm",),
}
"""The names of TransformerLens, each with those here: the first that a model has. In a block the part after its number.

In TransformerLens the position vectors are added after `hook_embed`, and axes are in another order: `hook_q`, `hook_k`,
`hook_v` and `hook_z` are [batch, time, heads, d_head] there and [batch, heads, time, d_head] here.
"""


def activation_names(num_layers: int, without: Collection[str] = (), encoder_layers: int | None = None) -> list[str]:
    """The names of the activations of a model with `num_layers` blocks, in the order in which they are computed.

    Args:
        num_layers: number of blocks.
        without: names in `BLOCK_STEPS`, "embed_norm", "pooled" and "head_transform" that the model does not have; if
            empty, the list covers every kind of model.
        encoder_layers: number of the encoder's blocks; None without an encoder of its own.

    >>> activation_names(1)[:3]
    ['embed', 'embed_norm', 'blocks.0.resid_pre']
    """
    steps = [step for step in BLOCK_STEPS if step not in without]
    inside = [f"blocks.{layer}.{step}" for layer in range(num_layers) for step in steps]
    outside = [*BEFORE_BLOCKS, *inside, *AFTER_BLOCKS]
    source: list[str] = []
    if encoder_layers is not None:
        lacking = ["pooled", "head_transform", "logits", *(step for step in steps if step.startswith(CROSS))]
        source = [f"encoder.{name}" for name in activation_names(encoder_layers, {*without, *lacking})]
    return [*source, *(name for name in outside if name not in without)]


def aliases(known: Collection[str]) -> dict[str, str]:
    """The names of TransformerLens, with and without `hook_`, each with the name that a model has for it.

    >>> aliases(["blocks.0.attn.weights"])
    {'blocks.0.attn.hook_pattern': 'blocks.0.attn.weights', 'blocks.0.attn.pattern': 'blocks.0.attn.weights'}
    """
    made: dict[str, str] = {}
    for block in dict.fromkeys("".join(re.findall(r"^.*blocks\.\d+\.", name)) for name in known):
        for theirs, ours in TRANSFORMER_LENS.items():
            if own := next((block + one for one in ours if block + one in known), None):
                made |= {block + theirs: own, block + theirs.replace("hook_", ""): own}
    return made


def names_of(asked: str | Iterable[str], known: Sequence[str]) -> list[str]:
    """The names that a model has for one or several: its own, TransformerLens', or patterns such as `*.weights`.

    Raises:
        UsageError: an unknown name, or a pattern that no name matches; the message offers the nearest name.

    >>> names_of(["blocks.*.hook_pattern", "embed"], ["embed", "blocks.0.attn.weights", "blocks.1.attn.weights"])
    ['blocks.0.attn.weights', 'blocks.1.attn.weights', 'embed']
    """
    asked = [asked] if isinstance(asked, str) else list(asked)
    if other := [name for name in asked if isinstance(cast("Any", name), tuple)]:
        raise UsageError(
            '{name}: a name is a string; use the pair on the result, as in cache["resid_post", -1]', name=other[0]
        )
    if set(asked) <= set(known):
        return asked
    understood = aliases(known) | {name: name for name in known}
    names: list[str] = []
    for name in asked:
        matching = [own for one, own in understood.items() if fnmatchcase(one, name)] or [understood.get(name, "")]
        if matching == [""]:
            hint = closest(name, understood) or nearest(name, known)
            raise UsageError("no activation is called {name!r}, {hint}", name=name, hint=hint)
        names += matching
    return list(dict.fromkeys(names))


def require_known(names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a name that is not among the `activation_names` of a model.

    Raises:
        UsageError: an unknown name; the message offers the nearest known one.
    """
    for name in names:
        if name not in known:
            raise UsageError("no activation is called {name!r}, {hint}", name=name, hint=nearest(name, known))
