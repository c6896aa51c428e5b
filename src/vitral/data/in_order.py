"""Work on the pieces of a text by all cores: one thread reads, the others work, the results come in order."""

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

    An error of `work` or of `each` is raised after everything before it, as without other threads.

    >>> list(in_order(str.upper, ["one", "two"]))
    ['ONE', 'TWO']
    """
    threads = min(cores(), MOST_THREADS)
    if threads == 1:
        yield from map(work, each)
        return
    waiting = deque[Future[Found]]()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for future in _submitted(pool, work, each):
                waiting.append(future)
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _submitted(
    pool: ThreadPoolExecutor, work: Callable[[Given], Found], each: Iterable[Given]
) -> Iterator[Future[Found]]:
    """The work on each; an error of `each` is the result of the last one."""
    try:
        for one in each:
            yield pool.submit(copy_context().run, work, one)
    except Exception as error:
        failed = Future[Found]()
        failed.set_exception(error)
        yield failed
