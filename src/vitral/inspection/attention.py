"""Attention of heads: maps of a text, shares of weight on keys of named kinds, distance, entropy, overlap of heads.

A share alone means little: near the beginning of a window every key has much of the weight. So each share is a mean
over queries that see enough keys, and is compared with the share under uniform attention.

Broad rows overlap whatever they are, so an overlap alone says nothing of whether heads of a layer do the same. The
reference exchanges one head of a pair for a head of the same layer of another model: the one whose entropy on the same
queries is nearest. Such heads were trained apart, so neither knows of the other. Heads of a layer that divide the work
overlap less than that; redundant ones overlap more. Where all models learn the same set of heads, both overlap alike.
"""

import math
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vitral.core.language import N_
from vitral.core.streams import numpy_stream
from vitral.core.taps import SILENT, Tap
from vitral.data import Tokenizer
from vitral.inspection.numbers import RunningMean, numbers, rounded
from vitral.inspection.softmax import entropy_share
from vitral.inspection.targets import Tokens, passes
from vitral.model import Transformer

Weights = Float[Tensor, "batch heads time time"]
Visible = Bool[Tensor, "time time"]
"""Which keys (columns) a query (row) may see."""
Keys = Bool[Tensor, "batch time time"]
"""Chosen keys of every query."""
Queries = Bool[Tensor, " time"]
"""Chosen queries."""
KINDS = {
    N_("itself"): N_("its own position"),
    N_("previous"): N_("the position before"),
    N_("near"): N_("two to four positions back"),
    N_("first"): N_("the window's first position"),
    N_("same"): N_("earlier positions with the same token"),
    N_("after same"): N_("positions right after an earlier one with the same token"),
    N_("word"): N_("the last beginning of a word (space or line break) before it"),
    N_("line"): N_("the last line break before it"),
}
"""Kinds of keys, each relative to a query; `_` translates names and meanings."""
BROAD = N_("broad")
"""Name of a head without any kind on which it has much more weight than uniform attention."""
NAMED_FROM = 0.10
"""A head is named after a kind if its share of weight on it exceeds that of uniform attention by at least this."""
LEAST_KEYS = 8
"""Queries that see fewer keys do not count, since even uniform attention has much weight on every kind there."""


class Landmarks(NamedTuple):
    """Which tokens of a vocabulary begin a word or contain a line break.

    Attributes:
        word: whether the token begins with a space or a line break.
        line: whether the token contains a line break.
    """

    word: Bool[Tensor, " vocab"]
    line: Bool[Tensor, " vocab"]


def landmarks(tokenizer: Tokenizer) -> Landmarks:
    """The landmarks of a tokenizer's vocabulary, from its tokens' bytes."""
    pieces = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
    word = [piece[:1] in (b" ", b"\n") for piece in pieces]
    return Landmarks(torch.tensor(word), torch.tensor([b"\n" in piece for piece in pieces]))


def kind_masks(tokens: Tokens, marks: Landmarks, visible: Visible) -> dict[str, Keys]:
    """For each kind, which visible keys are of it, relative to each query.

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
    by_kind = {
        "itself": back == 0,
        "previous": back == 1,
        "near": (back >= 2) & (back <= 4),
        "first": (torch.arange(time) == 0).expand(time, time),
        "same": same & (back > 0),
        "after same": after_same & (back >= 0),
        "word": _last_before(marks.word[tokens]),
        "line": _last_before(marks.line[tokens]),
    }
    return {kind: (keys & visible).expand(len(tokens), time, time) for kind, keys in by_kind.items()}


def _last_before(marked: Bool[Tensor, "batch time"]) -> Keys:
    """True at the last marked position before each query."""
    time = marked.shape[1]
    marked_at = torch.where(marked, torch.arange(time), -1)
    latest = torch.cummax(marked_at, dim=1).values
    before = torch.cat([torch.full_like(latest[:, :1], -1), latest[:, :-1]], dim=1)
    return before[:, :, None] == torch.arange(time)


def patient_queries(visible: Visible) -> Queries:
    """Queries that see at least `LEAST_KEYS` keys; in shorter windows those that see the most."""
    counts = visible.sum(dim=-1)
    return counts >= min(LEAST_KEYS, int(counts.max()))


def with_uniform(weights: Weights, visible: Visible) -> Float[Tensor, "batch one_more time time"]:
    """The weights in float64 and, as one more head, uniform attention: equal weights on every visible key."""
    even = (visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)).double()
    return torch.cat([weights.double(), even.expand(len(weights), 1, -1, -1)], dim=1)


def add_share(
    into: RunningMean,
    weights: Weights,
    keys: Keys,
    queries: Queries,
) -> None:
    """Include one pass in the mean weight of each head on keys, over the chosen queries that see one."""
    has = keys.any(dim=-1) & queries
    if has.any():
        on_keys = (weights * keys[:, None]).sum(dim=-1)
        into.add((on_keys * has[:, None]).sum(dim=(0, 2)) / has.sum(), int(has.sum()))


def by_head(means: Mapping[str, RunningMean], heads: int) -> list[dict[str, float | None]]:
    """The means of each head by name; None where nothing was added."""
    return [
        {name: float(mean.value[head]) if mean.weight else None for name, mean in means.items()}
        for head in range(heads)
    ]


def key_shares(
    model: Transformer,
    inputs: Tokens,
    keys: Mapping[str, Keys],
    queries: Mapping[str, Queries],
    tap: Tap = SILENT,
) -> dict[str, Any]:
    """The mean weight of every head on chosen keys of each row.

    Args:
        model: in evaluation mode, with attention.
        inputs: rows.
        keys: by name, for each row the keys (columns) of each query (row).
        queries: by name, those that count where they see such a key.
        tap: edits the model.

    Returns:
        `uniform`: by name, of a head with equal weights on all visible keys; `layers`: for each block `heads`, each by
        name. None where no query sees such a key.
    """
    assert model.mask is not None
    visible, names = model.mask.allowed(inputs.shape[1], inputs.shape[1]), weight_names(model)
    means = {name: {key: RunningMean() for key in keys} for name in names}
    for rows, seen in passes(model, inputs, names, tap):
        for name, into in means.items():
            weights = with_uniform(seen[name].cpu(), visible)
            for key, mean in into.items():
                add_share(mean, weights, keys[key][rows], queries[key])
    layers = [rounded(by_head(into, model.config.num_heads + 1)) for into in means.values()]
    return {"uniform": layers[0][-1], "layers": [{"heads": heads[:-1]} for heads in layers]}


def attended_distance(weights: Weights, queries: Queries) -> Float[Tensor, " heads"]:
    """Mean attention distance, Σ_j w_ij |i - j| over the chosen queries, in positions (Vig & Belinkov 2019)."""
    time = weights.shape[-1]
    away = (torch.arange(time)[:, None] - torch.arange(time)[None, :]).abs()
    return (weights * away).sum(dim=-1)[..., queries].mean(dim=(0, 2))


def mean_entropy_share(
    weights: Weights,
    visible: Visible,
    queries: Queries,
) -> Float[Tensor, " heads"]:
    """Mean `entropy_share` of each head over the chosen queries; 0 for a query that sees one key."""
    shares = entropy_share(weights, visible.sum(dim=-1).clamp(min=2).double())
    return shares[..., queries].mean(dim=(0, 2))


def overlaps(
    one: Float[Tensor, "heads rows source"], other: Float[Tensor, "others rows source"]
) -> Float[Tensor, "heads others"]:
    """1 - JSD / ln 2 of every head of one with every head of the other, mean over rows.

    JSD(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2 (Lin 1991, eq. 4.1). 1 for equal weights, 0 for weights without a
    common key.
    """
    apart = [entropies((head + other) / 2) - (entropies(head) + entropies(other)) / 2 for head in one]
    return 1 - torch.stack(apart) / math.log(2)


def entropies(rows: Float[Tensor, "*heads rows source"]) -> Float[Tensor, "*heads"]:
    """Mean entropy of the rows, in nats."""
    return torch.special.entr(rows).sum(dim=-1).mean(dim=-1)


def overlap(weights: Weights, queries: Queries) -> Tensor:
    """The mean of `overlaps` over the pairs of a layer's heads, at the chosen queries."""
    heads = weights.double()[:, :, queries].transpose(0, 1).flatten(1, 2)
    return overlaps(heads, heads)[tuple(torch.triu_indices(len(heads), len(heads), 1))].mean()


def name_of(shares: Mapping[str, float | None], uniform: Mapping[str, float | None]) -> str:
    """The kind with the largest excess of weight over uniform attention, or `BROAD` if that is below `NAMED_FROM`.

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


def head_patterns(model: Transformer, tokenizer: Tokenizer, tokens: Tokens) -> dict[str, Any]:
    """Attention pattern of every head over some windows.

    Args:
        model: in evaluation mode.
        tokenizer: of the model.
        tokens: windows of ids.

    Returns:
        `uniform`, the share of uniform attention by kind, and `uniform_distance`, its attention distance; `layers`,
        each with the `overlap` of its heads (None for one head) and `heads`, each with `name`, `share` by kind (None
        where no query sees such a key), `distance` in positions and `entropy` as a share of its maximum. Without
        attention `uniform` and `layers` are empty.
    """
    if model.mask is None:
        return {"uniform": {}, "layers": []}
    time, names, marks = tokens.shape[1], weight_names(model), landmarks(tokenizer)
    # Uniform attention to all keys that any block sees comes first, as if it were a layer without heads.
    views = [model.mask.allowed(time, time), *visible_by_layer(model, time)]
    layers = [defaultdict[str, RunningMean](RunningMean) for _ in views]
    for rows, seen in passes(model, tokens, names):
        every = [torch.zeros(len(tokens[rows]), 0, time, time), *(seen[name].cpu() for name in names)]
        for into, weights, view in zip(layers, every, views, strict=True):
            queries, heads = patient_queries(view), with_uniform(weights, view)
            for kind, keys in kind_masks(tokens[rows].cpu(), marks, view).items():
                add_share(into[kind], heads, keys, queries)
            into["distance"].add(attended_distance(heads, queries), len(heads))
            into["entropy"].add(mean_entropy_share(heads, view, queries), len(heads))
            if weights.shape[1] > 1:
                into["overlap"].add(overlap(weights, queries), len(weights))
    (uniform, _), *patterns = map(_pattern, layers)
    return {
        "uniform": uniform["share"],
        "uniform_distance": uniform["distance"],
        "layers": [layer for _, layer in patterns],
    }


def _pattern(means: dict[str, RunningMean]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Uniform attention in a layer, and the overlap and the heads of the layer."""
    overlap = means.pop("overlap", None)
    heads_and_uniform = by_head(means, len(means["distance"].value))
    *heads, uniform = ({"share": {kind: head.pop(kind) for kind in KINDS}, **head} for head in heads_and_uniform)
    named = [{"name": name_of(head["share"], uniform["share"]), **head} for head in heads]
    return uniform, {"overlap": None if overlap is None else float(overlap.value), "heads": named}


def visible_by_layer(model: Transformer, time: int) -> list[Visible]:
    """Which keys (columns) each query (row) may see in each block; blocks of one mask have one tensor."""
    assert model.mask is not None
    masks = [model.mask.of(layer) for layer in range(model.config.num_layers)]
    made = {mask: mask.allowed(time, time) for mask in masks}
    return [made[mask] for mask in masks]


def attention_maps(model: Transformer, tokens: Tokens) -> list[dict[str, Any]]:
    """The attention weights of all heads on a text, `[1, time]`.

    Returns:
        For each block {"layer", "heads"}, where `heads` are the maps as nested lists [heads][time][source]: rows are
        queries and sum to 1, columns are keys. An empty list for a model without attention.
    """
    names = weight_names(model)
    seen = model.trace(tokens, names) if names else {}
    return [{"layer": layer, "heads": numbers(seen[name][0])} for layer, name in enumerate(names)]


def weight_names(model: Transformer) -> list[str]:
    """Names of the attention weights of every block; none for a model without attention."""
    layers = 0 if model.mask is None else model.config.num_layers
    return [f"blocks.{layer}.attn.weights" for layer in range(layers)]


def head_kinds(model: Transformer, tokenizer: Tokenizer, tokens: Tokens) -> dict[str, Any]:
    """The kind of every head: the kind of key on which it has most weight beyond uniform attention.

    Shares are means over the queries that see at least `LEAST_KEYS` keys, or, in shorter rows, the most.

    Args:
        model: in evaluation mode.
        tokenizer: the model's; gives the borders of words and lines.
        tokens: rows of equal length, as the model reads them.

    Returns:
        `uniform`: for each kind of `KINDS` the share of a head with equal weights on all visible keys,
        None where no query sees such a key. `layers`: for each block a list of its heads, each with `kind` (a key of
        `KINDS`, or "broad"), `share` (by kind), `distance` (mean positions between query and key) and `entropy` (as a
        share of the largest possible).
    """
    patterns = rounded(head_patterns(model, tokenizer, tokens))
    heads = [[{"kind": head.pop("name"), **head} for head in layer["heads"]] for layer in patterns["layers"]]
    return {"uniform": patterns["uniform"], "layers": heads}


# ---------------------------------------------------------------- overlap beside heads of other seeds

STEPS = 65_535
"""Weights are kept as whole numbers of 1 / STEPS."""
Rows = Float[Tensor, "heads rows source"]


def attention_rows(model: Transformer, tokens: Tokens, num: int) -> dict[str, Any]:
    """Rows of weights of every head, of queries drawn once and for all, the same for every model of this context.

    Args:
        model: in evaluation mode.
        tokens: windows of ids.
        num: number of rows, drawn from all windows and the queries that see enough keys.

    Returns:
        `shape`, [heads, rows, source], and `layers`, for each block the weights as text; none without attention.
        `rows_of` reads them.
    """
    names = weight_names(model)
    if model.mask is None or not names:
        return {"shape": [0, 0, 0], "layers": []}
    time = tokens.shape[1]
    queries = torch.nonzero(patient_queries(model.mask.allowed(time, time))).flatten().numpy()
    drawn = numpy_stream(0, "attention rows").choice(len(tokens) * len(queries), size=num, replace=True)
    windows, at = drawn // len(queries), queries[drawn % len(queries)]
    seen = model.trace(tokens[np.unique(windows)], names)
    drawn = torch.from_numpy(np.searchsorted(np.unique(windows), windows)), torch.from_numpy(at)
    layers = [seen[name].cpu()[drawn[0], :, drawn[1]].transpose(0, 1).numpy() for name in names]
    texts = [b64encode(np.rint(rows * STEPS).astype("<u2").tobytes()).decode("ascii") for rows in layers]
    return {"shape": list(layers[0].shape), "layers": texts}


def rows_of(kept: Mapping[str, Any]) -> list[Rows]:
    """The weights that `attention_rows` has kept, for each block; each row sums to 1 again."""
    layers = []
    for text in kept["layers"]:
        rows = torch.from_numpy(np.frombuffer(b64decode(text), dtype="<u2").astype(np.float64)).view(kept["shape"])
        layers.append(rows / rows.sum(dim=-1, keepdim=True))
    return layers


def against_other_seeds(
    runs: Mapping[int, Sequence[Rows]], names: Mapping[int, Sequence[Sequence[str]]]
) -> dict[int, dict[str, float]]:
    """For each run, the overlap of the heads of a layer and their kinds, beside those of matched heads of other runs.

    Args:
        runs: by seed, the rows of every layer; the same queries in all of them.
        names: by seed and layer, the kind of each head.

    Returns:
        By seed: `own`, mean overlap over layers and pairs of heads; `matched`, the same with one head of the pair, each
        in turn, exchanged for the head of another run nearest to it in entropy, mean over the other runs; `apart`, the
        mean difference of entropy between a head and the one it is exchanged for, in nats; `kinds`, different kinds of
        heads in a layer; `kinds_matched`, the same when each head is exchanged, for a head of another run each time.
        Runs with one head to a layer, or without another run, have none.
    """
    by_seed: dict[int, dict[str, float]] = {}
    for seed, layers in runs.items():
        others = [other for other in runs if other != seed]
        if others and len(layers) and len(layers[0]) > 1:
            each = [
                _layer(rows, names[seed][at], [(runs[other][at], names[other][at]) for other in others])
                for at, rows in enumerate(layers)
            ]
            by_seed[seed] = {key: fmean(layer[key] for layer in each) for key in each[0]}
    return by_seed


def _layer(rows: Rows, kinds: Sequence[str], others: Sequence[tuple[Rows, Sequence[str]]]) -> dict[str, float]:
    own, breadth = overlaps(rows, rows), entropies(rows)
    pairs = list(combinations(range(len(rows)), 2))
    matched, apart, partners = [], [], []
    for other, _ in others:
        distance = (breadth[:, None] - entropies(other)[None]).abs()
        nearest = distance.argmin(dim=1).tolist()
        across = overlaps(rows, other)
        matched += [(across[one, nearest[two]] + across[two, nearest[one]]) / 2 for one, two in pairs]
        apart.append(float(distance.amin(dim=1).mean()))
        partners.append(nearest)
    # Head h takes its partner from run h + turn, so that no two heads are of one model where there are enough runs.
    turns = []
    for turn in range(len(others)):
        taken = [(head + turn) % len(others) for head in range(len(rows))]
        turns.append({others[run][1][partners[run][head]] for head, run in enumerate(taken)})
    return {
        "own": fmean(float(own[pair]) for pair in pairs),
        "matched": fmean(map(float, matched)),
        "apart": fmean(apart),
        "kinds": float(_named(set(kinds))),
        "kinds_matched": fmean(_named(turn) for turn in turns),
    }


def _named(kinds: set[str]) -> int:
    return len(kinds - {BROAD})
