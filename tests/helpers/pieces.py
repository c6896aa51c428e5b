"""Texts and tokenizers of which a test knows every token and its bytes."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from vitral.data import Split, Tokenizer


class Pieces(Tokenizer):
    """A tokenizer of given pieces of bytes; encoding takes single characters only."""

    def __init__(self, pieces: Sequence[bytes], specials: Any = (), start: int = 0) -> None:
        given = {"name": "pieces", "pieces": [piece.hex() for piece in pieces]}
        self.__dict__.update(
            data=given, pieces=dict(enumerate(pieces)), vocab_size=len(pieces), specials=specials, start=start
        )

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        ids = {piece: token for token, piece in self.pieces.items()}
        return np.array([ids[character.encode()] for character in text], dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self.pieces[int(token)] for token in ids).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]

    def label(self, token: int) -> str:
        return repr(self.pieces[token])


def letters(count: int, **settings: Any) -> Pieces:
    """A tokenizer of the first letters of the alphabet."""
    return Pieces([bytes([97 + i]) for i in range(count)], **settings)


def part(*segments: Sequence[int], dtype: type = np.uint8) -> Split:
    """A part made of stretches, each a list of tokens; one token that belongs to none lies between two."""
    tokens = list[int]()
    spans = []
    for segment in segments:
        spans.append((len(tokens), len(tokens) + len(segment)))
        tokens += [*segment, 0]
    return Split(np.array(tokens, dtype=dtype), np.array(spans, dtype=np.int64).reshape(-1, 2))
