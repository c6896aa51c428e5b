"""PyTorch's numbers with which a page compares its own before it draws anything."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

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
    parts = [(short, model.activation_names, 0)]
    if len(many) > len(short):
        parts.append((many, ["logits"], 1))
    written, truth = list[Plain](), bytearray()
    for ids, names, last in parts:
        kept = model.trace(torch.tensor([ids]), names)
        values: list[Plain] = []
        for name in names:
            value = kept[name][:, -last:]  # of all positions, or of so many at the end
            values.append({"name": name, "shape": list(value.shape), "start": len(truth)})
            truth += value.detach().to(torch.float32).contiguous().numpy().tobytes()
        written.append({"text": tokenizer.decode(ids), "ids": ids, "last": last, "values": values})
    return Checks(written, bytes(truth))
