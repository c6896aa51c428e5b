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
from vitral.core.files import read, storage
from vitral.core.language import _

LOCK = ".lock"
MOST_HOLDER = 1000
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
    lock = FileLock(folder / LOCK, PATIENCE, poll_interval=PAUSE, on_acquired=_sign)
    with storage(folder / LOCK):
        is_ours = _is_acquired(lock)
    if not is_ours:
        raise UsageError(
            "{folder}: {holder} is writing to it; wait for it, or stop it", folder=folder, holder=_holder(folder)
        )
    try:
        yield
    finally:
        lock.release()


def is_held(folder: Path) -> bool:
    """Whether a process holds the lock of a run's or a study's folder. Nothing is written."""
    if not (folder / LOCK).is_file():
        return False
    lock = FileLock(folder / LOCK, PATIENCE, poll_interval=PAUSE)
    with suppress(OSError):
        if not _is_acquired(lock):
            return True
        lock.release()
    return False


def _is_acquired(lock: FileLock) -> bool:
    try:
        lock.acquire()
    except Timeout:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())


def _holder(folder: Path) -> str:
    """A description of the process that holds the lock."""
    try:
        held = json.loads(read(folder / LOCK, MOST_HOLDER))
        return _("process {process} on {host!a}", process=str(int(held["pid"])), host=str(held["host"])[:60])
    except (ValueError, KeyError, TypeError, OSError):
        return _("another process")
