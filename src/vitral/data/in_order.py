"""Work on the pieces of a text by several threads: one reads, the others work, the results come in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from vitral.core.machine import cores

MOST_THREADS = 4
"""More would wait for one another, since only NumPy and hashing work beside other threads."""

Given = TypeVar("Given")
Found = TypeVar("Found")


def in_order(work: Callable[[Given], Found], each: Iterable[Given]) -> Iterator[Found]:
    """What `work` makes of each, in their order; few are held at once.

    >>> list(in_order(str.upper, ["one", "two"]))
    ['ONE', 'TWO']
    """
    threads = min(cores(), MOST_THREADS)
    waiting = deque[Future[Found]]()
    with ThreadPoolExecutor(threads) as pool:
        for one in each:
            waiting.append(pool.submit(copy_context().run, work, one))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
