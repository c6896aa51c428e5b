"""Key-value recall: how often a model gives the right value, by the distance back to it (Arora et al. 2024).

`recall_under_masks` measures it of small models, one for each mask: whether each finds a value by its key.

A sequence is one of `vitral.data.tasks.KeyValueRecall`: pairs of a key and a value, filler of a length drawn for each
sequence, a mark, and the keys again, each followed by its value, which is the answer. No fixed offset leads from an
answer to its value, so a model has to look for it: with one pair for the only value in sight, with several for the
value behind this key. `without_keys` is the exact share of right answers of the best guess that knows the values shown,
but not which key each belongs to.

One small model is trained for each mask and each seed, all on the same sequences; its answers to new sequences are
counted by their distance from the value. Models with a causal, prefix or window mask predict each answer from the key
before it; the prefix ends with the mark. The bidirectional model is trained on masked tokens: all answers are masked. A
window of w reaches w - 1 positions back in one layer: it is the control, a mask whose reach is known.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.devices import ordered_sums
from vitral.core.streams import numpy_stream
from vitral.data.tasks import KeyValueRecall
from vitral.inspection.targets import read_activation
from vitral.model import ModelConfig, Transformer

GROUPS = 8
"""Groups of distances, of equal width."""
KEYS = VALUES = 8
LAYERS, WINDOW = 2, 16
REACH = LAYERS * (WINDOW - 1)
"""Positions back that a window model of so many layers can see."""
MASKS = ("causal", "bidirectional", "prefix", "window")
BATCH, WARMUP, PEAK, CLIP = 64, 30, 3e-3, 1.0
LONGEST = 48
"""Symbols of filler at most between the pairs and the mark."""
BINS = ((1, 7), (8, 15), (16, 31), (32, 45), (46, 64))
"""Distances counted together, in positions; the last two are beyond the reach of the window."""
TESTED = 512
"""New sequences on which a model is measured."""


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
    positions, inputs = torch.tensor(task.answers) - 1, rows[:, :-1].to(model.token_embedding.weight.device)
    logits = read_activation(model, inputs, "logits", lambda seen: seen[:, positions.to(seen.device)])
    return by_distance(logits, rows.cpu(), task)


def by_distance(
    logits: Float[Tensor, "rows queries vocab"], rows: Int[Tensor, "rows span"], task: KeyValueRecall
) -> dict[str, Any]:
    """What `recall_by_distance` returns, of given logits at the places of the answers."""
    positions = torch.tensor(task.answers)
    values, back = rows[:, positions], answer_distances(rows, task)
    logs = logits.double().log_softmax(dim=-1).gather(-1, values[..., None])[..., 0]
    right = logits.argmax(dim=-1) == values
    least, most = int(back.min()), int(back.max()) + 1
    edges = [least + (most - least) * group // GROUPS for group in range(GROUPS + 1)]
    groups_with_answers = list[tuple[dict[str, Any], dict[str, Any]]]()
    for begin, end in [(least, most), *pairwise(edges)]:
        inside = (back >= begin) & (back < end)
        answers, accuracy, loss = int(inside.sum()), right[inside].double().mean(), -logs[inside].mean()
        means = {"accuracy": float(accuracy), "nats": float(loss), "answers": answers}
        groups_with_answers += [({"from": begin, "to": end - 1}, means)] if answers else []
    (_ends, whole), *groups = groups_with_answers
    return whole | {"chance": 1 / task.values, "distances": [ends | means for ends, means in groups]}


def answer_distances(rows: Int[Tensor, "rows span"], task: KeyValueRecall) -> Int[Tensor, "rows queries"]:
    """How many positions before each answer its value is: keys are different, and stand first in their pair."""
    positions = torch.tensor(task.answers)
    keys, before = rows[:, positions - 1], rows[:, : task.longest + 2 * task.pairs]
    first = (before[:, None, :] == keys[:, :, None]).int().argmax(dim=-1)
    return positions - (first + 1)


def task_of(pairs: int) -> KeyValueRecall:
    """Every key of a sequence is asked for once."""
    return KeyValueRecall(pairs=pairs, queries=pairs, keys=KEYS, values=VALUES, shortest=0, longest=LONGEST)


def recall_under_masks(pairs: int, *, steps: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Right answers of every mask by distance.

    Args:
        pairs: of a sequence.
        steps: of training, for each model.
        seeds: of models and their training sequences; a model for each.

    Returns:
        `pairs`, `steps`, `reach` of the window, from the answer; `answers` in each bin; `chance`, of a guess
        among all values; `guess`: by mask, of `without_keys` in each bin; `masks`: by mask and seed (as text)
        `accuracy` in each bin, None where there is no answer.
    """
    task = task_of(pairs)
    tokens = sequences(task, TESTED, 0, "test")
    which = answer_distances(tokens, task)
    inside = [(which >= low) & (which <= high) for low, high in BINS]
    by_mask: dict[str, dict[str, Any]] = {mask: {} for mask in MASKS}
    guess = {mask: by_bin(without_keys(task, tokens, earlier=mask != "bidirectional"), inside) for mask in MASKS}
    for mask, by_seed in by_mask.items():
        for seed in seeds:
            model = small_model(mask, task, seed)
            fit(model, task, steps, seed)
            with torch.inference_mode():
                logits = answer_logits(model, tokens, task)
            right = logits.argmax(dim=-1) == tokens[:, list(task.answers)]
            by_seed[str(seed)] = {"accuracy": by_bin(right.double(), inside)}
    return {
        "pairs": pairs,
        "steps": steps,
        "reach": REACH + 1,
        "answers": [int(chosen.sum()) for chosen in inside],
        "chance": 1 / VALUES,
        "guess": guess,
        "masks": by_mask,
    }


def sequences(task: KeyValueRecall, count: int, seed: int, *index: int | str) -> Int[Tensor, "count time"]:
    """New sequences as ids; the id after the last of the alphabet is the mask token."""
    return torch.from_numpy(task.draw(numpy_stream(seed, "recall", task.pairs, *index), count))


def without_keys(
    task: KeyValueRecall, tokens: Int[Tensor, "rows time"], *, earlier: bool
) -> Float[Tensor, "rows answers"]:
    """How often the best guess is right that knows which values are shown, but not to which keys they belong.

    It names a value that is there most often. Where it sees the earlier answers, they are taken out first.
    """
    values = tokens[:, list(task.answers)]
    shares = []
    for answer in range(values.shape[1]):
        left = values[:, answer:] if earlier else values
        most = (left[:, :, None] == left[:, None, :]).sum(dim=-1).amax(dim=-1)
        shares.append(most.double() / left.shape[1])
    return torch.stack(shares, dim=1)


def by_bin(shares: Float[Tensor, "rows answers"], inside: Sequence[Tensor]) -> list[float | None]:
    """The mean in each bin; None where there is no answer."""
    return [float(shares[chosen].mean()) if bool(chosen.any()) else None for chosen in inside]


def small_model(mask: str, task: KeyValueRecall, seed: int) -> Transformer:
    """A model with rotary positions, with which one rule, "so many positions back", serves every position.

    Args:
        mask: one of `MASKS`; a prefix ends with the mark.
        task: gives the positions, and the tokens with a mask token after them.
        seed: of its initialisation.
    """
    masks: dict[str, Any] = {
        "prefix": {"name": "prefix", "length": task.answers[0] - 1},
        "window": {"name": "window", "size": WINDOW},
    }
    config = {
        "context_length": task.span,
        "d_model": 32,
        "d_ff": 64,
        "num_heads": 2,
        "num_layers": LAYERS,
        "positions": "rotary",
        "attention": {"mask": masks.get(mask, mask)},
    }
    return Transformer(ModelConfig.parse(config), len(task.alphabet) + 1, seed=seed)


def answer_logits(
    model: Transformer, tokens: Int[Tensor, "rows time"], task: KeyValueRecall
) -> Float[Tensor, "rows answers vocab"]:
    """The logits of the answers of whole sequences, none of which the model sees before it.

    They are read at masked positions where the mask shows every position, else at the position before each answer.
    """
    positions = torch.tensor(task.answers)
    if model.mask is not None and model.mask.first_target() is None:
        hidden = tokens.clone()
        hidden[:, positions] = len(task.alphabet)
        return model(hidden)[:, positions]
    return model(tokens[:, :-1])[:, positions - 1]


def fit(model: Transformer, task: KeyValueRecall, steps: int, seed: int) -> None:
    """Train a model on the answers of new sequences at every step.

    AdamW with a linear warm-up, then a constant learning rate, without weight decay. The model is then in evaluation
    mode.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.98), weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(1.0, (step + 1) / WARMUP)
        tokens = sequences(task, BATCH, seed, "training", step)
        targets = tokens[:, list(task.answers)].flatten()
        loss = functional.cross_entropy(answer_logits(model, tokens, task).flatten(0, 1), targets)
        optimizer.zero_grad()
        with ordered_sums(loss.device):
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    model.eval()
