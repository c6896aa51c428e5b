"""The time of one call of the program."""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vitral.training.deadline import TimeFrame

BEGAN = time.perf_counter()
"""When the program began, apart from the start of Python."""
LEAST_AFTER, AFTER_START = 1.5, 0.6
"""Writing a page takes this many seconds, or this many times the time from the start to the first step."""


def time_frame() -> "TimeFrame":
    """The time that counts as minutes of a run: from the program's start until its page is written.

    A slow or busy machine is slow at the start as well as at the end.
    """
    from vitral.training.deadline import TimeFrame

    return TimeFrame(BEGAN, max(LEAST_AFTER, AFTER_START * (time.perf_counter() - BEGAN)))
