"""One run folder, one writer: a lock that the system takes back when its holder dies."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vitral.core.errors import UsageError
from vitral.runs.files import storage

try:
    import fcntl
except ImportError:  # Windows: whoever opens a run twice there is not stopped
    fcntl = None

LOCK = ".lock"


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder inside the block.

    The file stays behind; what counts is the lock on it, which ends with the process that holds it, however it ends.

    Raises:
        UsageError: another process holds it; says which.
        StorageError: the lock's file cannot be made.
    """
    path = folder / LOCK
    with storage(path):
        path.touch()
    with path.open("r+", encoding="utf-8") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"{folder}: {_holder(file)} is writing to it; wait for it, or stop it") from None
            except OSError:
                pass  # a file system without locks: better unlocked than not at all
        with storage(path):
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        yield


def _holder(file: IO[str]) -> str:
    """The process that holds the lock, in words."""
    try:
        file.seek(0)
        held = json.loads(file.read(1000))
        return f"process {int(held['pid'])} on {str(held['host'])[:60]}"
    except (ValueError, KeyError, TypeError):
        return "another process"
