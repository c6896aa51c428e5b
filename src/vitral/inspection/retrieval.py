"""Retrieval over a distance: how far back a small model can fetch a token, under each attention mask.

A sequence of the copying task is a random string, random filler, a token that asks, and the string again:

    s₁ … s_k  f f f … f  ASK  s₁ … s_k

Each token of the answer occurs `distance` positions before it and is random otherwise, so a model that predicts it has
retrieved it from there; by chance one in `SYMBOLS` is right. One small model is trained for each mask and each
distance, all on the same sequences, and is measured on new ones.

Models with a causal, prefix or window mask predict each next token of the answer; the prefix is the string, the filler
and ASK. The bidirectional model is trained on masked positions: the whole answer is masked. A window of w reaches w - 1
positions back in one layer, so layers · (w - 1) in all: it is the control, a mask whose reach is known.


Key-value recall: how often a model gives the right value, by the distance back to it (Arora et al. 2024).

"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.devices import ordered_sums
from vitral.core.streams import numpy_stream
from vitral.data.tasks import KeyValueRecall
from vitral.inspection.targets import passes
from vitral.model import ModelConfig, Transformer

SYMBOLS, LENGTH = 8, 4
MASKED, ASK, FIRST = 0, 1, 2
VOCAB = FIRST + SYMBOLS
LAYERS, WINDOW = 2, 16
REACH = LAYERS * (WINDOW - 1)
"""Positions back that a window model of so many layers can see."""
MASKS = ("causal", "bidirectional", "prefix", "window")
BATCH, WARMUP, PEAK, CLIP = 32, 30, 3e-3, 1.0
TESTED = 256
"""New sequences on which a model is measured."""
CHANCE = 1 / SYMBOLS


def retrieval_by_distance(distances: Sequence[int], *, steps: int, seed: int) -> dict[str, Any]:
    """Accuracy of every mask at every distance, and the loss at the end of its training.

    Args:
        distances: in positions, each at least `LENGTH` + 1.
        steps: of training, for each model.
        seed: of models and sequences.

    Returns:
        `distances`, `steps`, `seed`; `answers`, the number of tokens behind an accuracy; `reach`, of the window, in
        positions; `accuracy` and `loss` (nats per token, mean of the last ten steps), by mask a list over distances.
    """
    found = {mask: [trained_accuracy(mask, distance, steps, seed) for distance in distances] for mask in MASKS}
    return {
        "distances": list(distances),
        "steps": steps,
        "seed": seed,
        "answers": TESTED * LENGTH,
        "reach": REACH,
        "accuracy": {mask: [right for right, _ in pairs] for mask, pairs in found.items()},
        "loss": {mask: [loss for _, loss in pairs] for mask, pairs in found.items()},
    }


def sequences(distance: int, count: int, seed: int, *index: int | str) -> Int[Tensor, "count time"]:
    """Sequences of distance + `LENGTH` tokens; token i of the answer is the token `distance` positions before it."""
    stream = numpy_stream(seed, "copying", distance, *index)
    tokens = FIRST + stream.integers(SYMBOLS, size=(count, distance + LENGTH))
    tokens[:, distance - 1] = ASK
    tokens[:, distance:] = tokens[:, :LENGTH]
    return torch.from_numpy(tokens)


def trained_accuracy(mask: str, distance: int, steps: int, seed: int) -> tuple[float, float]:
    """Train a model on new sequences at every step; returns its accuracy on others, and the loss of `fit`."""
    model, answers = small_model(mask, distance, distance + LENGTH, VOCAB, seed), range(distance, distance + LENGTH)
    loss = fit(model, lambda step: sequences(distance, BATCH, seed, "training", step), answers, MASKED, steps)
    tokens = sequences(distance, TESTED, seed, "test")
    with torch.inference_mode():
        right = answer_logits(model, tokens, answers, MASKED).argmax(dim=-1) == tokens[:, list(answers)]
    return float(right.double().mean()), loss


def small_model(mask: str, prompt: int, context: int, vocab: int, seed: int) -> Transformer:
    """A model with rotary positions, with which one rule, "so many positions back", serves every position.

    Args:
        mask: one of `MASKS`.
        prompt: positions that a prefix mask shows to all.
        context: positions in all.
        vocab: tokens.
        seed: of its initialisation.
    """
    masks: dict[str, Any] = {
        "prefix": {"name": "prefix", "length": prompt},
        "window": {"name": "window", "size": WINDOW},
    }
    config = {
        "context_length": context,
        "d_model": 32,
        "d_ff": 64,
        "num_heads": 2,
        "num_layers": LAYERS,
        "positions": "rotary",
        "attention": {"mask": masks.get(mask, mask)},
    }
    return Transformer(ModelConfig.parse(config), vocab, seed=seed)


def answer_logits(
    model: Transformer, tokens: Int[Tensor, "rows time"], answers: Sequence[int], masked: int
) -> Float[Tensor, "rows answers vocab"]:
    """The logits of the answers, none of which the model sees before it.

    They are read at masked positions where the mask shows every position, else at the position before each answer.

    Args:
        model: with one of `MASKS`.
        tokens: whole sequences.
        answers: their positions.
        masked: the mask token.
    """
    places = torch.tensor(answers)
    if model.mask is not None and model.mask.first_target() is None:
        hidden = tokens.clone()
        hidden[:, places] = masked
        return model(hidden)[:, places]
    return model(tokens[:, :-1])[:, places - 1]


def fit(
    model: Transformer,
    batch: Callable[[int], Int[Tensor, "rows time"]],
    answers: Sequence[int],
    masked: int,
    steps: int,
) -> float:
    """Train a model on the answers of the sequences of each step; returns the mean loss of the last ten steps.

    AdamW with a linear warm-up, then a constant learning rate, without weight decay. The model is then in evaluation
    mode.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.98), weight_decay=0.0)
    losses: list[float] = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(1.0, (step + 1) / WARMUP)
        tokens = batch(step)
        targets = tokens[:, list(answers)].flatten()
        loss = functional.cross_entropy(answer_logits(model, tokens, answers, masked).flatten(0, 1), targets)
        optimizer.zero_grad()
        with ordered_sums(loss.device):
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(float(loss.detach()))
    model.eval()
    last = losses[-10:]
    return sum(last) / len(last)


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
