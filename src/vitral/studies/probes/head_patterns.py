"""What each head attends to, how alike the heads of a layer are, and what the loss rises by without each of them."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitral.core.taps import Recorder
from vitral.data import Batches
from vitral.inspection import (
    Effect,
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
    uniform_weights,
)
from vitral.studies.probes.head_patterns_shown import NAME, show
from vitral.studies.probes.protocol import Plain, RunProbe, Trained

if TYPE_CHECKING:
    from vitral.model import Transformer

WATCHED = {"quick": 16, "standard": 32, "full": 96}
"""Windows of the test part whose attention is looked at."""
SCORED = {"quick": 32, "standard": 64, "full": 384}
"""Windows of the test part on which the loss is compared with a head and without it."""
SAMPLE_SEED = 0
"""The windows are the same for every arm and seed."""


def measure(trained: Trained) -> Plain:
    """The patterns and the worth of every head of a run; no layers where the model has no attention."""
    model = trained.run.model
    mask = model.mask
    if mask is None:
        return {"loss": None, "uniform": {}, "layers": []}
    time = model.config.context_length
    part = trained.dataset.parts["test"]

    def sample(windows: int) -> tuple[Tensor, Tensor]:
        return Batches(part, context_length=time, batch_size=windows, seed=SAMPLE_SEED).batch(0)

    tokens, _ = sample(WATCHED[trained.budget])
    visible = mask.allowed(time, time)
    keys = kind_masks(tokens, landmarks(trained.run.tokenizer), visible)
    queries = patient_queries(visible)
    even = uniform_weights(visible)
    uniform = {kind: _first(attended_share(even, where, queries)) for kind, where in keys.items()}
    layers = range(model.config.num_layers)
    names = [f"blocks.{layer}.attn.weights" for layer in layers]
    recorder = Recorder(names)
    with torch.inference_mode():
        model(tokens, tap=recorder)
    inputs, targets = sample(SCORED[trained.budget])
    before = loss_by_window(model, inputs, targets)
    found = []
    for layer, name in zip(layers, names, strict=True):
        weights = recorder.kept[name]
        shares = {kind: _listed(attended_share(weights, where, queries)) for kind, where in keys.items()}
        distances = attended_distance(weights, queries).tolist()
        entropies = entropy_share(weights, visible, queries).tolist()
        worth = _worth(model, layer, inputs, targets, before)
        heads = []
        for head, (distance, entropy) in enumerate(zip(distances, entropies, strict=True)):
            own = {kind: None if each is None else each[head] for kind, each in shares.items()}
            heads.append(
                {"name": name_of(own, uniform), "share": own, "distance": distance, "entropy": entropy}
                | worth["heads"][head]
            )
        found.append({"overlap": overlap(weights, queries), "heads": heads, "all": worth["all"]})
    distance = float(attended_distance(even, queries)[0])
    return {"loss": float(before.mean()), "uniform": uniform, "uniform_distance": distance, "layers": found}


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


def _listed(values: Tensor | None) -> list[float] | None:
    return None if values is None else values.tolist()


def _first(values: Tensor | None) -> float | None:
    return None if values is None else float(values[0])


HEAD_PATTERNS = RunProbe(NAME, measure, show)
