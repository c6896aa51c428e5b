"""Ablation of any named contribution: how much the loss rises when a part of the model no longer contributes.

The model itself is run; its tap replaces one or several named activations at every position, by zeros (Michel et al.
2019, §2.2) or by their mean over all positions of the rows. Zeros also remove what the activation adds to every
position alike; the mean keeps that and removes only what depends on the text.

A contribution is replaced before it joins the stream. In a pre-norm model with residual, zeros therefore give the model
without that part. In a post-norm model the norm after the part stays. Without residual the part's output is the whole
stream, so zeros cut the path from the input to the output.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.taps import Editor
from vitral.inspection.edit_data import replaced
from vitral.inspection.numbers import RunningMean, number
from vitral.inspection.targets import Scored, loss_by_row, passes
from vitral.model import Transformer

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
    of = {name: None if means is None else means[name] for name in names}
    return Editor({name: partial(_without, mean=mean, heads=heads) for name, mean in of.items()})


def _without(value: Tensor, mean: Tensor | None, heads: Sequence[int] | None) -> Tensor:
    return replaced(value, torch.zeros_like(value) if mean is None else mean.to(value), heads)


def activation_means(
    model: Transformer, inputs: Int[Tensor, "batch time"], names: Sequence[str]
) -> dict[str, Float[Tensor, "..."]]:
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
    sublayers = {
        "attention": "attn.out" if model.config.attention != "none" else None,
        "recurrence": "recurrence.out" if model.config.recurrence is not None else None,
        "feed_forward": "mlp.out" if model.config.feed_forward != "none" else None,
    }
    there = [step for step in sublayers.values() if step is not None]
    layers, heads = range(model.config.num_layers), range(model.config.num_heads if sublayers["attention"] else 0)
    named = [f"blocks.{layer}.{step}" for layer in layers for step in (*there, *["attn.z"] * bool(heads))]
    means = activation_means(model, scored.inputs, named) if "mean" in ways else {}
    before = loss_by_row(model, scored)

    def without(layer: int, *steps: str | None, head: int | None = None) -> dict[str, Any] | None:
        names = [f"blocks.{layer}.{step}" for step in steps if step is not None]
        chosen = None if head is None else [head]
        after = {way: loss_by_row(model, scored, _replaced(way, names, means, chosen)) for way in ways if names}
        return {way: effect(before, losses, sampled=scored.sampled) for way, losses in after.items()} or None

    blocks = [
        {
            "layer": layer,
            "block": without(layer, *there),
            **{part: without(layer, step) for part, step in sublayers.items() if step or part != "recurrence"},
            "heads": [without(layer, "attn.z", head=head) for head in heads],
        }
        for layer in layers
    ]
    return {"loss": number(before.mean()), "targets": scored.count, "rows": len(scored.inputs), "blocks": blocks}


def head_ablations(model: Transformer, scored: Scored) -> dict[str, Any]:
    """Loss increase without each head, and without all heads of each layer, by zeros and by the mean.

    Args:
        model: in evaluation mode, with attention.
        scored: inputs and targets; the means are over the same inputs.

    Returns:
        `loss` of the whole model in nats per token; `layers`, each with `heads`, a list, and `all`. Both contain for
        `zero` and for `mean` the `increase` in nats per token and its standard `error` over windows.
    """
    before, heads = loss_by_row(model, scored), list(range(model.config.num_heads))
    names = [f"blocks.{layer}.attn.z" for layer in range(model.config.num_layers)]
    means = activation_means(model, scored.inputs, names)

    def without(name: str, heads: list[int]) -> dict[str, dict[str, float]]:
        after = {way: loss_by_row(model, scored, _replaced(way, [name], means, heads)) for way in WAYS}
        rises = {way: loss_increase(before, losses) for way, losses in after.items()}
        return {way: {"increase": rise, "error": error} for way, (rise, error) in rises.items()}

    layers = [{"heads": [without(name, [head]) for head in heads], "all": without(name, heads)} for name in names]
    return {"loss": float(before.mean()), "layers": layers}


def _replaced(way: str, names: Sequence[str], means: Mapping[str, Tensor], heads: list[int] | None) -> Editor:
    return replace_activations(names, means if way == "mean" else None, heads)


def loss_increase(before: Float[Tensor, " batch"], after: Float[Tensor, " batch"]) -> tuple[float, float]:
    """Rise of the mean loss between two passes over the same rows, and its standard error over rows; 0 for one row."""
    rise = after - before
    return float(rise.mean()), float(rise.std() / math.sqrt(len(rise))) if len(rise) > 1 else 0.0


def effect(
    before: Float[Tensor, " batch"], after: Float[Tensor, " batch"], *, sampled: bool
) -> dict[str, float | None]:
    """The rise of the mean loss, and its standard error over the rows where these are several sampled windows."""
    rise, error = loss_increase(before, after)
    return {"increase": number(rise), "error": number(error) if sampled and len(before) > 1 else None}
