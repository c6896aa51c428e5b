"""What each head attends to, how alike the heads of a layer are, and what the loss rises by without each of them."""

from collections import defaultdict
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitral.core.taps import Recorder
from vitral.data import Batches
from vitral.inspection import (
    KINDS,
    MOST_BYTES,
    Effect,
    RunningMean,
    attended_distance,
    attended_share,
    entropy_share,
    kind_masks,
    landmarks,
    loss_by_window,
    loss_increase,
    mean_of_z,
    name_of,
    overlap,
    patient_queries,
    remove_heads,
    seeing_queries,
    uniform_weights,
)
from vitral.studies.probes.head_patterns_shown import NAME, show
from vitral.studies.probes.protocol import Plain, RunProbe, Trained, require_next_tokens

if TYPE_CHECKING:
    from vitral.model import Transformer

WATCHED = {"quick": 16, "standard": 32, "full": 96}
"""Windows of the test part whose attention is looked at."""
SCORED = {"quick": 32, "standard": 64, "full": 384}
"""Windows of the test part on which the loss is compared with a head and without it."""
SAMPLE_SEED = 0
"""The windows are the same for every arm and seed."""


def measure(trained: Trained) -> Plain:
    """The patterns and the worth of every head of a run; no layers where the model has no attention.

    Raises:
        UsageError: the run is not one of next tokens, so its loss does not tell what a head is worth.
    """
    model = trained.run.model
    mask = model.mask
    if mask is None:
        return {"loss": None, "uniform": {}, "layers": []}
    require_next_tokens(trained)
    time = model.config.context_length
    part = trained.dataset.splits["test"]

    def sample(windows: int) -> tuple[Tensor, Tensor]:
        return Batches(part, context_length=time, batch_size=windows, seed=SAMPLE_SEED).batch(0)

    tokens, _ = sample(WATCHED[trained.budget])
    visible = mask.allowed(time, time)
    queries = patient_queries(visible)
    even, layers = _watched(trained, tokens, visible)
    uniform = {kind: None if each is None else each[0] for kind, each in even.items()}
    inputs, targets = sample(SCORED[trained.budget])
    before = loss_by_window(model, inputs, targets)
    found = []
    for layer, seen in enumerate(layers):
        worth = _worth(model, layer, inputs, targets, before)
        heads = []
        for head, (distance, entropy) in enumerate(zip(seen["distance"], seen["entropy"], strict=True)):
            own = {kind: None if each is None else each[head] for kind, each in seen["share"].items()}
            heads.append(
                {"name": name_of(own, uniform), "share": own, "distance": distance, "entropy": entropy}
                | worth["heads"][head]
            )
        found.append({"overlap": seen["overlap"], "heads": heads, "all": worth["all"]})
    distance = float(attended_distance(uniform_weights(visible), queries)[0])
    return {"loss": float(before.mean()), "uniform": uniform, "uniform_distance": distance, "layers": found}


Shares = dict[str, list[float] | None]


def _watched(trained: Trained, tokens: Tensor, visible: Tensor) -> tuple[Shares, list[Plain]]:
    """What uniform attention and each layer's heads attend to, a few windows at a time, see `MOST_BYTES`."""
    model, marks = trained.run.model, landmarks(trained.run.tokenizer)
    queries, even = patient_queries(visible), uniform_weights(visible)
    names = [f"blocks.{layer}.attn.weights" for layer in range(model.config.num_layers)]
    uniform: dict[str, RunningMean] = defaultdict(RunningMean)
    layers: list[dict[str, RunningMean]] = [defaultdict(RunningMean) for _ in names]
    for few in tokens.split(windows_at_once(model)):
        keys = kind_masks(few, marks, visible)
        recorder = Recorder(names)
        with torch.inference_mode():
            model(few, tap=recorder)
        for into, weights in [(uniform, even), *zip(layers, (recorder.kept[name] for name in names), strict=True)]:
            for kind, where in keys.items():
                share = attended_share(weights, where, queries)
                if share is not None:
                    into[kind].add(share, seeing_queries(where, queries))
        for into, name in zip(layers, names, strict=True):
            weights = recorder.kept[name]
            into["distance"].add(attended_distance(weights, queries), len(few))
            into["entropy"].add(entropy_share(weights, visible, queries), len(few))
            alike = overlap(weights, queries)
            if alike is not None:
                into["overlap"].add(torch.tensor(alike, dtype=torch.float64), len(few))

    def listed(means: dict[str, RunningMean], name: str) -> list[float] | None:
        return means[name].value.tolist() if name in means else None

    found = [
        {name: listed(means, name) for name in ("distance", "entropy", "overlap")}
        | {"share": {kind: listed(means, kind) for kind in KINDS}}
        for means in layers
    ]
    return {kind: listed(uniform, kind) for kind in KINDS}, found


def windows_at_once(model: "Transformer") -> int:
    """Windows whose weights are looked at together, so that they take less than about `MOST_BYTES`, one at least.

    Per head and pair of positions: four bytes of every layer's weights, and of one layer the traced steps and three
    numbers in float64; besides a byte for each kind of key.
    """
    config = model.config
    each = config.context_length**2 * (config.num_heads * (4 * config.num_layers + 40) + len(KINDS))
    return max(1, MOST_BYTES // each)


def _worth(model: "Transformer", layer: int, inputs: Tensor, targets: Tensor, before: Tensor) -> Plain:
    """What the loss rises by without each head of a layer, and without all of them."""
    heads = list(range(model.config.num_heads))
    ways = {"zero": None, "mean": mean_of_z(model, inputs, layer)}

    def without(removed: list[int]) -> Plain:
        effects: dict[str, Plain] = {}
        for way, instead in ways.items():
            after = loss_by_window(model, inputs, targets, remove_heads(layer, removed, instead))
            effects[way] = _plain(loss_increase(before, after))
        return effects

    each = [without([head]) for head in heads]
    return {"heads": each, "all": each[0] if len(heads) == 1 else without(heads)}


def _plain(effect: Effect) -> Plain:
    return {"increase": effect.mean, "error": effect.error}


HEAD_PATTERNS = RunProbe(NAME, measure, show, seconds={"quick": 4, "standard": 10, "full": 30})
