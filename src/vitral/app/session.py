"""One call of the program: its arguments and its time; of a call from Python, only the time."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vitral.training.deadline import TimeFrame

_starts = [time.perf_counter()]
"""When the program began, apart from the start of Python."""
_given: list[str] = []
LEAST_AFTER, AFTER_START = 1.5, 0.6
"""Writing a page takes this many seconds, or this many times the time in which the program has loaded."""


def begin(arguments: Sequence[str] = ()) -> None:
    """Take the time of a command: of the first, the start of the program; a process may run others after it."""
    _given[:] = arguments
    _starts.append(_starts[0] if len(_starts) == 1 else time.perf_counter())


def given() -> list[str]:
    """The arguments of the command."""
    return [*_given]


def time_frame() -> "TimeFrame":
    """The time that counts as minutes of a run.

    Of a command from the program's start until its page is written: a slow or busy machine is slow at the start as well
    as at the end. Of a call from Python from now on.
    """
    from vitral.training.deadline import TimeFrame

    if not _given:
        return TimeFrame()
    began = _starts[-1]
    return TimeFrame(began, max(LEAST_AFTER, AFTER_START * (time.perf_counter() - began)))
