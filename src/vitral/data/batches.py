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


def thinned(split: Split, most_tokens: int | None) -> Split:
    """A split reduced to at most `most_tokens` tokens: evenly spaced segments of it, long ones cut into pieces.

    A split that is small enough, or any split with `most_tokens` None, is returned unchanged.
    """
    lengths = split.segments[:, 1] - split.segments[:, 0]
    if most_tokens is None or lengths.sum() <= most_tokens:
        return split
    size = max(1, min(_THIN, most_tokens // 8))
    pieces = -(-lengths // size)
    wanted = max(1, most_tokens * int(pieces.sum()) // int(lengths.sum()))  # short segments give short pieces
    while True:
        segments = _spread(split.segments, pieces, size, wanted)
        taken = int((segments[:, 1] - segments[:, 0]).sum())
        if taken <= most_tokens:
            return Split(split.tokens, segments)
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

    def __init__(self, split: Split, *, context_length: int, batch_size: int, seed: int) -> None:
        """Count the windows of a split.

        Args:
            split: the tokens.
            context_length: inputs per window.
            batch_size: windows per batch.
            seed: the run's seed.

        Raises:
            UsageError: a size is not positive, or no segment is long enough for a window.
        """
        counts = count_windows(split, context_length)
        self.num_windows = int(counts.sum())
        if self.num_windows == 0:
            raise UsageError(too_short(split, context_length))
        self._tokens = split.tokens
        self._begins = split.segments[:, 0]
        self._ends = np.cumsum(counts)
        self._counts = counts
        self._offsets = np.arange(context_length + 1)
        self._batch_size = batch_size
        self._seed = seed

    def batch(self, step: int, micro: int = 0) -> Pair:
        """The batch of one step.

        Args:
            step: the optimizer step.
            micro: index of the batch within the step (gradient accumulation).

        Returns:
            Inputs and targets, which depend only on (seed, step, micro).
        """
        stream = numpy_stream(self._seed, "batches", step, micro)
        drawn = stream.integers(self.num_windows, size=self._batch_size)
        segment = np.searchsorted(self._ends, drawn, side="right")
        starts = self._begins[segment] + drawn - (self._ends - self._counts)[segment]
        return _pair(self._tokens[starts[:, None] + self._offsets])


class ShuffledBatches:
    """Batches of consecutive windows of a split in passes: each window once in a pass, in a new random order.

    A window is `context_length` inputs and the token after each. The windows of a segment follow one another; what is
    left of it is shared out before the first and after the last, differently in each pass. Each batch is a function of
    its step.

    Attributes:
        num_windows: number of windows in a pass.
    """

    def __init__(self, split: Split, *, context_length: int, batch_size: int, accumulation: int, seed: int) -> None:
        """Count the windows of a pass.

        Args:
            split: the tokens.
            context_length: inputs per window.
            batch_size: windows per batch.
            accumulation: batches per step.
            seed: the run's seed.

        Raises:
            UsageError: a size is not positive, or no segment is long enough for a window.
        """
        lengths = split.segments[:, 1] - split.segments[:, 0]
        counts = np.maximum(lengths - 1, 0) // context_length
        self.num_windows = int(counts.sum())
        if self.num_windows == 0:
            raise UsageError(too_short(split, context_length))
        self._tokens = split.tokens
        self._begins = split.segments[:, 0]
        self._left = np.maximum(lengths - 1, 0) - counts * context_length
        self._ends, self._counts = np.cumsum(counts), counts
        self._context_length, self._batch_size, self._accumulation = context_length, batch_size, accumulation
        self._seed, self._pass = seed, -1
        self._order = self._shift = np.empty(0, dtype=np.int64)

    def batch(self, step: int, micro: int = 0) -> Pair:
        """The batch of one step.

        Args:
            step: the optimizer step.
            micro: index of the batch within the step (gradient accumulation).

        Returns:
            Inputs and targets, which depend only on (seed, step, micro).
        """
        first = (step * self._accumulation + micro) * self._batch_size
        begun, places = np.divmod(np.arange(first, first + self._batch_size), self.num_windows)
        starts = np.concatenate([self._starts(places[begun == number], number) for number in np.unique(begun).tolist()])
        return _pair(self._tokens[starts[:, None] + np.arange(self._context_length + 1)])

    def _starts(self, places: Int[np.ndarray, " some"], number: int) -> Int[np.ndarray, " some"]:
        """Where the windows at these places of one pass begin."""
        if number != self._pass:
            stream = numpy_stream(self._seed, "windows", number)
            self._order, self._shift = stream.permutation(self.num_windows), stream.integers(self._left + 1)
            self._pass = number
        window = self._order[places]
        segment = np.searchsorted(self._ends, window, side="right")
        inside = window - (self._ends - self._counts)[segment]
        return self._begins[segment] + self._shift[segment] + inside * self._context_length


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
    lengths = split.segments[:, 1] - split.segments[:, 0]
    return np.maximum(lengths - context_length, 0)


def too_short(split: Split, context_length: int) -> str:
    """The message for a split without a window: the number of tokens needed and available."""
    longest = int((split.segments[:, 1] - split.segments[:, 0]).max(initial=0))
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
