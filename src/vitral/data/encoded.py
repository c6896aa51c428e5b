"""The blocks of a text as tokens, split by split: one pass over the text encodes all of them, by all cores."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vitral.core.errors import UsageError
from vitral.data.alphabet import UnseenCharacter
from vitral.data.in_order import in_order
from vitral.data.long_texts import Text
from vitral.data.special_tokens import outside_special_tokens
from vitral.data.split import Blocks
from vitral.data.tokenizers import Tokenizer, encode_each, special_tokens
from vitral.data.tokens import Piece, token_dtype

_TOGETHER = 1 << 20
"""Characters of the text whose blocks are encoded at once."""


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
    dtype, specials = token_dtype(tokenizer.vocab_size), special_tokens(tokenizer)

    def tokens(group: _Group) -> list[Piece]:
        places, texts = zip(*group.texts(specials), strict=True)
        try:
            made = encode_each(tokenizer, texts, dtype, replacement)
        except UsageError:
            made = [_alone(tokenizer, place, one, replacement) for place, one in zip(places, texts, strict=True)]
        return list(map(Piece, group.splits, group.firsts, made))

    for source, of in ((text, blocks), *((other, {"train": each}) for other, each in others)):
        for pieces in in_order(tokens, _groups(source, of, specials)):
            yield from pieces


def _alone(tokenizer: Tokenizer, place: int, text: str, replacement: str | None) -> np.ndarray:
    try:
        return tokenizer.encode(text, replacement=replacement)
    except UnseenCharacter as unseen:
        raise unseen.moved(place) from None


class _Group(NamedTuple):
    """Neighbouring blocks: of each the split, whether it begins a segment, and its borders; and the text of all."""

    text: str
    offset: int
    splits: list[str]
    firsts: list[bool]
    spans: list[list[int]]

    def texts(self, specials: tuple[str, ...]) -> Iterator[tuple[int, str]]:
        """The text of each block and its offset; a border inside a special token is moved to its end."""
        for span in self.spans:
            begin, end = (outside_special_tokens(self.text, place - self.offset, specials) for place in span)
            yield self.offset + begin, self.text[begin:end]


def _groups(text: Text, blocks: Mapping[str, Blocks], specials: tuple[str, ...]) -> Iterator[_Group]:
    """The blocks of all splits in the order of the text, some of them at a time."""
    spans = np.concatenate([each.spans for each in blocks.values()])
    firsts = np.concatenate([np.diff(each.run_numbers(), prepend=-1) > 0 for each in blocks.values()])
    names = np.repeat(list(blocks), [len(each) for each in blocks.values()])
    order, at, reach = np.argsort(spans[:, 0], kind="stable"), 0, max((0, *map(len, specials)))
    spans, firsts, names = spans[order], firsts[order], names[order]
    while at < len(spans):
        end = int(np.searchsorted(spans[:, 0], spans[at, 0] + _TOGETHER))
        offset, last = max(0, int(spans[at, 0]) - reach), int(spans[at:end, 1].max()) + reach
        some = (each[at:end].tolist() for each in (names, firsts, spans))
        yield _Group(text[offset:last], offset, *some)
        at = end
