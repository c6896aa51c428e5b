"""A lock on a run folder for a single writer, released by the system when the process ends."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vitral.core.errors import UsageError
from vitral.core.files import storage

try:
    import fcntl
except ImportError:  # Windows: two writers of one run are not prevented
    fcntl = None

LOCK = ".lock"


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder inside the block.

    The lock file remains afterwards; the lock on it ends with the process.

    Raises:
        UsageError: another process holds the lock; names it.
        StorageError: the lock file cannot be created.
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
                pass  # a file system without locks: continue unlocked
        with storage(path):
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        yield


def _holder(file: IO[str]) -> str:
    """A description of the process that holds the lock."""
    try:
        file.seek(0)
        held = json.loads(file.read(1000))
        return f"process {int(held['pid'])} on {str(held['host'])[:60]}"
    except (ValueError, KeyError, TypeError):
        return "another process"
