"""The loss of a part: by hand, by the definition, and the same whatever is computed side by side."""

import math
from typing import Any

import pytest
import torch
from pieces import Pieces, losses_by_the_definition, part

from vitral.core.errors import UsageError
from vitral.evaluation import SplitLoss, evaluate_split
from vitral.model import ModelConfig, Transformer

CONTEXT = 5
# A character of two bytes, its two bytes alone, one of three, a piece of two characters, a special token, a letter.
PIECES = ["é".encode(), b"\xc3", b"\xa9", "␠".encode(), "aé".encode(), b"", b"x"]
STRETCHES = ([1, 2, 0, 3, 4, 6, 6, 1, 2, 3, 0, 4], [3], [6, 0, 0, 1, 2], [4, 4, 3, 0, 6, 2])


def small(seed: int = 2, **config: Any) -> Transformer:
    """A small Transformer with dropout, in double precision."""
    sizes = {"context_length": CONTEXT, "d_model": 6, "num_heads": 2, "num_layers": 1, "dropout": 0.5}
    chosen = ModelConfig.parse({**sizes, "initialisation": "pytorch", **config})
    return Transformer(chosen, len(PIECES), seed=seed).double()


@pytest.mark.parametrize(
    ("attention", "first"),
    [
        ({"mask": "causal"}, 0),
        ({"mask": {"name": "window", "size": 2}}, 0),
        ({"mask": {"name": "prefix", "length": 3}}, 2),
        ({"mask": "bidirectional"}, 0),
        ("none", 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch_tokens", [1, 2 * CONTEXT, 16384])
def test_it_is_the_definition(attention: Any, first: int, batch_tokens: int) -> None:
    model = small(attention=attention)
    found = losses_by_the_definition(model, STRETCHES, first)
    scored, nats = zip(*(one for one in found if not math.isnan(one[1])), strict=True)
    result = evaluate_split(model, part(*STRETCHES), Pieces(PIECES), batch_tokens=batch_tokens)
    assert result.loss == pytest.approx(sum(nats) / len(nats), rel=1e-6)
    assert result.num_targets == len(scored)
    assert result.num_bytes == sum(len(PIECES[token]) for token in scored)
    assert result.num_characters == sum([1, 1, 0, 1, 2, 0, 1][token] for token in scored)


def test_bits_by_hand() -> None:
    assert SplitLoss(1000.0, 1, 1, 1).perplexity == math.inf
    result = SplitLoss(loss=2 * math.log(2), num_targets=6, num_characters=8, num_bytes=24)
    assert result.perplexity == pytest.approx(4)
    assert result.bits_per_character == pytest.approx(12 / 8)
    assert result.bits_per_byte == pytest.approx(12 / 24)
    assert result.plain() == {name: getattr(result, name) for name in result.plain()}


def test_many_small_losses_do_not_drown() -> None:
    # In float32 a sum of 30,000 losses near 2 would be off in the fifth digit.
    model = small()
    once = evaluate_split(model, part([6, 0, 3, 4] * 5 + [6]), Pieces(PIECES)).loss
    many = evaluate_split(model, part([6, 0, 3, 4] * 7500 + [6]), Pieces(PIECES)).loss
    assert many == pytest.approx(once, rel=1e-7)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training: bool) -> None:
    model = small().train(training)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second = (evaluate_split(model, part(*STRETCHES), Pieces(PIECES)) for _ in range(2))
    assert first == second
    assert model.training is training
    assert torch.equal(torch.get_rng_state(), state)


def test_bad_input_is_refused() -> None:
    with pytest.raises(UsageError, match="the model has 7 tokens and the tokenizer 6"):
        evaluate_split(small(), part(*STRETCHES), Pieces(PIECES[:-1]))
    with pytest.raises(UsageError, match="nothing to score"):
        evaluate_split(small(), part([1]), Pieces(PIECES))
    prefix = small(attention={"mask": {"name": "prefix", "length": 4}})
    with pytest.raises(UsageError, match="nothing to score"):
        evaluate_split(prefix, part([1, 2, 3]), Pieces(PIECES))
