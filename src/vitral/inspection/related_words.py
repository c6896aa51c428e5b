"""Whether attention prefers words of similar contexts.

The score of a query and a key depends on more than the two words: on their distance, on the query alone, and on the key
alone (a head may look at commas). `similar_word_scores` takes these away from both the scores and the similarity of the
words, and correlates what remains: a partial correlation.

Legend of axes: batch = windows, time = queries, source = keys, heads.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.data import Split, Tokenizer
from vitral.inspection.attention import visible_by_layer, weight_names
from vitral.inspection.targets import passes, window_targets
from vitral.inspection.words import counted_similarity, with_shuffles
from vitral.model import Transformer

Plain = dict[str, Any]
LEAST_DISTANCE = 2
"""Neighbouring words are left out: they stand together for grammar, not for similarity."""
ROUNDS = 20
"""Of taking means away in turn; the means that are left are then far below rounding of what is printed."""


def similar_word_scores(
    model: Transformer, tokenizer: Tokenizer, train: Split, test: Split, *, windows: int, most_words: int
) -> Plain | None:
    """Partial correlation of a head's scores with the similarity of the two words, beside that of shuffled words.

    Pairs are a query and an earlier key, at least `LEAST_DISTANCE` apart, both whole words that are one token, and
    different words. The similarity is the cosine of their contexts counted in the training text (see
    `vitral.inspection.words`), which needs no model. From scores and similarities the means of each query, each
    distance and each key word are taken away, in turn. Any matrix of weights prefers some pairs of words, so chance is
    estimated by exchanging the words of the similarity, rows and columns alike (Mantel 1967).

    Args:
        model: in evaluation mode, with attention.
        tokenizer: of the model.
        train: text in which contexts are counted.
        test: text of the windows.
        windows: their number, at most.
        most_words: number of words, at most; the most frequent are taken.

    Returns:
        `words` and `pairs`, their numbers; `heads`: for each block and head its `correlation` and `shuffled`, that of
        each of `SHUFFLES` permutations, the same ones for all heads. None without attention, or with fewer than
        `LEAST_WORDS` words.
    """
    similarity = None if model.mask is None else counted_similarity(tokenizer, train, most_words)
    if similarity is None:
        return None
    words, similar = similarity
    row = np.full(tokenizer.vocab_size, -1)
    row[words] = np.arange(len(words))
    inputs = window_targets(model, test, windows).inputs
    tokens = row[inputs.cpu().numpy()]
    places = _pairs(tokens, torch.stack(visible_by_layer(model, inputs.shape[1])).all(0).cpu().numpy())
    if not len(places):
        return None
    window, query, key = places.T
    one, other = tokens[window, query], tokens[window, key]
    means = (window * inputs.shape[1] + query, query - key, other)
    orders = with_shuffles(len(words))
    similarities = np.stack([_unit(_without_means(similar[order[one], order[other]], means)) for order in orders])
    found = []
    for block in _scores(model, inputs, places):
        correlations = [(similarities @ _unit(_without_means(head, means))).tolist() for head in block]
        found.append([{"correlation": own, "shuffled": shuffled} for own, *shuffled in correlations])
    return {"words": len(words), "pairs": len(places), "heads": found}


def _pairs(words: Int[np.ndarray, "batch time"], visible: np.ndarray) -> Int[np.ndarray, "pairs three"]:
    """Window, query and key of every pair of different words."""
    time = words.shape[1]
    back = np.arange(time)[:, None] - np.arange(time)[None, :]
    both = (words[:, :, None] >= 0) & (words[:, None, :] >= 0) & (words[:, :, None] != words[:, None, :])
    return np.argwhere(both & (visible & (back >= LEAST_DISTANCE))[None])


def _scores(model: Transformer, inputs: Tensor, places: np.ndarray) -> list[Float[np.ndarray, "heads pairs"]]:
    """The scaled scores of all pairs in each block."""
    found = {name.replace(".weights", ".scaled"): list[np.ndarray]() for name in weight_names(model)}
    for rows, seen in passes(model, inputs, list(found)):
        window, query, key = places[(places[:, 0] >= rows.start) & (places[:, 0] < rows.stop)].T
        for name, pieces in found.items():
            pieces.append(seen[name][window - rows.start, :, query, key].cpu().double().numpy().T)
    return [np.concatenate(pieces, axis=1) for pieces in found.values()]


def _without_means(values: Float[np.ndarray, " pairs"], keys: Sequence[np.ndarray]) -> Float[np.ndarray, " pairs"]:
    """The residuals of the values on the indicators of each key, by alternating projections."""
    left = values - values.mean()
    sizes = [np.maximum(np.bincount(key), 1) for key in keys]
    for _round, (key, size) in product(range(ROUNDS), zip(keys, sizes, strict=True)):
        left = left - (np.bincount(key, weights=left, minlength=len(size)) / size)[key]
    return left


def _unit(values: Float[np.ndarray, " pairs"]) -> Float[np.ndarray, " pairs"]:
    norm = np.linalg.norm(values)
    return values / norm if norm else values
