"""Byte-pair encoding: the tokenizer, and learning its merges."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vitral.core.checked import checked
from vitral.core.errors import UsageError
from vitral.data.alphabet import label_bytes, token_ids, utf8

if TYPE_CHECKING:
    import tokenizers

MAX_TOKEN_BYTES = 64
"""Maximum token length; without a limit, merges of a repeated character would double forever."""

_MAX_MERGES = 2_000_000
_MIN_FREQUENCY = 2

Merges = tuple[tuple[int, int], ...]


@checked(first=["__init__"])
@dataclass(frozen=True)
class BPETokenizer:
    """Byte-pair encoding (Sennrich et al. 2016) over UTF-8 bytes, so that every text can be encoded.

    The `tokenizers` package learns and applies the merges. Ids 0 to 255 are the bytes. Each merge (left, right) joins
    two existing tokens; the new token gets the next free id, unless the same bytes already have one. Text is first
    split into words by GPT-2's rule (Radford et al. 2019), and no token crosses a word border.

    >>> tokenizer = BPETokenizer(((116, 104), (256, 101)))  # t+h, th+e
    >>> tokenizer.token_bytes(257)
    b'the'
    >>> tokenizer.encode("the path").tolist()
    [257, 32, 112, 97, 256]
    """

    merges: Merges
    name = "bpe"
    specials = ()
    start = ord("\n")

    @property
    def vocab_size(self) -> int:
        """256 bytes and the tokens made by merges."""
        return len(self._tokens)

    @cached_property
    def _tokens(self) -> tuple[bytes, ...]:
        return _spell_out(self.merges)

    @cached_property
    def _engine(self) -> "tokenizers.Tokenizer":
        from tokenizers import models

        letters = byte_letters()
        spelled = ["".join(letters[byte] for byte in token) for token in self._tokens]
        merges = [(spelled[left], spelled[right]) for left, right in self.merges]
        return _engine(models.BPE(vocab={word: index for index, word in enumerate(spelled)}, merges=merges))

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """The text's tokens, 1-d int64.

        Args:
            text: any text.
            replacement: a character to use for lone surrogates, which have no UTF-8.

        Raises:
            UnseenCharacter: the text contains a lone surrogate, and there is no replacement.
        """
        valid = utf8(text, replacement).decode("utf-8")
        return np.asarray(self._engine.encode(valid, add_special_tokens=False).ids, dtype=np.int64)

    def decode(self, ids: Iterable[Any]) -> str:
        """The text of these tokens; invalid UTF-8 becomes U+FFFD.

        Raises:
            UsageError: a value is not an id of this vocabulary.
        """
        return b"".join(self._tokens[index] for index in token_ids(ids, self.vocab_size)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token; they need not be whole characters."""
        return self._tokens[int(token_ids([token], self.vocab_size)[0])]

    def label(self, token: int) -> str:
        r"""The visible token: `␣the`, `\n`, `\xc3`."""
        return label_bytes(self.token_bytes(token))

    def plain(self) -> dict[str, Any]:
        """Name and merges, each a pair of ids."""
        return {"name": self.name, "merges": [list(merge) for merge in self.merges]}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "BPETokenizer":
        """The tokenizer from the data returned by `plain`.

        Raises:
            UsageError: a merge is not a pair of earlier ids, is a duplicate, or makes too long a token.
        """
        merges = plain.get("merges")
        if not isinstance(merges, list) or len(merges) > _MAX_MERGES:
            raise UsageError("tokenizer: merges must be a list of at most {most:,} pairs of ids", most=_MAX_MERGES)
        for index, merge in enumerate(merges):
            if not (isinstance(merge, list) and len(merge) == 2 and all(type(token) is int for token in merge)):
                raise UsageError(
                    "tokenizer: merges[{index}] must be two ids, not {merge!a:.40}", index=index, merge=merge
                )
        pairs = tuple((left, right) for left, right in merges)
        if len(set(pairs)) != len(pairs):
            raise UsageError("tokenizer: merges contains a pair twice")
        tokenizer = cls(pairs)
        _ = tokenizer.vocab_size
        return tokenizer


def learn_merges(blocks: Sequence[str], vocab_size: int) -> Merges:
    """Learn merges from blocks of text, most frequent pair first, until there are `vocab_size` tokens.

    The result is deterministic. Pairs that occur once are not merged, so a small text may yield fewer tokens.

    Args:
        blocks: texts; pairs across their borders are not counted.
        vocab_size: number of tokens, including the 256 bytes.

    Raises:
        UnseenCharacter: a block contains a lone surrogate.
    """
    from tokenizers import models, trainers

    for block in blocks:
        utf8(block)
    engine = _engine(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=_MIN_FREQUENCY,
        show_progress=False,
        initial_alphabet=byte_letters(),
        max_token_length=MAX_TOKEN_BYTES,
    )
    engine.train_from_iterator(blocks, trainer)
    return numbered_merges(json.loads(engine.to_str())["model"]["merges"])


def numbered_merges(spelled: Iterable[Sequence[str]]) -> Merges:
    """Merges as pairs of ids, from merges as pairs of words in the letters of the `tokenizers` package.

    >>> numbered_merges([("t", "h"), ("th", "e")])
    ((116, 104), (256, 101))
    """
    ids = {letter: byte for byte, letter in enumerate(byte_letters())}
    merges = []
    for left, right in spelled:
        merges.append((ids[left], ids[right]))
        ids.setdefault(left + right, len(ids))
    return tuple(merges)


def _spell_out(merges: Merges) -> tuple[bytes, ...]:
    """The bytes of every token, by id.

    Raises:
        UsageError: a merge uses a later id, or makes too long a token.
    """
    tokens = [bytes([byte]) for byte in range(256)]
    known = set(tokens)
    for index, (left, right) in enumerate(merges):
        if not (0 <= left < len(tokens) and 0 <= right < len(tokens)):
            raise UsageError("tokenizer: merges[{index}] uses an id that does not exist before it", index=index)
        token = tokens[left] + tokens[right]
        if len(token) > MAX_TOKEN_BYTES:
            raise UsageError(
                "tokenizer: merges[{index}] makes a token longer than {most} bytes",
                index=index,
                most=MAX_TOKEN_BYTES,
            )
        if token not in known:
            known.add(token)
            tokens.append(token)
    return tuple(tokens)


def _engine(model: Any) -> "tokenizers.Tokenizer":
    """A tokenizer of the package: words by GPT-2's rule, no normalization, no special tokens."""
    from tokenizers import Tokenizer, pre_tokenizers

    engine = Tokenizer(model)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return engine


def byte_letters() -> list[str]:
    """The printable character that the package uses for each byte: GPT-2's `bytes_to_unicode`.

    Visible Latin-1 characters represent themselves; the other bytes become U+0100, U+0101 and so on.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (byte for byte in range(256) if byte not in visible)
    shifted = {byte: chr(0x100 + index) for index, byte in enumerate(hidden)}
    return [shifted.get(byte, chr(byte)) for byte in range(256)]
