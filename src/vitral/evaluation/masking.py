"""Masking for masked language models: replace some tokens of a window by the mask token."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.runs.config import Masked


@dataclass(frozen=True)
class Masking:
    """Masking of a window (Devlin et al. 2019, section 3.1, simplified).

    BERT replaces 80 % of the chosen tokens by the mask token and 10 % by another token, and keeps 10 %; here all become
    the mask token. BERT chooses each position independently; here every window has the same number of masked positions,
    at least one.

    Attributes:
        rate: share of masked positions in a window.
        token: id of the mask token, which no text contains.
    """

    rate: float
    token: int

    def count(self, time: int) -> int:
        """Number of masked positions in a window of `time` tokens: rate · time, rounded, at least 1."""
        return max(1, round(self.rate * time))

    def hide(
        self, tokens: Int[Tensor, "batch time"], stream: np.random.Generator
    ) -> tuple[Int[Tensor, "batch time"], Bool[Tensor, "batch time"]]:
        """The masked windows, and their masked positions; every choice of positions is equally likely.

        A window consumes `time` numbers of the stream, so the result does not depend on how windows are batched.
        """
        drawn = stream.random(tuple(tokens.shape))
        chosen = np.zeros(drawn.shape, dtype=np.bool_)
        lowest = np.argsort(drawn, axis=1, kind="stable")[:, : self.count(tokens.shape[1])]
        np.put_along_axis(chosen, lowest, values=True, axis=1)
        hidden = torch.from_numpy(chosen).to(tokens.device)
        return tokens.masked_fill(hidden, self.token), hidden


def masking_of(objective: str | Masked, tokenizer: Tokenizer) -> Masking | None:
    """The masking of an objective; None for next-token prediction. The mask token is the first special one.

    Raises:
        UsageError: the tokenizer has no special token.
    """
    if not isinstance(objective, Masked):
        return None
    if not tokenizer.specials:
        raise UsageError(
            'training.objective: "masked" needs a mask token, and the {name} tokenizer has no '
            'special token; use corpus.tokenizer = "char"',
            name=tokenizer.name,
        )
    return Masking(objective.rate, tokenizer.specials[0])
