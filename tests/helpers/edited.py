"""A model's activations with edits made on the way."""

from collections.abc import Sequence

import torch
from torch import Tensor
from variants import TOKENIZER

from vitral.inspection.edits import Edit, Encode, editing_tap
from vitral.model import Transformer


def edited_trace(
    model: Transformer,
    tokens: Tensor,
    names: Sequence[str] | None = None,
    edits: Sequence[Edit] = (),
    encode: Encode | None = None,
) -> dict[str, Tensor]:
    """The activations of one forward pass by name, all or only `names`; `encode` reads the other sentences."""
    return model.trace(tokens, names, tap=editing_tap(model, tokens.shape[1], edits, encode))


def encoded(text: str) -> Tensor:
    """A sentence of the variants' tokenizer, [1, time]."""
    return torch.from_numpy(TOKENIZER.encode(text))[None]
