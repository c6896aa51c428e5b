"""The train, validation and test split of a text, in characters, made before tokenization.

A text is cut into blocks, and every block belongs to one split. The split does not depend on the seed of a run, so all
runs on a text are evaluated on the same characters.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, overload

import numpy as np
from jaxtyping import Int

from vitral.core.checked import Natural, checked
from vitral.core.errors import UsageError
from vitral.core.language import ngettext
from vitral.core.streams import numpy_stream
from vitral.data.config import CorpusConfig

SPLITS = ("train", "validation", "test")
BLOCK = 5_000
"""Characters per block."""
SPLIT_SEED = 0
"""The seed of the split, independent of the seed of the run."""

_MIN_BLOCKS = 3
_MIN_TAIL = 20


class Blocks(Sequence[tuple[int, int]]):
    """Sorted blocks of a text as (begin, end), stored in one array since a long text has millions."""

    def __init__(self, spans: Int[np.ndarray, "blocks 2"], *, apart: bool = False) -> None:
        """Use these blocks, (begin, end) per row.

        Args:
            spans: sorted.
            apart: whether each is a segment by itself, even where the next one begins at its end.
        """
        if not isinstance(spans, np.ndarray) or spans.ndim != 2 or spans.shape[1] != 2 or spans.dtype.kind not in "iu":
            raise UsageError("blocks: expected an array of whole numbers with two columns, begin and end")
        self._spans, self.apart = spans, apart

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._spans)

    @overload
    def __getitem__(self, place: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, place: slice) -> "Blocks": ...
    def __getitem__(self, place: int | slice) -> "tuple[int, int] | Blocks":
        """One block, or a slice of blocks."""
        if isinstance(place, slice):
            return Blocks(self._spans[place], apart=self.apart)
        begin, end = self._spans[place].tolist()
        return begin, end

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over the blocks."""
        return ((int(begin), int(end)) for begin, end in self._spans)

    def __eq__(self, other: object) -> bool:
        """Whether the other sequence contains the same blocks."""
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(tuple.__eq__, self, other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def num_characters(self) -> int:
        """Total number of characters."""
        return int((self._spans[:, 1] - self._spans[:, 0]).sum())

    @property
    def spans(self) -> Int[np.ndarray, "blocks 2"]:
        """Begin and end of each, per row."""
        return self._spans

    def run_numbers(self) -> Int[np.ndarray, " blocks"]:
        """For each block, which of `runs` it belongs to.

        >>> Blocks(np.array([[0, 5], [5, 10], [15, 20]])).run_numbers().tolist()
        [0, 0, 1]
        """
        is_first = self.apart | (self._spans[1:, 0] != self._spans[:-1, 1])
        return np.cumsum(np.concatenate([[False], is_first]))[: len(self)]

    def inside(self, begin: int, end: int) -> Int[np.ndarray, "blocks 2"]:
        """The parts of the blocks between two places of the text, (begin, end) per row."""
        first, last = np.searchsorted(self._spans[:, 1], begin, "right"), np.searchsorted(self._spans[:, 0], end)
        cut = np.clip(self._spans[first:last], begin, end)
        return cut[cut[:, 0] < cut[:, 1]].astype(np.int64)

    def runs(self) -> "Iterator[Blocks]":
        """Groups of adjacent blocks: each block begins where the previous one ends. Blocks that are apart are alone.

        >>> [list(run) for run in Blocks(np.array([[0, 5], [5, 10], [15, 20]])).runs()]
        [[(0, 5), (5, 10)], [(15, 20)]]
        """
        borders = np.flatnonzero(self.apart | (self._spans[1:, 0] != self._spans[:-1, 1])) + 1
        return (self[begin:end] for begin, end in pairwise([0, *borders.tolist(), len(self)]) if end > begin)


@checked(first=True)
def split_text(num_characters: Natural, method: Literal["blocks", "tail", "nanogpt"]) -> dict[str, Blocks]:
    """Divide a text into blocks and the blocks into splits.

    `blocks`: one block in ten is for test and one in twenty for validation (at least one each), drawn with seed 0. The
    remainder after the last full block is added to it, so that no split gets a fragment.
    `tail`: the last tenth is for test, the twentieth before it for validation, the rest for training.
    `nanogpt`: the first nine tenths are for training, the rest is both validation and test, as in nanoGPT; selecting by
    this validation loss means selecting on the test split.

    Args:
        num_characters: length of the text.
        method: `"blocks"`, `"tail"` or `"nanogpt"`.

    Returns:
        Split -> its blocks; together they cover every character (exactly once except for `nanogpt`). Blocks are 5,000
        characters long, except the last of the text (`blocks`: up to 9,999) or of a split (`tail`: the rest).

    >>> {split: len(blocks) for split, blocks in split_text(100_000, "blocks").items()}
    {'train': 17, 'validation': 1, 'test': 2}

    Raises:
        UsageError: the text is too short to be split this way.
    """
    return _split_blocks(num_characters) if method == "blocks" else _split_tail(num_characters, method)


def split_blocks(config: CorpusConfig, num_characters: Natural) -> dict[str, Blocks]:
    """The split of a corpus: of a text by its method, of a generated task by sequences (`split_text`)."""
    if config.task is None:
        if config.split in ("works", "one-work"):
            raise UsageError("split: {method} needs the works of the text", method=config.split)
        return split_text(num_characters, config.split)
    splits = _split_blocks(num_characters, config.task.span)
    return {split: Blocks(np.array(blocks), apart=True) for split, blocks in splits.items()}


def _characters(count: int) -> str:
    return ngettext("{number:,} character", "{number:,} characters", count, number=count)


def _split_blocks(num_characters: int, block: int = BLOCK) -> dict[str, Blocks]:
    num_blocks = num_characters // block
    if num_blocks < _MIN_BLOCKS:
        needed = _MIN_BLOCKS * block
        raise UsageError(
            'the text has {characters}; split = "blocks" needs at least {needed:,}; give a '
            'longer text, or use corpus.split = "tail"',
            characters=_characters(num_characters),
            needed=needed,
        )
    order = numpy_stream(SPLIT_SEED, "split").permutation(num_blocks)
    num_test = max(1, (num_blocks + 5) // 10)
    num_validation = max(1, (num_blocks + 10) // 20)
    chosen = {
        "test": order[:num_test],
        "validation": order[num_test : num_test + num_validation],
        "train": order[num_test + num_validation :],
    }
    last = (num_blocks - 1) * block
    return {split: _spans(np.sort(chosen[split]) * block, block, num_characters, last) for split in SPLITS}


def _spans(begins: Int[np.ndarray, " blocks"], block: int, end: int, last: int) -> Blocks:
    """Blocks of `block` characters at these offsets; the last of the text extends to its end."""
    return Blocks(np.stack([begins, np.where(begins == last, end, begins + block)], axis=1))


def _split_tail(num_characters: int, method: str) -> dict[str, Blocks]:
    if num_characters < _MIN_TAIL:
        raise UsageError(
            'the text has {characters}; split = "{method}" needs at least {needed}; give a longer text',
            characters=_characters(num_characters),
            method=method,
            needed=_MIN_TAIL,
        )
    if method == "nanogpt":
        border = int(num_characters * 0.9)
        held_out = _cut(border, num_characters)
        return {"train": _cut(0, border), "validation": held_out, "test": held_out}
    test = num_characters - num_characters // 10
    validation = test - num_characters // 20
    borders = {"train": (0, validation), "validation": (validation, test), "test": (test, num_characters)}
    return {split: _cut(begin, end) for split, (begin, end) in borders.items()}


def whole(num_characters: int) -> Blocks:
    """A whole text as blocks; the last may be shorter.

    >>> list(whole(12_000))
    [(0, 5000), (5000, 10000), (10000, 12000)]
    """
    return _cut(0, num_characters)


def _cut(begin: int, end: int) -> Blocks:
    """A span of text as blocks; the last may be shorter."""
    begins = np.arange(begin, end, BLOCK)
    return Blocks(np.stack([begins, np.minimum(begins + BLOCK, end)], axis=1))
