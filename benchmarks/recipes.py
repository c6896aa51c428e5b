"""Training recipes of the baselines and their numbers of steps, fixed before any timing.

STRONG_STEPS and SOURCE_STEPS are what `python -m benchmarks.grid` found: the smallest numbers of steps at which the
setting reaches the target. A setting without a number is not measured.
"""

import json
import math
from dataclasses import asdict, dataclass

TARGET = 1.78
"""Test loss, nats per token."""

WARMUP_FRACTION = 0.05


@dataclass(frozen=True)
class Recipe:
    """Training recipe for a plain GPT of the preset `shakespeare`.

    Attributes:
        name: "source" or "strong".
        batch: windows of a batch.
        rate: the peak learning rate.
        steps: optimizer steps.
        schedule: "constant", or "cosine": to 0, after a warm-up of a twentieth of the steps.
        dropout: of attention weights and feed-forward output.
        init: see `Shape`.
        fused: whether AdamW's fused kernel is used.
        weight_decay: of matrices and embeddings.
    """

    name: str
    batch: int
    rate: float
    steps: int
    schedule: str
    dropout: float
    init: str
    fused: bool
    weight_decay: float = 0.1

    def rate_at(self, step: int) -> float:
        """The learning rate of step 0 … steps - 1."""
        if self.schedule == "constant":
            return self.rate
        warmup = max(1, round(WARMUP_FRACTION * self.steps))
        if step < warmup:
            return self.rate * (step + 1) / warmup
        progress = (step - warmup) / max(1, self.steps - warmup)
        return self.rate * (1 + math.cos(math.pi * progress)) / 2

    def text(self) -> str:
        """The recipe in a few words.

        >>> source(1000).text()
        'source (batch 64, 0.003, 1,000 steps)'
        """
        return f"{self.name} (batch {self.batch}, {self.rate:g}, {self.steps:,} steps)"

    def to_json(self) -> str:
        """The recipe as JSON for a separate process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Recipe":
        """Back from `to_json`."""
        return Recipe(**json.loads(text))


def source(steps: int) -> Recipe:
    """The recipe of the experiment that Vitral began with."""
    return Recipe("source", 64, 3e-3, steps, "constant", dropout=0.2, init="pytorch", fused=False)


def strong(batch: int, rate: float, steps: int, init: str = "pytorch") -> Recipe:
    """A strong recipe by common practice: no dropout, warm-up, cosine to 0, the fused optimizer."""
    return Recipe("strong", batch, rate, steps, "cosine", dropout=0.0, init=init, fused=True)


BATCHES = (8, 16, 32, 64)
RATES = (1e-3, 2e-3, 3e-3, 6e-3)

SOURCE_STEPS: int | None = 900
STRONG_STEPS: dict[tuple[int, float], int | None] = {
    **{(batch, rate): None for batch in BATCHES for rate in RATES},
    (16, 6e-3): 1250,
    (32, 6e-3): 900,
    (8, 3e-3): 2200,
}


MINUTE: tuple[dict[str, float], ...] = ({"width": 128, "layers": 2, "context": 50, "batch": 16, "rate": 6e-3},)
"""Sizes of the strong recipe for a minute of training: the best of those tried (docs/internals/experiments.md)."""


def fixed() -> list[Recipe]:
    """Every baseline whose number of steps is known."""
    recipes = [] if SOURCE_STEPS is None else [source(SOURCE_STEPS)]
    return recipes + [strong(batch, rate, steps) for (batch, rate), steps in STRONG_STEPS.items() if steps]
