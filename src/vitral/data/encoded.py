"""The blocks of a text as tokens, split by split: one pass over the text encodes all of them, by all cores."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import groupby, repeat
from typing import NamedTuple

import numpy as np

from vitral.data.alphabet import UnseenCharacter
from vitral.data.in_order import in_order
from vitral.data.long_texts import Text
from vitral.data.special_tokens import outside_special_tokens
from vitral.data.split import Blocks
from vitral.data.tokenizers import Tokenizer
from vitral.data.tokens import Piece, token_dtype

_TOGETHER = 1 << 20
"""Characters of the text whose blocks are encoded at once."""


class _Block(NamedTuple):
    """A block: where it begins in the text, its split, whether a segment begins with it, and its text."""

    begin: int
    split: str
    is_first: bool
    text: str


def encoded(
    text: Text,
    blocks: Mapping[str, Blocks],
    tokenizer: Tokenizer,
    others: Sequence[tuple[Text, Blocks]] = (),
    replacement: str | None = None,
) -> Iterator[Piece]:
    """The tokens of each block, in the order of the text; each block is encoded alone.

    A border of a block that lies inside a special token is moved to the end of this token, in both blocks.

    Args:
        text: the whole text.
        blocks: split -> its blocks, from `split_corpus`.
        tokenizer: the tokenizer.
        others: further texts and their blocks, which follow in the training split.
        replacement: replaces characters without a token.

    Raises:
        UsageError: the tokenizer has no token for a character; its position in the text is named.
    """
    dtype, specials = token_dtype(tokenizer.vocab_size), tuple(tokenizer.declared)

    def tokens(group: list[_Block]) -> list[Piece]:
        texts = [block.text for block in group]
        if tokenizer.name == "char" and not specials:
            with suppress(UnseenCharacter):  # its place is that in one of the blocks
                ids = tokenizer.encode("".join(texts), replacement=replacement).astype(dtype)
                made = np.split(ids, np.cumsum([len(one) for one in texts[:-1]]))
                return [Piece(block.split, block.is_first, some) for block, some in zip(group, made, strict=True)]
        return [Piece(block.split, block.is_first, alone(block).astype(dtype)) for block in group]

    def alone(block: _Block) -> np.ndarray:
        try:
            return tokenizer.encode(block.text, replacement=replacement)
        except UnseenCharacter as unseen:
            raise unseen.moved(block.begin) from None

    for source, of in ((text, blocks), *((other, {"train": each}) for other, each in others)):
        for pieces in in_order(tokens, _groups(source, of, specials)):
            yield from pieces


def _groups(text: Text, blocks: Mapping[str, Blocks], specials: tuple[str, ...]) -> Iterator[list[_Block]]:
    """The blocks of all splits in the order of the text, some of them at a time."""
    listed = [
        zip(*each.spans.T.tolist(), repeat(split), np.diff(each.run_numbers(), prepend=-1) > 0, strict=False)
        for split, each in blocks.items()
    ]
    for _group, some in groupby(merge(*listed), lambda block: block[0] // _TOGETHER):
        group = list[_Block]()
        for *span, split, is_first in some:
            begin, end = (outside_special_tokens(text, place, specials) for place in span)
            group.append(_Block(begin, split, bool(is_first), text[begin:end]))
        yield group
