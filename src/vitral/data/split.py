"""The train, validation and test split of a text, in characters, made before tokenization.

A text is cut into blocks, and every block belongs to one split. The split does not depend on the seed of a run, so all
runs on a text are evaluated on the same characters.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int

from vitral.core.errors import UsageError
from vitral.core.language import _, ngettext
from vitral.core.streams import numpy_stream

SPLITS = ("train", "validation", "test")
BLOCK = 5_000
"""Characters per block."""
SPLIT_SEED = 0
"""The seed of the split, independent of the seed of the run."""

_MIN_BLOCKS = 3
_MIN_TAIL = 20


@dataclass(frozen=True, eq=False)
class Blocks:
    """Sorted blocks of a text, stored in one array since a long text has millions.

    Attributes:
        spans: begin and end of each, per row.
        apart: whether each is a segment by itself, even where the next one begins at its end.
    """

    spans: Int[np.ndarray, "blocks 2"]
    apart: bool = False

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.spans)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Begin and end of each block."""
        return map(tuple, self.spans.tolist())

    @property
    def num_characters(self) -> int:
        """Total number of characters."""
        return int((self.spans[:, 1] - self.spans[:, 0]).sum())

    def chosen(self, indices: Any) -> "Blocks":
        """Some of the blocks: those at an array of indices, or of a slice."""
        return Blocks(self.spans[indices], self.apart)

    @property
    def distinct(self) -> "Blocks":
        """Each block once."""
        return self.chosen(np.unique(self.spans[:, 0], return_index=True)[1])

    @property
    def is_first(self) -> Bool[np.ndarray, " blocks"]:
        """For each block, whether one of `runs` begins with it.

        >>> Blocks(np.array([[0, 5], [5, 10], [15, 20]])).is_first.tolist()
        [True, False, True]
        """
        return np.append(True, self.apart | (self.spans[1:, 0] != self.spans[:-1, 1]))[: len(self)]

    def inside(self, begin: int, end: int) -> Int[np.ndarray, "blocks 2"]:
        """The parts of the blocks between two places of the text, (begin, end) per row."""
        first, last = np.searchsorted(self.spans[:, 1], begin, "right"), np.searchsorted(self.spans[:, 0], end)
        cut = np.clip(self.spans[first:last], begin, end)
        return cut[cut[:, 0] < cut[:, 1]].astype(np.int64)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Begin and end of each group of blocks of which each begins where the one before it ends.

        >>> list(Blocks(np.array([[0, 5], [5, 10], [15, 20]])).runs())
        [(0, 10), (15, 20)]
        """
        is_last = np.roll(self.is_first, -1)
        return zip(self.spans[self.is_first, 0].tolist(), self.spans[is_last, 1].tolist(), strict=True)


@dataclass(frozen=True)
class Work:
    """A piece of a text: characters `begin` to `end`."""

    title: str
    begin: int
    end: int

    @property
    def num_characters(self) -> int:
        """Its length."""
        return self.end - self.begin


def split_text(num_characters: int, method: Literal["blocks", "tail", "nanogpt"]) -> dict[str, Blocks]:
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
    needed = _MIN_BLOCKS * BLOCK if method == "blocks" else _MIN_TAIL
    if num_characters < needed:
        raise UsageError(
            'the text has {characters}; split = "{method}" needs at least {needed:,}; give a longer text{instead}',
            characters=ngettext("{number:,} character", "{number:,} characters", num_characters, number=num_characters),
            method=method,
            needed=needed,
            instead=_(', or use corpus.split = "tail"') if method == "blocks" else "",
        )
    if method == "blocks":
        blocks = in_blocks([(0, num_characters)])
        return dealt(blocks, "split", (len(blocks) + 5) // 10, (len(blocks) + 10) // 20)
    if method == "nanogpt":
        border = int(num_characters * 0.9)
        held_out = whole(num_characters, border)
        return {"train": whole(border), "validation": held_out, "test": held_out}
    test = num_characters - num_characters // 10
    validation = test - num_characters // 20
    borders = {"train": (0, validation), "validation": (validation, test), "test": (test, num_characters)}
    return {split: whole(end, begin) for split, (begin, end) in borders.items()}


def dealt(blocks: Blocks, purpose: str, num_test: int, num_validation: int) -> dict[str, Blocks]:
    """Blocks for test and validation, at least one each, in the random order of a purpose; the rest is for training."""
    order = numpy_stream(SPLIT_SEED, purpose).permutation(len(blocks))
    test, validation, train = np.split(order, np.cumsum([max(1, num_test), max(1, num_validation)]))
    chosen = {"train": train, "validation": validation, "test": test}
    return {split: blocks.chosen(np.sort(indices)) for split, indices in chosen.items()}


def in_blocks(spans: Iterable[tuple[int, int]]) -> Blocks:
    """Spans of text in blocks; the last of a span has what remains, and is shorter or longer."""
    cut = [np.zeros((0, 2), dtype=np.int64)]
    for begin, end in spans:
        begins = np.arange(begin, max(begin, end - BLOCK) + 1, BLOCK)
        cut.append(np.stack([begins, np.append(begins[1:], end)], axis=1))
    return Blocks(np.concatenate(cut))


def in_a_row(lengths: Iterable[int]) -> Blocks | None:
    """Records of these lengths, one after the other; None if there are none."""
    sizes = np.fromiter(lengths, np.int64)
    ends = sizes.cumsum()
    return Blocks(np.stack([ends - sizes, ends], axis=1), apart=True) if len(ends) else None


def whole(end: int, begin: int = 0) -> Blocks:
    """A text, or a span of it, as blocks; the last may be shorter.

    >>> list(whole(12_000))
    [(0, 5000), (5000, 10000), (10000, 12000)]
    """
    begins = np.arange(begin, end, BLOCK)
    return Blocks(np.stack([begins, np.minimum(begins + BLOCK, end)], axis=1))
