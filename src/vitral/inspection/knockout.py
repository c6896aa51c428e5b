"""What a head is worth: how much the loss rises when its output is taken out of a trained model.

The model itself is run, with its tap replacing z, each head's weighted sum of values, before W_O. Taking a head out
by zeros (Michel et al. 2019, §2.2) also takes out what it adds to every position alike; taking it out by its mean over
the sample leaves that in, and removes only what depends on the text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.taps import SILENT, Editor, Recorder, Tap
from vitral.model import Transformer


@dataclass(frozen=True)
class Effect:
    """A rise of the loss, window by window.

    Attributes:
        mean: in nats per token; positive where the change hurts.
        error: standard error of the mean over the windows; 0 for a single window.
    """

    mean: float
    error: float


def loss_by_window(
    model: Transformer, inputs: Int[Tensor, "batch time"], targets: Int[Tensor, "batch time"], tap: Tap = SILENT
) -> Float[Tensor, " batch"]:
    """Mean loss of each window in nats per token, in float64; targets the mask has already shown do not count."""
    first = (0 if model.mask is None else model.mask.first_target()) or 0
    with torch.inference_mode():
        logits = model(inputs, tap=tap)[:, first:].flatten(0, 1)
    each = functional.cross_entropy(logits.float(), targets[:, first:].flatten(), reduction="none")
    return each.double().view(len(inputs), -1).mean(dim=1)


def mean_of_z(model: Transformer, inputs: Int[Tensor, "batch time"], layer: int) -> Float[Tensor, "heads d_head"]:
    """The mean of each head's z in a layer over all positions of the windows."""
    name = _z(layer)
    recorder = Recorder([name])
    with torch.inference_mode():
        model(inputs, tap=recorder)
    z = recorder.kept[name]
    return z.double().mean(dim=(0, 2)).to(z.dtype)


def remove_heads(layer: int, heads: Sequence[int], instead: Float[Tensor, "all_heads d_head"] | None = None) -> Editor:
    """A tap that replaces the z of these heads of a layer at every position.

    Args:
        layer: counted from 0.
        heads: counted from 0.
        instead: what each head of the layer gives instead; zeros if left out.
    """

    def replace(z: Tensor) -> Tensor:
        changed = z.clone()
        for head in heads:
            changed[:, head] = 0.0 if instead is None else instead[head]
        return changed

    return Editor({_z(layer): replace})


def loss_increase(before: Float[Tensor, " batch"], after: Float[Tensor, " batch"]) -> Effect:
    """What the loss rose by from one pass to another over the same windows."""
    rise = after - before
    error = float(rise.std() / math.sqrt(len(rise))) if len(rise) > 1 else 0.0
    return Effect(float(rise.mean()), error)


def _z(layer: int) -> str:
    return f"blocks.{layer}.attn.z"
