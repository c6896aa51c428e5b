"""A lock on a run's or a study's folder for a single writer, released by the system when the process ends."""

import json
import os
import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.core.files import storage
from vitral.core.guarded import GuardedFolder
from vitral.core.language import _

try:
    import fcntl
except ImportError:  # Windows: two writers of one run are not prevented
    fcntl = None

LOCK = ".lock"
MOST_HOLDER = 1000
ATTEMPTS, PAUSE = 5, 0.01
"""Attempts at a lock, and seconds between them: whoever asks `is_held` has it for a moment."""


@contextmanager
def only_writer(folder: Path) -> Generator[None]:
    """Hold the lock of a run's or a study's folder inside the block.

    The lock file remains afterwards; the lock on it ends with the process.

    Raises:
        UsageError: another process holds the lock (names it), or the lock file is a link.
        StorageError: the lock file cannot be created.
    """
    files = GuardedFolder(folder)
    with ExitStack() as held:
        with storage(folder / LOCK):
            while not _held(files, descriptor := held.enter_context(files.held(LOCK)), folder):
                held.pop_all().close()
            os.ftruncate(descriptor, 0)
            holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, holder.encode())
        yield


def _held(files: GuardedFolder, descriptor: int, folder: Path) -> bool:
    """Lock an open lock file; return whether it is still the folder's own.

    A lock file with other hard links belongs to other folders too: it is replaced by a new one.

    Raises:
        UsageError: another process holds the lock.
    """
    try:
        if not _taken(descriptor):
            raise UsageError(
                "{folder}: {holder} is writing to it; wait for it, or stop it",
                folder=folder,
                holder=_holder(descriptor),
            )
    except OSError:
        return True  # a file system without locks: continue unlocked
    ours = os.fstat(descriptor)
    if ours.st_nlink > 1:
        files.remove(LOCK)
        return False
    with files.held(LOCK) as now:
        return os.path.samestat(os.fstat(now), ours)


def _taken(descriptor: int) -> bool:
    """Lock an open lock file; return whether no other process has it."""
    if fcntl is None:
        return True
    for attempt in range(ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE if attempt < ATTEMPTS - 1 else 0)
        else:
            return True
    return False


def is_held(folder: GuardedFolder) -> bool:
    """Whether a process holds the lock of a run's or a study's folder. Nothing is written."""
    if fcntl is None:
        return False
    try:
        with folder.stream(LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # until the file is closed
    except BlockingIOError:
        return True
    except (OSError, UsageError):  # there is none, or the file system has no locks
        return False
    return False


def _holder(descriptor: int) -> str:
    """A description of the process that holds the lock."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        held = json.loads(os.read(descriptor, MOST_HOLDER))
        return _("process {process} on {host!a}", process=str(int(held["pid"])), host=str(held["host"])[:60])
    except (ValueError, KeyError, TypeError, OSError):
        return _("another process")
