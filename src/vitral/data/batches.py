"""Tokens of a split, and their windows: random ones for training, consecutive ones for evaluation.

A window of a text is as many tokens as the model reads. Of records each row is a whole one, filled up at its end, and
only the tokens of its answers are targets; those that are longer than the model reads are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.core.streams import numpy_stream
from vitral.data.answers import Answers

Pair = tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]
"""Inputs and targets, int64; the target of a position is the token after it."""
IGNORED = -100
"""The target that does not count, which `torch.nn.functional.cross_entropy` ignores."""
PADDING = -1
"""What fills up the end of a source, or of a text whose label is asked for; no position attends to it."""
_THIN = 50_000


@dataclass(frozen=True, eq=False)
class Split:
    """The tokens of one split (train, validation or test) of a text.

    Attributes:
        tokens: 1-d, unsigned, usually memory-mapped and read-only.
        segments: `[n, 2]` int64, begin and end in `tokens` of each run of adjacent blocks; no window crosses a border.
        answers: of records, the tokens that mark the answers; each segment is a record then.
    """

    tokens: Any
    segments: np.ndarray
    answers: Answers | None = None

    @property
    def lengths(self) -> Int[np.ndarray, " segments"]:
        """The number of tokens of each segment."""
        return self.segments[:, 1] - self.segments[:, 0]


def thinned(split: Split, most_tokens: int | None) -> Split:
    """A split reduced to at most `most_tokens` tokens: evenly spaced segments of it, long ones cut into pieces.

    Records are never cut: there is at least one. A split that is small enough, or any split with `most_tokens` None, is
    returned unchanged.
    """
    lengths = split.lengths
    if most_tokens is None or lengths.sum() <= most_tokens:
        return split
    size = int(lengths.max()) if split.answers else max(1, min(_THIN, most_tokens // 8))
    pieces = -(-lengths // size)
    wanted = max(1, most_tokens * int(pieces.sum()) // int(lengths.sum()))  # short segments give short pieces
    ends = np.cumsum(pieces)
    while True:
        chosen = np.linspace(0, int(ends[-1]), wanted, endpoint=False).astype(np.int64)
        segment = np.searchsorted(ends, chosen, side="right")
        begins = split.segments[segment, 0] + (chosen - (ends - pieces)[segment]) * size
        spans = np.stack([begins, np.minimum(begins + size, split.segments[segment, 1])], axis=1)
        thin = replace(split, segments=spans)
        taken = int(thin.lengths.sum())
        if taken <= most_tokens or wanted == 1:
            return thin
        wanted = max(1, min(wanted - 1, wanted * most_tokens // taken))


Indices = tuple[Int[np.ndarray, "rows source"], Int[np.ndarray, "rows longer"]]
"""Of the tokens of a batch, in the tokens of a split, -1 for none: those of the sources, and the others."""


@dataclass(frozen=True)
class Reading:
    """How much a model reads of a record.

    Attributes:
        context_length: tokens of the record without its last one; of an encoder-decoder, of its answer alone.
        source_length: of an encoder-decoder, tokens before the answer, which its encoder reads.
        by_label: whether the model reads the text alone, and its target is the number of the label.
    """

    context_length: int
    source_length: int | None = None
    by_label: bool = False

    def fits(self, split: Split) -> Bool[np.ndarray, " records"]:
        """Whether the model reads the whole of each record of a split."""
        answers, lengths = split.answers, split.lengths
        if answers is None or (self.source_length is None and not self.by_label):
            return lengths <= self.context_length + 1
        sources = source_lengths(split)
        if self.by_label:
            return sources <= self.context_length
        return (sources <= (self.source_length or 0)) & (lengths - sources <= self.context_length + 1)

    def counts(self, split: Split) -> Int[np.ndarray, " segments"]:
        """Number of windows in each segment: one for each possible first input, or for a record that fits."""
        if split.answers is not None:
            return self.fits(split).astype(np.int64)
        return np.maximum(split.lengths - self.context_length, 0)

    def refusal(self, split: Split) -> str:
        """The message for a split without a window, or without a record that is short enough."""
        if split.answers is None:
            return too_short(split, self.context_length)
        return _(
            "the shortest record of a split has {shortest:,} tokens, more than the model reads (context_length = "
            "{context_length:,}); use a larger context_length, and of an encoder-decoder a larger source_length",
            shortest=min(split.lengths.tolist(), default=0),
            context_length=self.context_length,
        )

    def indices(self, split: Split, windows: Int[np.ndarray, "rows 2"]) -> Indices:
        """The indices of the tokens of some windows, given by begin and end, in rows filled up at their ends.

        The windows of records are whole ones.
        """
        begins, ends = windows.T
        answers = begins
        if split.answers is not None and (self.by_label or self.source_length is not None):
            is_answer = split.tokens[_rows(begins, ends)] == split.answers.opens
            answers = begins + np.argmax(is_answer, axis=1)
        return _rows(begins, answers, self.source_length), _rows(answers, ends)

    def pair(self, split: Split, indices: Indices) -> Pair:
        """The inputs and targets at some indices of a split.

        The inputs of an encoder-decoder are its source, filled up with `PADDING`, and after it what the decoder reads.
        The targets of labels are their numbers, [rows].
        """
        read = [(split.tokens[each].astype(np.int64), each < 0) for each in indices]
        source, tokens = (np.where(empty, filler, row) for (row, empty), filler in zip(read, (PADDING, 0), strict=True))
        if self.by_label and split.answers is not None:
            return torch.from_numpy(source), torch.tensor([split.answers.label(row) for row in tokens])
        targets = (
            tokens if split.answers is None else np.where(split.answers.scored(tokens) & ~read[1][1], tokens, IGNORED)
        )
        inputs = np.concatenate([source, tokens[:, :-1]], axis=1)
        return torch.from_numpy(inputs), torch.from_numpy(np.ascontiguousarray(targets[:, 1:]))


def _rows(
    begins: Int[np.ndarray, " rows"], ends: Int[np.ndarray, " rows"], length: int | None = None
) -> Int[np.ndarray, "rows time"]:
    """The indices from each begin to its end, -1 after it; rows of one length, the longest one's if none is given."""
    indices = begins[:, None] + np.arange(int((ends - begins).max()) if length is None else length)
    return np.where(indices < ends[:, None], indices, -1)


def source_lengths(split: Split) -> Int[np.ndarray, " segments"]:
    """The number of tokens before the first answer of each record; of a text 0."""
    begins = split.segments[:, 0]
    if split.answers is None:
        return np.zeros_like(begins)
    opens = np.flatnonzero(np.asarray(split.tokens) == split.answers.opens)
    return opens[np.searchsorted(opens, begins)] - begins


class Batches:
    """Batches of random windows of a split, all windows equally likely; each batch is a function of its step.

    A window is `context_length` inputs and the token after each; it lies within one segment. Of records a window is a
    whole one (`Reading`).

    Attributes:
        num_windows: number of windows in the split.
    """

    def __init__(
        self,
        split: Split,
        *,
        context_length: int | Reading,
        batch_size: int,
        seed: int,
        accumulation: int = 1,
    ) -> None:
        """Count the windows of a split.

        Args:
            split: the tokens.
            context_length: inputs per window; or how a model reads records.
            batch_size: windows per batch.
            seed: the run's seed.
            accumulation: batches per step.

        Raises:
            UsageError: no segment is long enough for a window.
        """
        self.split, self.seed = split, seed
        self.batch_size, self.accumulation, self.reading = batch_size, accumulation, reading_of(context_length)
        self.context_length = self.reading.context_length
        self._counts = self._count()
        self._ends = np.cumsum(self._counts)
        self.num_windows = int(self._counts.sum())
        if self.num_windows == 0:
            raise UsageError(self.reading.refusal(split))

    def batch(self, step: int, micro: int = 0) -> Pair:
        """The batch of one step.

        Args:
            step: the optimizer step.
            micro: index of the batch within the step (gradient accumulation).

        Returns:
            Inputs and targets, which depend only on (seed, step, micro).
        """
        return self.reading.pair(self.split, self.reading.indices(self.split, self._windows(step, micro)))

    def _count(self) -> Int[np.ndarray, " segments"]:
        return self.reading.counts(self.split)

    def _windows(self, step: int, micro: int) -> Int[np.ndarray, "batch 2"]:
        stream = numpy_stream(self.seed, "batches", step, micro)
        return self._numbered(stream.integers(self.num_windows, size=self.batch_size))

    def _numbered(
        self, windows: Int[np.ndarray, " some"], stride: int = 1, shift: Any = 0
    ) -> Int[np.ndarray, "some 2"]:
        """Windows by their numbers: those of a segment begin `stride` tokens apart, the first after its `shift`."""
        segment = np.searchsorted(self._ends, windows, side="right")
        inside = windows - (self._ends - self._counts)[segment]
        chosen = self.split.segments[segment]
        if self.split.answers is not None:
            return chosen
        begins = chosen[:, 0] + np.broadcast_to(shift, self._counts.shape)[segment] + inside * stride
        return np.stack([begins, begins + self.context_length + 1], axis=1)


class ShuffledBatches(Batches):
    """Batches of consecutive windows of a split in passes: each window once in a pass, in a new random order.

    The windows of a segment follow one another; what is left of it is shared out before the first and after the last,
    differently in each pass. `num_windows` is the number of windows in a pass.
    """

    _pass = -1

    def _count(self) -> Int[np.ndarray, " segments"]:
        targets = np.maximum(self.split.lengths - 1, 0)
        self._left = targets % self.context_length
        return targets // self.context_length if self.split.answers is None else super()._count()

    def _windows(self, step: int, micro: int) -> Int[np.ndarray, "batch 2"]:
        first = (step * self.accumulation + micro) * self.batch_size
        begun, indices = np.divmod(np.arange(first, first + self.batch_size), self.num_windows)
        return np.concatenate([self._of_pass(number, indices[begun == number]) for number in np.unique(begun).tolist()])

    def _of_pass(self, number: int, indices: Int[np.ndarray, " some"]) -> Int[np.ndarray, "some 2"]:
        """The windows at these indices of one pass."""
        if number != self._pass:
            stream = numpy_stream(self.seed, "windows", number)
            self._order, self._shift = stream.permutation(self.num_windows), stream.integers(self._left + 1)
            self._pass = number
        return self._numbered(self._order[indices], self.context_length, self._shift)


def windows(split: Split, context_length: int | Reading, batch_size: int) -> Iterator[Pair]:
    """Consecutive windows over every segment: each token except a segment's first is a target exactly once.

    All windows of a batch have the same length: first `context_length`, then the shorter remainders at the ends of
    segments, longest first. Of records each window is a whole one, longest first, without those that are too long.

    Args:
        split: the tokens.
        context_length: inputs of a full window; or how a model reads records.
        batch_size: maximum number of windows per batch.

    Yields:
        Inputs and targets.

    Raises:
        UsageError: a size is not positive.
    """
    reading = reading_of(context_length)
    for indices in window_indices(split, reading, batch_size):
        yield reading.pair(split, indices)


def window_indices(split: Split, reading: Reading, batch_size: int) -> Iterator[Indices]:
    """The indices of `windows`."""
    for same in _consecutive(split, reading):
        for first in range(0, len(same), batch_size):
            yield reading.indices(split, same[first : first + batch_size])


def _consecutive(split: Split, reading: Reading) -> list[Int[np.ndarray, "windows 2"]]:
    """The windows of `windows`, longest first: those of a text by their length, records all together."""
    rows = split.segments[reading.fits(split)]
    if split.answers is None:
        length = reading.context_length
        begins = [np.arange(begin, end - 1, length) for begin, end in split.segments]
        ends = [np.minimum(each + length + 1, end) for each, end in zip(begins, split.segments[:, 1], strict=True)]
        rows = np.stack([np.concatenate([*each, split.segments[:0, 0]]) for each in (begins, ends)], axis=1)
    lengths = rows[:, 1] - rows[:, 0]
    order = np.argsort(-lengths, kind="stable")
    borders = [] if split.answers is not None else np.flatnonzero(np.diff(lengths[order])) + 1
    return np.split(rows[order], borders)


def reading_of(context_length: int | Reading) -> Reading:
    """How a model of this context length reads records, unless it is said."""
    return context_length if isinstance(context_length, Reading) else Reading(context_length)


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
