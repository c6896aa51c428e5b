"""Test windows: rows of consecutive tokens of a split, evenly spread over it; none crosses the border of a segment."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data import Split
from vitral.data.batches import too_short


def window_starts(split: Split, span: int, most: int | None, *, stride: int) -> Int[np.ndarray, " windows"]:
    """Indices of the first tokens of windows, in increasing order.

    Args:
        split: the tokens.
        span: tokens of a window, the target of its last position included where targets are wanted.
        most: windows wanted; of more, as many are chosen, evenly spread. None for all.
        stride: tokens from the start of one window to the start of the next in a segment.
    """
    starts = np.concatenate(
        [np.arange(begin, end - span + 1, stride) for begin, end in split.segments.tolist()] or [np.empty(0, np.int64)]
    )
    if most is None or len(starts) <= most:
        return starts
    return starts[np.linspace(0, len(starts), max(1, most), endpoint=False).astype(np.int64)]


def read_windows(split: Split, starts: Int[np.ndarray, " windows"], span: int) -> Int[Tensor, "windows span"]:
    """The `span` tokens from each start on, int64."""
    tokens = split.tokens
    return torch.from_numpy(tokens[starts[:, None] + np.arange(span)].astype(np.int64))


def spread_windows(split: Split, time: int, most: int) -> Int[Tensor, "windows time"]:
    """At most `most` windows of `time` tokens that do not overlap."""
    return read_windows(split, window_starts(split, time, most, stride=time), time)


def scored_windows(
    split: Split, context_length: int, most: int
) -> tuple[Int[Tensor, "windows time"], Int[Tensor, "windows time"]]:
    """At most `most` windows of a whole context, and their targets.

    Raises:
        UsageError: the split has no segment of `context_length` + 1 tokens.
    """
    starts = window_starts(split, context_length + 1, most, stride=context_length)
    if not len(starts):
        raise UsageError(too_short(split, context_length))
    rows = read_windows(split, starts, context_length + 1)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
