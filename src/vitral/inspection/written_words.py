"""Words that a model writes: how many of them are words of its training text, and how many differ.

A word is a longest sequence of letters and digits, with apostrophes inside, in lower case. Every model writes the same
number of words from the beginning of a line, so shares compare between models of different tokens.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from vitral.core.errors import UsageError
from vitral.data import Dataset, Tokenizer
from vitral.data.alphabet import UnseenCharacter
from vitral.decoding import Sampling
from vitral.inspection.repetition import WORD
from vitral.inspection.text_units import characters_per_token
from vitral.inspection.texts import sampled
from vitral.model import Transformer

SAMPLES = 8
"""Texts written side by side."""
_CHARACTERS = 8
"""Characters written for each wanted word; words of most languages are shorter, with the space after them."""
_LONGER = (1, 2, 4, 8)
"""Times as long a text is written where it has fewer words than the others."""
_SHOWN = 400


def written_words(model: Transformer, tokenizer: Tokenizer, dataset: Dataset, *, words: int, seed: int) -> dict:
    """Shares of real and of distinct words in texts that a model writes at temperature 1.

    Args:
        model: in evaluation mode, trained to predict the next token.
        tokenizer: of the model.
        dataset: its training split says which words are real; its test split is measured beside the samples.
        words: number of words that are measured.
        seed: of the sampling.

    Returns:
        "real", the share of the words that occur in the training split; "distinct", the number of different words over
        the number of words; "words", how many were measured, always as many as asked for; "test_real" and
        "test_distinct", the same for the first words of the test split; "text", the beginning of the first sample.

    Raises:
        UsageError: the samples have fewer words, however long they are.
    """
    tokens = math.ceil(_CHARACTERS * words / SAMPLES / characters_per_token(dataset.splits["test"], tokenizer))
    prompts, known = np.repeat(_line_begin(tokenizer, dataset)[None, :], SAMPLES, axis=0), _known_words(dataset)
    texts, found = list[str](), dict[str, Any]()
    for longer in _LONGER:  # the same samples, continued
        rows = sampled(model, tokenizer, prompts, tokens * longer, Sampling(), seed)
        texts = [tokenizer.decode(row) for row in rows]
        found = share_of_words(texts, known, words)
        if found["words"] == words:
            break
    if found["words"] < words:
        raise UsageError(
            "the samples have {found} words, and {words} are measured of every model",
            found=found["words"],
            words=words,
        )
    test = tokenizer.decode(dataset.splits["test"].tokens[: 4 * _CHARACTERS * words])
    truth = share_of_words([test], known, words)
    return {**found, "test_real": truth["real"], "test_distinct": truth["distinct"], "text": texts[0][:_SHOWN]}


def share_of_words(texts: Sequence[str], known: frozenset[str], number: int) -> dict[str, Any]:
    """The shares of known and of distinct words among the first words of texts, equally many of each, `number` in all.

    The last word of a text, perhaps cut, is left out.

    >>> share_of_words(["The cat, the dxg sat", "to be so"], frozenset(["the", "cat"]), 4)
    {'real': 0.5, 'distinct': 1.0, 'words': 4}
    """
    each = math.ceil(number / len(texts))
    words = [word for text in texts for word in WORD.findall(text.lower())[:-1][:each]][:number]
    count = max(1, len(words))
    real = sum(word in known for word in words)
    return {"real": real / count, "distinct": len(set(words)) / count, "words": len(words)}


def _line_begin(tokenizer: Tokenizer, dataset: Dataset) -> np.ndarray:
    """A newline as tokens; in a text of one line, its first token."""
    try:
        return np.asarray(tokenizer.encode("\n"), dtype=np.int64)
    except UnseenCharacter:
        return np.asarray(dataset.splits["test"].tokens[:1], dtype=np.int64)


@lru_cache(maxsize=8)
def _known_words(dataset: Dataset) -> frozenset[str]:
    return frozenset(WORD.findall(dataset.tokenizer.decode(dataset.splits["train"].tokens).lower()))
