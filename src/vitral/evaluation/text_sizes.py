"""Characters and bytes of a text that each of its tokens stands for, where the tokenizer changes the text."""

import numpy as np
from jaxtyping import Int

from vitral.data.alphabet import code_points
from vitral.data.tokenizers import Tokenizer
from vitral.evaluation.losses import token_sizes

Sizes = tuple[Int[np.ndarray, " tokens"], Int[np.ndarray, " tokens"]]
LONGER = (0x80, 0x800, 0x10000)
"""The first characters with one more byte in UTF-8."""


def sizes_in_text(
    tokenizer: Tokenizer, text: str, tokens: Int[np.ndarray, " tokens"], replacement: str | None = None
) -> Sizes:
    """Characters and UTF-8 bytes of a text that each of its tokens stands for.

    A token stands for the text from the end of the token before it to its own end, so that all of the text is counted
    once, also what the tokenizer leaves out. What follows the last token belongs to it.

    Args:
        tokenizer: made the tokens.
        text: the text as it was given.
        tokens: its tokens.
        replacement: with which they were made.
    """
    if tokenizer.name == "file":
        ends = tokenizer.ends(text, replacement=replacement)
    else:  # one character is replaced by one
        ends = np.minimum(token_sizes(tokenizer)[0][tokens].cumsum(), len(text))
    ends = np.concatenate([[0], ends])
    ends[-1] = len(text)
    points = code_points(text)
    lengths = 1 + np.sum([points >= first for first in LONGER], axis=0, dtype=np.int64)
    bytes_before = np.concatenate([[0], lengths.cumsum()])
    return np.diff(ends), np.diff(bytes_before[ends])
