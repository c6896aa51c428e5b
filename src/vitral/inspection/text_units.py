"""The text of a run: characters of its tokens, its size and words, the part that all shares of it contain.

Words that a model writes are compared with it: how many are words of the training text, and how many differ. A word is
a longest sequence of letters and digits, with apostrophes inside, in lower case. Every model writes the same number of
words from the beginning of a line, so shares compare between models of different tokens.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from vitral.core.errors import UsageError
from vitral.data import Dataset, Split, Tokenizer, prepare
from vitral.data.alphabet import UnseenCharacter
from vitral.decoding import Sampling
from vitral.evaluation.losses import token_sizes
from vitral.inspection.strategies import sampled, split_words
from vitral.model import ModelConfig, Transformer
from vitral.model.counts import parameter_table

COMMON = 1 / 64
"""The share of a text that every larger share contains."""


def characters_per_token(part: Split, tokenizer: Tokenizer) -> float:
    """Characters of a split over its tokens; of byte tokens, those that begin a UTF-8 character count."""
    counts = np.bincount(part.tokens, minlength=tokenizer.vocab_size)
    return int(counts @ token_sizes(tokenizer)[0]) / len(part.tokens)


def text_units(model: ModelConfig, dataset: Dataset, num_tokens: int) -> dict[str, int | float]:
    """The size of a tokenizer's tokens, and the share of a model and of its training that each gets.

    Args:
        model: its configuration.
        dataset: the text as tokens.
        num_tokens: that the model is trained on.

    Returns:
        "vocab_size"; "characters_per_token" on the test split; "context_characters", the context length times that;
        "token_share" of all parameters in token embedding and head; "tokens" and "characters" trained on; "passes"
        over the training split; "median_seen", how often the median token of the vocabulary was a target.
    """
    tokenizer, train = dataset.tokenizer, dataset.splits["train"]
    rows = parameter_table(model, tokenizer.vocab_size)
    known = sum(row.count for row in rows if row.part == "head" or row.name.startswith("token_embedding"))
    per_token = characters_per_token(dataset.splits["test"], tokenizer)
    median = float(np.median(np.bincount(train.tokens, minlength=tokenizer.vocab_size)))
    return {
        "vocab_size": tokenizer.vocab_size,
        "characters_per_token": per_token,
        "context_characters": model.context_length * per_token,
        "token_share": known / sum(row.count for row in rows),
        "tokens": num_tokens,
        "characters": num_tokens * characters_per_token(train, tokenizer),
        "passes": num_tokens / len(train.tokens),
        "median_seen": median * num_tokens / len(train.tokens),
    }


def words_seen(train: str, test: str) -> float:
    """The share of the test text's words, each occurrence counted, that occur in the training text."""
    known, asked = set(split_words(train)), split_words(test)
    return sum(word in known for word in asked) / max(1, len(asked))


def text_contents(dataset: Dataset) -> dict[str, int | float]:
    """The size of the training split and the share of the test split's words in it.

    Returns:
        "bytes" of the training split; "words_seen", see `words_seen`.
    """
    train, test = (dataset.tokenizer.decode(dataset.splits[part].tokens) for part in ("train", "test"))
    return {"bytes": len(train.encode()), "words_seen": words_seen(train, test)}


def has_common(corpus: Mapping[str, Any]) -> bool:
    """Whether a text, described by its configuration as plain data, contains the share COMMON of its source."""
    return not corpus.get("num_works") and (corpus.get("share") or 1.0) >= COMMON


def known_text(dataset: Dataset) -> Split:
    """Text that a run on this dataset was trained on: the share COMMON where the text contains it, else all of it."""
    if not has_common(dataset.config.plain()):
        return dataset.splits["train"]
    common = dataset.config.model_copy(update={"share": COMMON, "also": None})
    return prepare(common, tokenizer=dataset.tokenizer, corpus=dataset.load_text()).splits["train"]


SAMPLES = 8
"""Texts written side by side."""
_CHARACTERS = 8
"""Characters written for each wanted word; words of most languages are shorter, with the space after them."""


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
        "test_distinct", the same for the first words of the test split.

    Raises:
        UsageError: the samples have fewer words, however long they are.
    """
    tokens = math.ceil(_CHARACTERS * words / SAMPLES / characters_per_token(dataset.splits["test"], tokenizer))
    try:
        begin = tokenizer.encode("\n")
    except UnseenCharacter:  # a text of one line
        begin = dataset.splits["test"].tokens[:1]
    prompts, known = np.repeat(np.asarray(begin, dtype=np.int64)[None, :], SAMPLES, axis=0), _known_words(dataset)
    shares = dict[str, Any]()
    for longer in (1, 2, 4, 8):  # the same samples, continued
        rows, _nats = sampled(model, tokenizer, prompts, tokens * longer, Sampling(), seed)
        shares = share_of_words([tokenizer.decode(row) for row in rows], known, words)
        if shares["words"] == words:
            break
    if shares["words"] < words:
        raise UsageError(
            "the samples have {found} words, and {words} are measured of every model",
            found=shares["words"],
            words=words,
        )
    test = tokenizer.decode(dataset.splits["test"].tokens[: 4 * _CHARACTERS * words])
    truth = share_of_words([test], known, words)
    return {**shares, "test_real": truth["real"], "test_distinct": truth["distinct"]}


def share_of_words(texts: Sequence[str], known: frozenset[str], number: int) -> dict[str, Any]:
    """The shares of known and of distinct words among the first words of texts, equally many of each, `number` in all.

    The last word of a text, perhaps cut, is left out.

    >>> share_of_words(["The cat, the dxg sat", "to be so"], frozenset(["the", "cat"]), 4)
    {'real': 0.5, 'distinct': 1.0, 'words': 4}
    """
    each = math.ceil(number / len(texts))
    words = [word for text in texts for word in split_words(text)[:-1][:each]][:number]
    count = max(1, len(words))
    real = sum(word in known for word in words)
    return {"real": real / count, "distinct": len(set(words)) / count, "words": len(words)}


@lru_cache(maxsize=8)
def _known_words(dataset: Dataset) -> frozenset[str]:
    return frozenset(split_words(dataset.tokenizer.decode(dataset.splits["train"].tokens)))
