"""Stopping at the end of a step when asked to: Ctrl-C, or SIGTERM from a batch system."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopAsked(Exception):
    """Somebody asked to stop while something was going on that can be done again later."""


class StopRequest:
    """Whether somebody asked to stop; a second Ctrl-C does not wait for the step's end."""

    def __init__(self) -> None:
        """Nobody has asked."""
        self.asked = False

    def check(self) -> None:
        """Stop what is going on, if somebody asked.

        Raises:
            StopAsked: somebody did.
        """
        if self.asked:
            raise StopAsked

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Note a signal."""
        if self.asked and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Listen for SIGINT and SIGTERM inside the block, if this is the main thread."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, request) for number in signals}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
