"""Characters: code points, counts, safe labels, and the error for a character that cannot be encoded."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from vitral.core.config import shown
from vitral.core.errors import UsageError
from vitral.core.language import _

PAD = "<PAD>"
"""Token 0 of the character tokenizer: not a character, never generated, the mask token of masked training."""

MASK = "<MASK>"
"""The special token that hides a token, where the tokenizer has none for it."""
MASKS = (MASK, "[MASK]", "<mask>")
"""Its names in tokenizers."""

_SURROGATES = range(0xD800, 0xE000)
"""Halves of pairs, which have no UTF-8."""
_SHORT_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", " ": "␣"}
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Python prints but nobody sees: variation selectors, fillers, joiners of signs."""


class UnseenCharacter(UsageError):
    """A character without a token.

    Attributes:
        character: the character.
        position: its index in the text.
        alphabet: what it is missing from, in words.
    """

    def __init__(self, character: str, position: int, alphabet: str) -> None:
        """Name the character, its position and the remedy."""
        self.character, self.position, self.alphabet = character, position, alphabet
        super().__init__(
            "{character} is not in {alphabet}; remove it, or replace it by one that is",
            character=self.where,
            alphabet=alphabet,
        )

    @property
    def where(self) -> str:
        """The character as it is written, its code point and its position."""
        return _(
            "character {character} ({code_point}) at position {position:,}",
            character=repr(self.character),
            code_point=code_point(self.character),
            position=self.position,
        )

    def moved(self, offset: int) -> "UnseenCharacter":
        """The same error for a text in which this one starts at `offset`."""
        return UnseenCharacter(self.character, self.position + offset, self.alphabet)


def code_points(text: str) -> np.ndarray:
    """The Unicode code points of a text, 1-d uint32; lone surrogates are kept."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def code_point(character: str) -> str:
    """A code point in Unicode notation.

    >>> code_point("é")
    'U+00E9'
    """
    return f"U+{ord(character):04X}"


def label_text(text: str) -> str:
    r"""A text for one table cell: visible, on one line, without terminal control characters.

    >>> label_text("to be\n\x1b[2J")
    'to␣be\\n\\x1b[2J'
    """
    return "".join(map(_label_character, text))


def _label_character(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if not character.isprintable() or _UNSEEN.match(character):
        return character.encode("unicode_escape").decode("ascii")
    # A combining accent alone would combine with the character printed before it.
    return f"◌{character}" if unicodedata.combining(character) else character


def some_of(labels: Sequence[str], most: int, between: str = ", ") -> str:
    """The first few labels as one text.

    >>> some_of(["a", "b", "c"], 2)
    'a, b, …'
    """
    return between.join([*labels[:most], *["…"] * (len(labels) > most)])


def utf8(text: str, replacement: str | None = None) -> bytes:
    """A text as UTF-8; a lone surrogate is refused, or replaced if a replacement is given.

    Raises:
        UnseenCharacter: the text contains a lone surrogate and there is no replacement.
        UsageError: the replacement is not one character.
    """
    if replacement is not None and (len(replacement) != 1 or not is_utf8(replacement)):
        raise UsageError("replacement {replacement!a}: expected one character", replacement=replacement)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        if replacement is None:
            raise UnseenCharacter(text[error.start], error.start, _("UTF-8 (a lone surrogate)")) from None
        return text.translate(dict.fromkeys(_SURROGATES, replacement)).encode("utf-8")


def token_ids(ids: Iterable[Any], vocab_size: int) -> np.ndarray:
    """Token ids as a checked 1-d int64 array.

    Raises:
        UsageError: a value is not an integer, or not an id of this vocabulary.
    """
    array = ids if isinstance(ids, np.ndarray) else np.array(list(ids) or np.zeros(0, dtype=np.int64))
    if array.ndim != 1 or array.dtype.kind not in "iu" or ((array < 0) | (array >= vocab_size)).any():
        raise UsageError(
            "token ids {ids}: expected a 1-d array of integers from 0 to {last:,}",
            ids=shown(array.tolist()),
            last=vocab_size - 1,
        )
    return array.astype(np.int64)
