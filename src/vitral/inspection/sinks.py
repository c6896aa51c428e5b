"""Attention sinks: how much weight heads have on the first position, and how much the loss rises without it.

Trained models often put much weight on the first token whatever it is, as a place for weight that no key deserves (Xiao
et al. 2024, §3.1; Gu et al. 2025).

Legend of axes: batch = rows of tokens, heads, time = queries, source = keys.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.core.taps import Editor
from vitral.inspection.ablation import effect
from vitral.inspection.attention import key_shares, patient_queries
from vitral.inspection.numbers import number
from vitral.inspection.targets import Scored, loss_by_row
from vitral.model import Transformer


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
    loss = number(loss_by_row(model, windows).mean()) if windows.count else None
    if model.mask is None:
        return {"uniform": None, "loss": loss, "layers": [], "without": None}
    time, heads = windows.inputs.shape[1], range(model.config.num_heads)
    visible = model.mask.allowed(time, time)
    first = (visible & (torch.arange(time) == 0)).expand(len(windows.inputs), -1, -1)
    shares = key_shares(model, windows.inputs, {"weight": first}, {"weight": patient_queries(visible)})
    for layer, found in enumerate(shares["layers"]):
        for place, head in enumerate(found["heads"]):
            head["without"] = _without(model, windows, {layer: [place]})
        found["without"] = _without(model, windows, {layer: heads})
    return {
        "uniform": shares["uniform"]["weight"],
        "loss": loss,
        "layers": shares["layers"],
        "without": _without(model, windows, dict.fromkeys(range(model.config.num_layers), heads)),
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
