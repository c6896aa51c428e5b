"""What a head is worth: how much the loss rises when its output is taken out of a trained model.

The model itself is run, with its tap replacing z, each head's weighted sum of values, before W_O. Taking a head out
by zeros (Michel et al. 2019, §2.2) also takes out what it adds to every position alike; taking it out by its mean over
the sample leaves that in, and removes only what depends on the text.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.taps import SILENT, Editor, Recorder, Tap
from vitral.model import Transformer, first_target

MOST_BYTES = 200_000_000
"""A pass over more windows than this holds is made in several."""


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


class RunningMean:
    """A mean of several means, each over some number of things; of a single one it is that one, to the last bit."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.value, self.weight = torch.zeros(()), 0

    def add(self, mean: Float[Tensor, "*shape"], weight: int) -> None:
        """Take in the mean of `weight` more, which is above zero."""
        self.weight += weight
        share = weight / self.weight
        self.value = mean if share == 1 else self.value + (mean - self.value) * share


def _few(model: Transformer, inputs: Int[Tensor, "batch time"]) -> Iterator[slice]:
    """Stretches of the windows, each small enough that a pass over it holds less than about `MOST_BYTES`.

    Counted per position are three vocabularies (logits, and what the loss makes of them) and sixteen widths.
    """
    each = 4 * inputs.shape[1] * (3 * model.vocab_size + 16 * model.config.d_model)
    count = max(1, MOST_BYTES // each)
    return (slice(begin, begin + count) for begin in range(0, len(inputs), count))


def _z(layer: int) -> str:
    return f"blocks.{layer}.attn.z"
