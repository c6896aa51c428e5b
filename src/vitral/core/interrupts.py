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
        line: a marked sentence, said once instead of ending the program; empty: none.
    """

    line = ""
    _handled = False

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        self._handled = True
        raise KeyboardInterrupt

    def has_ended(self) -> bool:
        """Whether the last signal has ended the work."""
        handled, self._handled = self._handled, False
        return handled


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
        handler = signal.getsignal(signal.SIGINT)
        if signal.SIGINT not in signals or not isinstance(handler, Interruption):
            continue
        time.sleep(PATIENCE)
        if handler.has_ended():
            continue
        if handler.line:
            complain(_(handler.line))
            handler.line = ""
            continue
        complain(_("interrupted"))
        if os.isatty(1):
            os.write(1, b"\x1b[?25h")  # the display of a training hides the cursor
        os._exit(130)
