"""Tokenizers with one protocol: characters, bytes, byte-pair encoding, and files of others; saved as plain data.

For each of them `decode(encode(text)) == text` for every text that it accepts. Special tokens that a corpus declares
(`DeclaringTokenizer`) are strings with one token each; `Tokenizer.specials` are ids without text, such as `<PAD>`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from vitral.core.checked import checked
from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data.alphabet import (
    PAD,
    UnseenCharacter,
    code_points,
    from_code_points,
    is_surrogate,
    label_bytes,
    label_text,
    token_ids,
    utf8,
)
from vitral.data.byte_pairs import BPETokenizer, learn_merges
from vitral.data.config import MOST_SPECIAL, BPEConfig, CorpusConfig, FileConfig
from vitral.data.file_tokenizer import FileTokenizer
from vitral.data.long_texts import LongText, Text, pieces
from vitral.data.special_tokens import alphabet_counts, between_special_tokens, special_pattern

_CHUNK = 1 << 17
"""Characters encoded at once."""

_NEWLINE = ord("\n")


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def name(self) -> str:
        """The kind: `"char"`, `"byte"`, `"bpe"` or `"file"`."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    @property
    def specials(self) -> tuple[int, ...]:
        """Ids without text, which are never generated; declared special tokens have text and are not among them."""
        ...

    @property
    def start(self) -> int:
        """The id that replaces an empty prompt: the newline if there is one, else the first that is not special."""
        ...

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """The token ids of a text, 1-d int64; a character without a token is refused, or replaced if requested."""
        ...

    def decode(self, ids: Iterable[Any]) -> str:
        """The text of these ids, without specials; invalid UTF-8 becomes U+FFFD."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of one token, empty for a special."""
        ...

    def label(self, token: int) -> str:
        """One token for a table cell: visible, on one line, without control characters."""
        ...

    def plain(self) -> dict[str, Any]:
        """The complete tokenizer as JSON-ready data for `tokenizer_from_plain`."""
        ...


@checked(first=["__init__"])
@dataclass(frozen=True)
class CharTokenizer:
    """One token per character: id 0 is `<PAD>`, id i is the i-th character of the alphabet.

    `build_tokenizer` takes the alphabet from the whole text, sorted by code point, so that every split can be encoded.
    Nothing else of the held-out splits reaches the model.

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
        """Code point -> id, 0 for none; the last entry is for all higher code points."""
        table = np.zeros(int(self._points.max()) + 2, dtype=np.int64)
        table[self._points] = np.arange(1, self.vocab_size)
        return table

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """One id per character.

        Args:
            text: any text.
            replacement: a character of the alphabet to use for characters outside it.

        Raises:
            UnseenCharacter: a character is not in the alphabet, and there is no replacement.
            UsageError: the replacement is not a character of the alphabet.
        """
        return self.encode_as(text, np.dtype(np.int64), replacement)

    def encode_as(self, text: str, dtype: np.dtype, replacement: str | None = None) -> np.ndarray:
        """The same ids in a dtype that has them all."""
        if replacement is not None and (len(replacement) != 1 or replacement not in self.alphabet):
            raise UsageError(
                "replacement {replacement!a} is not a character of the tokenizer's alphabet", replacement=replacement
            )
        table, ids = self._ids.astype(dtype), np.empty(len(text), dtype=dtype)
        for begin in range(0, len(text), _CHUNK):  # small enough for the processor's cache
            chunk = ids[begin : begin + _CHUNK]
            np.take(table, code_points(text[begin : begin + _CHUNK]), mode="clip", out=chunk)
            if chunk.all():
                continue
            unseen = chunk == 0
            if replacement is None:
                position = begin + int(unseen.argmax())
                alphabet = _("the tokenizer's alphabet of {number:,} characters", number=len(self.alphabet))
                raise UnseenCharacter(text[position], position, alphabet)
            chunk[unseen] = table[ord(replacement)]
        return ids

    def decode(self, ids: Iterable[Any]) -> str:
        """The characters of these ids, without `<PAD>`.

        Raises:
            UsageError: a value is not an id of this vocabulary.
        """
        known = token_ids(ids, self.vocab_size)
        return from_code_points(self._points[known[known > 0] - 1])

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of one character, empty for `<PAD>`."""
        return (self.alphabet[token - 1] if 0 < token < self.vocab_size else self.decode([token])).encode("utf-8")

    def label(self, token: int) -> str:
        r"""One visible character: `\n` for the newline, `␣` for the space, `<PAD>`."""
        return label_text(self.decode([token])) or PAD

    def plain(self) -> dict[str, Any]:
        """Name and tokens; a token's index is its id."""
        return {"name": self.name, "tokens": [PAD, *self.alphabet]}


@checked(first=["__init__"])
@dataclass(frozen=True)
class ByteTokenizer:
    """One token per byte of the text's UTF-8; the id is the byte's value.

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
            replacement: a character to use for lone surrogates, which have no UTF-8.

        Raises:
            UnseenCharacter: the text contains a lone surrogate, and there is no replacement.
        """
        return np.frombuffer(utf8(text, replacement), dtype=np.uint8).astype(np.int64)

    def decode(self, ids: Iterable[Any]) -> str:
        """The text of these bytes; invalid UTF-8 becomes U+FFFD.

        Raises:
            UsageError: a value is not a byte.
        """
        return token_ids(ids, self.vocab_size).astype(np.uint8).tobytes().decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The byte itself."""
        return token_ids([token], self.vocab_size).astype(np.uint8).tobytes()

    def label(self, token: int) -> str:
        r"""A visible ASCII character, or `\xNN`."""
        return label_bytes(self.token_bytes(token))

    def plain(self) -> dict[str, Any]:
        """The name only."""
        return {"name": self.name}


@checked(first=["__init__"])
@dataclass(frozen=True)
class DeclaringTokenizer:
    """A tokenizer with declared special tokens: strings that are one token each wherever they occur in a text.

    Occurrences are found from left to right; of several special tokens that begin at one place, the longest counts.
    The text between them is encoded by the tokenizer `base`.

    Attributes:
        base: the tokenizer of all other text.
        declared: each special token with its id, in the order of the ids; the ids of `base` are the others, in order.

    >>> tokenizer = DeclaringTokenizer(CharTokenizer("ab"), (("<|end|>", 3),))
    >>> tokenizer.encode("ab<|end|>b").tolist()
    [1, 2, 3, 2]
    >>> tokenizer.decode([3, 1])
    '<|end|>a'
    """

    base: Tokenizer
    declared: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        """Check the special tokens.

        Raises:
            UsageError: there are none, one is empty, too long or not valid text, or their ids cannot be.
        """
        texts, ids = [text for text, _ in self.declared], [token for _, token in self.declared]
        for text in texts:
            if not isinstance(text, str) or not 0 < len(text) <= MOST_SPECIAL or any(map(is_surrogate, text)):
                raise UsageError(
                    "tokenizer: a special token must have 1 to {most} characters, not {text!a:.40}",
                    most=MOST_SPECIAL,
                    text=text,
                )
        whole = all(type(token) is int for token in ids) and ids == sorted(set(ids))
        if not ids or len(set(texts)) != len(texts) or not whole or ids[0] < 0 or ids[-1] >= self.vocab_size:
            raise UsageError("tokenizer: special tokens must differ, with increasing ids inside the vocabulary")

    @property
    def name(self) -> str:
        """The kind of `base`."""
        return self.base.name

    @property
    def vocab_size(self) -> int:
        """The tokens of `base` and the special tokens."""
        return self.base.vocab_size + len(self.declared)

    @property
    def specials(self) -> tuple[int, ...]:
        """Ids without text, those of `base`."""
        return tuple(int(self._from_base[token]) for token in self.base.specials)

    @property
    def start(self) -> int:
        """The newline if it is a special token, else the start of `base`."""
        return self._ids.get("\n", int(self._from_base[self.base.start]))

    @property
    def texts(self) -> tuple[str, ...]:
        """The special tokens, in the order of their ids."""
        return tuple(text for text, _ in self.declared)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return dict(self.declared)

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {token: text for text, token in self.declared}

    @cached_property
    def _from_base(self) -> np.ndarray:
        """The id of each token of `base`."""
        return np.setdiff1d(np.arange(self.vocab_size), list(self._texts), assume_unique=True)

    @cached_property
    def _to_base(self) -> np.ndarray:
        """The token of `base` with each id, -1 for a special token."""
        table = np.full(self.vocab_size, -1, dtype=np.int64)
        table[self._from_base] = np.arange(self.base.vocab_size)
        return table

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """The text's tokens, 1-d int64.

        Args:
            text: any text.
            replacement: a character to use for those that `base` has no token for.

        Raises:
            UnseenCharacter: `base` has no token for a character, and there is no replacement.
        """
        parts: list[np.ndarray] = []
        begin = 0
        for match in special_pattern(self.texts).finditer(text):
            parts += [self._between(text[begin : match.start()], begin, replacement), np.array([self._ids[match[0]]])]
            begin = match.end()
        return np.concatenate([*parts, self._between(text[begin:], begin, replacement)])

    def _between(self, text: str, offset: int, replacement: str | None) -> np.ndarray:
        try:
            return self._from_base[self.base.encode(text, replacement=replacement)]
        except UnseenCharacter as unseen:
            raise unseen.moved(offset) from None

    def decode(self, ids: Iterable[Any]) -> str:
        """The text of these tokens, special tokens as they are written; invalid UTF-8 becomes U+FFFD.

        Raises:
            UsageError: a value is not an id of this vocabulary.
        """
        tokens = token_ids(ids, self.vocab_size)
        inner = self._to_base[tokens]
        places = np.flatnonzero(inner < 0).tolist()
        begins = [0, *(place + 1 for place in places)]
        texts = [self.base.decode(inner[begin:end]) for begin, end in zip(begins, [*places, len(inner)], strict=True)]
        return texts[0] + "".join(
            self._texts[int(tokens[place])] + text for place, text in zip(places, texts[1:], strict=True)
        )

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of one token."""
        inner = int(self._to_base[token_ids([token], self.vocab_size)[0]])
        return self._texts[token].encode("utf-8") if inner < 0 else self.base.token_bytes(inner)

    def label(self, token: int) -> str:
        """The label of `base`, or the special token as it is written."""
        inner = int(self._to_base[token_ids([token], self.vocab_size)[0]])
        return label_text(self._texts[token]) if inner < 0 else self.base.label(inner)

    def plain(self) -> dict[str, Any]:
        """The data of `base`, and the id of each special token."""
        return {**self.base.plain(), "special_tokens": dict(self.declared)}


def encode_each(
    tokenizer: Tokenizer, texts: Sequence[str], dtype: np.dtype, replacement: str | None = None
) -> list[np.ndarray]:
    """The tokens of each text, see `Tokenizer.encode`; characters of all of them are encoded at once.

    Raises:
        UsageError: one cannot be encoded.
    """
    if not isinstance(tokenizer, CharTokenizer):
        return [tokenizer.encode(text, replacement=replacement).astype(dtype) for text in texts]
    ids = tokenizer.encode_as("".join(texts), dtype, replacement)
    return np.split(ids, np.cumsum([len(text) for text in texts])[:-1])


def special_tokens(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The declared special tokens of a tokenizer, in the order of their ids."""
    return tokenizer.texts if isinstance(tokenizer, DeclaringTokenizer) else ()


def with_special_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokenizer:
    """A tokenizer with further special tokens, whose ids follow the others."""
    if not texts:
        return tokenizer
    base, declared = undeclared(tokenizer)
    first = tokenizer.vocab_size
    return DeclaringTokenizer(base, (*declared, *((text, first + place) for place, text in enumerate(texts))))


def undeclared(tokenizer: Tokenizer) -> tuple[Tokenizer, tuple[tuple[str, int], ...]]:
    """A tokenizer without its declared special tokens, and these."""
    return (tokenizer.base, tokenizer.declared) if isinstance(tokenizer, DeclaringTokenizer) else (tokenizer, ())


@checked(first=True)
def build_tokenizer(config: CorpusConfig, text: Text, training_blocks: Sequence[str]) -> Tokenizer:
    """Build the tokenizer of a configuration.

    Args:
        config: its `tokenizer` is the kind to build, its `specials` are special tokens.
        text: the whole text, whose distinct characters, without those of special tokens, are the alphabet of the
            character tokenizer.
        training_blocks: the blocks of the training split; byte-pair merges are learned from these only.

    Raises:
        UsageError: the text is empty, or contains a lone surrogate.
    """
    if not isinstance(text, LongText):  # of valid UTF-8, so without lone surrogates
        for piece in pieces(text):
            utf8(piece)
    if not len(text):
        raise UsageError("the text is empty: there is nothing to build a tokenizer from")
    kind, specials = config.tokenizer, config.specials or ()
    if isinstance(kind, BPEConfig):
        learned_from = list(between_special_tokens(training_blocks, specials))
        return with_special_tokens(BPETokenizer(learn_merges(learned_from, kind.vocab_size)), specials)
    if isinstance(kind, FileConfig):
        raise UsageError(
            "corpus.tokenizer: a tokenizer of another library comes with its model; start from an imported run "
            "(--init-from)"
        )
    if kind.name == "byte":
        return with_special_tokens(ByteTokenizer(), specials)
    alphabet = alphabet_counts([text], specials) or alphabet_counts([text], ())
    return with_special_tokens(CharTokenizer("".join(alphabet)), specials)


def tokenizer_from_plain(plain: Any) -> Tokenizer:
    """The tokenizer from the data returned by its `plain`.

    Raises:
        UsageError: the data is malformed; names the place.
    """
    if not isinstance(plain, Mapping) or not isinstance(plain.get("name"), str):
        raise UsageError("tokenizer: expected a table with a name")
    reader = _READERS.get(plain["name"])
    if reader is None:
        raise UsageError(
            "tokenizer: unknown name {name!a}, {hint}", name=plain["name"], hint=nearest(plain["name"], _READERS)
        )
    declared = plain.get("special_tokens")
    if declared is None:
        return reader(plain)
    if not isinstance(declared, Mapping) or not all(type(token) is int for token in declared.values()):
        raise UsageError("tokenizer: special_tokens must be a table of ids")
    return DeclaringTokenizer(reader(plain), tuple(sorted(declared.items(), key=lambda entry: entry[1])))


def _read_char(plain: Mapping[str, Any]) -> Tokenizer:
    tokens = plain.get("tokens")
    if not isinstance(tokens, list) or len(tokens) < 2 or tokens[0] != PAD:
        raise UsageError("tokenizer: tokens must be a list of {pad} and at least one character", pad=PAD)
    for index, token in enumerate(tokens[1:], start=1):
        if not isinstance(token, str) or len(token) != 1 or is_surrogate(token):
            raise UsageError(
                "tokenizer: tokens[{index}] must be one character, not {token!a:.40}", index=index, token=token
            )
    if len(set(tokens)) != len(tokens):
        raise UsageError("tokenizer: tokens contains a character twice")
    return CharTokenizer("".join(tokens[1:]))


_READERS: dict[str, Callable[[Mapping[str, Any]], Tokenizer]] = {
    "char": _read_char,
    "byte": lambda plain: ByteTokenizer(),
    "bpe": BPETokenizer.from_plain,
    "file": FileTokenizer.from_plain,
}
