"""Tokens of a split, and their windows: random ones for training, consecutive ones for evaluation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.core.streams import numpy_stream

Pair = tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]
"""Inputs and targets, int64; the target of a position is the token after it."""
_THIN = 50_000


@dataclass(frozen=True, eq=False)
class Split:
    """The tokens of one split (train, validation or test) of a text.

    Attributes:
        tokens: 1-d, unsigned, usually memory-mapped and read-only.
        segments: `[n, 2]` int64, begin and end in `tokens` of each run of adjacent blocks; no window crosses a border.
    """

    tokens: Any
    segments: np.ndarray

    @property
    def lengths(self) -> Int[np.ndarray, " segments"]:
        """The number of tokens of each segment."""
        return self.segments[:, 1] - self.segments[:, 0]


def thinned(split: Split, most_tokens: int | None) -> Split:
    """A split reduced to at most `most_tokens` tokens: evenly spaced segments of it, long ones cut into pieces.

    A split that is small enough, or any split with `most_tokens` None, is returned unchanged.
    """
    lengths = split.lengths
    if most_tokens is None or lengths.sum() <= most_tokens:
        return split
    size = max(1, min(_THIN, most_tokens // 8))
    pieces = -(-lengths // size)
    wanted = max(1, most_tokens * int(pieces.sum()) // int(lengths.sum()))  # short segments give short pieces
    while True:
        thin = Split(split.tokens, _spread(split.segments, pieces, size, wanted))
        taken = int(thin.lengths.sum())
        if taken <= most_tokens:
            return thin
        wanted = max(1, min(wanted - 1, wanted * most_tokens // taken))


def _spread(
    segments: Int[np.ndarray, "segments 2"], pieces: Int[np.ndarray, " segments"], size: int, wanted: int
) -> Int[np.ndarray, "wanted 2"]:
    """`wanted` evenly spaced pieces of `size` tokens of the segments."""
    ends = np.cumsum(pieces)
    chosen = np.linspace(0, int(ends[-1]), wanted, endpoint=False).astype(np.int64)
    segment = np.searchsorted(ends, chosen, side="right")
    begins = segments[segment, 0] + (chosen - (ends - pieces)[segment]) * size
    return np.stack([begins, np.minimum(begins + size, segments[segment, 1])], axis=1)


class Batches:
    """Batches of random windows of a split, all windows equally likely; each batch is a function of its step.

    A window is `context_length` inputs and the token after each; it lies within one segment.

    Attributes:
        num_windows: number of windows in the split.
    """

    def __init__(self, split: Split, *, context_length: int, batch_size: int, seed: int, accumulation: int = 1) -> None:
        """Count the windows of a split.

        Args:
            split: the tokens.
            context_length: inputs per window.
            batch_size: windows per batch.
            seed: the run's seed.
            accumulation: batches per step.

        Raises:
            UsageError: no segment is long enough for a window.
        """
        self.split, self.seed = split, seed
        self.context_length, self.batch_size, self.accumulation = context_length, batch_size, accumulation
        self._counts = self._count()
        self._ends = np.cumsum(self._counts)
        self.num_windows = int(self._counts.sum())
        if self.num_windows == 0:
            raise UsageError(too_short(split, context_length))

    def batch(self, step: int, micro: int = 0) -> Pair:
        """The batch of one step.

        Args:
            step: the optimizer step.
            micro: index of the batch within the step (gradient accumulation).

        Returns:
            Inputs and targets, which depend only on (seed, step, micro).
        """
        return _pair(self.split.tokens[self._starts(step, micro)[:, None] + np.arange(self.context_length + 1)])

    def _count(self) -> Int[np.ndarray, " segments"]:
        return count_windows(self.split, self.context_length)

    def _starts(self, step: int, micro: int) -> Int[np.ndarray, " batch"]:
        stream = numpy_stream(self.seed, "batches", step, micro)
        segment, inside = self._placed(stream.integers(self.num_windows, size=self.batch_size))
        return self.split.segments[segment, 0] + inside

    def _placed(self, window: Int[np.ndarray, " some"]) -> tuple[np.ndarray, np.ndarray]:
        """The segment of each window of the split, and its number there."""
        segment = np.searchsorted(self._ends, window, side="right")
        return segment, window - (self._ends - self._counts)[segment]


class ShuffledBatches(Batches):
    """Batches of consecutive windows of a split in passes: each window once in a pass, in a new random order.

    The windows of a segment follow one another; what is left of it is shared out before the first and after the last,
    differently in each pass. `num_windows` is the number of windows in a pass.
    """

    _pass = -1

    def _count(self) -> Int[np.ndarray, " segments"]:
        targets = np.maximum(self.split.lengths - 1, 0)
        counts = targets // self.context_length
        self._left = targets - counts * self.context_length
        return counts

    def _starts(self, step: int, micro: int) -> Int[np.ndarray, " batch"]:
        first = (step * self.accumulation + micro) * self.batch_size
        begun, places = np.divmod(np.arange(first, first + self.batch_size), self.num_windows)
        return np.concatenate([self._of_pass(number, places[begun == number]) for number in np.unique(begun).tolist()])

    def _of_pass(self, number: int, places: Int[np.ndarray, " some"]) -> Int[np.ndarray, " some"]:
        """Where the windows at these places of one pass begin."""
        if number != self._pass:
            stream = numpy_stream(self.seed, "windows", number)
            self._order, self._shift = stream.permutation(self.num_windows), stream.integers(self._left + 1)
            self._pass = number
        segment, inside = self._placed(self._order[places])
        return self.split.segments[segment, 0] + self._shift[segment] + inside * self.context_length


def windows(split: Split, context_length: int, batch_size: int) -> Iterator[Pair]:
    """Consecutive windows over every segment: each token except a segment's first is a target exactly once.

    All windows of a batch have the same length: first `context_length`, then the shorter remainders at the ends of
    segments, longest first.

    Args:
        split: the tokens.
        context_length: inputs of a full window.
        batch_size: maximum number of windows per batch.

    Yields:
        Inputs and targets.

    Raises:
        UsageError: a size is not positive.
    """
    tokens = split.tokens
    for length, begins in window_begins(split, context_length):
        offsets = np.arange(length + 1)
        for first in range(0, begins.size, batch_size):
            yield _pair(tokens[begins[first : first + batch_size, None] + offsets])


def window_begins(split: Split, context_length: int) -> list[tuple[int, Int[np.ndarray, " windows"]]]:
    """The windows of `windows` by their length, longest first: where each begins in the split's tokens."""
    begins: dict[int, list[np.ndarray]] = {}
    for begin, end in split.segments.tolist():
        whole, rest = divmod(max(end - begin - 1, 0), context_length)
        begins.setdefault(context_length, []).append(begin + context_length * np.arange(whole))
        if rest:
            begins.setdefault(rest, []).append(np.array([begin + context_length * whole]))
    return [(length, np.concatenate(begins[length])) for length in sorted(begins, reverse=True)]


def count_windows(split: Split, context_length: int) -> np.ndarray:
    """Number of windows in each segment, 1-d int64: one for each possible first input."""
    return np.maximum(split.lengths - context_length, 0)


def too_short(split: Split, context_length: int) -> str:
    """The message for a split without a window: the number of tokens needed and available."""
    longest = int(split.lengths.max(initial=0))
    return _(
        "a window of context_length = {context_length:,} needs {needed:,} tokens in a row, this split of the "
        "text has at most {longest:,}; use a smaller context_length or a longer text",
        context_length=context_length,
        needed=context_length + 1,
        longest=longest,
    )


def _pair(rows: np.ndarray) -> Pair:
    """Rows of n + 1 tokens as n inputs and n targets."""
    tokens = torch.from_numpy(rows.astype(np.int64))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
