"""Saturation of a model's attention: size of its scores, sharpness of its weights, gradient at its queries."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitral.attention import Causal
from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.inspection.attention import visible_by_layer
from vitral.inspection.numbers import RunningMean
from vitral.inspection.softmax import entropy_share, mutual_information, saturated
from vitral.inspection.targets import Tokens
from vitral.model import Transformer, first_target, next_token_loss

STEPS = ("q", "k", "scores", "scaled", "weights")
BATCH_NUMBERS = 1 << 22
"""Scores of one layer in one forward pass."""
BY_HEAD = (
    "score_variance",
    "scaled_variance",
    "entropy_share",
    "saturated",
    "query_gradient",
    "query_square",
    "key_square",
    "mutual_information",
)


def attention_saturation(model: Transformer, inputs: Tokens, targets: Tokens) -> dict[str, Any]:
    """Statistics of every head's attention over some windows.

    Args:
        model: in evaluation mode.
        inputs: ids.
        targets: the ids that follow.

    Returns:
        `layers`, each with these lists over heads:

        - `score_variance`, `scaled_variance`: over the allowed pairs of query and key of all windows.
        - `entropy_share`, `saturated`: means over rows that see at least two keys, see `vitral.inspection.softmax`.
        - `query_gradient`: ‖∂L/∂q‖ of a single query, mean over queries, with L the loss of its window in nats summed
          over targets.
        - `query_square`, `key_square`: mean squares of the components of q and k.
        - `mutual_information`: of query position and attended key position, in bits, see `_positions`.
        - `factors`: the learned scale times √d_k, one number for the layer or one for each head; empty if not learned.

    Raises:
        UsageError: in a block no position attends to two others.
    """
    mask = model.mask
    allowed = [] if mask is None else visible_by_layer(model, inputs.shape[1])
    if mask is None or not allowed or not all(bool((each.sum(dim=-1) > 1).any()) for each in allowed):
        raise UsageError("in this model no position attends to two others, so its attention cannot saturate")
    names = [[f"blocks.{layer}.attn.{step}" for step in STEPS] for layer in range(len(allowed))]
    means: list[dict[str, RunningMean]] = [defaultdict(RunningMean) for _ in allowed]
    num_targets = targets[:, first_target(mask) :].numel()
    size = max(1, BATCH_NUMBERS // (model.config.num_heads * inputs.shape[1] ** 2))
    for some, following in zip(inputs.split(size), targets.split(size), strict=True):
        recorder = Recorder(name for steps in names for name in steps)
        with torch.enable_grad():
            loss = next_token_loss(model(some, tap=recorder), following, mask) * (num_targets * len(some) / len(inputs))
            gradients = torch.autograd.grad(loss, [recorder.kept[steps[0]] for steps in names])
        for into, steps, gradient, visible in zip(means, names, gradients, allowed, strict=True):
            _add_means(into, [recorder.kept[name].detach() for name in steps], gradient, visible)
    learned, layers = dict(model.named_parameters()), list[dict[str, Any]]()
    for layer, into in enumerate(means):  # a scale in units of 1/√d_k, its initial value; an empty list if not learned
        factor = learned.get(f"blocks.{layer}.attn.scale.factor", torch.empty(0)).detach().double().flatten()
        layers.append(_by_head(into) | {"factors": (factor * math.sqrt(model.config.d_head)).tolist()})
    return {"layers": layers}


def alignment(state: Mapping[str, Any], d_head: int) -> float:
    """The variance of the scores over that of independent queries and keys; 1 if they are, d_k if all are parallel.

    Independent scores have d_k times the mean squares of the components of q and k as their variance.

    Sums of d_k independent products grow as √d_k, of aligned ones as d_k: why the scale of μP is 1/d_k (Yang et al.
    2022, §D.1).
    """
    layers = state["layers"]
    squares = [zip(layer["query_square"], layer["key_square"], strict=True) for layer in layers]
    independent = d_head * fmean(q * k for layer in squares for q, k in layer)
    return fmean(value for layer in layers for value in layer["score_variance"]) / independent


def uniform_mutual_information(time: int) -> float:
    """Mutual information of query position and attended key position under uniform causal attention, in bits."""
    causal = Causal().allowed(time, time).double()
    return float(mutual_information(causal / causal.sum(dim=-1, keepdim=True)))


def _add_means(
    into: Mapping[str, RunningMean],
    kept: Sequence[Tensor],
    gradient: Float[Tensor, "batch heads time d_head"],
    allowed: Bool[Tensor, "time source"],
) -> None:
    """Include some windows in the means over windows, rows and pairs, for each head, in float64.

    Args:
        into: the means, of which `_by_head` makes the result.
        kept: one layer's `STEPS`: q [batch, heads, time, d_head], k [batch, kv_heads, time, d_head]; scores, scaled,
            weights [batch, heads, time, source].
        gradient: ∂L/∂q, L summed over targets.
        allowed: which keys a query may see.
    """
    q, k, scores, scaled, weights = (each.double() for each in kept)
    visible = allowed.sum(dim=-1)
    wide = visible > 1
    rows, keys = weights[:, :, wide], visible[wide].double()
    by_row = {
        "entropy_share": entropy_share(rows, keys),
        "saturated": saturated(rows).double(),
        "query_gradient": gradient.double().norm(dim=-1),
    }
    for name, values in (("score", scores), ("scaled", scaled)):
        by_row |= {name: values[:, :, allowed], f"{name}_square": values[:, :, allowed].square()}
    means = {name: values.mean(dim=(0, 2)) for name, values in by_row.items()}
    for name, each in (("query", q), ("key", k.repeat_interleave(q.shape[1] // k.shape[1], dim=1))):
        means[f"{name}_square"] = each.square().mean(dim=(0, 2, 3))
    for name, value in means.items():
        into[name].add(value, len(q))
    # Of every other window too, for the bias of the mutual information.
    for name, some in (("attended", weights), ("even", weights[::2]), ("odd", weights[1::2])):
        if len(some):
            into[name].add(some.mean(dim=0), len(some))


def _by_head(means: Mapping[str, RunningMean]) -> dict[str, list[float]]:
    """The means of `_add_means`, as lists over heads."""
    values = {name: mean.value for name, mean in means.items()}
    for name in ("score", "scaled"):
        values[f"{name}_variance"] = values[f"{name}_square"] - values[name].square()
    values["mutual_information"] = _positions(values)
    return {name: values[name].tolist() for name in BY_HEAD}


def _positions(means: Mapping[str, Float[Tensor, "heads time source"]]) -> Float[Tensor, " heads"]:
    """The mutual information of query position and attended key position, corrected for the number of windows.

    p(j | i) is a mean over windows. From few windows its entropy is too low, most where rows are one-hot, so the plain
    estimate I is too high by about c / windows. Of two halves of the windows it is too high by twice that, so 2 I less
    the mean over both halves has no such bias (Quenouille 1949); it can fall slightly below 0.
    """
    plain = mutual_information(means["attended"])
    if "odd" not in means:
        return plain
    return 2 * plain - (mutual_information(means["even"]) + mutual_information(means["odd"])) / 2
