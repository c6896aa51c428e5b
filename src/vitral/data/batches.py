"""Tokens of a split, and their windows: random ones for training, consecutive ones for evaluation.

A window of a text is as many tokens as the model reads. Of records each row is a whole one, filled up at its end, and
only the tokens of its answers are targets; those that are longer than the model reads are left out.
"""

from collections.abc import Iterator, Sequence
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
    while True:
        thin = replace(split, segments=_spread(split.segments, pieces, size, wanted))
        taken = int(thin.lengths.sum())
        if taken <= most_tokens or wanted == 1:
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


Places = tuple[Int[np.ndarray, "rows source"], Int[np.ndarray, "rows longer"]]
"""Where the tokens of a batch stand in the tokens of a split, -1 for none: those of the sources, and the others."""


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

    def placed(self, split: Split, records: Int[np.ndarray, " rows"]) -> Places:
        """The places of some records, by their numbers, each in a row that is filled up at its end."""
        sources, rest = list[np.ndarray](), list[np.ndarray]()
        opens = split.answers.opens if split.answers and (self.by_label or self.source_length is not None) else -1
        for begin, end in split.segments[records].tolist():
            at = begin + int(np.argmax(split.tokens[begin:end] == opens))
            sources.append(np.arange(begin, at))
            rest.append(np.arange(at, end))
        return _filled(sources, self.source_length), _filled(rest)


def source_lengths(split: Split) -> Int[np.ndarray, " segments"]:
    """The number of tokens before the first answer of each record; of a text 0."""
    begins = split.segments[:, 0]
    if split.answers is None:
        return np.zeros_like(begins)
    opens = np.flatnonzero(np.asarray(split.tokens) == split.answers.opens)
    return opens[np.searchsorted(opens, begins)] - begins


def _filled(rows: Sequence[Int[np.ndarray, " time"]], length: int | None = None) -> Int[np.ndarray, "rows time"]:
    """Rows of one length, the longest one's if none is given, filled up at their ends."""
    filled = np.full((len(rows), max(map(len, rows)) if length is None else length), -1)
    for place, row in zip(filled, rows, strict=True):
        place[: len(row)] = row
    return filled


def pair_of(split: Split, places: Places, *, by_label: bool = False) -> Pair:
    """The inputs and targets at some places.

    The inputs of an encoder-decoder are its source, filled up with `PADDING`, and after it what the decoder reads. The
    targets of labels are their numbers, [rows].

    Args:
        split: with the tokens.
        places: of a batch.
        by_label: see `Reading`.
    """
    read = [(split.tokens[each].astype(np.int64), each < 0) for each in places]
    source, told = (np.where(empty, filler, row) for (row, empty), filler in zip(read, (PADDING, 0), strict=True))
    if by_label and split.answers is not None:
        return torch.from_numpy(source), torch.tensor([split.answers.label(row) for row in told])
    targets = told if split.answers is None else np.where(split.answers.scored(told) & ~read[1][1], told, IGNORED)
    inputs = np.concatenate([source, told[:, :-1]], axis=1)
    return torch.from_numpy(inputs), torch.from_numpy(np.ascontiguousarray(targets[:, 1:]))


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
            raise UsageError(no_window(split, self.reading))

    def batch(self, step: int, micro: int = 0) -> Pair:
        """The batch of one step.

        Args:
            step: the optimizer step.
            micro: index of the batch within the step (gradient accumulation).

        Returns:
            Inputs and targets, which depend only on (seed, step, micro).
        """
        starts = self._starts(step, micro)
        if self.split.answers is None:
            places = _in_text(starts, self.context_length)
        else:
            places = self.reading.placed(self.split, np.searchsorted(self.split.segments[:, 0], starts))
        return pair_of(self.split, places, by_label=self.reading.by_label)

    def _count(self) -> Int[np.ndarray, " segments"]:
        return count_windows(self.split, self.reading)

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
        if self.split.answers is not None:
            counts = count_windows(self.split, self.reading)
            self._left = np.zeros_like(counts)
            return counts
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
    for places in window_places(split, reading, batch_size):
        yield pair_of(split, places, by_label=reading.by_label)


def window_places(split: Split, context_length: int | Reading, batch_size: int) -> Iterator[Places]:
    """The places of `windows`."""
    reading = reading_of(context_length)
    if split.answers is not None:
        numbers = np.flatnonzero(reading.fits(split))
        numbers = numbers[np.argsort(-split.lengths[numbers], kind="stable")]
        for first in range(0, len(numbers), batch_size):
            yield reading.placed(split, numbers[first : first + batch_size])
        return
    for length, begins in window_begins(split, reading.context_length):
        for first in range(0, begins.size, batch_size):
            yield _in_text(begins[first : first + batch_size], length)


def _in_text(begins: Int[np.ndarray, " rows"], length: int) -> Places:
    """The places of windows of a text."""
    return np.empty((len(begins), 0), dtype=np.int64), begins[:, None] + np.arange(length + 1)


def reading_of(context_length: int | Reading) -> Reading:
    """How a model of this context length reads records, unless it is said."""
    return context_length if isinstance(context_length, Reading) else Reading(context_length)


def window_begins(split: Split, context_length: int) -> list[tuple[int, Int[np.ndarray, " windows"]]]:
    """The windows of `windows` by their length, longest first: where each begins in the split's tokens."""
    begins: dict[int, list[np.ndarray]] = {}
    for begin, end in split.segments.tolist():
        whole, rest = divmod(max(end - begin - 1, 0), context_length)
        begins.setdefault(context_length, []).append(begin + context_length * np.arange(whole))
        if rest:
            begins.setdefault(rest, []).append(np.array([begin + context_length * whole]))
    return [(length, np.concatenate(begins[length])) for length in sorted(begins, reverse=True)]


def count_windows(split: Split, context_length: int | Reading) -> np.ndarray:
    """Number of windows in each segment, 1-d int64: one for each possible first input, or for a record that fits."""
    reading = reading_of(context_length)
    if split.answers is not None:
        return reading.fits(split).astype(np.int64)
    return np.maximum(split.lengths - reading.context_length, 0)


def no_window(split: Split, context_length: int | Reading) -> str:
    """The message for a split without a window, or without a record that is short enough."""
    reading = reading_of(context_length)
    if split.answers is None:
        return too_short(split, reading.context_length)
    return _(
        "the shortest record of a split has {shortest:,} tokens, more than the model reads (context_length = "
        "{context_length:,}); use a larger context_length, and of an encoder-decoder a larger source_length",
        shortest=min(split.lengths.tolist(), default=0),
        context_length=reading.context_length,
    )


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
