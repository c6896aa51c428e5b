"""Opening a user's files: regular ones only, with one-line errors."""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from vitral.core.errors import UsageError, VitralError, reason
from vitral.core.files import open_regular


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
        return file.read()


@contextmanager
def opened(path: Path) -> Generator[BinaryIO]:
    """A regular file, opened once, for reading inside the block; links are followed.

    Raises:
        UsageError: the file cannot be opened or read, is not regular, or does not fit into memory.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a device may act when it is opened
            raise UsageError("{path}: not a regular file; give a text file or a folder of text files", path=shown(path))
        with open_regular(path) as file:
            yield file
    except VitralError:
        raise
    except (OSError, ValueError) as error:
        said = reason(error) if isinstance(error, OSError) else error
        raise UsageError("{path}: cannot be read ({reason})", path=shown(path), reason=said) from None
    except MemoryError:
        raise UsageError("{path}: too large for this machine's memory; use a smaller file", path=shown(path)) from None


def stamp_of(descriptor: int) -> tuple[int, int]:
    """Size and modification time of an open file."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def changed(path: Path) -> UsageError:
    """The error of a file that changed between two looks at it."""
    return UsageError("{path}: has changed while it was read; try again when nothing writes to it", path=shown(path))
