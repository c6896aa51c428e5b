"""Masking for masked language models: some tokens of a window become the mask token; filling the gaps of a text."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data.alphabet import MASK
from vitral.data.batches import IGNORED, Pair
from vitral.data.tokenizers import Tokenizer
from vitral.model.modes import evaluating
from vitral.model.transformer import Transformer

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


def masking_of(objective: Any, tokenizer: Tokenizer) -> Masking | None:
    """The masking of a masked language model, by its run's `training.objective`; None for other objectives.

    Raises:
        UsageError: the tokenizer has no mask token.
    """
    return filling_of(objective, tokenizer) if getattr(objective, "name", "") == "masked" else None


def filling_of(objective: Any, tokenizer: Tokenizer) -> Masking | None:
    """How a model is asked for hidden tokens: of a masked language model, or of a mixed one; None for other objectives.

    Raises:
        UsageError: the tokenizer has no mask token.
    """
    if isinstance(objective, str):
        return None
    token = tokenizer.mask
    if token is None:
        raise UsageError(
            "training.objective: the {name} tokenizer has no mask token; declare one with --special '{mask}'",
            name=tokenizer.name,
            mask=MASK,
        )
    if objective.name == "mixed":
        return Masking(objective.rate, token, share=objective.share, is_shifted=True)
    return Masking(objective.rate, token, tokenizer.vocab_size if objective.choice == "bert" else 0)


# ---------------------------------------------------------------- filling gaps

GAP = r"(?i:\[MASK\])"
"""Matches what stands for a gap in a text, in capitals or not."""
BEAMS = 16
"""Beginnings of a filling of several tokens that are kept, at least."""


@dataclass(frozen=True)
class Filling:
    """Tokens for a gap.

    Attributes:
        text: what they write.
        tokens: their ids.
        probability: p(tokens | the text around, other gaps hidden), by the chain rule from left to right: each token
            given those of the gap before it, those after it hidden.
    """

    text: str
    tokens: tuple[int, ...]
    probability: float


@dataclass(frozen=True)
class FilledText:
    """A text with its gaps filled.

    Attributes:
        text: with the likeliest filling of each gap, from left to right, each given those before it.
        gaps: of each gap the likeliest fillings, best first, with all other gaps hidden.
        pseudo_perplexity: of `text`: exp of the mean of -log p(token | all other tokens), each token hidden in its turn
            (Salazar et al. 2020).
        scored: tokens in that mean.
    """

    text: str
    gaps: tuple[tuple[Filling, ...], ...]
    pseudo_perplexity: float
    scored: int


def fill(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    masking: Masking,
    *,
    top: int = 5,
    tokens: int = 1,
    replace: str | None = None,
    around: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> FilledText:
    """Fill the gaps of a text.

    Several tokens of a gap are found by a beam search. One space before a gap belongs to the gap unless tokens are
    characters or bytes: a token that begins a word has the space before it.

    Args:
        model: the model; its training mode is restored.
        tokenizer: the model's.
        text: any text, with `[MASK]` for each gap.
        masking: of the run; where it is shifted, the text stands after the tokenizer's start token.
        top: fillings of each gap.
        tokens: of each gap.
        replace: a character in place of those without a token.
        around: tokens before and after every text, which are not scored.

    Raises:
        UsageError: the text is empty or longer than the context, or has a character without a token.
    """
    space = "" if tokenizer.name in ("char", "byte") else " ?"
    ids, gaps = list[int](), list[range]()
    for number, part in enumerate(re.split(space + GAP, text)):
        if number:
            gaps.append(range(len(ids), len(ids) + tokens))
            ids += [masking.token] * tokens
        ids += tokenizer.encode(part, replacement=replace).tolist()
    before, after = ([tokenizer.start], ()) if masking.is_shifted else around  # shifted: read one position earlier
    most = model.config.context_length - len(before) - len(after)
    if not 1 <= len(ids) <= most:
        raise UsageError("the text has {n:,} tokens; the model reads 1 to {most:,}", n=len(ids), most=most)

    def logs(row: Sequence[int], position: int) -> Float[Tensor, " vocab"]:
        """Log-probabilities of the token at a place, which is hidden."""
        hidden = torch.tensor([[*before, *row[:position], masking.token, *row[position + 1 :], *after]])
        logits = model(hidden.to(model.token_embedding.weight.device), bidirectional=masking.is_shifted)
        return logits[0, len(before) + position - masking.is_shifted].cpu().double().log_softmax(-1)

    def best(gap: range, most: int) -> tuple[Filling, ...]:
        beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        for position in gap:
            grown = []
            for score, begun in beams:
                log_probabilities = logs([*ids[: gap.start], *begun, *ids[position:]], position)
                log_probabilities[[*tokenizer.specials, masking.token]] = -math.inf
                likely = log_probabilities.argsort(descending=True, stable=True)[: max(most, BEAMS)].tolist()
                grown += [(score + log_probabilities[token].item(), (*begun, token)) for token in likely]
            beams = sorted(grown, key=lambda one: -one[0])[: max(most, BEAMS)]
        return tuple(Filling(tokenizer.decode(each), each, math.exp(score)) for score, each in beams[:most])

    with evaluating(model):
        ranked = tuple(best(gap, top) for gap in gaps)
        for gap in gaps:
            ids[gap.start : gap.stop] = best(gap, 1)[0].tokens
        nats = [-logs(ids, position)[token].item() for position, token in enumerate(ids)]
    return FilledText(tokenizer.decode(ids), ranked, math.exp(sum(nats) / len(nats)), len(nats))
