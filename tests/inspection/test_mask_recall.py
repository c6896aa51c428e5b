"""Recall at variable distance: distances and guesses by hand, no answer seen, a single pair learned."""

import json

import pytest
import torch

from vitral.data.tasks import KeyValueRecall
from vitral.inspection.mask_recall import (
    BINS,
    LONGEST,
    MASKS,
    answer_logits,
    recall_under_masks,
    sequences,
    small_model,
    task_of,
    without_keys,
)
from vitral.inspection.recall import answer_distances

SMALL = KeyValueRecall(pairs=2, queries=2, keys=3, values=4, shortest=0, longest=3)


def ids(text: str) -> torch.Tensor:
    return torch.tensor([[SMALL.alphabet.index(letter) for letter in text]])


def test_guesses_by_hand() -> None:
    """Of two different values one in two; what is left after the first answer is known."""
    assert without_keys(SMALL, ids(".aBcD..?cDaB"), earlier=True).tolist() == [[0.5, 1.0]]
    assert without_keys(SMALL, ids(".aBcD..?cDaB"), earlier=False).tolist() == [[0.5, 0.5]]
    assert without_keys(SMALL, ids(".aBcB..?cBaB"), earlier=True).tolist() == [[1.0, 1.0]]


def test_every_distance_has_a_bin() -> None:
    for pairs in (1, 4):
        task = task_of(pairs)
        found = answer_distances(sequences(task, 300, 1, "test"), task)
        assert BINS[0][0] <= int(found.min())
        assert int(found.max()) <= BINS[-1][1]
        assert int(found.max()) > LONGEST


@pytest.mark.parametrize("mask", MASKS)
def test_no_answer_is_seen_where_it_is_predicted(mask: str) -> None:
    task = task_of(4)
    model = small_model(mask, task.answers[0] - 1, task.span, len(task.alphabet) + 1, 1).eval()
    tokens = sequences(task, 3, 1, "test")
    changed = tokens.clone()
    changed[:, task.answers[2]] = tokens[:, task.answers[2]].roll(1) * 0 + 8
    before, after = (answer_logits(model, each, task.answers, len(task.alphabet)) for each in (tokens, changed))
    assert before.shape[:2] == (3, 4)
    assert torch.allclose(before[:, :3], after[:, :3], atol=1e-6)


def test_every_mask_and_seed_is_measured() -> None:
    found = recall_under_masks(4, steps=1, seeds=(2,))
    assert json.loads(json.dumps(found)) == found
    assert {mask: list(runs) for mask, runs in found["masks"].items()} == {mask: ["2"] for mask in MASKS}
    assert (sum(found["answers"]), found["chance"]) == (512 * 4, 1 / 8)
    assert sum(found["guess"]["causal"]) > sum(found["guess"]["bidirectional"])
