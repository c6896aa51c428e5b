"""Durable file operations: write a temporary file, flush it to disk, then rename, so that no old content is lost."""

import errno
import hashlib
import json
import os
import platform
import re
import stat
import threading
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from time import sleep
from typing import Any

from vitral.core.errors import StorageError, reason
from vitral.core.language import _

PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Seconds before each further attempt at a change of names that the system refuses."""
_TEMPORARY = re.compile(r"\..+\.(?:([0-9a-f]{8})-)?(\d{1,10})(?:-\d{1,20})?\.tmp", re.DOTALL)


@contextmanager
def storage(path: Path) -> Generator[None]:
    """Convert disk errors inside the block to one line that names `path`.

    Raises:
        StorageError: the disk is full, access is denied, or the disk fails.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT if hasattr(errno, "EDQUOT") else errno.ENOSPC)
        room = _("the disk is full: free some space; what was saved before is intact")
        raise StorageError(
            "{path}: cannot be written ({reason}); {advice}",
            path=path,
            reason=reason(error),
            advice=room if full else _("check the folder"),
        ) from None


def insist(change: Callable[..., object], *names: Any, **where: Any) -> None:
    """Rename or remove; where that is refused, try again for almost a second.

    On Windows a file cannot be renamed or removed while another program reads it: a virus scanner, a search index, a
    folder that is synchronised. Such a program soon ends.

    Args:
        change: a function of `os`.
        names: its arguments.
        where: its arguments by name.

    Raises:
        PermissionError: the system refuses to the end.
        OSError: the change cannot be made, for another reason.
    """
    for pause in PAUSES:
        try:
            change(*names, **where)
        except PermissionError:
            sleep(pause)
        else:
            return
    change(*names, **where)


def write_durably(path: Path, content: bytes) -> None:
    """Write a new file and flush it to disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_capped(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes.

    Raises:
        ValueError: the file is larger, or not regular (a pipe might never end).
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(_("{size:,} bytes, more than {most:,}", size=size, most=most))
        return file.read()


@contextmanager
def open_regular(path: Path) -> Generator[BufferedReader]:
    """A regular file, open for reading.

    Raises:
        ValueError: it is not regular (a pipe might never end).
        OSError: it cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(_("not a regular file"))
        yield file


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, if the system supports it."""
    if os.name == "nt":  # Windows cannot flush a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, content: bytes) -> None:
    """Replace the content of `path` atomically."""
    beside = path.with_name(temporary_name(path.name))
    with storage(path):
        try:
            write_durably(beside, content)
            insist(os.replace, beside, path)
            sync_folder(path.parent)
        finally:
            insist(beside.unlink, missing_ok=True)


def create_durably(path: Path, content: bytes) -> None:
    """Write a new file, whole or not at all.

    Raises:
        FileExistsError: something stands at `path`; it stays as it is.
        StorageError: it cannot be written.
    """
    with suppress(OSError):
        for left in path.parent.iterdir():
            if left.name.startswith(f".{path.name}.") and is_left_behind(left.name):
                left.unlink(missing_ok=True)
    if os.path.lexists(path):
        raise FileExistsError(path)
    beside = path.with_name(temporary_name(path.name))
    with storage(path):
        try:
            write_durably(beside, content)
            exists = not _take_name(beside, path)
            sync_folder(path.parent)
        finally:
            insist(beside.unlink, missing_ok=True)
    if exists:
        raise FileExistsError(path)


def _take_name(beside: Path, path: Path) -> bool:
    """Give a file the name `path` too, unless something has it; return whether it was free."""
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            return False
        insist(os.rename, beside, path)
    return True


def temporary_name(name: str) -> str:
    """A name for the next content of the file or folder `name`, beside it; of this machine, process and thread."""
    return f".{name}.{_machine()}-{os.getpid()}-{threading.get_ident()}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a file or folder of this name is one of `temporary_name`, of whatever process."""
    return _TEMPORARY.fullmatch(name) is not None


def is_left_behind(name: str) -> bool:
    """Whether a file or folder of this name is one of `temporary_name`, of a process of this machine that has ended.

    >>> is_left_behind(temporary_name("best")), is_left_behind("notes.tmp")
    (False, False)
    """
    found = _TEMPORARY.fullmatch(name)
    return found is not None and found[1] in (None, _machine()) and not _is_alive(int(found[2]))


@cache
def _machine() -> str:
    """A number of this machine, or of this container: on a shared disk, processes that cannot be seen may be running.

    It stays the same when the machine starts anew. The numbering of processes tells containers of one name apart.
    """
    known = [platform.node()]
    with suppress(OSError, ValueError):
        known.append(Path("/etc/machine-id").read_text(encoding="ascii").strip())
    with suppress(OSError):
        known.append(os.readlink("/proc/self/ns/pid"))
    return f"{zlib.crc32(' '.join(known).encode()):08x}"


def _is_alive(process: int) -> bool:
    if process == os.getpid():
        return True
    if os.name == "nt":  # a signal of number 0 would end the process there
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def as_json(data: Any) -> bytes:
    """Indented UTF-8 JSON with a newline at the end."""
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
