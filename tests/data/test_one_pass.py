"""What is read once, in the order of the text, is what a plain loop over each split finds."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import encoded_splits
from vitral.data import (
    SPLITS,
    Blocks,
    Tokenizer,
    UnseenCharacter,
    bpe_tokenizer,
    byte_tokenizer,
    char_tokenizer,
    declaring,
)

LETTERS = "ab\r\n é😀\u0301\ufeffÂÃ©â€”\x80"
WRITTEN = st.text(st.sampled_from(LETTERS), min_size=20, max_size=150)
TOKENIZERS: list[Tokenizer] = [
    char_tokenizer("".join(sorted(LETTERS))),
    char_tokenizer("\n\r abé"),
    byte_tokenizer(),
    bpe_tokenizer(((97, 98), (256, 97), (195, 169))),
    declaring(char_tokenizer("".join(sorted(LETTERS))), {"ab\n": 17, "é😀": 18}),
]


@st.composite
def cut(draw: st.DrawFn, length: int) -> dict[str, Blocks]:
    """Blocks of the three splits, with gaps between some."""
    borders = sorted({0, length, *draw(st.lists(st.integers(0, length), max_size=12))})
    spans: dict[str, list[tuple[int, int]]] = {split: [] for split in SPLITS}
    for number, span in enumerate(pairwise(borders)):
        # The first block is for training and so on, so that none is empty if there are enough.
        split = SPLITS[number] if number < 3 else draw(st.sampled_from([*SPLITS, None]))
        if split is not None:
            spans[split].append(span)
    apart = draw(st.booleans())
    return {split: Blocks(np.array(rows or [(0, 1)]), apart=apart) for split, rows in spans.items()}


def moved(text: str, border: int, specials: list[str]) -> int:
    """A border out of every special token that lies across it."""
    ends = [at + len(one) for one in specials for at in range(border) if text.startswith(one, at)]
    # Of those that begin at one place the longest counts; all of these begin differently or are alone.
    return max([border, *(end for end in ends if end > border)])


def plainly(
    text: str, blocks: dict[str, Blocks], tokenizer: Tokenizer, replacement: str | None, unseen: list[int]
) -> Iterator[tuple[str, list[int], list[int]]]:
    """The tokens and lengths of the runs, block after block and split after split."""
    specials = list(tokenizer.declared)
    for split in SPLITS:
        tokens, lengths, last = list[int](), list[int](), None
        for begin, end in blocks[split]:
            lengths += [] if begin == last and not blocks[split].apart else [0]
            first = moved(text, begin, specials)
            part = text[first : moved(text, end, specials)]
            if tokenizer.name == "char" and replacement is None:
                unknown = [first + at for at, letter in enumerate(part) if letter not in tokenizer.alphabet]
                if unknown:
                    unseen += unknown
                    continue
            ids = tokenizer.encode(part, replacement=replacement).tolist()
            tokens, last = tokens + ids, end
            lengths[-1] += len(ids)
        yield split, tokens, lengths


@given(WRITTEN, st.sampled_from(TOKENIZERS), st.sampled_from([None, "a"]), st.data())
def test_tokens_are_those_of_each_block_alone(
    text: str, tokenizer: Tokenizer, replacement: str | None, data: st.DataObject
) -> None:
    blocks = data.draw(cut(len(text)))
    unseen = list[int]()
    expected = list(plainly(text, blocks, tokenizer, replacement, unseen))
    if unseen:
        with pytest.raises(UnseenCharacter) as refused:
            encoded_splits(text, blocks, tokenizer, replacement)
        assert refused.value.position == min(unseen)
        assert refused.value.character == text[min(unseen)]
        return
    splits = encoded_splits(text, blocks, tokenizer, replacement)
    result = [
        (split, splits[split].tokens.tolist(), np.diff(splits[split].segments, axis=1)[:, 0].tolist())
        for split in SPLITS
    ]
    assert result == expected
