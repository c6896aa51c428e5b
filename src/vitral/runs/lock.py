"""A lock on a run's or a study's folder for a single writer, released by the system when the process ends."""

import json
import os
import socket
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
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                "{folder}: {holder} is writing to it; wait for it, or stop it",
                folder=folder,
                holder=_holder(descriptor),
            ) from None
        except OSError:
            return True  # a file system without locks: continue unlocked
    ours = os.fstat(descriptor)
    if ours.st_nlink > 1:
        files.remove(LOCK)
        return False
    with files.held(LOCK) as now:
        return os.path.samestat(os.fstat(now), ours)


def _holder(descriptor: int) -> str:
    """A description of the process that holds the lock."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        held = json.loads(os.read(descriptor, MOST_HOLDER))
        return _("process {process} on {host!a}", process=str(int(held["pid"])), host=str(held["host"])[:60])
    except (ValueError, KeyError, TypeError, OSError):
        return _("another process")
