"""What belongs to the whole process: its threads, and the one training it may do at a time."""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

import torch

from vitral.core.errors import UsageError
from vitral.core.language import ngettext

MOST_THREADS = 1024


@contextmanager
def using_threads(threads: int | None) -> Generator[None]:
    """Let PyTorch compute with this number of threads inside the block; None changes nothing.

    The number may exceed the cores: sums are divided among threads by their number, so the results depend on it, and
    not on the number of cores.
    """
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:  # a decision inside the block may have changed it too
            torch.set_num_threads(before)


def too_few_cores(threads: int, cores: int) -> str | None:
    """A warning in one line if there are fewer cores than threads, else None."""
    if threads <= cores:
        return None
    return ngettext(
        "recorded with {threads} threads, this machine has {cores} core: slower, the same bits",
        "recorded with {threads} threads, this machine has {cores} cores: slower, the same bits",
        cores,
        threads=threads,
        cores=cores,
    )


_training: dict[int, threading.Lock] = {}
"""The lock of the one training by process: a forked child's is not its parent's."""


@contextmanager
def only_training() -> Generator[None]:
    """Be the only training of this process inside the block: generators and threads belong to the process.

    Raises:
        UsageError: this process is training already.
    """
    lock = _training.setdefault(os.getpid(), threading.Lock())
    if not lock.acquire(blocking=False):
        raise UsageError("another training is going on in this process; run it in a process of its own")
    try:
        yield
    finally:
        lock.release()
