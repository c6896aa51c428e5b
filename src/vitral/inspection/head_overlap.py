"""Overlap of the heads of one layer, beside heads of models of other seeds that attend as broadly.

Broad rows overlap whatever they are, so an overlap alone says nothing of whether heads of a layer do the same. The
reference exchanges one head of a pair for a head of the same layer of another model: the one whose entropy on the same
queries is nearest. Such heads were trained apart, so neither knows of the other. Heads of a layer that divide the work
overlap less than that; redundant ones overlap more. Where all models learn the same set of heads, both overlap alike.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.streams import numpy_stream
from vitral.inspection.attention import BROAD, entropies, overlaps, patient_queries, weight_names
from vitral.model import Transformer

Plain = dict[str, Any]
STEPS = 65_535
"""Weights are kept as whole numbers of 1 / STEPS."""
Rows = Float[Tensor, "heads rows source"]


def attention_rows(model: Transformer, tokens: Int[Tensor, "batch time"], num: int) -> Plain:
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
    places = numpy_stream(0, "attention rows").choice(len(tokens) * len(queries), size=num, replace=True)
    windows, at = places // len(queries), queries[places % len(queries)]
    seen = model.trace(tokens[np.unique(windows)], names)
    drawn = torch.from_numpy(np.searchsorted(np.unique(windows), windows)), torch.from_numpy(at)
    layers = [seen[name].cpu()[drawn[0], :, drawn[1]].transpose(0, 1).numpy() for name in names]
    texts = [b64encode(np.rint(rows * STEPS).astype("<u2").tobytes()).decode("ascii") for rows in layers]
    return {"shape": list(layers[0].shape), "layers": texts}


def rows_of(kept: Mapping[str, Any]) -> list[Rows]:
    """The weights that `attention_rows` has kept, for each block; each row sums to 1 again."""
    found = []
    for text in kept["layers"]:
        rows = torch.from_numpy(np.frombuffer(b64decode(text), dtype="<u2").astype(np.float64)).view(kept["shape"])
        found.append(rows / rows.sum(dim=-1, keepdim=True))
    return found


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
    found: dict[int, dict[str, float]] = {}
    for seed, layers in runs.items():
        others = [other for other in runs if other != seed]
        if others and len(layers) and len(layers[0]) > 1:
            each = [
                _layer(rows, names[seed][at], [(runs[other][at], names[other][at]) for other in others])
                for at, rows in enumerate(layers)
            ]
            found[seed] = {key: fmean(layer[key] for layer in each) for key in each[0]}
    return found


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
