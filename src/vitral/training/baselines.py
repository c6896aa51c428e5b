"""N-gram baselines counted beside the first steps: in a process of its own, or where that cannot be, in a thread."""

import gc
import json
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path

import torch

from vitral.core.allocation import give_back_freed_memory, keep_all_freed_memory
from vitral.core.launching import end_with_parent, launched
from vitral.data import Dataset
from vitral.evaluation import NgramBaselines, ngram_baselines
from vitral.training.stopping import StopAsked

FORKED_FROM = 2**19
"""Tokens from which a process counts. A thread that counts keeps the interpreter, so ten steps beside it take as long
as a hundred; a process that runs where a processor is idle takes the time that the steps leave."""
NICENESS = 19
"""Of the process where the system has no idle policy."""
LOOKS = 0.1
"""Seconds between two looks whether counting was cancelled or the run was asked to stop."""
PATIENCE = 0.5
"""Seconds in which a process that the run waits for must be given half of a processor."""


class Counting(Future[NgramBaselines]):
    """N-gram baselines that are being counted.

    Attributes:
        is_needed: set once somebody waits for the result.
    """

    def __init__(self) -> None:
        """Begin without anyone who waits."""
        super().__init__()
        self.is_needed = threading.Event()

    def result(self, timeout: float | None = None) -> NgramBaselines:
        """Wait for the baselines.

        Args:
            timeout: seconds to wait at most.

        Returns:
            The baselines, or the exception of counting is raised.
        """
        self.is_needed.set()
        return super().result(timeout)


def counted_beside(dataset: Dataset, check: Callable[[], None]) -> Counting:
    """Begin to count a text's n-gram baselines.

    Args:
        dataset: the text.
        check: called meanwhile; an exception that it raises ends the counting and is the result.

    Returns:
        The result, or the exception of counting; cancelled, it ends soon.
    """
    counting = Counting()
    child: tuple[int, int] | None = None
    if _may_fork(dataset):
        give_back_freed_memory()  # the kernel splits a shared large page into small ones when the parent writes to it
        child = _forked(dataset)
        keep_all_freed_memory()

    def tick() -> None:
        if counting.cancelled():
            raise StopAsked
        check()

    def count() -> None:
        with suppress(InvalidStateError):  # it was cancelled at the last moment
            try:
                found = None if child is None else _awaited(*child, tick, counting.is_needed)
                counting.set_result(_counted(dataset, tick) if found is None else found)
            except BaseException as error:
                counting.set_exception(error)

    # An order of a long text takes a minute, and must not keep an interrupted program from ending.
    threading.Thread(target=count, name="n-grams", daemon=True).start()
    return counting


def _counted(dataset: Dataset, tick: Callable[[], None]) -> NgramBaselines:
    splits = dataset.splits
    return ngram_baselines(splits["train"], splits["test"], dataset.tokenizer.vocab_size, tick=tick)


def _may_fork(dataset: Dataset) -> bool:
    """Whether a child may count: on Linux, alone, without a GPU's state, and where the text is worth it."""
    tokens = sum(len(dataset.splits[name].tokens) for name in ("train", "test"))
    is_plain = sys.platform == "linux" and not launched() and not torch.cuda.is_initialized()
    return is_plain and tokens >= FORKED_FROM


def _forked(dataset: Dataset) -> tuple[int, int] | None:
    """A child that counts, and the end of a pipe from which its result is read; None where it cannot be made.

    It computes with NumPy only, so PyTorch's threads, which it does not have, are not missed.
    """
    result, given = os.pipe()
    parent = os.getpid()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
            child = os.fork()
    except OSError:
        os.close(result)
        os.close(given)
        return None
    if child:
        os.close(given)
        return child, result
    try:
        gc.freeze()  # what the parent has is not freed here
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_with_parent(signal.SIGKILL)  # and with it ends what the parent has locked or opened
        if os.getppid() == parent:
            os.nice(NICENESS)
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            found = _counted(dataset, lambda: None)
            with os.fdopen(given, "w", encoding="ascii") as file:
                json.dump(found.plain(), file)
    finally:
        os._exit(0)


def _awaited(child: int, result: int, tick: Callable[[], None], is_needed: threading.Event) -> NgramBaselines | None:
    """What the child has counted; None if it failed, or is needed and given no time by a busy machine."""
    told = b""
    try:
        with os.fdopen(result, "rb") as file:
            given, since = _processor_time(child), time.monotonic()
            while not select.select([file], [], [], LOOKS)[0]:
                tick()
                waited = time.monotonic() - since
                if is_needed.is_set() and waited < PATIENCE:
                    continue
                before, given, since = given, _processor_time(child), time.monotonic()
                if is_needed.is_set() and given - before < waited / 2:
                    return None
            told = file.read()
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it may be one that nobody waits for any more
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
    return NgramBaselines.from_plain(json.loads(told)) if told else None


def _processor_time(process: int) -> float:
    """Seconds that the processors have given to a process; 0 where Linux does not tell them."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")  # utime and stime
