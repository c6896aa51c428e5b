"""What the measures of `vitral.inspection.words` are held against: counted n-grams, and the words before a word.

An n-gram model knows which words stand side by side, so a form that agrees with a word further off is beyond it. The
mean vector of the words before a word shows how far apart its contexts are before any attention has mixed them into it.
"""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data import Split, Tokenizer
from vitral.data.batches import thinned
from vitral.evaluation import WittenBell
from vitral.inspection.word_lists import PairKind, Sense
from vitral.inspection.words import cosines, fill, place_of
from vitral.model import Transformer

Plain = dict[str, Any]
ORDER = 3
"""Of the counted n-grams: with a million subword tokens, longer ones predict worse."""
MOST_COUNTED = 2**23
"""Tokens of a longer training split that are counted."""


def counted_pairs(tokenizer: Tokenizer, train: Split, kinds: Sequence[PairKind]) -> list[Plain]:
    """The preference of an n-gram model in every minimal pair, as `pair_preferences` gives a model's.

    Args:
        tokenizer: of the split.
        train: tokens that are counted.
        kinds: of minimal pairs.
    """
    counted = WittenBell(thinned(train, MOST_COUNTED), tokenizer.vocab_size, ORDER)
    found = []
    for kind in kinds:
        for pair in fill(kind.templates, kind.subjects, kind.elements, kind.between):
            try:
                good, bad = (_nats(counted, tokenizer, sentence) for sentence in (pair.good, pair.bad))
            except UsageError:
                good = bad = None
            preferred = None if good is None or bad is None else bad - good
            found.append({"kind": kind.kind, "good": pair.good, "bad": pair.bad, "preference": preferred})
    return found


def _nats(counted: WittenBell, tokenizer: Tokenizer, sentence: str) -> float:
    tokens = np.concatenate([[tokenizer.start], tokenizer.encode(sentence)]).astype(np.int64)
    return float(counted.nats(Split(tokens, np.array([[0, len(tokens)]])))[-1].sum())


def context_separations(model: Transformer, tokenizer: Tokenizer, senses: Sequence[Sense]) -> dict[str, float]:
    """By word, the cosine within a sense less that across senses of the mean embedding of the tokens before the word.

    Words that the tokenizer cannot take are left out.
    """
    found = {}
    for one in senses:
        try:
            first, second = (
                [_before(model, *place_of(tokenizer, sentence, one.word)) for sentence in sentences]
                for sentences in (one.first_sentences, one.second_sentences)
            )
        except UsageError:
            continue
        within = [pair for group in (first, second) for pair in combinations(group, 2)]
        means = [
            np.mean([float(cosines(a[None], b[None])) for a, b in pairs]) for pairs in (within, product(first, second))
        ]
        found[one.word] = float(means[0] - means[1])
    return found


def _before(model: Transformer, tokens: Int[Tensor, " time"], place: int) -> Float[Tensor, " d_model"]:
    """The mean embedding of the tokens of a sentence before the one at this index, the start token left out."""
    if place < 2:
        raise UsageError("there is no word before the word")
    return (
        model.token_embedding.weight.detach()[tokens[1:place].to(model.token_embedding.weight.device)].mean(dim=0).cpu()
    )
