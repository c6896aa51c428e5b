"""The text that a run was trained on: its size, its words, and the part that different shares have in common."""

import re
from collections.abc import Mapping
from typing import Any

from vitral.data import Dataset, Split, prepare

COMMON = 1 / 32
"""The share of a text that every larger share contains."""
_WORD = re.compile(r"\w[\w’']*")


def words_seen(train: str, test: str) -> float:
    """The share of the test text's words, each occurrence counted, that occur in the training text."""
    known, asked = set(_WORD.findall(train)), _WORD.findall(test)
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
    return not corpus.get("passages") and (corpus.get("share") or 1.0) >= COMMON


def known_text(dataset: Dataset) -> Split:
    """Text that a run on this dataset was trained on: the share COMMON where the text contains it, else all of it."""
    if not has_common(dataset.config.plain()):
        return dataset.splits["train"]
    common = dataset.config.model_copy(update={"share": COMMON, "also": None})
    return prepare(common, tokenizer=dataset.tokenizer).splits["train"]
