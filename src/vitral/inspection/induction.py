"""Induction: completing a repeated string by finding the current token earlier and reading the token after it.

Olsson et al. (2022) describe it as the work of two heads. A previous-token head of an earlier layer writes into every
position which token came before it; an induction head of a later layer finds by that the position after the earlier
occurrence of the current token. Their scores are weights of attention:

- previous-token score: the weight on the position before;
- prefix-matching score: the weight on the positions right after the places, whole periods back, of the current token.

Legend of axes: batch = rows of tokens, time = positions.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.core.taps import SILENT, Tap
from vitral.inspection.ablation import activation_means, effect, replace_activations
from vitral.inspection.attention import key_shares, patient_queries
from vitral.inspection.numbers import number
from vitral.inspection.targets import Scored, loss_by_target
from vitral.model import Transformer

OCCURRENCES = ("first", "second", "later")
"""Of a string: its targets in the first occurrence; in the second, without its first token; in later ones."""


def periods_of(tokens: Int[Tensor, "batch time"], shortest: int, longest: int) -> Int[Tensor, " batch"]:
    """The least period of each row, between two limits.

    Raises:
        UsageError: a row has no such period.
    """
    rows = tokens.numpy()
    fits = np.array([(rows[:, size:] == rows[:, :-size]).all(axis=1) for size in range(shortest, longest + 1)])
    if not fits.any(axis=0).all():
        raise UsageError("induction: a row has no period from {least} to {most}", least=shortest, most=longest)
    return torch.from_numpy(shortest + fits.argmax(axis=0))


def occurrences(periods: Int[Tensor, " batch"], time: int) -> dict[str, Bool[Tensor, "batch time"]]:
    """Which targets are in which occurrence of the string; target t is token t + 1 of the row.

    The first token of the second occurrence is in none: nothing tells that the string ends there.
    """
    place, size = torch.arange(1, time + 1)[None], periods[:, None]
    return {"first": place < size, "second": (place > size) & (place < 2 * size), "later": place >= 2 * size}


def induction_scores(
    model: Transformer, tokens: Int[Tensor, "batch time"], periods: Int[Tensor, " batch"]
) -> dict[str, Any]:
    """Losses by occurrence of the string, and the scores of every head.

    Args:
        model: in evaluation mode.
        tokens: rows of repeated strings, the last token of each only a target.
        periods: of each row.

    Returns:
        `losses`: for each of `OCCURRENCES` in nats per token. `layers`: for each block `heads`, each with `previous`
        and `prefix`; empty without attention. `uniform`: the two scores of a head with equal weights on all keys.
    """
    scored = Scored(tokens[:, :-1], tokens[:, 1:], sampled=True)
    where = occurrences(periods, tokens.shape[1] - 1)
    nats = loss_by_target(model, scored)
    losses = {name: number(nats[chosen].mean()) for name, chosen in where.items()}
    return {"losses": losses, **_head_scores(model, scored.inputs, periods)}


def _head_scores(
    model: Transformer, inputs: Int[Tensor, "batch time"], periods: Int[Tensor, " batch"], tap: Tap = SILENT
) -> dict[str, Any]:
    """The scores of uniform attention and of every head, while a tap edits the model."""
    if model.mask is None or not len(model.blocks):
        return {"uniform": None, "layers": []}
    time = inputs.shape[1]
    visible = model.mask.allowed(time, time)
    place = torch.arange(time)
    previous = (visible & (place[:, None] - place == 1)).expand(len(inputs), -1, -1)
    keys = {"previous": previous, "prefix": _after_match(periods, visible)}
    queries = {"previous": patient_queries(visible), "prefix": torch.ones(time, dtype=torch.bool)}
    return key_shares(model, inputs, keys, queries, tap)


def _after_match(periods: Int[Tensor, " batch"], visible: Bool[Tensor, "time time"]) -> Bool[Tensor, "batch time time"]:
    """Keys one position after a place that is whole periods before the query."""
    place = torch.arange(len(visible))
    back = place[:, None] - place[None, :] + 1
    size = periods[:, None, None]
    return (back[None] % size == 0) & (back[None] >= size) & (place >= 1) & visible


def induction_ablation(
    model: Transformer, tokens: Int[Tensor, "batch time"], periods: Int[Tensor, " batch"]
) -> dict[str, Any]:
    """The loss at repeated targets without the previous-token head, and without each other head of its layer.

    The heads are chosen by their scores on the first half of the rows, and measured on the other half. A head is
    replaced by its mean output over these rows, which keeps what it adds everywhere and removes what depends on the
    text. The previous-token head is that of the highest score in a layer before the last (of one layer, in that one);
    the induction head is that of the highest prefix-matching score.

    Args:
        model: in evaluation mode, with attention.
        tokens: as for `induction_scores`.
        periods: of each row.

    Returns:
        `previous` and `induction`: {"layer", "head"}. `loss`: of the whole model on repeated targets. `without`: for
        "previous", "others" (the mean over the other heads of that layer, the expectation of one drawn at random; None
        for a single head) and "induction", each `increase`, in nats per token, and `prefix`, the prefix-matching score
        of the induction head then; `prefix`: that score in the whole model.

    Raises:
        UsageError: the model has no attention.
    """
    if model.mask is None or not len(model.blocks):
        raise UsageError(N_("induction: the model has no attention, so no head can be ablated"))
    half = len(tokens) // 2
    layers = _head_scores(model, tokens[:half, :-1], periods[:half])["layers"]
    previous = _highest(layers[:-1] or layers, "previous")
    induction = _highest(layers, "prefix")
    rest, sizes = Scored(tokens[half:, :-1], tokens[half:, 1:], sampled=True), periods[half:]
    place = torch.arange(1, tokens.shape[1])[None]
    repeated = place > sizes[:, None]

    def look(layer: int | None = None, head: int | None = None) -> tuple[Tensor, float]:
        """The loss of each row on repeated targets, and the induction head's score, without a head."""
        tap: Tap = SILENT
        if layer is not None and head is not None:
            name = f"blocks.{layer}.attn.z"
            tap = replace_activations([name], activation_means(model, rest.inputs, [name]), [head])
        nats = loss_by_target(model, rest, tap)
        scores = _head_scores(model, rest.inputs, sizes, tap)["layers"][induction[0]]["heads"][induction[1]]
        return (nats * repeated).sum(dim=1) / repeated.sum(dim=1), scores["prefix"]

    whole, prefix = look()

    def without(layer: int, head: int) -> dict[str, Any]:
        rows, score = look(layer, head)
        return {"increase": effect(whole, rows, sampled=False)["increase"], "prefix": score}

    others = [without(previous[0], head) for head in range(model.config.num_heads) if head != previous[1]]
    mean = {key: number(float(np.mean([one[key] for one in others]))) for key in ("increase", "prefix")}
    return {
        "previous": dict(zip(("layer", "head"), previous, strict=True)),
        "induction": dict(zip(("layer", "head"), induction, strict=True)),
        "loss": number(whole.mean()),
        "prefix": prefix,
        "without": {
            "previous": without(*previous),
            "others": mean if others else None,
            "induction": without(*induction),
        },
    }


def _highest(layers: list[dict[str, Any]], score: str) -> tuple[int, int]:
    """Layer and head of the highest score."""
    places = [(layer, head) for layer, each in enumerate(layers) for head in range(len(each["heads"]))]
    return max(places, key=lambda place: layers[place[0]]["heads"][place[1]][score])
