"""Loss by position: each number is the loss of its own target, inside and beyond the context length."""

import math
from typing import Any, Literal

import numpy as np
import pytest

from vitral.data import Split, windows
from vitral.inspection.positions import loss_beyond, loss_by_position, loss_inside, window_nats
from vitral.inspection.targets import window_starts
from vitral.model import ModelConfig, Transformer

Positions = Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
CONTEXT = 8


def model_with(vocab: int = 7, **changes: Any) -> Transformer:
    config = {"context_length": CONTEXT, "d_model": 12, "num_heads": 2, "num_layers": 3, "initialisation": "pytorch"}
    return Transformer(ModelConfig.parse(config | changes), vocab, seed=3).eval()


def part(num: int, vocab: int = 7) -> Split:
    tokens = np.random.default_rng(num).integers(vocab, size=num).astype(np.uint8)
    return Split(tokens, np.array([[0, num]]))


class TestInside:
    def test_each_number_is_the_loss_of_its_own_target(self) -> None:
        model, text = model_with(), part(3 * CONTEXT)
        nats = window_nats(model, text, np.array([2, 5]), CONTEXT)
        inputs, targets = next(windows(Split(text.tokens, np.array([[5, 6 + CONTEXT]])), CONTEXT, 1))
        logs = model(inputs).detach().log_softmax(-1)
        assert nats[1, 3] == pytest.approx(-float(logs[0, 3, targets[0, 3]]), rel=1e-5)

    def test_targets_that_a_prefix_shows_are_not_scored(self) -> None:
        measured = loss_inside(
            model_with(attention={"mask": {"name": "prefix", "length": 4}}), part(500), most_tokens=80
        )
        assert measured["windows"] == 10
        assert [loss is None for loss in measured["nats"]] == [True] * 3 + [False] * 5


class TestBeyond:
    @pytest.mark.parametrize("kind", ["sinusoidal", "rotary", "alibi", "relative", "none"])
    def test_a_longer_window_changes_nothing_inside(self, kind: Positions) -> None:
        model, text = model_with(positions=kind), part(500)
        beyond = loss_beyond(model, text, 2, most_tokens=10_000)
        starts = window_starts(text, 2 * CONTEXT + 1, 1, stride=2 * CONTEXT)
        short, long = (window_nats(model, text, starts, size) for size in (CONTEXT, 2 * CONTEXT))
        assert np.allclose(short[0], long[0, :CONTEXT], atol=1e-5)
        assert (len(beyond["nats"]), beyond["length"]) == (8, 2 * CONTEXT)
        assert all(math.isfinite(value) for value in beyond["nats"])

    def test_learned_positions_end_at_the_context_length(self) -> None:
        measured = loss_by_position(model_with(positions="learned"), part(500), most_tokens=10_000, multiple=2)
        assert measured["context_length"] == CONTEXT
        assert [value is None for value in measured["beyond"]["nats"]] == [False] * 4 + [True] * 4
        assert "learned positions end at context_length = 8" in measured["beyond"]["why"]
