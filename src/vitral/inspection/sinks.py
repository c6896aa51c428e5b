"""Attention sinks: how much weight heads have on the first position, and how much the loss rises without it.

Trained models often put much weight on the first token whatever it is, as a place for weight that no key deserves (Xiao
et al. 2024, §3.1; Gu et al. 2025).

Legend of axes: batch = rows of tokens, heads, time = queries, source = keys.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitral.core.checked import checked
from vitral.core.taps import Editor
from vitral.inspection.ablation import effect
from vitral.inspection.attention import (
    attended_share,
    patient_queries,
    seeing_queries,
    uniform_weights,
    weight_names,
)
from vitral.inspection.numbers import RunningMean, number
from vitral.inspection.targets import Scored, loss_by_row, rows_at_once
from vitral.model import Transformer


@checked(first=True)
def attention_sinks(model: Transformer, windows: Scored) -> dict[str, Any]:
    """Weight on the first position by layer and head, and the loss increase when it may not be attended to.

    The weight is a mean over the queries that see the first position and at least `LEAST_KEYS` keys (in shorter
    windows, the most).

    Args:
        model: in evaluation mode.
        windows: inputs and targets, of equal length.

    Returns:
        `uniform`: the weight on the first position of a head with equal weights on all visible keys. `loss`: of the
        whole model in nats per token. `layers`: for each block `heads`, each with `weight` and `without` (the effect of
        `without_first` on that head alone), and `without`, of all its heads together. `without`: of all heads of all
        blocks together. An effect is {"increase", "error"}, in nats per token, with the standard error over the windows
        or None. Without attention `layers` is empty; without targets `loss` and all effects are None.
    """
    shares = _weights_on_first(model, windows)
    layers = range(model.config.num_layers if model.mask is not None else 0)
    heads = range(model.config.num_heads)
    found = [
        {
            "heads": [
                {"weight": weight, "without": _without(model, windows, {layer: [head]})}
                for head, weight in zip(heads, shares["layers"][layer], strict=True)
            ],
            "without": _without(model, windows, {layer: heads}),
        }
        for layer in layers
    ]
    return {
        "uniform": shares["uniform"],
        "loss": number(loss_by_row(model, windows).mean()) if windows.count else None,
        "layers": found,
        "without": _without(model, windows, dict.fromkeys(layers, heads)) if layers else None,
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


def without_first(heads: dict[int, Sequence[int]]) -> Editor:
    """A tap by which the chosen heads of each layer do not attend to the first position; see `hide_first`."""
    return Editor(
        {
            f"blocks.{layer}.attn.masked": lambda masked, chosen=chosen: hide_first(masked, chosen)
            for layer, chosen in heads.items()
        }
    )


def _without(model: Transformer, windows: Scored, heads: dict[int, Sequence[int]]) -> dict[str, float | None] | None:
    """The effect of `without_first`, against the same layers computed in the same steps with nothing hidden."""
    if not windows.count:
        return None
    before = loss_by_row(model, windows, without_first(dict.fromkeys(heads, ())))
    return effect(before, loss_by_row(model, windows, without_first(heads)), sampled=windows.sampled)


def _weights_on_first(model: Transformer, windows: Scored) -> dict[str, Any]:
    """The mean weight on the first position: of uniform attention, and by layer and head."""
    if model.mask is None:
        return {"uniform": None, "layers": []}
    time = windows.inputs.shape[1]
    visible = model.mask.allowed(time, time)
    queries, first = patient_queries(visible), _first_key(visible)
    if not seeing_queries(first, queries):
        heads = [None] * model.config.num_heads
        return {"uniform": None, "layers": [heads] * model.config.num_layers}
    even = attended_share(uniform_weights(visible), first, queries)
    means = [RunningMean() for _ in weight_names(model)]
    for rows in rows_at_once(model, windows.inputs):
        seen = model.trace(windows.inputs[rows], weight_names(model)) if means else {}
        for mean, weights in zip(means, seen.values(), strict=True):
            share = attended_share(weights.cpu(), first.expand(len(weights), -1, -1), queries)
            if share is not None:
                mean.add(share, len(weights))
    return {
        "uniform": None if even is None else number(even[0]),
        "layers": [[number(each) for each in mean.value] for mean in means],
    }


def _first_key(visible: Bool[Tensor, "time time"]) -> Bool[Tensor, "1 time time"]:
    first = torch.zeros_like(visible)
    first[:, 0] = visible[:, 0]
    return first[None]
