"""Ablation of any named contribution: how much the loss rises when a part of the model no longer contributes.

The model itself is run; its tap replaces one or several named activations at every position, by zeros (Michel et al.
2019, §2.2) or by their mean over all positions of the rows. Zeros also remove what the activation adds to every
position alike; the mean keeps that and removes only what depends on the text.

A contribution is replaced before it joins the stream. In a pre-norm model with residual, zeros therefore give the model
without that part. In a post-norm model the norm after the part stays. Without residual the part's output is the whole
stream, so zeros cut the path from the input to the output.

Attention sinks: trained models often put much weight on the first token whatever it is, as a place for weight that no
key deserves (Xiao et al. 2024, §3.1; Gu et al. 2025). `attention_sinks` measures that weight, and the loss without it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.core.taps import Editor
from vitral.inspection.attention import key_shares, patient_queries
from vitral.inspection.edits import replaced
from vitral.inspection.lens import sublayer_outputs
from vitral.inspection.numbers import RunningMean, number
from vitral.inspection.targets import Scored, Tokens, loss_by_row, passes
from vitral.model import Transformer

Plain = dict[str, Any]
WAYS = ("zero", "mean")
"""What an ablated activation is replaced by."""


def replace_activations(
    names: Sequence[str], means: Mapping[str, Float[Tensor, "..."]] | None = None, heads: Sequence[int] | None = None
) -> Editor:
    """A tap that replaces named activations at every position.

    Args:
        names: of activations, as in `vitral.core.names`.
        means: the value of each name, broadcast over batch and time, as `activation_means` returns it; zeros if None.
        heads: the only heads to replace, counted from 0, where the activations are `[batch, heads, time, d_head]`;
            everything if None.
    """
    of = {name: torch.zeros(()) if means is None else means[name] for name in names}
    return Editor({name: lambda value, new=new: replaced(value, new.to(value), heads) for name, new in of.items()})


def activation_means(model: Transformer, inputs: Tokens, names: Sequence[str]) -> dict[str, Float[Tensor, "..."]]:
    """The mean of each activation over batch and time, both kept as axes of size 1, in float64 on the CPU.

    `[batch, time, width]` gives `[1, 1, width]`; `[batch, heads, time, d_head]` gives `[1, heads, 1, d_head]`.

    Raises:
        UsageError: a name that no activation has.
    """
    means = {name: RunningMean() for name in names}
    for _rows, kept in passes(model, inputs, names):
        for name, seen in kept.items():
            means[name].add(seen.cpu().double().mean(dim=(0, -2), keepdim=True), len(seen))
    return {name: mean.value for name, mean in means.items() if mean.weight}


def ablations(model: Transformer, scored: Scored, ways: Sequence[str] = WAYS) -> dict[str, Any] | None:
    """How much the loss rises without each head, attention sublayer, LSTM, feed-forward and block.

    A head is its z (`attn.z`), so that the bias of W_O stays; a sublayer is everything it adds (`attn.out`,
    `recurrence.out`, `mlp.out`); a block is both of its sublayers.

    Args:
        model: in evaluation mode.
        scored: inputs and targets; the means are over the same inputs.
        ways: of `WAYS`, those that are measured.

    Returns:
        None where nothing can be scored. Else `loss` (nats per token), `targets` and `rows` (their numbers), and
        `blocks`: for each block `layer`, `block`, `attention`, `recurrence` (only of a recurrent model), `feed_forward`
        (None where the model has none) and `heads`. Each of them is {"zero": effect, "mean": effect}; an effect has
        `increase` in nats per token, and `error`, its standard error over the rows, None unless the rows are several
        sampled windows.
    """
    if not scored.count:
        return None
    parts = {"attention": None, "feed_forward": None} | sublayer_outputs(model.config)
    there = [step for step in parts.values() if step is not None]
    layers, heads = range(model.config.num_layers), range(model.config.num_heads if parts["attention"] else 0)
    named = [f"blocks.{layer}.{step}" for layer in layers for step in (*there, *["attn.z"] * bool(heads))]
    means = activation_means(model, scored.inputs, named) if "mean" in ways else {}
    before = loss_by_row(model, scored)

    def without(layer: int, *steps: str | None, heads: Sequence[int] | None = None) -> Plain | None:
        names = [f"blocks.{layer}.{step}" for step in steps if step is not None]
        taps = {way: replace_activations(names, means if way == "mean" else None, heads) for way in ways if names}
        effects = {
            way: effect(before, loss_by_row(model, scored, tap), sampled=scored.sampled) for way, tap in taps.items()
        }
        return effects or None

    blocks = [
        {
            "layer": layer,
            "block": without(layer, *there),
            **{part: without(layer, step) for part, step in parts.items()},
            "heads": [without(layer, "attn.z", heads=[head]) for head in heads],
        }
        for layer in layers
    ]
    return {"loss": number(before.mean()), "targets": scored.count, "rows": len(scored.inputs), "blocks": blocks}


def effect(
    before: Float[Tensor, " batch"], after: Float[Tensor, " batch"], *, sampled: bool
) -> dict[str, float | None]:
    """The rise of the mean loss between two passes over the same rows, and its standard error where these are sampled.

    The error is over the rows; None where they are one, or no sample.
    """
    rise = after - before
    error = number(rise.std() / math.sqrt(len(rise))) if sampled and len(rise) > 1 else None
    return {"increase": number(rise.mean()), "error": error}


# ---------------------------------------------------------------- attention sinks


def attention_sinks(model: Transformer, windows: Scored) -> Plain:
    """Weight on the first position by layer and head, and the loss increase when it may not be attended to.

    The weight is a mean over the queries that see the first position and at least `LEAST_KEYS` keys (in shorter
    windows, the most).

    Args:
        model: in evaluation mode.
        windows: inputs and targets, of equal length.

    Returns:
        `uniform`: the weight on the first position of a head with equal weights on all visible keys. `layers`: for each
        block `heads`, each with `weight` and `without` (the effect of `without_first` on that head alone), and
        `without`, of all its heads together. `without`: of all heads of all blocks together. An effect is {"increase",
        "error"}, in nats per token, with the standard error over the windows or None. Without attention `layers` is
        empty; without targets all effects are None.
    """
    if model.mask is None or not len(model.blocks):
        return {"uniform": None, "layers": [], "without": None}

    def without(hidden: dict[int, Sequence[int]]) -> Plain | None:
        """The effect of `without_first`, against the same layers computed in the same steps with nothing hidden."""
        if not windows.count:
            return None
        before, after = (loss_by_row(model, windows, without_first(of)) for of in (dict.fromkeys(hidden, ()), hidden))
        return effect(before, after, sampled=windows.sampled)

    time, heads = windows.inputs.shape[1], range(model.config.num_heads)
    visible = model.mask.allowed(time, time)
    first = (visible & (torch.arange(time) == 0)).expand(len(windows.inputs), -1, -1)
    shares = key_shares(model, windows.inputs, {"weight": first}, {"weight": patient_queries(visible)})
    for layer, in_layer in enumerate(shares["layers"]):
        for head_index, head in enumerate(in_layer["heads"]):
            head["without"] = without({layer: [head_index]})
        in_layer["without"] = without({layer: heads})
    return {
        "uniform": shares["uniform"]["weight"],
        "layers": shares["layers"],
        "without": without(dict.fromkeys(range(model.config.num_layers), heads)),
    }


def hide_first(masked: Float[Tensor, "batch heads time source"], heads: Sequence[int]) -> Float[Tensor, "..."]:
    """The masked scores with -inf on the first key in these heads, for every query that sees another key.

    The softmax over the rest is the old weights without the first, divided by their sum. A query that sees only the
    first key keeps it.
    """
    chosen = torch.zeros(masked.shape[1], dtype=torch.bool, device=masked.device)
    chosen[list(heads)] = True
    sees_another = (masked[..., 1:] > -torch.inf).any(dim=-1)
    hidden = torch.zeros_like(masked, dtype=torch.bool)
    hidden[..., 0] = chosen[None, :, None] & sees_another
    return masked.masked_fill(hidden, -torch.inf)


def without_first(heads: Mapping[int, Sequence[int]]) -> Editor:
    """A tap by which the chosen heads of each layer do not attend to the first position; see `hide_first`."""
    return Editor(
        {
            f"blocks.{layer}.attn.masked": lambda masked, chosen=chosen: hide_first(masked, chosen)
            for layer, chosen in heads.items()
        }
    )
