"""What a configured model costs, for `vitral count`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vitral.api.configuring import DEFAULT_PRESET, configure, presets
from vitral.core.config import assignment
from vitral.data import prepare
from vitral.model import Cost, ModelConfig, ParameterRow, cost, parameter_table


@dataclass(frozen=True)
class Count:
    """A model's costs.

    Attributes:
        name: what was counted.
        vocab_size: with how many tokens.
        config: the model.
        batch_size: windows in a batch, for the activations.
        rows: every learned tensor.
        cost: totals.
    """

    name: str
    vocab_size: int
    config: ModelConfig
    batch_size: int
    rows: list[ParameterRow]
    cost: Cost

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "name": self.name,
            "vocab_size": self.vocab_size,
            "batch_size": self.batch_size,
            "model": self.config.plain(),
            "rows": [asdict(row) for row in self.rows],
            "cost": asdict(self.cost),
        }


def count_model(start: str, *, corpus: str | None, vocabulary: int | None, settings: Sequence[str]) -> Count:
    """Count a preset's or configuration's model.

    Without a text (`corpus`) or a size (`vocabulary`) a preset is counted with the vocabulary it is known by; a
    configuration of one's own with that of its text.

    Raises:
        UsageError: the configuration cannot be, or its text cannot be read.
    """
    known = presets()
    config = configure(start, corpus=corpus, overrides=[assignment(setting) for setting in settings])
    if vocabulary is None:
        at_hand = corpus is None and (start in known)
        vocabulary = known[start].vocabulary if at_hand else prepare(config.corpus).tokenizer.vocab_size
    return Count(
        name=start or DEFAULT_PRESET,
        vocab_size=vocabulary,
        config=config.model,
        batch_size=config.training.batch_size,
        rows=parameter_table(config.model, vocabulary),
        cost=cost(config.model, vocabulary, config.training.batch_size),
    )


def cost_rows(counted: Count) -> list[tuple[str, str, str]]:
    """The totals as (what, number, how it is counted)."""
    costs, tokens = counted.cost, counted.batch_size * counted.config.context_length
    return [
        (
            "forward",
            f"{costs.forward_flops:,} FLOPs per token",
            "2 per matrix number, 4 context · d_model per attention",
        ),
        ("backward", f"{costs.backward_flops:,} FLOPs per token", "twice the forward pass"),
        (
            "one training step",
            f"{(costs.forward_flops + costs.backward_flops) * tokens:.3g} FLOPs",
            f"{tokens:,} tokens",
        ),
        ("weights", _bytes(costs.weight_bytes), "4 bytes each"),
        ("gradients", _bytes(costs.gradient_bytes), "4 bytes each"),
        ("optimizer", _bytes(costs.optimizer_bytes), "AdamW: two averages of 4 bytes each"),
        ("activations", _bytes(costs.activation_bytes), f"estimate, kept for the backward pass of {tokens:,} tokens"),
        ("cache", _bytes(costs.cache_bytes), "keys and values of one full context"),
    ]


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"
