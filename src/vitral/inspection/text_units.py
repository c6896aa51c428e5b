"""The text of a run: characters of its tokens, its size and words, and the part that all shares of it contain."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from vitral.data import Dataset, Split, Tokenizer, prepare
from vitral.evaluation.losses import token_sizes
from vitral.model import ModelConfig
from vitral.model.counts import parameter_table

COMMON = 1 / 64
"""The share of a text that every larger share contains."""
WORD = re.compile(r"\w[\w’']*")


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
    known, asked = set(WORD.findall(train)), WORD.findall(test)
    return sum(word in known for word in asked) / max(1, len(asked))


def text_contents(dataset: Dataset) -> dict[str, int | float]:
    """The size of the training split and the share of the test split's words in it.

    Returns:
        "characters" and "bytes" of the training split; "words_seen", see `words_seen`.
    """
    train, test = (dataset.tokenizer.decode(dataset.splits[part].tokens) for part in ("train", "test"))
    return {"characters": len(train), "bytes": len(train.encode()), "words_seen": words_seen(train, test)}


def has_common(corpus: Mapping[str, Any]) -> bool:
    """Whether a text, described by its configuration as plain data, contains the share COMMON of its source."""
    return not corpus.get("passages") and not corpus.get("num_works") and (corpus.get("share") or 1.0) >= COMMON


def known_text(dataset: Dataset) -> Split:
    """Text that a run on this dataset was trained on: the share COMMON where the text contains it, else all of it."""
    if not has_common(dataset.config.plain()):
        return dataset.splits["train"]
    common = dataset.config.model_copy(update={"share": COMMON, "also": None})
    return prepare(common, tokenizer=dataset.tokenizer, corpus=dataset.load_text()).splits["train"]
