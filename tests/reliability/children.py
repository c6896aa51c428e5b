"""Children of this process: killed, dying at a call of the system, or heard to their end."""

import itertools
import os
import random
import select
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

ON_LINUX = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's process descriptors")
CALLS = ("open", "write", "fsync", "rename", "replace", "link", "mkdir", "unlink", "rmdir")
CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
LONGEST = 120
"""Seconds; a child that takes longer hangs."""
DIED = 9

Seen = Callable[[str, tuple[str, ...]], object]


def forked(work: Callable[[], object]) -> int:
    """A child that does its work and leaves without cleaning up; gives its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child has no use of
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def ended_within(child: int, seconds: float) -> bool:
    """Whether a child ends by itself in that time."""
    descriptor = os.pidfd_open(child)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def ended(child: int) -> int:
    """The exit code of a child, negative for a signal; one that hangs is killed."""
    if not ended_within(child, LONGEST):
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_until_it_ends(work: Callable[[], object], draw: random.Random, longest: float, more: float = 1.02) -> int:
    """Do the work in children that are killed at random instants, until one ends by itself; gives the kills."""
    for kills in itertools.count():
        child = forked(work)
        if ended_within(child, draw.uniform(0.002, longest)):
            assert ended(child) == 0, f"after {kills} kills"
            return kills
        os.kill(child, signal.SIGKILL)
        ended(child)
        longest *= more  # on a slow machine a session must get somewhere some day
    raise AssertionError


def outcome(act: Callable[[], int], folder: Path) -> tuple[int, str, str]:
    """Do it in a child: its exit code, what it printed, and what it complained about."""
    printed, said = folder / "out", folder / "err"

    def child() -> None:
        with printed.open("w") as out, said.open("w") as err, redirect_stdout(out), redirect_stderr(err):
            code = act()
        os._exit(code)

    return ended(forked(child)), printed.read_text(), said.read_text()


@contextmanager
def watched(before: Seen, after: Seen) -> Iterator[None]:
    """Every call that changes the disk, seen before and after, with its name and its absolute paths."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            original = getattr(os, name)

            def wrapped(*given: Any, name: str = name, original: Any = original, **options: Any) -> Any:
                if name == "open" and not given[1] & CHANGES:
                    return original(*given, **options)
                paths = _paths(name, given, options)
                before(name, paths)
                result = original(*given, **options)
                after(name, paths)
                return result

            patch.setattr(os, name, wrapped)
        yield


def _paths(name: str, given: tuple, options: dict[str, Any]) -> tuple[str, ...]:
    """The absolute paths of a call, whose names may be relative to open folders."""
    if name in ("fsync", "write"):
        return (os.readlink(f"/proc/self/fd/{given[0]}"),)
    places = ("src_dir_fd", "dst_dir_fd") if name in ("rename", "replace", "link") else ("dir_fd",)
    roots = ["" if (at := options.get(place)) is None else os.readlink(f"/proc/self/fd/{at}") for place in places]
    return tuple(os.path.join(root, os.fspath(part)) for root, part in zip(roots, given, strict=False))


def deaths(
    fresh: Callable[[Path], object], work: Callable[[Path], object], folder: Path, every: int, when: str = "before"
) -> Iterator[tuple[Path, bool]]:
    """The folder `dying` after each death of its work, at every so-manyth call; at last when its work has ended.

    Args:
        fresh: makes a folder as it is before.
        work: writes into it.
        folder: for the folders.
        every: calls from a death to the next; which is the first of them is drawn.
        when: whether the work dies before a call or after it.

    Yields:
        The folder, and whether its work died.
    """
    path = folder / "dying"
    for at in itertools.count(random.SystemRandom().randrange(every), every):
        fresh(path)

        def until_death(at: int = at) -> None:
            sides = {side: itertools.count() for side in ("before", "after")}

            def maybe(side: str) -> Seen:
                return lambda name, paths: os._exit(DIED) if next(sides[side]) == at and side == when else None

            with watched(maybe("before"), maybe("after")):
                work(path)

        status = ended(forked(until_death))
        assert status in (0, DIED)
        yield path, status == DIED
        shutil.rmtree(path)
        if status == 0:
            return
