"""Texts and tokenizers of which a test knows every token and its bytes."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.data import Split, Tokenizer
from vitral.model import Transformer


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


def ten_words(path: Path, count: int) -> str:
    """A file of so many words drawn by chance from ten; its path."""
    words = ["the", "cat", "dog", "saw", "a", "bird", "and", "sang", "to", "me"]
    text = " ".join(np.random.default_rng(3).choice(words, size=count)) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")
    return str(path)


def losses_by_the_definition(
    model: Transformer, stretches: Iterable[Sequence[int]], first: int = 0
) -> list[tuple[int, float]]:
    """Each target with its loss, window after window; NaN before place `first` of a window."""
    found, context = list[tuple[int, float]](), model.config.context_length
    for segment in stretches:
        for begin in range(0, len(segment) - 1, context):
            inputs, targets = segment[begin : begin + context], segment[begin + 1 : begin + context + 1]
            with torch.inference_mode():
                logs = model.eval()(torch.tensor([inputs[: len(targets)]]))[0].log_softmax(-1)
            for place, target in enumerate(targets):
                found.append((target, -float(logs[place, target]) if place >= first else math.nan))
    return found
