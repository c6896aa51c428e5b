"""Ablation of heads: how much the loss rises without the output of a head.

The model itself is run; its tap replaces z, each head's weighted sum of values, before W_O. Zeros (Michel et al. 2019,
§2.2) also remove the part of z that is equal at every position; the mean over the windows keeps that part and removes
only the part that depends on the text.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.taps import SILENT, Editor, Recorder, Tap
from vitral.model import Transformer, first_target

MOST_BYTES = 200_000_000
"""A forward pass that would take more memory than this is split into several."""


@dataclass(frozen=True)
class Effect:
    """An increase of the loss over paired windows.

    Attributes:
        mean: in nats per token; positive where the loss rises.
        error: standard error of the mean over the windows; 0 for a single window.
    """

    mean: float
    error: float


def loss_by_window(
    model: Transformer, inputs: Int[Tensor, "batch time"], targets: Int[Tensor, "batch time"], tap: Tap = SILENT
) -> Float[Tensor, " batch"]:
    """Mean loss of each window in nats per token, in float64; targets that the mask shows do not count."""
    first = first_target(model.mask)
    each = []
    for rows in _few(model, inputs):
        with torch.inference_mode():
            logits = model(inputs[rows], tap=tap)[:, first:].flatten(0, 1)
        found = functional.cross_entropy(logits.float(), targets[rows, first:].flatten(), reduction="none")
        each.append(found.double().view(-1, targets.shape[1] - first).mean(dim=1))
    return torch.cat(each)


def mean_of_z(model: Transformer, inputs: Int[Tensor, "batch time"], layer: int) -> Float[Tensor, "heads d_head"]:
    """The mean of each head's z in a layer over all positions of the windows."""
    name, mean, seen = _z(layer), RunningMean(), torch.empty(0)
    for rows in _few(model, inputs):
        recorder = Recorder([name])
        with torch.inference_mode():
            model(inputs[rows], tap=recorder)
        seen = recorder.kept[name]
        mean.add(seen.double().mean(dim=(0, 2)), len(seen))
    return mean.value.to(seen.dtype)


def remove_heads(layer: int, heads: Sequence[int], instead: Float[Tensor, "all_heads d_head"] | None = None) -> Editor:
    """A tap that replaces the z of these heads of a layer at every position.

    Args:
        layer: counted from 0.
        heads: counted from 0.
        instead: output of each head of the layer to use in place of its own; zeros if None.
    """

    def replace(z: Tensor) -> Tensor:
        changed = z.clone()
        for head in heads:
            changed[:, head] = 0.0 if instead is None else instead[head]
        return changed

    return Editor({_z(layer): replace})


def loss_increase(before: Float[Tensor, " batch"], after: Float[Tensor, " batch"]) -> Effect:
    """Increase of the loss between two passes over the same windows, with the standard error over windows."""
    rise = after - before
    error = float(rise.std() / math.sqrt(len(rise))) if len(rise) > 1 else 0.0
    return Effect(float(rise.mean()), error)


class RunningMean:
    """The weighted mean of several means; bit-equal to the only one if there is one."""

    def __init__(self) -> None:
        """No mean yet."""
        self.value, self.weight = torch.zeros(()), 0

    def add(self, mean: Float[Tensor, "*shape"], weight: int) -> None:
        """Include the mean of `weight` further values, at least one."""
        self.weight += weight
        share = weight / self.weight
        self.value = mean if share == 1 else self.value + (mean - self.value) * share


def head_ablations(
    model: Transformer, inputs: Int[Tensor, "batch time"], targets: Int[Tensor, "batch time"]
) -> dict[str, Any]:
    """Loss increase without each head, and without all heads of each layer, by zeros and by the mean.

    Args:
        model: in evaluation mode, with attention.
        inputs: ids.
        targets: the ids that follow.

    Returns:
        `loss` of the whole model in nats per token; `layers`, each with `heads`, a list, and `all`. Both contain for
        `zero` and for `mean` the `increase` in nats per token and its standard `error` over windows.
    """
    before = loss_by_window(model, inputs, targets)
    layers = [_layer_ablations(model, layer, inputs, targets, before) for layer in range(model.config.num_layers)]
    return {"loss": float(before.mean()), "layers": layers}


def _layer_ablations(model: Transformer, layer: int, inputs: Tensor, targets: Tensor, before: Tensor) -> dict[str, Any]:
    heads = list(range(model.config.num_heads))
    ways = {"zero": None, "mean": mean_of_z(model, inputs, layer)}

    def without(removed: list[int]) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for way, instead in ways.items():
            after = loss_by_window(model, inputs, targets, remove_heads(layer, removed, instead))
            effect = loss_increase(before, after)
            found[way] = {"increase": effect.mean, "error": effect.error}
        return found

    each = [without([head]) for head in heads]
    return {"heads": each, "all": each[0] if len(heads) == 1 else without(heads)}


def _few(model: Transformer, inputs: Int[Tensor, "batch time"]) -> Iterator[slice]:
    """Slices of the windows, each small enough that a pass over it takes less than about `MOST_BYTES`.

    Counted per position: three vocabularies (logits and the steps of the loss) and sixteen widths.
    """
    each = 4 * inputs.shape[1] * (3 * model.vocab_size + 16 * model.config.d_model)
    count = max(1, MOST_BYTES // each)
    return (slice(begin, begin + count) for begin in range(0, len(inputs), count))


def _z(layer: int) -> str:
    return f"blocks.{layer}.attn.z"
