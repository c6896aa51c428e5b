"""N-gram baselines counted beside the first steps: in a process of its own, or where that cannot be, in a thread."""

import gc
import json
import multiprocessing as processes
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import torch

from vitral.core.machine import give_back_freed_memory, keep_all_freed_memory
from vitral.core.process import end_with_parent, launched
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
"""A run that needs the result waits as long again as was counted before, and these seconds more: a busy machine may
give the process no time."""


class Counting(Future[NgramBaselines]):
    """N-gram baselines that are being counted.

    Attributes:
        is_needed: to be set before somebody waits for the result.
    """

    def __init__(self) -> None:
        """Begin without anyone who waits."""
        super().__init__()
        self.is_needed = threading.Event()


def counted_beside(dataset: Dataset, check: Callable[[], None]) -> Counting:
    """Begin to count a text's n-gram baselines.

    Args:
        dataset: the text.
        check: called meanwhile; an exception that it raises ends the counting and is the result.

    Returns:
        The result, or the exception of counting; cancelled, it ends soon.
    """
    counting, child = Counting(), _forked(dataset)

    def tick() -> None:
        if counting.cancelled():
            raise StopAsked
        check()

    def count() -> None:
        with suppress(InvalidStateError):  # it was cancelled at the last moment
            try:
                baselines = None if child is None else _awaited(*child, tick, counting.is_needed)
                counting.set_result(_counted(dataset, tick) if baselines is None else baselines)
            except BaseException as error:
                counting.set_exception(error)

    # An order of a long text takes a minute, and must not keep an interrupted program from ending.
    threading.Thread(target=count, name="n-grams", daemon=True).start()
    return counting


def _counted(dataset: Dataset, tick: Callable[[], None]) -> NgramBaselines:
    splits = dataset.splits
    return ngram_baselines(splits["train"], splits["test"], dataset.tokenizer.vocab_size, tick=tick)


def _forked(dataset: Dataset) -> tuple[BaseProcess, Connection] | None:
    """A child that counts, and the end of a pipe from which its result is read; None where it cannot be made.

    It is made on Linux, alone, without a GPU's state, and where the text is worth it. It computes with NumPy only, so
    PyTorch's threads, which it does not have, are not missed.
    """
    tokens = sum(len(dataset.splits[name].tokens) for name in ("train", "test"))
    is_alone = not launched() and not processes.current_process().daemon
    if sys.platform != "linux" or not is_alone or torch.cuda.is_initialized() or tokens < FORKED_FROM:
        return None
    give_back_freed_memory()  # the kernel splits a shared large page into small ones when the parent writes to it
    context = processes.get_context("fork")
    result, given = context.Pipe(duplex=False)
    child = context.Process(target=_count_apart, args=(dataset, result, given, os.getpid()), daemon=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
            child.start()
    except OSError:
        return None
    finally:
        given.close()
        keep_all_freed_memory()
    return child, result


def _count_apart(dataset: Dataset, result: Connection, given: Connection, parent: int) -> None:
    """Send what was counted; nothing else is said, and no exit of the parent's is run."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_with_parent(signal.SIGKILL)  # and with it ends what the parent has locked or opened
        result.close()  # only the parent reads
        if os.getppid() == parent:
            gc.freeze()  # what the parent has is not freed here
            os.nice(NICENESS)
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            given.send_bytes(json.dumps(_counted(dataset, lambda: None).plain()).encode())
    finally:
        os._exit(0)


def _awaited(
    child: BaseProcess, result: Connection, tick: Callable[[], None], is_needed: threading.Event
) -> NgramBaselines | None:
    """What the child has counted; None if it has ended without, or is waited for too long."""
    began, counted = time.monotonic(), 0.0
    try:
        while not result.poll(LOOKS):
            tick()
            taken = time.monotonic() - began
            if not is_needed.is_set():
                counted = taken
            elif taken > 2 * counted + PATIENCE:
                return None
        return NgramBaselines.from_plain(json.loads(result.recv_bytes()))
    except EOFError:
        return None
    finally:
        child.kill()
        child.join()
