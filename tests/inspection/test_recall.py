"""Recall by distance: distances of drawn sequences, and shares of answers that are known."""

import pytest
import torch

from vitral.core.streams import numpy_stream
from vitral.data.tasks import KeyValueRecall
from vitral.inspection.recall import answer_distances, by_distance

TASK = KeyValueRecall(pairs=2, queries=2, keys=3, values=4, shortest=0, longest=9)
ROWS = torch.from_numpy(TASK.draw(numpy_stream(1, "recall"), 400))


def test_distances_by_hand() -> None:
    # Keys 0, 1, 2; values 3 … 6; the mark 7; filler 8. Pairs (1, 5) and (0, 3), four of filler, the mark, 0 3 1 5.
    row = torch.tensor([[8, 8, 8, 8, 8, 1, 5, 0, 3, 8, 8, 8, 8, 7, 0, 3, 1, 5]])
    assert row.shape[1] == TASK.span
    assert answer_distances(row, TASK).tolist() == [[7, 11]]


def test_every_distance_leads_to_the_answer() -> None:
    places, back = torch.tensor(TASK.answers), answer_distances(ROWS, TASK)
    assert torch.equal(ROWS.gather(1, places - back), ROWS[:, places])
    assert (int(back.min()), int(back.max())) == (3, 16)


def test_a_model_that_remembers_so_far_and_no_further() -> None:
    values, back = ROWS[:, torch.tensor(TASK.answers)], answer_distances(ROWS, TASK)
    logits = torch.full((*values.shape, 9), -40.0)
    logits[..., 0] = 0.0  # a key, which is never right
    near = torch.where(back <= 6, 40.0, -40.0)
    logits.scatter_(-1, values[..., None], near[..., None])
    found = by_distance(logits, ROWS, TASK)
    assert found["accuracy"] == pytest.approx(float((back <= 6).double().mean()))
    assert found["answers"] == sum(group["answers"] for group in found["distances"]) == 800
    assert found["chance"] == 0.25
    for group in found["distances"]:
        if group["to"] <= 6:
            assert (group["accuracy"], group["nats"]) == (1.0, pytest.approx(0.0, abs=1e-9))
        if group["from"] > 6:
            assert (group["accuracy"], group["nats"]) == (0.0, pytest.approx(40.0, abs=1e-6))
