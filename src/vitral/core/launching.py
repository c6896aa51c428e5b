"""What a launcher of several ranks says to each of them, by torchrun's variables of the environment."""

import ctypes
import os
import signal
import sys

EXIT_CODE = "VITRAL_EXIT_CODE"
"""Variable of the environment: the file in which the rank that has spoken leaves its exit code for `--ranks`."""
LAUNCHER = "VITRAL_LAUNCHER"
"""Variable of the environment: the process of `--ranks`."""
DIE_WITH_PARENT = 1
"""Linux's PR_SET_PDEATHSIG."""


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
