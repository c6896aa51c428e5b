"""What a head attends to: shares of its weight on keys of named kinds, beside what uniform attention would give.

A share alone says little: near the beginning of a window every key gets much of the weight. So each share is measured
over queries that see enough keys, and beside it stands the share of a head that spreads its weight evenly.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vitral.data import Tokenizer

KINDS = {
    "itself": "its own position",
    "previous": "the position before",
    "near": "two to four positions back",
    "first": "the window's first position",
    "same": "earlier positions with the same token",
    "after same": "positions right after an earlier one with the same token",
    "word": "the last beginning of a word (space or line break) before it",
    "line": "the last line break before it",
}
"""Kinds of keys, each as seen from a query."""
BROAD = "broad"
"""The name of a head that attends to no kind much more than uniform attention does."""
NAMED_FROM = 0.10
"""A head is named after a kind on which it has at least this much more of its weight than uniform attention."""
LEAST_KEYS = 8
"""Queries that see fewer keys are left out: there even uniform attention has much weight on every kind."""


@dataclass(frozen=True)
class Landmarks:
    """Which tokens of a vocabulary stand at the borders of words and lines.

    Attributes:
        word: whether the token begins with a space or a line break.
        line: whether the token holds a line break.
    """

    word: Bool[Tensor, " vocab"]
    line: Bool[Tensor, " vocab"]


def landmarks(tokenizer: Tokenizer) -> Landmarks:
    """The landmarks of a tokenizer's vocabulary, from its tokens' bytes."""
    pieces = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
    word = [piece[:1] in (b" ", b"\n") for piece in pieces]
    return Landmarks(torch.tensor(word), torch.tensor([b"\n" in piece for piece in pieces]))


def kind_masks(
    tokens: Int[Tensor, "batch time"], marks: Landmarks, visible: Bool[Tensor, "time time"]
) -> dict[str, Bool[Tensor, "batch time time"]]:
    """For each kind which keys are of it, as seen from each query, visible ones only.

    Args:
        tokens: windows of ids.
        marks: of the vocabulary.
        visible: which key (column) each query (row) may see.
    """
    time = tokens.shape[1]
    back = torch.arange(time)[:, None] - torch.arange(time)[None, :]
    same = tokens[:, :, None] == tokens[:, None, :]
    after_same = torch.zeros_like(same)
    after_same[:, :, 1:] = same[:, :, :-1] & (back[:, :-1] > 0)
    found = {
        "itself": back == 0,
        "previous": back == 1,
        "near": (back >= 2) & (back <= 4),
        "first": (torch.arange(time) == 0).expand(time, time),
        "same": same & (back > 0),
        "after same": after_same & (back >= 0),
        "word": _last_before(marks.word[tokens]),
        "line": _last_before(marks.line[tokens]),
    }
    return {kind: (keys & visible).expand(len(tokens), time, time) for kind, keys in found.items()}


def _last_before(marked: Bool[Tensor, "batch time"]) -> Bool[Tensor, "batch time time"]:
    """True at the last marked position before each query."""
    time = marked.shape[1]
    places = torch.where(marked, torch.arange(time), -1)
    latest = torch.cummax(places, dim=1).values
    before = torch.cat([torch.full_like(latest[:, :1], -1), latest[:, :-1]], dim=1)
    return before[:, :, None] == torch.arange(time)


def patient_queries(visible: Bool[Tensor, "time time"]) -> Bool[Tensor, " time"]:
    """Queries that see at least `LEAST_KEYS` keys; in shorter windows those that see the most."""
    counts = visible.sum(dim=-1)
    return counts >= min(LEAST_KEYS, int(counts.max()))


def uniform_weights(visible: Bool[Tensor, "time time"]) -> Float[Tensor, "1 1 time time"]:
    """What a head would have that gave every visible key the same weight."""
    return (visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)).to(torch.float64)[None, None]


def attended_share(
    weights: Float[Tensor, "#batch heads time time"],
    keys: Bool[Tensor, "batch time time"],
    queries: Bool[Tensor, " time"],
) -> Float[Tensor, " heads"] | None:
    """Mean weight a head has on these keys, over the chosen queries that see at least one of them, in float64.

    None where no query sees any.
    """
    has = keys.any(dim=-1) & queries
    if not has.any():
        return None
    on_keys = (weights.double() * keys[:, None]).sum(dim=-1)
    return (on_keys * has[:, None]).sum(dim=(0, 2)) / has.sum()


def seeing_queries(keys: Bool[Tensor, "batch time time"], queries: Bool[Tensor, " time"]) -> int:
    """How many of the chosen queries see at least one of these keys: those `attended_share` is the mean over."""
    return int((keys.any(dim=-1) & queries).sum())


def attended_distance(
    weights: Float[Tensor, "batch heads time time"], queries: Bool[Tensor, " time"]
) -> Float[Tensor, " heads"]:
    """Mean of Σ_j w_ij |i - j| over the chosen queries: how many positions away a head looks (Vig & Belinkov 2019)."""
    time = weights.shape[-1]
    away = (torch.arange(time)[:, None] - torch.arange(time)[None, :]).abs()
    return (weights.double() * away).sum(dim=-1)[..., queries].mean(dim=(0, 2))


def entropy_share(
    weights: Float[Tensor, "batch heads time time"],
    visible: Bool[Tensor, "time time"],
    queries: Bool[Tensor, " time"],
) -> Float[Tensor, " heads"]:
    """Mean of H(w_i) / ln(keys visible to i) over the chosen queries: 0 on one key, 1 spread evenly over all."""
    most = visible.sum(dim=-1).double().clamp(min=2).log()
    return (_entropy(weights.double()) / most)[..., queries].mean(dim=(0, 2))


def overlap(weights: Float[Tensor, "batch heads time time"], queries: Bool[Tensor, " time"]) -> float | None:
    """How alike the heads of a layer attend: mean over pairs and chosen queries of 1 - JSD(w, w') / ln 2.

    JSD(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2 (Lin 1991, eq. 4.1). 1 for the same weights, 0 for weights that share
    no key. None with fewer than two heads.
    """
    heads = weights.shape[1]
    if heads < 2:
        return None
    chosen = weights.double()[:, :, queries]
    entropies = _entropy(chosen)
    total = 0.0
    for one, other in combinations(range(heads), 2):
        middle = _entropy((chosen[:, one] + chosen[:, other]) / 2)
        divergence = middle - (entropies[:, one] + entropies[:, other]) / 2
        total += float(1 - divergence.mean() / math.log(2))
    return total / math.comb(heads, 2)


def name_of(shares: Mapping[str, float | None], uniform: Mapping[str, float | None]) -> str:
    """The kind on which a head has most weight beyond uniform attention, or `BROAD` if that is below `NAMED_FROM`.

    >>> name_of({"previous": 0.5, "first": 0.3}, {"previous": 0.1, "first": 0.1})
    'previous'
    """
    beyond = {
        kind: share - even
        for kind, share in shares.items()
        if share is not None and (even := uniform.get(kind)) is not None
    }
    most = max(beyond, key=lambda kind: beyond[kind], default=BROAD)
    return most if beyond.get(most, 0.0) >= NAMED_FROM else BROAD


def _entropy(weights: Float[Tensor, "... source"]) -> Float[Tensor, "..."]:
    """Entropy over the keys, in nats; 0 ln 0 = 0."""
    return -torch.xlogy(weights, weights).sum(dim=-1)
