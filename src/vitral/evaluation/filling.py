"""Filling gaps: the likeliest tokens of each gap of a text, and how sure a model is of a text from both sides."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.evaluation.masking import Masking
from vitral.model.modes import evaluating
from vitral.model.transformer import Transformer

GAP = "[MASK]"
"""Stands for a gap in a text."""
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
    for number, part in enumerate(re.split(space + re.escape(GAP), text)):
        if number:
            gaps.append(range(len(ids), len(ids) + tokens))
            ids += [masking.token] * tokens
        ids += tokenizer.encode(part, replacement=replace).tolist()
    before, after = ([tokenizer.start], ()) if masking.is_shifted else around  # shifted: read one position earlier
    most = model.config.context_length - len(before) - len(after)
    if not 1 <= len(ids) <= most:
        raise UsageError("fill: {tokens} tokens, expected 1 to {most}", tokens=len(ids), most=most)

    def logs(row: Sequence[int], place: int) -> Float[Tensor, " vocab"]:
        """Log-probabilities of the token at a place, which is hidden."""
        hidden = torch.tensor([[*before, *row[:place], masking.token, *row[place + 1 :], *after]])
        logits = model(hidden.to(model.token_embedding.weight.device), bidirectional=masking.is_shifted)
        return logits[0, len(before) + place - masking.is_shifted].cpu().double().log_softmax(-1)

    def best(gap: range, most: int) -> tuple[Filling, ...]:
        beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        for place in gap:
            grown = []
            for score, begun in beams:
                found = logs([*ids[: gap.start], *begun, *ids[place:]], place)
                found[[*tokenizer.specials, masking.token]] = -math.inf
                likely = found.argsort(descending=True, stable=True)[: max(most, BEAMS)].tolist()
                grown += [(score + found[token].item(), (*begun, token)) for token in likely]
            beams = sorted(grown, key=lambda one: -one[0])[: max(most, BEAMS)]
        return tuple(Filling(tokenizer.decode(each), each, math.exp(score)) for score, each in beams[:most])

    with evaluating(model):
        ranked = tuple(best(gap, top) for gap in gaps)
        for gap in gaps:
            ids[gap.start : gap.stop] = best(gap, 1)[0].tokens
        nats = [-logs(ids, place)[token].item() for place, token in enumerate(ids)]
    return FilledText(tokenizer.decode(ids), ranked, math.exp(sum(nats) / len(nats)), len(nats))
