"""Key-value recall: how often a model gives the right value, by the distance back to it (Arora et al. 2024)."""

from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.data.tasks import KeyValueRecall
from vitral.inspection.targets import passes
from vitral.model import Transformer

GROUPS = 8
"""Groups of distances, of equal width."""


def recall_by_distance(model: Transformer, task: KeyValueRecall, rows: Int[Tensor, "rows span"]) -> dict[str, Any]:
    """The share of right values and their loss, over all and by distance, on sequences of a recall task.

    The right value is the most probable of all tokens at its place, from the tokens before it. Sequences of one task
    differ in their distances, so every group of distances is read by the same model.

    Args:
        model: in evaluation mode, causal.
        task: of the sequences.
        rows: sequences, as the model's tokens.

    Returns:
        `accuracy`, `nats` (mean loss of the values, in nats), `answers` (their number), `chance` (1 / values);
        `distances`: for each group `from`, `to`, `accuracy`, `nats` and `answers`.
    """
    logits, device = [], model.token_embedding.weight.device
    places = torch.tensor(task.answers) - 1
    for _rows, seen in passes(model, rows[:, :-1].to(device), ["logits"]):
        logits.append(seen["logits"][:, places.to(device)].cpu())
    return by_distance(torch.cat(logits), rows.cpu(), task)


def by_distance(
    logits: Float[Tensor, "rows queries vocab"], rows: Int[Tensor, "rows span"], task: KeyValueRecall
) -> dict[str, Any]:
    """What `recall_by_distance` returns, of given logits at the places of the answers."""
    places = torch.tensor(task.answers)
    values, back = rows[:, places], answer_distances(rows, task)
    logs = logits.double().log_softmax(dim=-1).gather(-1, values[..., None])[..., 0]
    right = logits.argmax(dim=-1) == values
    least, most = int(back.min()), int(back.max()) + 1
    edges = [least + (most - least) * group // GROUPS for group in range(GROUPS + 1)]
    groups = [(begin, end, (back >= begin) & (back < end)) for begin, end in pairwise(edges)]

    def of(chosen: Tensor) -> dict[str, Any]:
        return {
            "accuracy": float(right[chosen].double().mean()),
            "nats": float(-logs[chosen].mean()),
            "answers": int(chosen.sum()),
        }

    return {
        **of(torch.ones_like(right)),
        "chance": 1 / task.values,
        "distances": [{"from": begin, "to": end - 1, **of(inside)} for begin, end, inside in groups if inside.any()],
    }


def answer_distances(rows: Int[Tensor, "rows span"], task: KeyValueRecall) -> Int[Tensor, "rows queries"]:
    """How many positions before each answer its value is: keys are different, and stand first in their pair."""
    places = torch.tensor(task.answers)
    keys, before = rows[:, places - 1], rows[:, : task.longest + 2 * task.pairs]
    first = (before[:, None, :] == keys[:, :, None]).int().argmax(dim=-1)
    return places - (first + 1)
