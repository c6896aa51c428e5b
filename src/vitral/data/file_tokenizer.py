"""A tokenizer of another library, from its `tokenizer.json`: the file is kept whole and decides every id."""

import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from vitral.core.checked import checked
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data.alphabet import UnseenCharacter, label_bytes, token_ids, utf8
from vitral.data.spelling import Spelling, of_package, spelling_of

if TYPE_CHECKING:
    import tokenizers

MOST_TOKENS = 2**24
SPACE = "▁"
"""SentencePiece's letter for a space."""
TRIAL = "To be\n"
"""A text that shows whether a tokenizer works."""
MOST_GROWTH = 256
"""Times that a tokenizer makes a text longer at most; those of the hub do so at most 70 times."""
_ADDED = ("content", "prepend", "start", "stop")
"""In the parts of a tokenizer, what they add to a character, or how often they do something to it."""


@checked(first=["__init__"])
@dataclass(frozen=True)
class FileTokenizer:
    """A tokenizer that the `tokenizers` package reads from a `tokenizer.json`.

    Special tokens are written as they are in the file (`<|endoftext|>`), in texts and prompts; none is added to a text.
    A model may have more rows than the file has tokens: the ids without a token are never generated.

    Attributes:
        document: the file's content.
        vocab_size: number of ids, those without a token included.
        start: the id that replaces an empty prompt.
    """

    document: str
    vocab_size: int
    start: int
    name = "file"

    def __post_init__(self) -> None:
        """Read the file.

        Raises:
            UsageError: the package cannot read it, its tokens have no bytes, or an id is not below `vocab_size`.
        """
        _known = self._spelling
        largest = max(self._texts, default=-1)
        if not 0 <= largest < self.vocab_size <= MOST_TOKENS or not 0 <= self.start < self.vocab_size:
            raise UsageError(
                "tokenizer: its ids go up to {largest:,}, but the model has {vocab_size:,} tokens",
                largest=max(largest, self.start),
                vocab_size=self.vocab_size,
            )

    @cached_property
    def _engine(self) -> "tokenizers.Tokenizer":
        return read_engine(self.document)

    @cached_property
    def _texts(self) -> dict[int, str]:
        """The tokens as the file spells them, by id."""
        return {token: text for text, token in self._engine.get_vocab(with_added_tokens=True).items()}

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self._engine.get_added_tokens_decoder())

    @cached_property
    def _spelling(self) -> Spelling:
        return spelling_of(self._engine)

    @cached_property
    def prepends_a_space(self) -> bool:
        """Whether a space before a whole text is left out: the decoder says so, or every text gets one."""
        if self._spelling.begin == (" ", 1):
            return True
        ids = self._engine.encode("a", add_special_tokens=False).ids
        return bool(ids) and self.token_bytes(ids[0]).startswith(b" ")

    @property
    def specials(self) -> tuple[int, ...]:
        """The ids without a token."""
        return tuple(token for token in range(self.vocab_size) if token not in self._texts)

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """The text's tokens, 1-d int64; nothing is added to them.

        Args:
            text: any text.
            replacement: a character to use for lone surrogates, which have no UTF-8, and for characters without a
                token, where every token is a character.

        Raises:
            UnseenCharacter: a character has no token, where every token is a character.
            UsageError: the file has no tokens for this text, and none for unknown ones.
        """
        return np.asarray(self._encoding(text, replacement).ids, dtype=np.int64)

    def ends(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """The number of characters of the text before the end of each token, 1-d int64, never decreasing.

        The characters are those of the text as it is given, before the file's normaliser.

        Args:
            text: as for `encode`.
            replacement: as for `encode`.

        Raises:
            UnseenCharacter: as for `encode`.
            UsageError: as for `encode`.
        """
        offsets = self._encoding(text, replacement).offsets
        return np.maximum.accumulate(np.asarray([end for _begin, end in offsets], dtype=np.int64))

    def _encoding(self, text: str, replacement: str | None) -> "tokenizers.Encoding":
        """The package's tokens of a text.

        Raises:
            UnseenCharacter: as for `encode`.
            UsageError: as for `encode`.
        """
        valid = utf8(text, replacement).decode("utf-8")
        try:
            return encoding_of(self._engine, valid)
        except UsageError:
            unseen = self._unseen(valid)
            if not unseen:
                raise
            if replacement is None or self._unseen(replacement):
                alphabet = _("the tokenizer's alphabet of {number:,} characters", number=len(self._texts))
                raise UnseenCharacter(unseen[0], valid.index(unseen[0]), alphabet) from None
            return encoding_of(self._engine, valid.translate({ord(character): replacement for character in unseen}))

    def _unseen(self, text: str) -> list[str]:
        """The characters of a text that have no token, where every token is a character."""
        if any(len(letter) > 1 for letter in self._texts.values()):
            return []
        found = list[str]()
        for character in dict.fromkeys(text):
            try:
                encoding_of(self._engine, character)
            except UsageError:
                found.append(character)
        return found

    def decode(self, ids: Iterable[Any]) -> str:
        """The text of these tokens, special tokens as they are written; invalid UTF-8 becomes U+FFFD.

        Raises:
            UsageError: a value is not an id of this vocabulary.
        """
        listed = token_ids(ids, self.vocab_size).tolist()
        spelled = {token: self.token_bytes(token) for token in set(listed)}
        text = b"".join(map(spelled.__getitem__, listed)).decode("utf-8", "replace")
        whole = self._spelling.whole(text)
        return whole.removeprefix(" ") if self.prepends_a_space and not self._spelling.begin[1] else whole

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of one token, empty for an id without a token."""
        index = int(token_ids([token], self.vocab_size)[0])
        text = self._texts.get(index, "")
        return text.encode("utf-8") if index in self._added else self._spelling.each(text)

    def label(self, token: int) -> str:
        r"""The visible token: `␣the`, `\n`, `<|endoftext|>`."""
        return label_bytes(self.token_bytes(token)) or f"<{token}>"

    def plain(self) -> dict[str, Any]:
        """Name, size, start and the whole file."""
        return {
            "name": self.name,
            "vocab_size": self.vocab_size,
            "start": self.start,
            "document": self.document,
        }

    @classmethod
    def alone(cls, document: str) -> "FileTokenizer":
        """The tokenizer of a file without a model: its size is that of its tokens.

        Raises:
            UsageError: it cannot be used.
        """
        engine = read_engine(document)
        with suppress(UsageError):  # a newline may have no token
            return cls(document, 1 + max(engine.get_vocab().values()), encoding_of(engine, "\n").ids[0])
        return cls(document, 1 + max(engine.get_vocab().values()), 0)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "FileTokenizer":
        """The tokenizer from the data returned by `plain`.

        Raises:
            UsageError: an entry is missing or malformed.
        """
        size, start, document = plain.get("vocab_size"), plain.get("start"), plain.get("document")
        if type(size) is not int or type(start) is not int or not isinstance(document, str):
            raise UsageError("tokenizer: expected vocab_size, start and the document, the content of a tokenizer.json")
        return cls(document, size, start)


def read_engine(document: str) -> "tokenizers.Tokenizer":
    """The tokenizer of the package; the ids of a text are those of the whole text alone, never cut or filled up.

    Raises:
        UsageError: the document is not a tokenizer.json, or makes texts too long.
    """
    from tokenizers import Tokenizer

    engine = of_package(lambda: Tokenizer.from_str(document))
    engine.no_truncation()
    engine.no_padding()
    for part in (engine.normalizer, engine.decoder):
        if part is not None and _growth(json.loads(part.__getstate__())) > MOST_GROWTH:
            raise UsageError(
                "tokenizer: its normalizer or decoder can make a text more than {most} times as long; use another file",
                most=MOST_GROWTH,
            )

    def try_it() -> None:
        with suppress(Exception):  # some text has no tokens; here a panic counts
            engine.encode(TRIAL, add_special_tokens=False)

    of_package(try_it)
    return engine


def encoding_of(engine: "tokenizers.Tokenizer", text: str) -> "tokenizers.Encoding":
    """The package's tokens of valid text.

    Raises:
        UsageError: it has none.
    """
    return of_package(lambda: engine.encode(text, add_special_tokens=False))


def _growth(part: Mapping[str, Any]) -> float:
    """How many times longer than a text its normaliser or decoder makes it at most, as far as the file says it."""
    added = [part.get(key) or 0 for key in _ADDED]
    most = sum(len(one) if isinstance(one, str) else one for one in added)
    if mapped := b64decode(part.get("precompiled_charsmap") or ""):  # the size of a table, the table, replacements
        most = max(map(len, mapped[4 + int.from_bytes(mapped[:4], "little") :].split(b"\0")))
    replaced = (part.get("pattern") or {}).get("String")
    own = max(1, most / len(replaced)) if replaced else 1 + most
    return own * prod(map(_growth, part.get("normalizers") or part.get("decoders") or ()))
