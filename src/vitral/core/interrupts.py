"""Ctrl-C in the command line, also while the main thread is inside one long computation.

Python handles a signal between two of its own instructions, so a product of large matrices, which is one instruction,
keeps it waiting. A thread sees the signal at once.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType

from vitral.core.language import _

PATIENCE = 1.0
"""Seconds in which the main thread must handle the signal."""


class Interruption:
    """A handler of Ctrl-C, which raises KeyboardInterrupt.

    Attributes:
        handled: time of its last call, by the monotonic clock.
        waits: whether one signal may wait until the main thread handles it.
    """

    handled, waits = 0.0, False

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        self.handled = time.monotonic()
        raise KeyboardInterrupt


def watch(complain: Callable[[str], None]) -> None:
    """From now on, end the program at Ctrl-C also where its main thread cannot.

    Args:
        complain: shows one line.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # it is ignored, as in the background of a shell
    signal.signal(signal.SIGINT, Interruption())
    seen, told = socket.socketpair()
    told.setblocking(False)
    signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(seen, told, complain), name="Ctrl-C", daemon=True).start()


def _watch(seen: socket.socket, _told: socket.socket, complain: Callable[[str], None]) -> None:
    while signals := seen.recv(64):
        handler, before = signal.getsignal(signal.SIGINT), time.monotonic() - PATIENCE / 2
        if signal.SIGINT not in signals or not isinstance(handler, Interruption):
            continue
        time.sleep(PATIENCE)
        if handler.handled > before:
            continue
        if not handler.waits:
            complain(_("interrupted"))
            if os.isatty(1):
                os.write(1, b"\x1b[?25h")  # the display of a training hides the cursor
            os._exit(130)
        handler.waits = False
        complain(_("stops after this step and saves it; Ctrl-C again stops at once, without saving"))
