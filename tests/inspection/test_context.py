"""Loss by the amount of context: the same targets at every amount, each from exactly that much."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from vitral.data import Split
from vitral.inspection.positions import loss_by_context
from vitral.model import ModelConfig, Transformer

VOCAB = 7
PART = Split(np.random.default_rng(3).integers(VOCAB, size=400).astype(np.uint8), np.array([[0, 150], [150, 400]]))


def model_with(seed: int = 3, **changes: Any) -> Transformer:
    sizes = {"context_length": 16, "d_model": 12, "num_heads": 2, "num_layers": 1, "positions": "none"}
    return Transformer(ModelConfig.parse({**sizes, "initialisation": "pytorch", **changes}), VOCAB, seed=seed).eval()


@pytest.mark.parametrize(
    "changes", [{}, {"positions": "learned"}, {"attention": "none", "recurrence": "lstm"}], ids=str
)
def test_each_amount_is_that_many_tokens_before_the_same_targets(changes: dict[str, Any]) -> None:
    model = model_with(**changes)
    measured = loss_by_context(model, PART, most_targets=10_000)
    targets = [position for begin, end in ((0, 150), (150, 400)) for start in range(begin, end - 16, 8)
               for position in range(start + 8 + 1, start + 16 + 1)]  # fmt: skip
    assert measured["context"] == [1, 2, 4, 8, 16]
    assert measured["targets"] == len(targets)
    tokens = torch.from_numpy(PART.tokens.astype(np.int64))
    for amount, nats in zip(measured["context"], measured["nats"], strict=True):
        ends: dict[int, list[int]] = {}
        for index, target in enumerate(targets):
            phase = index % max(1, amount // 2) if amount > 1 else 0
            ends.setdefault(amount // 2 + 1 + phase if amount > 1 else 1, []).append(target)
        losses: list[float] = []
        for context, alike in ends.items():
            with torch.inference_mode():
                logits = model(torch.stack([tokens[target - context : target] for target in alike]))[:, -1]
            losses += functional.cross_entropy(logits, tokens[alike], reduction="none").tolist()
        assert nats == pytest.approx(np.mean(losses), abs=1e-5)


def test_what_a_model_cannot_see_it_does_not_lose() -> None:
    nothing = loss_by_context(model_with(attention="none"), PART, most_targets=200)
    assert nothing["nats"] == pytest.approx([nothing["nats"][0]] * 5)
    window = {"mask": {"name": "window", "size": 3}}  # one layer: a position sees itself and two before it
    short = loss_by_context(model_with(attention=window), PART, most_targets=200)["nats"]
    assert short[2:] == pytest.approx([short[2]] * 3, abs=1e-6)
    assert abs(short[2] - short[1]) > 1e-4
