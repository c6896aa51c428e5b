"""The copying task by distance: its sequences, that no answer is seen, and that reach limits what is learned."""

import math

import pytest
import torch

from vitral.inspection.retrieval import (
    ASK,
    CHANCE,
    LENGTH,
    MASKED,
    MASKS,
    SYMBOLS,
    VOCAB,
    answer_logits,
    retrieval_by_distance,
    sequences,
    small_model,
    trained_accuracy,
)


def test_the_answer_is_as_far_back_as_the_distance_and_is_asked_for() -> None:
    tokens = sequences(11, 7, 1, "test")
    assert tokens.shape == (7, 15)
    assert torch.equal(tokens[:, 11:], tokens[:, :4])
    assert (tokens[:, 10] == ASK).all()
    assert not torch.equal(tokens, sequences(11, 7, 1, "other"))


@pytest.mark.parametrize("mask", MASKS)
def test_no_token_of_the_answer_is_seen_where_it_is_predicted(mask: str) -> None:
    """Changing one token of the answer leaves the logits of those up to it as they are."""
    model = small_model(mask, 11, 11 + LENGTH, VOCAB, 1).eval()
    tokens = sequences(11, 3, 1, "test")
    changed = tokens.clone()
    changed[:, 13] = 2 + (changed[:, 13] - 1) % SYMBOLS
    before, after = (answer_logits(model, each, range(11, 15), MASKED) for each in (tokens, changed))
    assert before.shape == (3, 4, VOCAB)
    assert torch.allclose(before[:, :3], after[:, :3], atol=1e-6)


def test_a_short_distance_is_learned_and_one_beyond_reach_is_not() -> None:
    near, _ = trained_accuracy("causal", 6, 60, 1)
    far, loss = trained_accuracy("window", 36, 12, 1)
    assert near > 0.5
    assert far < CHANCE + 0.02 + 1.96 * math.sqrt(CHANCE * (1 - CHANCE) / 1024)
    assert loss > 0.9 * math.log(SYMBOLS)


def test_every_mask_is_measured_at_every_distance() -> None:
    found = retrieval_by_distance((5, 7), steps=1, seed=1)
    assert {mask: len(shares) for mask, shares in found["accuracy"].items()} == dict.fromkeys(MASKS, 2)
    assert {mask: len(losses) for mask, losses in found["loss"].items()} == dict.fromkeys(MASKS, 2)
    assert (found["distances"], found["steps"], found["seed"]) == ([5, 7], 1, 1)
    assert (found["answers"], found["reach"]) == (1024, 30)
