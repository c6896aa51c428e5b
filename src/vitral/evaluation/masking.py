"""Blanks: some tokens of a window are hidden, and a model that sees both sides says what stood there."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer


@dataclass(frozen=True)
class Masking:
    """How tokens are hidden (Devlin et al. 2019, section 3.1, simplified).

    There, of the tokens chosen, 80 % become the blank, 10 % another token and 10 % stay; here all become the blank.
    There, each position is chosen by itself; here every window has the same number of blanks, at least one.

    Attributes:
        rate: share of a window's tokens that are hidden.
        token: the id that stands for a blank; no text has it.
    """

    rate: float
    token: int

    def count(self, time: int) -> int:
        """Blanks in a window of `time` tokens: rate · time to the nearest whole number, at least 1."""
        return max(1, round(self.rate * time))

    def hide(
        self, tokens: Int[Tensor, "batch time"], stream: np.random.Generator
    ) -> tuple[Int[Tensor, "batch time"], Bool[Tensor, "batch time"]]:
        """The windows with their blanks, and where those are; every choice of positions equally likely.

        A window takes `time` numbers of the stream, so windows given one after the other get what they get together.
        """
        drawn = stream.random(tuple(tokens.shape))
        chosen = np.zeros(drawn.shape, dtype=np.bool_)
        lowest = np.argsort(drawn, axis=1, kind="stable")[:, : self.count(tokens.shape[1])]
        np.put_along_axis(chosen, lowest, values=True, axis=1)
        hidden = torch.from_numpy(chosen).to(tokens.device)
        return tokens.masked_fill(hidden, self.token), hidden


def mask_token(tokenizer: Tokenizer) -> int:
    """The id that stands for a blank: the first that stands for no text.

    Raises:
        UsageError: every id of this tokenizer stands for some text.
    """
    if not tokenizer.specials:
        raise UsageError(
            f'training.objective: "masked" needs a token that stands for no text, and the {tokenizer.name} tokenizer '
            'has none; use corpus.tokenizer = "char"'
        )
    return tokenizer.specials[0]
