"""Small models and tokenizers whose distributions a test can know exactly."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from vitral.model import ModelConfig, Transformer


class Pieces:
    """A tokenizer of given pieces of bytes; encoding takes single characters only."""

    name = "pieces"

    def __init__(self, pieces: Sequence[bytes], specials: tuple[int, ...] = (), start: int = 0) -> None:
        self.pieces, self.specials, self.start = list(pieces), specials, start
        self.vocab_size = len(self.pieces)

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        return np.array([self.pieces.index(character.encode()) for character in text], dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self.pieces[int(token)] for token in ids).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]

    def label(self, token: int) -> str:
        return repr(self.pieces[token])

    def plain(self) -> dict:
        return {"pieces": [piece.hex() for piece in self.pieces]}


@pytest.fixture
def pieces() -> type[Pieces]:
    """The class of tokenizers made of given pieces."""
    return Pieces


@pytest.fixture
def letters() -> Callable[..., Pieces]:
    """A tokenizer of the first letters of the alphabet."""

    def make(count: int, **settings: Any) -> Pieces:
        return Pieces([bytes([97 + i]) for i in range(count)], **settings)

    return make


@pytest.fixture
def table() -> Callable[..., Transformer]:
    """A model whose logits are rows of a table, chosen by the last token: no blocks, the head an identity."""

    def make(logits: Sequence[Sequence[float]] | torch.Tensor, context_length: int = 7) -> Transformer:
        rows = torch.as_tensor(logits, dtype=torch.float32)
        config = {"d_model": len(rows), "num_heads": 1, "num_layers": 0, "norm": "none", "positions": "none"}
        model = Transformer(ModelConfig.parse({**config, "context_length": context_length}), len(rows))
        with torch.no_grad():
            model.token_embedding.weight.copy_(rows)
            model.head_weight.copy_(torch.eye(len(rows)))
        return model

    return make


@pytest.fixture
def attentive() -> Callable[..., Transformer]:
    """A small Transformer with numbers large enough that its past matters."""

    def make(vocab_size: int = 11, seed: int = 3, *, std: float = 0.5, **config: Any) -> Transformer:
        sizes = {"context_length": 7, "d_model": 12, "num_heads": 2, "num_layers": 2}
        model = Transformer(ModelConfig.parse({**sizes, **config}), vocab_size, seed=seed).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(std / 0.02 if parameter.dim() == 2 else 1)
        return model

    return make
