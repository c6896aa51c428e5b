"""Units of a text: characters and bytes of a tokenizer's tokens."""

import numpy as np

from vitral.data import Dataset, Split, Tokenizer
from vitral.evaluation.losses import token_sizes
from vitral.model import ModelConfig
from vitral.model.counts import parameter_table


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
