"""PyTorch's numbers with which a page compares its own before it draws anything."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.core.graphs import Plain
from vitral.data import Tokenizer
from vitral.model import Transformer

ROOM = 64 * 1024
"""Bytes for all named values of a short sentence; at least two tokens are checked whatever they need."""
MOST_TOKENS, LEAST_TOKENS = 12, 2


@dataclass(frozen=True)
class Checks:
    """Sentences with PyTorch's numbers.

    Attributes:
        sentences: [{"text", "ids", "values": [{"name", "shape", "start"}]}]; a start counts bytes of `truth`.
        truth: the numbers as float32.
    """

    sentences: list[Plain]
    truth: bytes


def checks_of(model: Transformer, tokenizer: Tokenizer, sentences: Sequence[Sequence[int]]) -> Checks:
    """Every named value of a short sentence, and the last logits of one that fills the context.

    Args:
        model: the model in evaluation mode.
        tokenizer: for the sentences' texts.
        sentences: token ids to take the sentences from; ids of the vocabulary in turn, where they are too few.
    """
    context = model.config.context_length
    given = [token for sentence in sentences for token in sentence]
    many = [*given, *(place * 7 % model.vocab_size for place in range(context))][:context]
    per_token = 4 * sum(value.numel() for value in model.trace(torch.tensor([many[:1]])).values())
    short = many[: max(min(LEAST_TOKENS, context), min(MOST_TOKENS, ROOM // per_token, context))]
    checks = _Writer(model, tokenizer)
    checks.add(short, model.activation_names)
    if len(many) > len(short):
        checks.add(many, ["logits"], last=1)
    return Checks(checks.sentences, b"".join(checks.pieces))


class _Writer:
    def __init__(self, model: Transformer, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.sentences: list[Plain] = []
        self.pieces: list[bytes] = []
        self.written = 0

    def add(self, ids: Sequence[int], names: Sequence[str], last: int | None = None) -> None:
        """Write these values of a sentence: of all its positions, or of so many at its end."""
        kept = self.model.trace(torch.tensor([list(ids)]), list(names))
        values = [self._written(name, kept[name] if last is None else kept[name][:, -last:]) for name in names]
        text = self.tokenizer.decode(ids)
        self.sentences.append({"text": text, "ids": list(ids), "last": last or 0, "values": values})

    def _written(self, name: str, value: Tensor) -> Plain:
        piece = value.detach().to(torch.float32).contiguous().numpy().tobytes()
        start, self.written = self.written, self.written + len(piece)
        self.pieces.append(piece)
        return {"name": name, "shape": list(value.shape), "start": start}
