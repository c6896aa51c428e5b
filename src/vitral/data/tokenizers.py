"""Tokenizers: characters, bytes, and byte-pair encoding, behind one protocol; plain data in, plain data out.

For each of them `decode(encode(text)) == text` for every text it does not refuse.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.data.alphabet import (
    UnseenCharacter,
    character_counts,
    code_points,
    from_code_points,
    is_surrogate,
    label_bytes,
    label_text,
    token_ids,
    utf8,
)
from vitral.data.bpe import BPETokenizer, learn_merges
from vitral.data.config import BPEConfig, CorpusConfig
from vitral.data.longtext import Text, pieces

PAD = "<PAD>"
"""Token 0 of the character tokenizer: no character, never generated."""
_CHUNK = 1 << 17
"""Characters that are encoded at once."""

_NEWLINE = ord("\n")


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def name(self) -> str:
        """Which kind: `"char"`, `"byte"`, `"bpe"`."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    @property
    def specials(self) -> tuple[int, ...]:
        """Ids that stand for no text and are never to be generated."""
        ...

    @property
    def start(self) -> int:
        """The id an empty prompt means: the newline's if there is one, else the first that is not special."""
        ...

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """The text's token ids, 1-d int64; a character without a token is refused, or replaced on request."""
        ...

    def decode(self, ids: Iterable[Any]) -> str:
        """The text of these ids, without specials; bytes that are not UTF-8 become U+FFFD."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of one token, none for a special."""
        ...

    def label(self, token: int) -> str:
        """One token for a cell of a table: visible, on one line, without control characters."""
        ...

    def plain(self) -> dict[str, Any]:
        """The whole tokenizer as JSON-ready data, which `tokenizer_from_plain` reads back."""
        ...


@dataclass(frozen=True)
class CharTokenizer:
    """One token a character: id 0 is `<PAD>`, id i is the i-th character of the alphabet.

    `build_tokenizer` takes the alphabet from the whole text, held-out parts included, sorted by code point: every part
    can then be encoded. Nothing else of the held-out parts reaches the model, and losses are of the parts.

    >>> tokenizer = CharTokenizer("!abt")
    >>> tokenizer.encode("tab!").tolist()
    [4, 2, 3, 1]
    >>> tokenizer.decode([4, 2, 3, 0, 1])
    'tab!'
    """

    alphabet: str
    name = "char"
    specials = (0,)

    @property
    def vocab_size(self) -> int:
        """The characters and `<PAD>`."""
        return len(self.alphabet) + 1

    @property
    def start(self) -> int:
        """The newline's id, or that of the first character."""
        return self.alphabet.find("\n") + 1 or 1

    @cached_property
    def _points(self) -> np.ndarray:
        return code_points(self.alphabet)

    @cached_property
    def _ids(self) -> np.ndarray:
        """Code point -> id, 0 where there is none; the last entry stands for all higher code points."""
        table = np.zeros(int(self._points.max()) + 2, dtype=np.int64)
        table[self._points] = np.arange(1, self.vocab_size)
        return table

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """One id a character.

        Args:
            text: any text.
            replacement: a character of the alphabet that takes the place of those that are not in it.

        Raises:
            UnseenCharacter: a character is not in the alphabet and there is no replacement.
            UsageError: the replacement is not a character of the alphabet.
        """
        if replacement is not None and (len(replacement) != 1 or replacement not in self.alphabet):
            raise UsageError(f"replacement {replacement!a} is not a character of the tokenizer's alphabet")
        ids = np.empty(len(text), dtype=np.int64)
        for begin in range(0, len(text), _CHUNK):  # small enough to stay in the processor's cache
            part = ids[begin : begin + _CHUNK]
            np.take(self._ids, code_points(text[begin : begin + _CHUNK]), mode="clip", out=part)
            if part.all():
                continue
            unseen = part == 0
            if replacement is None:
                position = begin + int(unseen.argmax())
                alphabet = f"the tokenizer's alphabet of {len(self.alphabet):,} characters"
                raise UnseenCharacter(text[position], position, alphabet)
            part[unseen] = self._ids[ord(replacement)]
        return ids

    def decode(self, ids: Iterable[Any]) -> str:
        """The characters of these ids, `<PAD>` left out.

        Raises:
            UsageError: something is not an id of this vocabulary.
        """
        known = token_ids(ids, self.vocab_size)
        return from_code_points(self._points[known[known > 0] - 1])

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of one character, none for `<PAD>`."""
        return (self.alphabet[token - 1] if 0 < token < self.vocab_size else self.decode([token])).encode("utf-8")

    def label(self, token: int) -> str:
        r"""One character made visible: `\n` for the newline, `␣` for the space, `<PAD>`."""
        return label_text(self.decode([token])) or PAD

    def plain(self) -> dict[str, Any]:
        """Name and tokens; a token's index is its id."""
        return {"name": self.name, "tokens": [PAD, *self.alphabet]}


@dataclass(frozen=True)
class ByteTokenizer:
    """One token a byte of the text's UTF-8; an id is the byte's value.

    >>> ByteTokenizer().encode("é").tolist()
    [195, 169]
    """

    name = "byte"
    specials = ()
    vocab_size = 256
    start = _NEWLINE

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """The bytes of the text's UTF-8.

        Args:
            text: any text.
            replacement: a character that takes the place of lone surrogates, which have no UTF-8.

        Raises:
            UnseenCharacter: there is a lone surrogate and no replacement.
        """
        return np.frombuffer(utf8(text, replacement), dtype=np.uint8).astype(np.int64)

    def decode(self, ids: Iterable[Any]) -> str:
        """The text of these bytes; what is not UTF-8 becomes U+FFFD.

        Raises:
            UsageError: something is not a byte.
        """
        return token_ids(ids, self.vocab_size).astype(np.uint8).tobytes().decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The byte itself."""
        return token_ids([token], self.vocab_size).astype(np.uint8).tobytes()

    def label(self, token: int) -> str:
        r"""An ASCII character made visible, or `\xNN`."""
        return label_bytes(self.token_bytes(token))

    def plain(self) -> dict[str, Any]:
        """The name says it all."""
        return {"name": self.name}


def build_tokenizer(config: CorpusConfig, text: Text, training_blocks: Sequence[str]) -> Tokenizer:
    """Make the tokenizer a configuration asks for.

    Args:
        config: its `tokenizer` says which.
        text: the whole text, whose distinct characters are the alphabet of the character tokenizer.
        training_blocks: the blocks of the training part, the only ones byte-pair merges are learned from.

    Raises:
        UsageError: the text is empty, or holds a lone surrogate.
    """
    if isinstance(text, str):  # what was read from a long file has no lone surrogates
        utf8(text)
    if not len(text):
        raise UsageError("the text is empty: there is nothing to build a tokenizer from")
    part = config.tokenizer
    if isinstance(part, BPEConfig):
        return BPETokenizer(learn_merges(training_blocks, part.vocab_size))
    if part.name == "byte":
        return ByteTokenizer()
    return CharTokenizer("".join(character_counts(pieces(text))))


def tokenizer_from_plain(plain: Any) -> Tokenizer:
    """Read a tokenizer back from what its `plain` gave.

    Raises:
        UsageError: the data is malformed; it says where.
    """
    if not isinstance(plain, Mapping) or not isinstance(plain.get("name"), str):
        raise UsageError("tokenizer: expected a table with a name")
    reader = _READERS.get(plain["name"])
    if reader is None:
        raise UsageError(f"tokenizer: unknown name {plain['name']!a}, {nearest(plain['name'], _READERS)}")
    return reader(plain)


def _read_char(plain: Mapping[str, Any]) -> Tokenizer:
    tokens = plain.get("tokens")
    if not isinstance(tokens, list) or len(tokens) < 2 or tokens[0] != PAD:
        raise UsageError(f"tokenizer: tokens must be a list of {PAD} and at least one character")
    for index, token in enumerate(tokens[1:], start=1):
        if not isinstance(token, str) or len(token) != 1 or is_surrogate(token):
            raise UsageError(f"tokenizer: tokens[{index}] must be one character, not {token!a:.40}")
    if len(set(tokens)) != len(tokens):
        raise UsageError("tokenizer: tokens holds a character twice")
    return CharTokenizer("".join(tokens[1:]))


_READERS: dict[str, Callable[[Mapping[str, Any]], Tokenizer]] = {
    "char": _read_char,
    "byte": lambda plain: ByteTokenizer(),
    "bpe": BPETokenizer.from_plain,
}
