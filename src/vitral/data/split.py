"""Which characters of a text are for training, which for validation, which for test: decided before tokenization.

A text is cut into blocks, and every block belongs to one part. The split does not depend on the seed of a run, so
that all runs on a text are measured on the same characters.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
from jaxtyping import Int

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream

PARTS = ("train", "validation", "test")
BLOCK = 5_000
"""Characters of a block."""
SPLIT_SEED = 0
"""The seed of the split, whatever the seed of the run."""

_MIN_BLOCKS = 3
_MIN_TAIL = 20


class Blocks(Sequence[tuple[int, int]]):
    """Blocks of a text as (begin, end), sorted; of a long text there are millions, so they lie in one array."""

    def __init__(self, spans: Int[np.ndarray, "blocks 2"]) -> None:
        """Hold these."""
        self._spans = spans

    def __len__(self) -> int:
        """How many."""
        return len(self._spans)

    @overload
    def __getitem__(self, place: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, place: slice) -> "Blocks": ...
    def __getitem__(self, place: int | slice) -> "tuple[int, int] | Blocks":
        """One block, or some."""
        if isinstance(place, slice):
            return Blocks(self._spans[place])
        begin, end = self._spans[place].tolist()
        return begin, end

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Each in turn."""
        return ((int(begin), int(end)) for begin, end in self._spans)

    def __eq__(self, other: object) -> bool:
        """Whether these are the same blocks; a list of them counts too."""
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(tuple.__eq__, self, other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def num_characters(self) -> int:
        """Characters of all together."""
        return int((self._spans[:, 1] - self._spans[:, 0]).sum())

    def runs(self) -> "Iterator[Blocks]":
        """The blocks in runs in which each begins where the one before it ends.

        >>> [list(run) for run in Blocks(np.array([[0, 5], [5, 10], [15, 20]])).runs()]
        [[(0, 5), (5, 10)], [(15, 20)]]
        """
        borders = np.flatnonzero(self._spans[1:, 0] != self._spans[:-1, 1]) + 1
        return (self[begin:end] for begin, end in pairwise([0, *borders.tolist(), len(self)]) if end > begin)


def split_text(num_characters: int, method: str) -> dict[str, Blocks]:
    """Divide the characters of a text into blocks and the blocks into parts.

    `blocks`: one block in ten is for test and one in twenty for validation (at least one of each), drawn by a stream
    of seed 0. What is left over after the last whole block belongs to it, so that no part can be left with a scrap.
    `tail`: the last tenth is for test, the twentieth before it for validation, the rest for training.
    `nanogpt`: the first nine tenths are for training, the rest is validation and test at once, as nanoGPT has it: what
    is chosen by such a validation loss has been chosen on the test.

    Args:
        num_characters: length of the text.
        method: `"blocks"`, `"tail"` or `"nanogpt"`.

    Returns:
        Part -> its blocks; together they cover every character (once, but for `nanogpt`). Blocks are 5,000
        characters long, except the last of the text (`blocks`: up to 9,999) or of a part (`tail`: the rest).

    >>> {part: len(blocks) for part, blocks in split_text(100_000, "blocks").items()}
    {'train': 17, 'validation': 1, 'test': 2}

    Raises:
        UsageError: the text is too short to be split this way.
    """
    return _split_blocks(num_characters) if method == "blocks" else _split_tail(num_characters, method)


def _split_blocks(num_characters: int) -> dict[str, Blocks]:
    num_blocks = num_characters // BLOCK
    if num_blocks < _MIN_BLOCKS:
        needed = _MIN_BLOCKS * BLOCK
        raise UsageError(
            f'the text has {num_characters:,} characters, split = "blocks" needs at least {needed:,}; '
            'give a longer text or use split = "tail"'
        )
    order = numpy_stream(SPLIT_SEED, "split").permutation(num_blocks)
    num_test = max(1, (num_blocks + 5) // 10)
    num_validation = max(1, (num_blocks + 10) // 20)
    chosen = {
        "test": order[:num_test],
        "validation": order[num_test : num_test + num_validation],
        "train": order[num_test + num_validation :],
    }
    return {part: _spans(np.sort(chosen[part]) * BLOCK, num_characters, (num_blocks - 1) * BLOCK) for part in PARTS}


def _spans(begins: Int[np.ndarray, " blocks"], end: int, last: int) -> Blocks:
    """The blocks that begin there, BLOCK long, but for the last of the text, which reaches to its end."""
    return Blocks(np.stack([begins, np.where(begins == last, end, begins + BLOCK)], axis=1))


def _split_tail(num_characters: int, method: str) -> dict[str, Blocks]:
    if num_characters < _MIN_TAIL:
        raise UsageError(
            f'the text has {num_characters:,} characters, split = "{method}" needs at least {_MIN_TAIL}; '
            "give a longer text"
        )
    if method == "nanogpt":
        border = int(num_characters * 0.9)
        held_out = _cut(border, num_characters)
        return {"train": _cut(0, border), "validation": held_out, "test": held_out}
    test = num_characters - num_characters // 10
    validation = test - num_characters // 20
    borders = {"train": (0, validation), "validation": (validation, test), "test": (test, num_characters)}
    return {part: _cut(begin, end) for part, (begin, end) in borders.items()}


def whole(num_characters: int) -> Blocks:
    """A whole text as blocks, the last of which may be shorter.

    >>> list(whole(12_000))
    [(0, 5000), (5000, 10000), (10000, 12000)]
    """
    return _cut(0, num_characters)


def _cut(begin: int, end: int) -> Blocks:
    """One stretch as blocks, the last of which may be shorter."""
    begins = np.arange(begin, end, BLOCK)
    return Blocks(np.stack([begins, np.minimum(begins + BLOCK, end)], axis=1))
