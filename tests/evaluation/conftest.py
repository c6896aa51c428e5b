"""Small parts of a text, and a tokenizer whose tokens have known bytes."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest

from vitral.data.batches import Split


class Pieces:
    """A tokenizer of given pieces of bytes."""

    name = "pieces"

    def __init__(self, pieces: Sequence[bytes], specials: tuple[int, ...] = ()) -> None:
        self.pieces, self.specials, self.start = list(pieces), specials, 0
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
def part() -> Callable[..., Split]:
    """A part made of stretches, each a list of tokens; one token that belongs to none lies between two."""

    def make(*segments: Sequence[int], dtype: type = np.uint8) -> Split:
        tokens: list[int] = []
        spans = []
        for segment in segments:
            spans.append((len(tokens), len(tokens) + len(segment)))
            tokens += [*segment, 0]
        return Split(np.array(tokens, dtype=dtype), np.array(spans, dtype=np.int64).reshape(-1, 2))

    return make
