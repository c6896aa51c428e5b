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

from collections.abc import Collection, Iterable, Sequence

from vitral.core.config import nearest
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
    outside = ["embed", "embed_norm", *inside, "final_norm", "pooled", "head_transform", "logits"]
    source: list[str] = []
    if encoder_layers is not None:
        lacking = ["pooled", "head_transform", "logits", *(step for step in steps if step.startswith(CROSS))]
        source = [f"encoder.{name}" for name in activation_names(encoder_layers, {*without, *lacking})]
    return [*source, *(name for name in outside if name not in without)]


def require_known(names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a name that is not among the `activation_names` of a model.

    Raises:
        UsageError: an unknown name; the message offers the nearest known one.
    """
    for name in names:
        if name not in known:
            raise UsageError("no activation is called {name!r}, {hint}", name=name, hint=nearest(name, known))
