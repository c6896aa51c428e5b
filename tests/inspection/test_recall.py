"""Recall by distance: distances and guesses by hand, answers that are known, no answer seen by any mask."""

import json

import pytest
import torch

from vitral.core.streams import numpy_stream
from vitral.data.tasks import KeyValueRecall
from vitral.inspection.recall import (
    BINS,
    LONGEST,
    MASKS,
    answer_distances,
    answer_logits,
    by_distance,
    recall_under_masks,
    sequences,
    small_model,
    task_of,
    without_keys,
)

TASK = KeyValueRecall(pairs=2, queries=2, keys=3, values=4, shortest=0, longest=9)
ROWS = torch.from_numpy(TASK.draw(numpy_stream(1, "recall"), 400))


def test_distances_by_hand() -> None:
    # Keys 0, 1, 2; values 3 … 6; the mark 7; filler 8. Pairs (1, 5) and (0, 3), four of filler, the mark, 0 3 1 5.
    row = torch.tensor([[8, 8, 8, 8, 8, 1, 5, 0, 3, 8, 8, 8, 8, 7, 0, 3, 1, 5]])
    assert row.shape[1] == TASK.span
    assert answer_distances(row, TASK).tolist() == [[7, 11]]


def test_every_distance_leads_to_the_answer() -> None:
    positions, back = torch.tensor(TASK.answers), answer_distances(ROWS, TASK)
    assert torch.equal(ROWS.gather(1, positions - back), ROWS[:, positions])
    assert (int(back.min()), int(back.max())) == (3, 16)


def test_a_model_that_remembers_so_far_and_no_further() -> None:
    values, back = ROWS[:, torch.tensor(TASK.answers)], answer_distances(ROWS, TASK)
    logits = torch.full((*values.shape, 9), -40.0)
    logits[..., 0] = 0.0  # a key, which is never right
    near = torch.where(back <= 6, 40.0, -40.0)
    logits.scatter_(-1, values[..., None], near[..., None])
    measured = by_distance(logits, ROWS, TASK)
    assert measured["accuracy"] == pytest.approx(float((back <= 6).double().mean()))
    assert measured["answers"] == sum(group["answers"] for group in measured["distances"]) == 800
    assert measured["chance"] == 0.25
    for group in measured["distances"]:
        if group["to"] <= 6:
            assert (group["accuracy"], group["nats"]) == (1.0, pytest.approx(0.0, abs=1e-9))
        if group["from"] > 6:
            assert (group["accuracy"], group["nats"]) == (0.0, pytest.approx(40.0, abs=1e-6))


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
        measured = answer_distances(sequences(task, 300, 1, "test"), task)
        assert BINS[0][0] <= int(measured.min())
        assert int(measured.max()) <= BINS[-1][1]
        assert int(measured.max()) > LONGEST


@pytest.mark.parametrize("mask", MASKS)
def test_no_answer_is_seen_where_it_is_predicted(mask: str) -> None:
    task = task_of(4)
    model = small_model(mask, task, 1).eval()
    tokens = sequences(task, 3, 1, "test")
    changed = tokens.clone()
    changed[:, task.answers[2]] = tokens[:, task.answers[2]].roll(1) * 0 + 8
    before, after = (answer_logits(model, each, task) for each in (tokens, changed))
    assert before.shape[:2] == (3, 4)
    assert torch.allclose(before[:, :3], after[:, :3], atol=1e-6)


def test_every_mask_and_seed_is_measured() -> None:
    measured = recall_under_masks(4, steps=1, seeds=(2,))
    assert json.loads(json.dumps(measured)) == measured
    assert {mask: list(runs) for mask, runs in measured["masks"].items()} == {mask: ["2"] for mask in MASKS}
    assert (sum(measured["answers"]), measured["chance"]) == (512 * 4, 1 / 8)
    assert sum(measured["guess"]["causal"]) > sum(measured["guess"]["bidirectional"])
