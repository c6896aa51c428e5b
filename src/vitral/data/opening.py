"""Opening a user's files: regular ones only, with one-line errors."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from vitral.core.errors import UsageError, VitralError, reason
from vitral.core.language import N_


def shown(path: str | os.PathLike[str]) -> str:
    """A path for a message: one line, without control characters or undecodable bytes."""
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        UsageError: the file cannot be read, is not regular (a pipe would block), or does not fit into memory.
    """
    with opened(path) as file:
        return all_of(file)


@contextmanager
def opened(path: Path, trouble: str = N_("{path}: cannot be read ({reason})")) -> Generator[BinaryIO]:
    """A regular file, opened once, for reading inside the block; links are followed.

    Args:
        path: the file.
        trouble: the sentence of the error where it cannot be.

    Raises:
        UsageError: the file cannot be opened or read, is not regular, or does not fit into memory.
    """
    try:
        # A device may act when it is opened, so it is refused before; O_NONBLOCK and the second look are for a file
        # that is exchanged for a pipe in between.
        _require_regular(os.stat(path), path)
        flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY", "O_CLOEXEC"))
        with open(os.open(path, flags), "rb") as file:
            _require_regular(os.fstat(file.fileno()), path)
            yield file
    except VitralError:
        raise
    except OSError as error:
        raise UsageError(trouble, path=shown(path), reason=reason(error)) from None
    except ValueError as error:
        raise UsageError(trouble, path=shown(path), reason=error) from None
    except MemoryError:
        raise UsageError("{path}: too large for this machine's memory; use a smaller file", path=shown(path)) from None


def _require_regular(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError("{path}: not a regular file; give a text file or a folder of text files", path=shown(path))


def all_of(file: BinaryIO) -> bytes:
    """All bytes of an open file.

    Raises:
        BlockingIOError: reading would block.
    """
    content: bytes | None = file.read()
    if content is None:  # a file of /proc that would block until the system has something to say
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return content


def stamp_of(descriptor: int) -> tuple[int, int]:
    """Size and modification time of an open file."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def changed(path: Path) -> UsageError:
    """The error of a file that changed between two looks at it."""
    return UsageError("{path}: has changed while it was read; try again when nothing writes to it", path=shown(path))
