"""The ladder of model sizes: which size suits the number of steps that a processor can make in the time it has."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from vitral.core.config import merge
from vitral.model import count_parameters
from vitral.runs.config import RunConfig


@dataclass(frozen=True)
class Size:
    """A model size with its training.

    Attributes:
        least_steps: number of steps from which this size reaches a lower loss than the smaller ones in the same time.
        model: its keys of [model].
        training: its keys of [training].
    """

    least_steps: int
    model: Mapping[str, Any]
    training: Mapping[str, Any]

    def of(self, config: RunConfig) -> RunConfig:
        """The configuration with this size."""
        return RunConfig.parse(merge(config.plain(), {"model": self.model, "training": self.training}), "plan")


def _muon(rate: float) -> dict[str, Any]:
    rest = {"name": "adamw", "learning_rate": rate / 2, "weight_decay": 0.0}
    return {
        "optimizer": {"name": "muon", "learning_rate": rate, "momentum": 0.85, "rest": rest},
        "schedule": {"name": "linear", "warmup_steps": 20},
    }


LADDER = (
    Size(0, {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 256}, _muon(0.04)),
    Size(450, {"d_model": 96, "num_layers": 2, "num_heads": 4, "d_ff": 256}, _muon(0.04)),
    Size(650, {"d_model": 128, "num_layers": 2, "num_heads": 4, "d_ff": 512}, _muon(0.04)),
    Size(1500, {"d_model": 128, "num_layers": 4, "num_heads": 4, "d_ff": 512}, _muon(0.04)),
    Size(2500, {"d_model": 192, "num_layers": 4, "num_heads": 6, "d_ff": 768}, _muon(0.04)),
    Size(3000, {"d_model": 256, "num_layers": 6, "num_heads": 8, "d_ff": 1024}, _muon(0.04)),
)
"""Sizes from small to large; up to 128 × 4 the borders are measured, the others are extrapolated (docs/speed.md)."""

MOST_PER_TOKEN = 4.0
"""Parameters per token of the training text above which a size ends no better than a smaller one: it learns the text by
heart, or with more dropout takes longer to the same loss (measured: docs/experiments.md)."""


def sizes_for(config: RunConfig, num_tokens: int) -> list[RunConfig]:
    """The configurations with the sizes of the ladder that suit a training text of so many tokens, small to large.

    The smallest size suits every text.
    """
    smallest, *larger = (size.of(config) for size in LADDER)
    return [
        smallest,
        *takewhile(lambda one: count_parameters(one.model, 1) <= MOST_PER_TOKEN * num_tokens, larger),
    ]
