"""What belongs to the whole process: its threads, the one training at a time, what a launcher says to it, Ctrl-C.

Python handles a signal between two of its own instructions, so a product of large matrices, which is one instruction,
keeps it waiting. A thread sees Ctrl-C at once (`watch_interrupts`).
"""

import ctypes
import os
import shlex
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from vitral.core.errors import UsageError
from vitral.core.language import _

MOST_THREADS = 1024
EXIT_CODE = "VITRAL_EXIT_CODE"
"""Variable of the environment: the file in which the rank that has spoken leaves its exit code for `--ranks`."""
LAUNCHER = "VITRAL_LAUNCHER"
"""Variable of the environment: the process of `--ranks`."""
DIE_WITH_PARENT = 1
"""Linux's PR_SET_PDEATHSIG."""


def program() -> str:
    """How a shell finds this program: "vitral", or its path where that is not on PATH."""
    given = sys.argv[0]
    return "vitral" if Path(given).stem != "vitral" or shutil.which("vitral") else shlex.quote(given)


@contextmanager
def using_threads(threads: int | None) -> Generator[None]:
    """Let PyTorch compute with this number of threads inside the block; None changes nothing.

    The number may exceed the cores: sums are divided among threads by their number, so the results depend on it, and
    not on the number of cores.
    """
    import torch  # a launcher of ranks does without

    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:  # a decision inside the block may have changed it too
            torch.set_num_threads(before)


_training: dict[int, threading.Lock] = {}
"""The lock of the one training by process: a forked child's is not its parent's."""


@contextmanager
def only_training() -> Generator[None]:
    """Be the only training of this process inside the block: generators and threads belong to the process.

    Raises:
        UsageError: this process is training already.
    """
    lock = _training.setdefault(os.getpid(), threading.Lock())
    if not lock.acquire(blocking=False):
        raise UsageError("another training is going on in this process; run it in a process of its own")
    try:
        yield
    finally:
        lock.release()


def launched() -> bool:
    """Whether a launcher says that there are several ranks."""
    size = os.environ.get("WORLD_SIZE") or "1"
    return not (size.isdecimal() and int(size) == 1)


def launch_name() -> str:
    """A name of all starts of ranks by one launcher; empty without a launcher."""
    name = os.environ.get("TORCHELASTIC_RUN_ID") or "none"
    return name if name != "none" else os.environ.get("TORCHELASTIC_ERROR_FILE", "").partition("attempt_")[0]


def end_with_parent(number: int) -> None:
    """Let the system send this process a signal when the process that started it ends, however it does (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, number)
        if os.environ.get(LAUNCHER, str(os.getppid())) != str(os.getppid()):
            os.kill(os.getpid(), signal.SIGKILL)  # it has ended meanwhile


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


def watch_interrupts(complain: Callable[[str], None]) -> None:
    """From now on, end the program at Ctrl-C also where its main thread cannot.

    Args:
        complain: shows one line.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # it is ignored, as in the background of a shell
    signal.signal(signal.SIGINT, Interruption())
    seen, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(seen, wakeup, complain), name="Ctrl-C", daemon=True).start()


def _watch(seen: socket.socket, _wakeup: socket.socket, complain: Callable[[str], None]) -> None:
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
