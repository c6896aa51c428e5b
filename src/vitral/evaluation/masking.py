"""Masking for masked language models: replace some tokens of a window by the mask token."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data.alphabet import MASK
from vitral.data.batches import IGNORED, Pair
from vitral.data.tokenizers import Tokenizer
from vitral.runs.config import Masked, Mixed

NAMES = (MASK, "[MASK]", "<mask>")
"""The mask token's names in tokenizers."""
OTHER, KEPT = 0.1, 0.1
"""BERT's shares of the masked positions that get any token, and that keep theirs."""


@dataclass(frozen=True)
class Masking:
    """Masking of a window (Devlin et al. 2019, section 3.1).

    BERT chooses each position independently; here every window has the same number of masked positions, at least one.
    All of them become the mask token, unless BERT's choice is made: of ten, one becomes any token and one stays.

    Attributes:
        rate: share of masked positions in a window.
        token: id of the mask token, which no text contains.
        among: number of tokens of which any may replace one, where BERT's choice is made; else 0.
        share: probability that a step of training is masked.
        is_shifted: whether a hidden token is predicted at the position before it, and the first one never is.
    """

    rate: float
    token: int
    among: int = 0
    share: float = 1.0
    is_shifted: bool = False

    def is_due(self, seed: int, step: int) -> bool:
        """Whether a step of a run is masked, by a random stream of its own."""
        return self.share == 1 or numpy_stream(seed, "mixed", step).random() < self.share

    def count(self, time: int) -> int:
        """Number of masked positions in a window of `time` tokens: rate · time, rounded, at least 1."""
        return max(1, round(self.rate * time))

    def asked(self, tokens: Int[Tensor, "batch time"], stream: np.random.Generator) -> Pair:
        """The windows with hidden tokens, and these as targets; all other targets are `IGNORED`."""
        begin = int(self.is_shifted)
        hidden_tokens, hidden = self.hide(tokens[:, begin:], stream)
        targets = tokens[:, begin:].masked_fill(~hidden, IGNORED)
        return torch.cat([tokens[:, :begin], hidden_tokens], dim=1), functional.pad(targets, (0, begin), value=IGNORED)

    def hide(
        self, tokens: Int[Tensor, "batch time"], stream: np.random.Generator
    ) -> tuple[Int[Tensor, "batch time"], Bool[Tensor, "batch time"]]:
        """The masked windows, and their masked positions; every choice of positions is equally likely.

        A window consumes `time` numbers of the stream, three times as many where BERT's choice is made, so the result
        does not depend on how windows are batched.
        """
        drawn = stream.random((tokens.shape[0], 3 if self.among else 1, tokens.shape[1]))
        chosen = np.zeros(tokens.shape, dtype=np.bool_)
        lowest = np.argsort(drawn[:, 0], axis=1, kind="stable")[:, : self.count(tokens.shape[1])]
        np.put_along_axis(chosen, lowest, values=True, axis=1)
        hidden = torch.from_numpy(chosen).to(tokens.device)
        masked = tokens.masked_fill(hidden, self.token)
        if self.among:
            turn, other = (torch.from_numpy(each).to(tokens.device) for each in drawn.swapaxes(0, 1)[1:])
            masked = torch.where(hidden & (turn < OTHER + KEPT), tokens, masked)
            masked = torch.where(hidden & (turn < OTHER), (other * self.among).long(), masked)
        return masked, hidden


def mask_token(tokenizer: Tokenizer) -> int | None:
    """The id of a tokenizer's mask token; None if it has none."""
    found = [token for token in map(tokenizer.id_of, NAMES) if token is not None]
    return next(iter([*found, *tokenizer.specials[: tokenizer.name == "char"]]), None)


def masking_of(objective: str | Masked | Mixed, tokenizer: Tokenizer) -> Masking | None:
    """The masking of a masked language model; None for other objectives.

    Raises:
        UsageError: the tokenizer has no mask token.
    """
    return filling_of(objective, tokenizer) if isinstance(objective, Masked) else None


def filling_of(objective: str | Masked | Mixed, tokenizer: Tokenizer) -> Masking | None:
    """How a model is asked for hidden tokens: of a masked language model, or of a mixed one; None for other objectives.

    Raises:
        UsageError: the tokenizer has no mask token.
    """
    if isinstance(objective, str):
        return None
    token = mask_token(tokenizer)
    if token is None:
        raise UsageError(
            "training.objective: the {name} tokenizer has no mask token; declare one with --special '{mask}'",
            name=tokenizer.name,
            mask=MASK,
        )
    if isinstance(objective, Mixed):
        return Masking(objective.rate, token, share=objective.share, is_shifted=True)
    return Masking(objective.rate, token, tokenizer.vocab_size if objective.choice == "bert" else 0)
