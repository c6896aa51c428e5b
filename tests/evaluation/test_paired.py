"""Losses target by target, and their differences in blocks: by hand, and by the definition."""

import math
from typing import Any

import numpy as np
import pytest
from pieces import Pieces, losses_by_the_definition, part

from vitral.core.errors import UsageError
from vitral.evaluation import (
    SplitLoss,
    TargetLosses,
    block_differences,
    evaluate_split,
    ngram_baselines,
    ngram_differences,
    target_losses,
    token_losses,
)
from vitral.model import ModelConfig, Transformer

PIECES = [b"a", b"bc", "é".encode(), b"", b"d"]
STRETCHES = ([1, 2, 0, 3, 4, 2, 2, 1, 2, 3, 0, 4], [3], [4, 0, 0, 1, 2], [4, 4, 3, 0, 2, 2])


def small(context_length: int, **config: Any) -> Transformer:
    """A small Transformer in double precision."""
    sizes = {"context_length": context_length, "d_model": 6, "num_heads": 2, "num_layers": 1, "dropout": 0.3}
    return Transformer(ModelConfig.parse({**sizes, **config}), len(PIECES), seed=context_length).double()


@pytest.mark.parametrize(("context", "prefix"), [(3, 0), (5, 0), (50, 0), (5, 3)])
@pytest.mark.parametrize("batch_tokens", [1, 7, 4096])
def test_every_target_has_its_loss_in_the_order_of_the_text(context: int, prefix: int, batch_tokens: int) -> None:
    attention = {"mask": {"name": "prefix", "length": prefix}} if prefix else {}
    model = small(context, **({"attention": attention} if prefix else {}))
    expected = [loss for _, loss in losses_by_the_definition(model, STRETCHES, max(prefix - 1, 0))]
    model.train()
    result = token_losses(model, part(*STRETCHES), batch_tokens=batch_tokens)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert model.training


def test_places_count_the_characters_before_and_the_whole_is_that_of_a_pass() -> None:
    model, split, tokenizer = small(5), part([0, 1, 2, 3, 4], [2, 2]), Pieces(PIECES)
    result = target_losses(model, split, tokenizer)
    assert result.offsets.tolist() == [1, 3, 4, 4, 6]  # a | bc é "" d | é é: each target after the first of its segment
    assert result.num_characters == 7
    whole = evaluate_split(model, split, tokenizer)
    assert result.whole.plain() == pytest.approx(whole.plain())


def losses(nats: list[float], starts: list[int] | None = None, characters: int | None = None) -> TargetLosses:
    """Losses of which every target is a character, unless places are given."""
    size = len(nats)
    scored = [value for value in nats if not math.isnan(value)]
    whole = SplitLoss(sum(scored) / len(scored), len(scored), characters or size, size)
    return TargetLosses(np.array(nats), np.array(starts or range(size)), characters or size, whole)


def test_blocks_of_the_same_tokens_by_hand() -> None:
    one, other = losses([1.0] * 200 + [2.0] * 200), losses([0.5] * 200 + [2.25] * 200)
    assert block_differences(one, other, same_tokens=True).tolist() == pytest.approx([0.5, -0.25])


def test_the_mean_over_blocks_is_the_difference_of_the_losses() -> None:
    numbers = np.random.default_rng(0)
    one, other = (losses(numbers.exponential(2.0, 7321).tolist()) for _ in range(2))
    blocks = block_differences(one, other, same_tokens=True)
    assert len(blocks) == 30
    assert blocks.mean() == pytest.approx(one.whole.loss - other.whole.loss, rel=1e-9)


def test_only_targets_that_both_predict_are_compared() -> None:
    one = losses([math.nan, 1.0] * 600)
    other = losses([9.0, 0.5] * 400 + [9.0, math.nan, 9.0, 0.0] * 100)
    # 500 targets in two blocks: 250 differences of 0.5; 150 of 0.5 and 100 of 1.
    blocks = block_differences(one, other, same_tokens=True)
    assert blocks.tolist() == pytest.approx([2 * 125 / 500, 2 * 175 / 500])


def test_other_tokens_are_compared_in_bits_per_character() -> None:
    # The first model has a token for each of 400 characters, the second one for every two.
    one = losses([math.log(2)] * 400)
    other = losses([math.log(8)] * 100 + [math.log(2)] * 100, list(range(0, 400, 2)), 400)
    blocks = block_differences(one, other, same_tokens=False)
    assert blocks.tolist() == pytest.approx([1 - 3 / 2, 1 - 1 / 2])
    assert blocks.mean() == pytest.approx(one.whole.bits_per_character - other.whole.bits_per_character)


def test_other_texts_and_short_ones_are_refused() -> None:
    with pytest.raises(UsageError, match="not the same text"):
        block_differences(losses([1.0] * 500), losses([1.0] * 501), same_tokens=True)
    with pytest.raises(UsageError, match="too few"):
        block_differences(losses([1.0] * 399), losses([1.0] * 399), same_tokens=True)


def test_differences_to_ngrams_add_up_to_the_difference_of_the_losses() -> None:
    generator = np.random.default_rng(5)
    train, test = (part(generator.integers(0, 5, size=size).tolist()) for size in (997, 1009))
    model = small(7)
    result = ngram_differences(model, train, test, 3)
    loss, counted = evaluate_split(model, test, Pieces(PIECES)).loss, ngram_baselines(train, test, len(PIECES), 3)
    assert list(result) == [1, 2, 3]
    for order, blocks in result.items():
        assert len(blocks) == 1008 // 200
        assert np.mean(blocks) == pytest.approx(loss - counted.orders[order], abs=1e-6)
    with pytest.raises(UsageError):
        ngram_differences(model, train, part([1, 2, 3]), 3)
