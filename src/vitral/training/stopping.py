"""Stop at the end of a step on request: Ctrl-C, or SIGTERM from a batch system."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from vitral.core.language import N_
from vitral.core.process import Interruption


class StopAsked(Exception):
    """A stop was requested during work that can be repeated after a resume."""


class StopRequest(Interruption):
    """A possible request to stop; a second Ctrl-C stops without waiting for the end of the step."""

    asked = False
    line = N_("stops after this step and saves it; Ctrl-C again stops at once, without saving")

    def has_ended(self) -> bool:
        """Whether the training has ended that handled signals by it."""
        return signal.getsignal(signal.SIGINT) is not self

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.asked and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Handle SIGINT and SIGTERM inside the block, if this is the main thread."""
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
