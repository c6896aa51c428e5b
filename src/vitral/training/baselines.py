"""N-gram baselines counted beside the first steps, in a thread of their own."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from vitral.data import Dataset
from vitral.evaluation import NgramBaselines, ngram_baselines
from vitral.training.stopping import StopAsked


def counted_beside(dataset: Dataset, check: Callable[[], None]) -> "Future[NgramBaselines]":
    """Begin to count a text's n-gram baselines; NumPy leaves the interpreter to the steps while it sorts.

    Args:
        dataset: the text.
        check: called between the orders; an exception that it raises ends the counting and is the result.

    Returns:
        The result, or the exception of counting; cancelled, the thread ends after the order it counts.
    """
    future: Future[NgramBaselines] = Future()

    def tick() -> None:
        if future.cancelled():
            raise StopAsked
        check()

    def count() -> None:
        splits, vocab_size = dataset.splits, dataset.tokenizer.vocab_size
        with suppress(InvalidStateError):  # it was cancelled at the last moment
            try:
                found = ngram_baselines(splits["train"], splits["test"], vocab_size, tick=tick)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(found)

    # A daemon: an order of a long text takes a minute, and must not keep an interrupted program from ending.
    threading.Thread(target=count, name="n-grams", daemon=True).start()
    return future
