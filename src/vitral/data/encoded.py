"""The splits of a text as tokens: one pass over the text encodes the blocks of all splits, by all cores."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from vitral.core.checked import checked
from vitral.core.errors import UsageError
from vitral.data.alphabet import UnseenCharacter
from vitral.data.batches import Split
from vitral.data.in_order import in_order
from vitral.data.long_texts import Text
from vitral.data.special_tokens import outside_special_tokens
from vitral.data.split import Blocks
from vitral.data.token_store import token_dtype
from vitral.data.tokenizers import Tokenizer, encode_each, special_tokens

_BUFFER = 1 << 20
_TOGETHER = 1 << 20
"""Characters of the text whose blocks are encoded at once."""


@checked(first=True)
def encode_splits(
    text: Text,
    blocks: Mapping[str, Blocks],
    tokenizer: Tokenizer,
    scratch: Path | None = None,
    others: Sequence[tuple[Text, Blocks]] = (),
    replacement: str | None = None,
) -> dict[str, Split]:
    """Encode each block separately and concatenate the blocks of each split.

    A border of a block that lies inside a special token is moved to the end of this token, in both blocks.

    Args:
        text: the whole text.
        blocks: split -> its blocks, from `split_corpus`.
        tokenizer: the tokenizer.
        scratch: a folder for tokens too large for memory; None keeps them in memory.
        others: further texts and their blocks, which follow in the training split.
        replacement: replaces characters without a token.

    Raises:
        UsageError: the tokenizer has no token for a character; its position in the text is named.
    """
    dtype, errors = token_dtype(tokenizer.vocab_size), dict[str, UsageError]()
    with ExitStack() as files:
        made = {
            split: _Tokens(scratch and files.enter_context((scratch / split).open("wb", buffering=_BUFFER)))
            for split in blocks
        }
        for source, spans in ((text, blocks), *((other, {"train": each}) for other, each in others)):
            here = {split: each for split, each in spans.items() if split in made}
            groups = _groups(source, here, made, special_tokens(tokenizer))
            for group in in_order(lambda group: _encoded(group, tokenizer, dtype, replacement), groups):
                for split, run, tokens in group:
                    if isinstance(tokens, UsageError):
                        errors.setdefault(split, tokens)
                    elif not errors:
                        made[split].add(run, tokens)
                if next(iter(blocks)) in errors:
                    break
    for split in blocks:  # the first in the order of the splits, wherever in the text it is
        if split in errors:
            raise errors[split]
    return {split: tokens.split(dtype, scratch and scratch / split) for split, tokens in made.items()}


class _Tokens:
    """The tokens of one split, as they are made: in memory, or in a file."""

    def __init__(self, file: BinaryIO | None) -> None:
        self.lengths, self._file, self._in_memory = list[int](), file, list[np.ndarray]()

    def add(self, run: int, tokens: np.ndarray) -> None:
        """Add the next tokens; they belong to this run of adjacent blocks."""
        self.lengths[run] += tokens.size
        if self._file is None:
            self._in_memory.append(tokens)
        else:
            self._file.write(tokens.data)

    def split(self, dtype: np.dtype, path: Path | None) -> Split:
        """All of them."""
        tokens = np.concatenate(self._in_memory) if path is None else np.memmap(path, dtype=dtype, mode="r")
        ends = np.cumsum([0, *self.lengths])
        return Split(tokens, np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64))


class _Group(NamedTuple):
    """Neighbouring blocks: the split, the run and the borders of each, and the slice of the text with all of them."""

    text: str
    offset: int
    splits: list[str]
    runs: list[int]
    spans: list[list[int]]

    def texts(self, specials: tuple[str, ...]) -> Iterator[tuple[int, str]]:
        """The text of each block and its offset; a border inside a special token is moved to its end."""
        for span in self.spans:
            begin, end = (outside_special_tokens(self.text, place - self.offset, specials) for place in span)
            yield self.offset + begin, self.text[begin:end]


def _groups(
    text: Text, blocks: Mapping[str, Blocks], made: Mapping[str, _Tokens], specials: tuple[str, ...]
) -> Iterator[_Group]:
    """The blocks of all splits in the order of the text, some of them at a time."""
    names, runs = list(blocks), list[np.ndarray]()
    for split in names:
        numbers, before = blocks[split].run_numbers(), len(made[split].lengths)
        runs.append(numbers + before)
        made[split].lengths += [0] * int(numbers.max(initial=-1) + 1)
    spans = np.concatenate([blocks[split].spans for split in names])
    order, at, reach = np.argsort(spans[:, 0], kind="stable"), 0, max((0, *map(len, specials)))
    spans, run = spans[order], np.concatenate(runs)[order]
    split = np.repeat(np.arange(len(names)), [len(blocks[split]) for split in names])[order]
    while at < len(spans):
        end = int(np.searchsorted(spans[:, 0], spans[at, 0] + _TOGETHER))
        offset, last = max(0, int(spans[at, 0]) - reach), int(spans[at:end, 1].max()) + reach
        in_splits = [names[each] for each in split[at:end].tolist()]
        yield _Group(text[offset:last], offset, in_splits, run[at:end].tolist(), spans[at:end].tolist())
        at = end


def _encoded(
    group: _Group, tokenizer: Tokenizer, dtype: np.dtype, replacement: str | None
) -> list[tuple[str, int, np.ndarray | UsageError]]:
    """The tokens of each block of a group, or why it has none, with its split and its run."""
    places, texts = zip(*group.texts(special_tokens(tokenizer)), strict=True)
    try:
        tokens: list[np.ndarray | UsageError] = [*encode_each(tokenizer, texts, dtype, replacement)]
    except UsageError:
        tokens = [_alone(tokenizer, place, text, dtype, replacement) for place, text in zip(places, texts, strict=True)]
    return list(zip(group.splits, group.runs, tokens, strict=True))


def _alone(
    tokenizer: Tokenizer, place: int, text: str, dtype: np.dtype, replacement: str | None
) -> np.ndarray | UsageError:
    try:
        return tokenizer.encode(text, replacement=replacement).astype(dtype)
    except UnseenCharacter as unseen:
        return unseen.moved(place)
    except UsageError as error:
        return error
