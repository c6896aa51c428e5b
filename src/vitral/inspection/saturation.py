"""Saturation of a model's attention: size of its scores, sharpness of its weights, gradient at its queries."""

import math
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitral.attention import Causal, Mask
from vitral.core.checked import Count, checked
from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.inspection.attention import visible_by_layer
from vitral.inspection.softmax import entropy_share, jacobian_norm, mutual_information, saturated
from vitral.model import Transformer, first_target, next_token_loss

STEPS = ("q", "k", "scores", "scaled", "weights")
BATCH_NUMBERS = 1 << 22
"""Scores of one layer in one forward pass."""
BY_HEAD = (
    "score_variance",
    "scaled_variance",
    "row_variance",
    "entropy_share",
    "saturated",
    "jacobian",
    "query_gradient",
    "query_square",
    "key_square",
    "met_at_random",
    "mutual_information",
)


@checked(first=True)
def attention_saturation(
    model: Transformer,
    inputs: Int[Tensor, "batch time"],
    targets: Int[Tensor, "batch time"],
    batch_numbers: Count = BATCH_NUMBERS,
) -> dict[str, Any]:
    """Statistics of every head's attention over some windows.

    Args:
        model: in evaluation mode.
        inputs: ids.
        targets: the ids that follow.
        batch_numbers: number of scores of one layer in one forward pass.

    Returns:
        `loss` in nats per token, and `layers`, each with these lists over heads:

        - `score_variance`, `scaled_variance`: over the allowed pairs of query and key of all windows; `row_variance`:
          of the scaled scores within a row, mean over rows.
        - `entropy_share`, `saturated`, `jacobian`: means over rows that see at least two keys, see
          `vitral.inspection.softmax`.
        - `query_gradient`: ‖∂L/∂q‖ of a single query, mean over queries, with L the loss of its window in nats summed
          over targets.
        - `query_square`, `key_square`: mean squares of the components of q and k.
        - `met_at_random`: tr(E[q qᵀ] E[k kᵀ]), the second moment of q·k if every query met keys of all windows at
          random: above d_k times the mean squares where queries and keys share few directions.
        - `mutual_information`: of query position and attended key position, in bits, see `_positions`.
        - `factors`: the learned scale times √d_k, one number for the layer or one for each head; empty if not learned.

    Raises:
        UsageError: the model has no blocks, or no position attends to two others.
    """
    layers, time = len(model.blocks), inputs.shape[1]
    mask, allowed = _masks_of(model, time)
    names = {layer: [f"blocks.{layer}.attn.{step}" for step in STEPS] for layer in range(layers)}
    sums: list[dict[str, Tensor]] = [{} for _ in range(layers)]
    nats, num_targets = 0.0, targets[:, first_target(mask) :].numel()
    for some, following in _batches(model, inputs, targets, batch_numbers):
        recorder = Recorder(name for steps in names.values() for name in steps)
        with torch.enable_grad():
            loss = next_token_loss(model(some, tap=recorder), following, mask) * (num_targets * len(some) / len(inputs))
            queries = [recorder.kept[names[layer][0]] for layer in range(layers)]
            gradients = torch.autograd.grad(loss, queries)
        nats += loss.item()
        for layer, gradient in enumerate(gradients):
            kept = {name.rpartition(".")[2]: recorder.kept[name] for name in names[layer]}
            for name, value in _head_sums(kept, gradient, allowed[layer]).items():
                sums[layer][name] = sums[layer].get(name, torch.zeros_like(value)) + value
    found = [_finished(numbers) for numbers in sums]
    return {"loss": nats / num_targets, "layers": [numbers | _factors(model, at) for at, numbers in enumerate(found)]}


def independent_variance(state: Mapping[str, Any], d_head: int) -> float:
    """Variance of the scores if q and k were independent: d_k times the mean squares of their components.

    Args:
        state: as `attention_saturation` returns it.
        d_head: d_k, components of a head.
    """
    squares = [zip(layer["query_square"], layer["key_square"], strict=True) for layer in state["layers"]]
    return d_head * fmean(q * k for layer in squares for q, k in layer)


def alignment(state: Mapping[str, Any], d_head: int) -> float:
    """The variance of the scores over that of independent queries and keys; 1 if they are, d_k if all are parallel.

    Sums of d_k independent products grow as √d_k, of aligned ones as d_k: why the scale of μP is 1/d_k (Yang et al.
    2022, §D.1).
    """
    scores = fmean(value for layer in state["layers"] for value in layer["score_variance"])
    return scores / independent_variance(state, d_head)


def shared_directions(state: Mapping[str, Any], d_head: int) -> float:
    """The part of `alignment` that is there without any pairing: both use the same few of the d_k directions."""
    met = fmean(value for layer in state["layers"] for value in layer["met_at_random"])
    return met / independent_variance(state, d_head)


def uniform_mutual_information(time: int) -> float:
    """Mutual information of query position and attended key position under uniform causal attention, in bits."""
    causal = Causal().allowed(time, time).double()
    return float(mutual_information(causal / causal.sum(dim=-1, keepdim=True)))


def _head_sums(
    kept: Mapping[str, Tensor],
    gradient: Float[Tensor, "batch heads time d_head"],
    allowed: Bool[Tensor, "time source"],
) -> dict[str, Tensor]:
    """Sums over windows and rows, for each head, of which `_finished` makes means; in float64.

    Args:
        kept: one layer's `STEPS`: q [batch, heads, time, d_head], k [batch, kv_heads, time, d_head]; scores, scaled,
            weights [batch, heads, time, source].
        gradient: ∂L/∂q, L summed over targets.
        allowed: which keys a query may see.
    """
    q, k, scores, scaled, weights = (kept[step].detach() for step in STEPS)
    visible = allowed.sum(dim=-1)
    wide = visible > 1
    rows, keys = weights[:, :, wide].double(), visible[wide].double()
    seen = scaled[:, :, wide].double().masked_fill(~allowed[wide], 0.0)
    row_variance = seen.square().sum(dim=-1) / keys - (seen.sum(dim=-1) / keys).square()
    by_row = {
        "row_variance": row_variance,
        "entropy_share": entropy_share(rows, keys),
        "saturated": saturated(rows).double(),
        "jacobian": jacobian_norm(rows),
    }
    found = {name: values.sum(dim=(0, 2)) for name, values in by_row.items()}
    for name, values in (("score", scores), ("scaled", scaled)):
        pairs = values.double()[:, :, allowed]
        found |= {f"{name}_sum": pairs.sum(dim=(0, 2)), f"{name}_square": pairs.square().sum(dim=(0, 2))}
    heads, groups = q.shape[1], q.shape[1] // k.shape[1]
    moments = {"query_moment": q.double(), "key_moment": k.double().repeat_interleave(groups, dim=1)}
    found |= {name: torch.einsum("bhtd,bhte->hde", each, each) for name, each in moments.items()}
    # Of every other window, for the bias of the mutual information.
    found |= {f"attended_{at}": weights[at::2].double().sum(dim=0) for at in range(2)}
    found |= {f"windows_{at}": torch.tensor(float(len(weights[at::2])), dtype=torch.float64) for at in range(2)}
    found |= {
        "rows": torch.full((heads,), float(len(q) * int(wide.sum())), dtype=torch.float64),
        "pairs": torch.full((heads,), float(len(q) * int(allowed.sum())), dtype=torch.float64),
        "queries": torch.full((heads,), float(len(q) * q.shape[2]), dtype=torch.float64),
        "query_gradient": gradient.double().norm(dim=-1).sum(dim=(0, 2)),
        "query_square": q.double().square().mean(dim=-1).sum(dim=(0, 2)),
        "key_square": k.double().square().mean(dim=-1).sum(dim=(0, 2)).repeat_interleave(groups),
    }
    return found


def _masks_of(model: Transformer, time: int) -> tuple[Mask, list[Bool[Tensor, "time source"]]]:
    """The model's mask and the pairs each block allows; refuses a model with a block where no query sees two keys."""
    if not len(model.blocks):
        raise UsageError("a model without blocks has no attention")
    mask = model.mask
    allowed = [] if mask is None else visible_by_layer(model, time)
    if mask is None or not all(bool((each.sum(dim=-1) > 1).any()) for each in allowed):
        raise UsageError("in this model no position attends to two others, so its attention cannot saturate")
    return mask, allowed


def _batches(
    model: Transformer, inputs: Tensor, targets: Tensor, batch_numbers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    size = max(1, batch_numbers // (model.config.num_heads * inputs.shape[1] ** 2))
    yield from zip(inputs.split(size), targets.split(size), strict=True)


def _finished(sums: Mapping[str, Tensor]) -> dict[str, Any]:
    """Means and variances from `_head_sums` of all windows, as lists over heads."""
    found = {name: sums[name] / sums["rows"] for name in ("row_variance", "entropy_share", "saturated", "jacobian")}
    found |= {name: sums[name] / sums["queries"] for name in ("query_gradient", "query_square", "key_square")}
    for name in ("score", "scaled"):
        mean = sums[f"{name}_sum"] / sums["pairs"]
        found[f"{name}_variance"] = sums[f"{name}_square"] / sums["pairs"] - mean.square()
    queries = sums["queries"][:, None, None]
    found["met_at_random"] = (sums["query_moment"] / queries * (sums["key_moment"] / queries)).sum(dim=(1, 2))
    found["mutual_information"] = _positions(sums)
    return {name: found[name].tolist() for name in BY_HEAD}


def _positions(sums: Mapping[str, Tensor]) -> Float[Tensor, " heads"]:
    """The mutual information of query position and attended key position, corrected for the number of windows.

    p(j | i) is a mean over windows. From few windows its entropy is too low, most where rows are one-hot, so the plain
    estimate I is too high by about c / windows. Of two halves of the windows it is too high by twice that, so 2 I less
    the mean over both halves has no such bias (Quenouille 1949); it can fall slightly below 0.
    """
    whole = sums["attended_0"] + sums["attended_1"]
    windows = [sums["windows_0"], sums["windows_1"]]
    plain = mutual_information(whole / sum(windows))
    if not all(windows):
        return plain
    halves = [mutual_information(sums[f"attended_{at}"] / windows[at]) for at in range(2)]
    return 2 * plain - (halves[0] + halves[1]) / 2


def _factors(model: Transformer, layer: int) -> dict[str, Any]:
    """The learned scale of a layer in units of 1/√d_k, its initial value; an empty list if it is not learned."""
    name = f"blocks.{layer}.attn.scale.factor"
    learned = dict(model.named_parameters()).get(name)
    root = math.sqrt(model.config.d_head)
    return {"factors": [] if learned is None else (learned.detach().double().flatten() * root).tolist()}
