"""Windows of tokens: drawn at random for training, one after the other for measuring."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data.store import Split

Pair = tuple[Int[Tensor, "batch time"], Int[Tensor, "batch time"]]
"""Inputs and targets, int64; the target of a position is the token after it."""


class Batches:
    """Batches of random windows of one part, every window equally likely, each batch a function of its number.

    A window is `context_length` inputs and the token after each; it lies within one stretch.

    Attributes:
        num_windows: how many windows the part has.
    """

    def __init__(self, part: Split, *, context_length: int, batch_size: int, seed: int) -> None:
        """Count the windows of a part.

        Args:
            part: the tokens.
            context_length: inputs of a window.
            batch_size: windows of a batch.
            seed: the run's seed.

        Raises:
            UsageError: a size is not positive, or no stretch is long enough for one window.
        """
        _require_positive(context_length=context_length, batch_size=batch_size)
        counts = count_windows(part, context_length)
        self.num_windows = int(counts.sum())
        if self.num_windows == 0:
            raise UsageError(too_short(part, context_length))
        self._tokens = np.asarray(part.tokens)
        self._begins = part.segments[:, 0]
        self._ends = np.cumsum(counts)
        self._counts = counts
        self._offsets = np.arange(context_length + 1)
        self._batch_size = batch_size
        self._seed = seed

    def batch(self, step: int, micro: int = 0) -> Pair:
        """The batch of one step.

        Args:
            step: the optimizer step.
            micro: which of the step's batches, where gradients are accumulated over several.

        Returns:
            Inputs and targets; the same for the same (seed, step, micro), whatever was asked for before.
        """
        stream = numpy_stream(self._seed, "batches", step, micro)
        drawn = stream.integers(self.num_windows, size=self._batch_size)
        segment = np.searchsorted(self._ends, drawn, side="right")
        starts = self._begins[segment] + drawn - (self._ends - self._counts)[segment]
        return _pair(self._tokens[starts[:, None] + self._offsets])


def windows(part: Split, context_length: int, batch_size: int) -> Iterator[Pair]:
    """Consecutive windows over every stretch: every token but the first of a stretch is a target exactly once.

    All windows of a batch have one length: `context_length` first, then what is left at the ends of the stretches,
    longest first.

    Args:
        part: the tokens.
        context_length: inputs of a whole window.
        batch_size: most windows in a batch.

    Yields:
        Inputs and targets.

    Raises:
        UsageError: a size is not positive.
    """
    _require_positive(context_length=context_length, batch_size=batch_size)
    tokens = np.asarray(part.tokens)
    starts: dict[int, list[np.ndarray]] = {}
    for begin, end in part.segments.tolist():
        whole, rest = divmod(max(end - begin - 1, 0), context_length)
        starts.setdefault(context_length, []).append(begin + context_length * np.arange(whole))
        if rest:
            starts.setdefault(rest, []).append(np.array([begin + context_length * whole]))
    for length in sorted(starts, reverse=True):
        offsets = np.arange(length + 1)
        same = np.concatenate(starts[length])
        for first in range(0, same.size, batch_size):
            yield _pair(tokens[same[first : first + batch_size, None] + offsets])


def count_windows(part: Split, context_length: int) -> np.ndarray:
    """How many windows each stretch of a part has, 1-d int64: one for each input it can begin with."""
    lengths = part.segments[:, 1] - part.segments[:, 0]
    return np.maximum(lengths - context_length, 0)


def too_short(part: Split, context_length: int) -> str:
    """Why a part has no window: how many tokens one needs and how many there are."""
    longest = int((part.segments[:, 1] - part.segments[:, 0]).max(initial=0))
    return (
        f"a window of context_length = {context_length:,} needs {context_length + 1:,} tokens in a row, this part "
        f"of the text has at most {longest:,}; use a smaller context_length or a longer text"
    )


def _require_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise UsageError(f"{name} must be at least 1, not {size}")


def _pair(rows: np.ndarray) -> Pair:
    """Rows of n + 1 tokens as n inputs and n targets."""
    tokens = torch.from_numpy(rows.astype(np.int64))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
