"""A lock on a run's or a study's folder for a single writer, released by the system when the process ends."""

import errno
import json
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from vitral.core.errors import UsageError
from vitral.core.files import storage
from vitral.core.language import N_

LOCK = ".lock"
PATIENCE, PAUSE = 0.05, 0.01
"""Seconds of attempts at a lock, and between them: whoever asks `is_held` has it for a moment."""
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""What a file system without locks says: there we go on without one."""


@contextmanager
def only_writer(folder: Path) -> Generator[None]:
    """Hold the lock of a run's or a study's folder inside the block; its file remains and names the last holder.

    Raises:
        UsageError: another process holds the lock (names it).
        StorageError: the lock file cannot be created, or is a link.
    """
    path = folder / LOCK
    lock = FileLock(path, PATIENCE, poll_interval=PAUSE, on_acquired=_sign)
    with storage(path):
        try:
            lock.acquire()
        except Timeout:
            holder = N_("another process")
            with suppress(ValueError, KeyError, TypeError, OSError):
                held = json.loads(path.read_bytes())
                holder = N_("process {process} on {host}").format(process=str(held["pid"]), host=str(held["host"]))
            raise UsageError(
                "{folder}: {holder} is writing to it; wait for it, or stop it", folder=folder, holder=holder
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
    try:
        yield
    finally:
        lock.release()


def is_held(folder: Path) -> bool:
    """Whether a process holds the lock of a run's or a study's folder. Nothing is written."""
    if not (folder / LOCK).is_file():
        return False
    with suppress(OSError):
        try:
            FileLock(folder / LOCK, PATIENCE, poll_interval=PAUSE).acquire().lock.release()
        except Timeout:
            return True
    return False


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
