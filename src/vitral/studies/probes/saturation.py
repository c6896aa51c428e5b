"""Attention of the study's own models, fresh and trained: how large its scores are, how sharp, what gets back to q."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitral.attention import Causal, Mask
from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.data import Split, windows
from vitral.data.batches import thinned, too_short
from vitral.model import Transformer, next_token_loss
from vitral.studies.probes import saturation_shown
from vitral.studies.probes.protocol import BudgetName, ByRun, Exhibit, Plain, RunProbe, Trained, require_next_tokens
from vitral.studies.probes.sharpness import entropy_share, jacobian_norm, mutual_information, saturated

if TYPE_CHECKING:
    from vitral.studies.results import StudyResult

NAME = "saturation"
WINDOWS: Mapping[BudgetName, int] = {"quick": 128, "standard": 256, "full": 1024}
STEPS = ("q", "k", "scores", "scaled", "weights")
BATCH_NUMBERS = 1 << 22
"""Scores of one layer computed side by side."""
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
    "mutual_information",
)


def measure(trained: Trained) -> Plain:
    """Attention's numbers in the trained model, in the one it began as, and the gradient norms on the way.

    Each state has `loss` and `layers`; a layer has every name of `BY_HEAD` as a list over heads, and `factors`, the
    learned scale times √d_k (one number, or one for each head, or none).

    Raises:
        UsageError: the run is not trained to tell next tokens, no position of its model chooses between keys, or the
            test part has no whole window.
    """
    require_next_tokens(trained)
    model = trained.run.model
    _mask_of(model, model.config.context_length)
    inputs, targets = whole_windows(
        trained.dataset.splits["test"], model.config.context_length, WINDOWS[trained.budget]
    )
    seed = int(trained.run.config["seed"])
    fresh = Transformer(model.config, model.vocab_size, seed=seed).to(model.token_embedding.weight).eval()
    time = model.config.context_length
    causal = Causal().allowed(time, time).double()
    return {
        "d_head": model.config.d_head,
        "windows": len(inputs),
        "fresh": state_of(fresh, inputs, targets),
        "trained": state_of(model, inputs, targets),
        "uniform_mutual_information": float(mutual_information(causal / causal.sum(dim=-1, keepdim=True))),
        "gradient_norms": gradient_norms(
            trained.run.folder.metrics("step"), int(trained.run.config["training"]["log_every"])
        ),
    }


def whole_windows(
    part: Split, context_length: int, most: int
) -> tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]:
    """At most so many windows of the full length, spread evenly over a part, and their targets.

    Raises:
        UsageError: the part has no window of that length.
    """
    spread = thinned(part, 16 * most * (context_length + 1))
    pairs = [pair for pair in windows(spread, context_length, 1024) if pair[0].shape[1] == context_length]
    if not pairs:
        raise UsageError(f"of the test part, {too_short(part, context_length)}")
    inputs, targets = (torch.cat(side) for side in zip(*pairs, strict=True))
    chosen = torch.linspace(0, len(inputs) - 1, min(most, len(inputs)), dtype=torch.float64).round().long()
    return inputs[chosen], targets[chosen]


def state_of(model: Transformer, inputs: Int[Tensor, "batch time"], targets: Int[Tensor, "batch time"]) -> Plain:
    """Attention's numbers in one model, in evaluation mode, on these windows.

    Variances are over the allowed pairs of a head, all windows together (`row_variance`: within a row, the mean over
    rows). Entropy share, saturated share and Jacobian norm are means over rows that see at least two keys.
    `query_gradient` is ‖∂L/∂q‖ of a single query, L the loss of its window in nats summed over targets, the mean over
    all queries. `query_square` and `key_square` are mean squares of components.
    """
    layers, time = len(model.blocks), inputs.shape[1]
    mask, allowed = _mask_of(model, time)
    names = {layer: [f"blocks.{layer}.attn.{step}" for step in STEPS] for layer in range(layers)}
    sums: list[dict[str, Tensor]] = [{} for _ in range(layers)]
    nats, num_targets = 0.0, targets[:, mask.first_target() or 0 :].numel()
    for some, following in _batches(model, inputs, targets):
        recorder = Recorder(name for steps in names.values() for name in steps)
        with torch.enable_grad():
            loss = next_token_loss(model(some, tap=recorder), following, mask) * (num_targets * len(some) / len(inputs))
            queries = [recorder.kept[names[layer][0]] for layer in range(layers)]
            gradients = torch.autograd.grad(loss, queries)
        nats += loss.item()
        for layer, gradient in enumerate(gradients):
            kept = {name.rpartition(".")[2]: recorder.kept[name] for name in names[layer]}
            for name, value in head_sums(kept, gradient, allowed).items():
                sums[layer][name] = sums[layer].get(name, torch.zeros_like(value)) + value
    found = [_finished(numbers, len(inputs)) for numbers in sums]
    return {"loss": nats / num_targets, "layers": [numbers | _factors(model, at) for at, numbers in enumerate(found)]}


def head_sums(
    kept: Mapping[str, Tensor],
    gradient: Float[Tensor, "batch heads time d_head"],
    allowed: Bool[Tensor, "time source"],
) -> dict[str, Tensor]:
    """Sums over windows and rows, for each head, from which `_finished` makes means; in float64.

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
    found |= {
        "rows": torch.full((heads,), float(len(q) * int(wide.sum())), dtype=torch.float64),
        "pairs": torch.full((heads,), float(len(q) * int(allowed.sum())), dtype=torch.float64),
        "queries": torch.full((heads,), float(len(q) * q.shape[2]), dtype=torch.float64),
        "query_gradient": gradient.double().norm(dim=-1).sum(dim=(0, 2)),
        "query_square": q.double().square().mean(dim=-1).sum(dim=(0, 2)),
        "key_square": k.double().square().mean(dim=-1).sum(dim=(0, 2)).repeat_interleave(groups),
        "attended": weights.double().sum(dim=0),
    }
    return found


def gradient_norms(events: list[dict[str, Any]], log_every: int) -> Plain:
    """Norms of the whole gradient at the logged steps, before clipping: mean, median, largest, number of steps.

    Of the steps that `log_every` divides, and the last. Others are logged where a run was saved or went on, so with
    them the numbers would tell how often that was.
    """
    by_step = {int(event["step"]): float(event["gradient_norm"]) for event in events}
    last = max(by_step, default=0)
    norms = sorted(
        norm for step, norm in by_step.items() if (step % log_every == 0 or step == last) and math.isfinite(norm)
    )
    if not norms:
        return {"mean": None, "median": None, "largest": None, "num": 0}
    middle = len(norms) // 2
    median = norms[middle] if len(norms) % 2 else (norms[middle - 1] + norms[middle]) / 2
    return {"mean": math.fsum(norms) / len(norms), "median": median, "largest": norms[-1], "num": len(norms)}


def show(result: "StudyResult", measured: ByRun) -> Exhibit:
    """See `vitral.studies.probes.saturation_shown`."""
    return saturation_shown.show(result, measured)


def _mask_of(model: Transformer, time: int) -> tuple[Mask, Bool[Tensor, "time source"]]:
    """The model's mask and what it allows.

    Raises:
        UsageError: the model has no blocks, no attention, or none that could choose between two keys.
    """
    if not len(model.blocks):
        raise UsageError("a model without blocks has no attention to look at")
    mask = model.mask
    allowed = None if mask is None else mask.allowed(time, time)
    if mask is None or allowed is None or not bool((allowed.sum(dim=-1) > 1).any()):
        raise UsageError(f"the probe {NAME} looks at attention, and in this model no position attends to two others")
    return mask, allowed


def _batches(model: Transformer, inputs: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The windows in groups that fit the memory."""
    size = max(1, BATCH_NUMBERS // (model.config.num_heads * inputs.shape[1] ** 2))
    yield from zip(inputs.split(size), targets.split(size), strict=True)


def _finished(sums: Mapping[str, Tensor], num_windows: int) -> Plain:
    """Means and variances from `head_sums` of all windows, as lists over heads."""
    found = {name: sums[name] / sums["rows"] for name in ("row_variance", "entropy_share", "saturated", "jacobian")}
    found |= {name: sums[name] / sums["queries"] for name in ("query_gradient", "query_square", "key_square")}
    for name in ("score", "scaled"):
        mean = sums[f"{name}_sum"] / sums["pairs"]
        found[f"{name}_variance"] = sums[f"{name}_square"] / sums["pairs"] - mean.square()
    found["mutual_information"] = mutual_information(sums["attended"] / num_windows)
    return {name: found[name].tolist() for name in BY_HEAD}


def _factors(model: Transformer, layer: int) -> Plain:
    """The learned scale of a layer in units of 1/√d_k, where it begins; an empty list where it is not learned."""
    name = f"blocks.{layer}.attn.scale.factor"
    learned = dict(model.named_parameters()).get(name)
    root = math.sqrt(model.config.d_head)
    return {"factors": [] if learned is None else (learned.detach().double().flatten() * root).tolist()}


SATURATION = RunProbe(NAME, measure, show, seconds={"quick": 2, "standard": 6, "full": 20})
