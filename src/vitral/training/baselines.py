"""N-gram baselines counted beside the first steps: in a process of its own, or where that cannot be, in a thread."""

import ctypes
import gc
import json
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

import torch

from vitral.core.launching import launched
from vitral.data import Dataset
from vitral.evaluation import NgramBaselines, ngram_baselines
from vitral.training.stopping import StopAsked

FORKED_FROM = 2**19
"""Tokens from which a process counts. A thread that counts keeps the interpreter, so ten steps beside it take as long
as a hundred; a process of low priority takes the time that the steps leave."""
NICENESS = 19
LOOKS = 0.1
"""Seconds between two looks whether counting was cancelled or the run was asked to stop."""
DIE_WITH_PARENT = 1
"""Linux's PR_SET_PDEATHSIG."""


def counted_beside(dataset: Dataset, check: Callable[[], None]) -> "Future[NgramBaselines]":
    """Begin to count a text's n-gram baselines.

    Args:
        dataset: the text.
        check: called meanwhile; an exception that it raises ends the counting and is the result.

    Returns:
        The result, or the exception of counting; cancelled, it ends soon.
    """
    future: Future[NgramBaselines] = Future()
    child = _forked(dataset) if _may_fork(dataset) else None

    def tick() -> None:
        if future.cancelled():
            raise StopAsked
        check()

    def count() -> None:
        with suppress(InvalidStateError):  # it was cancelled at the last moment
            try:
                found = None if child is None else _awaited(*child, tick)
                future.set_result(_counted(dataset, tick) if found is None else found)
            except BaseException as error:
                future.set_exception(error)

    # A thread that counts is a daemon: an order of a long text takes a minute, and must not keep an interrupted program
    # from ending. One that waits for a child ends at once, and the program with it.
    threading.Thread(target=count, name="n-grams", daemon=child is None).start()
    return future


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
        _keep_only(given)
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() == parent:
            os.nice(NICENESS)
            found = _counted(dataset, lambda: None)
            with os.fdopen(given, "w", encoding="ascii") as file:
                json.dump(found.plain(), file)
    finally:
        os._exit(0)


def _keep_only(descriptor: int) -> None:
    """Close all other files, since locks and pipes of the parent must end with the parent; no signal is handled."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))


def _awaited(child: int, result: int, tick: Callable[[], None]) -> NgramBaselines | None:
    """What the child has counted; None if it failed."""
    told = b""
    try:
        with os.fdopen(result, "rb") as file:
            while not select.select([file], [], [], LOOKS)[0]:
                tick()
            told = file.read()
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it may be one that nobody waits for any more
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
    return NgramBaselines.from_plain(json.loads(told)) if told else None
