"""A fresh model knows nothing: its loss on random tokens is ln V, whatever its parts."""

import math
from typing import Any

import pytest
import torch
from configs import configs, encoder_decoders
from hypothesis import assume, given
from hypothesis import strategies as st

from vitral.core.streams import torch_stream
from vitral.model import ModelConfig, Transformer, next_token_loss
from vitral.model.modes import evaluating

MOST_EXCESS = {"gpt2": 0.1, "wide": 0.1, "pytorch": 0.5, "lecun": 0.8}
"""A fresh model's loss on random tokens exceeds ln V by at most this, up to a width of 400.

Of lecun only where a norm stands before the head.
"""


def fresh_excess(model: Transformer) -> float:
    """The model's loss on random tokens minus ln V, of V tokens; in nats per token, never negative.

    A model that knows nothing has an excess of about 0. Every token is equally likely to be next, so the loss at a
    position is log Σ exp z minus the mean of its logits z, and only the inputs are drawn.

    Args:
        model: before training; its mode stays as it is.
    """
    time = min(model.config.context_length, 64)
    tokens = torch.randint(model.vocab_size, (4, time), generator=torch_stream(0, "fresh"))
    tokens = tokens.to(model.token_embedding.weight.device)
    source = None if model.encoder is None else tokens.flip(1)[:, : model.config.source_length]
    with evaluating(model):
        logits = model(tokens, source=source).cpu().double()
    return float((logits.logsumexp(-1) - logits.mean(-1)).mean()) - math.log(model.vocab_size)


@given(
    configs() | encoder_decoders(),
    st.sampled_from(["gpt2", "wide", "pytorch", "lecun"]),
    st.sampled_from([16, 64, 128]),
    st.integers(20, 500),
    st.integers(0, 99),
)
def test_it_is_as_unsure_as_the_vocabulary(
    chosen: dict[str, Any], initialisation: str, d_model: int, vocab_size: int, seed: int
) -> None:
    config = ModelConfig.parse({**chosen, "d_model": d_model, "initialisation": initialisation})
    assume(initialisation in "gpt2 pytorch" or config.has_final_norm)  # without, the head sees how the stream has grown
    excess = fresh_excess(Transformer(config, vocab_size, seed=seed))
    assert -1e-6 < excess <= MOST_EXCESS[initialisation]


def test_the_excess_is_that_of_a_loss_on_random_tokens() -> None:
    """On the average over the targets, which the excess takes exactly."""
    model = Transformer(ModelConfig.parse({"d_model": 32, "initialisation": "pytorch"}), 11, seed=3).train()
    tokens = torch.randint(11, (64, 50), generator=torch.Generator().manual_seed(1))
    targets = torch.arange(11).repeat_interleave(64)[:, None].expand(-1, 50)
    with torch.no_grad():
        loss = float(next_token_loss(model(tokens).repeat(11, 1, 1), targets, model.mask))
    assert fresh_excess(model) == pytest.approx(loss - math.log(11), abs=0.02)
    assert model.training


@pytest.mark.parametrize(("initialisation", "std"), [("gpt2", 0.02), ("pytorch", 1.0)])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_of_a_tied_model_only_the_last_gain_begins_otherwise(norm: str, initialisation: str, std: float) -> None:
    """ln(1 + 300/30) = 2.398 is the logit of the current token, d std e·e/|e|² before."""
    chosen = {"d_model": 128, "num_layers": 2, "norm": norm, "initialisation": initialisation}
    own, tied = (Transformer(ModelConfig.parse({**chosen, "tie_head": tie}), 300, seed=1) for tie in (False, True))
    numbers = dict(own.named_parameters())
    last = "final_norm.weight" if norm == "pre" else "blocks.1.mlp_norm.weight"
    for name, parameter in tied.named_parameters():
        factor = min(1.0, math.log(11) / (128 * std)) if name == last else 1.0
        assert torch.allclose(parameter, factor * numbers[name], rtol=1e-6, atol=0), name


def test_without_a_norm_the_embedding_begins_smaller() -> None:
    chosen = {"d_model": 128, "norm": "none", "initialisation": "wide", "positions": "rotary", "tie_head": True}
    weight = Transformer(ModelConfig.parse(chosen), 300, seed=1).token_embedding.weight
    assert weight.square().sum(1).mean().item() == pytest.approx(math.log(11), rel=0.02)
