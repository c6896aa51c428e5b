"""Files that survive a kill: written beside their place, flushed to disk, renamed; read only if they are regular.

Inside a run or a study no link is read or written (`read`, `names`, `make`, `append`). A path that the user typed may
have links.

A seal, the hash of what was written, detects every accidental change. It is no protection from an attacker, who can
compute a new hash.
"""

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import threading
import zlib
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from time import sleep
from typing import Any, cast

from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.language import N_

PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Seconds before each further attempt at a change of names that the system refuses."""
_TEMPORARY = re.compile(r"\..+\.(?:([0-9a-f]{8})-)?(\d{1,10})(?:-\d{1,20})?\.tmp", re.DOTALL)
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""A pipe that nobody reads or writes must not keep us waiting."""


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
        full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None))
        room = N_("the disk is full: free some space; what was saved before is intact")
        raise StorageError(
            "{path}: cannot be written ({reason}); {advice}",
            path=path,
            reason=reason(error),
            advice=room if full else N_("check the folder"),
        ) from None


@contextmanager
def readable(path: Path) -> Generator[None]:
    """Convert what reading raises inside the block to one line that names `path`.

    Raises:
        UsageError: the file is missing, too large, not regular, or cannot be read.
    """
    try:
        yield
    except (UsageError, StorageError):
        raise
    except (OSError, ValueError) as error:
        raise UsageError("{path}: cannot be read ({reason})", path=path, reason=reason(error)) from None


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


def read_capped(path: Path, most: int, *, links: bool = True) -> bytes:
    """The bytes of a regular file of at most `most` bytes; see `open_regular`.

    Raises:
        ValueError: the file is larger, or not regular.
        OSError: the file cannot be read.
    """
    with open_regular(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(N_("{size:,} bytes, more than {most:,}").format(size=size, most=most))
        return file.read(size)


def read(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes in a run or a study.

    Raises:
        ValueError: the file is larger, a link, or not regular.
        OSError: the file cannot be read.
    """
    return read_capped(path, most, links=False)


@contextmanager
def open_regular(path: Path, *, links: bool = True) -> Generator[BufferedReader]:
    """A regular file, open for reading.

    Args:
        path: the file.
        links: whether it may be a link.

    Raises:
        ValueError: it is not regular (a pipe might never end), or a link.
        OSError: it cannot be read.
    """
    if not links and path.is_symlink():
        raise ValueError(N_("a link"))
    with open(os.open(path, os.O_RDONLY | _FLAGS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(N_("not a regular file"))
        yield file


def are_of_a_run(names: Collection[str]) -> bool:
    """Whether a folder with these names in it is a run, whole or in part.

    >>> are_of_a_run(["steps", "config.toml"]), are_of_a_run(["src", "config.toml"])
    (True, False)
    """
    return ("run.json" in names or "config.toml" in names) and ("metrics.jsonl" in names or "steps" in names)


def names(folder: Path) -> list[str]:
    """The names in a folder inside a run or a study, sorted; empty if it does not exist.

    Raises:
        UsageError: it is a link, or no folder.
    """
    _require_real(folder)
    return sorted(os.listdir(folder)) if folder.exists() else []


def make(folder: Path) -> None:
    """Create a folder inside a run or a study, and those above it, unless it exists.

    Raises:
        UsageError: it is a link, or no folder.
        StorageError: it cannot be created.
    """
    _require_real(folder)
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _require_real(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(
            "{path}: is a link, or no folder; inside a run or a study Vitral uses only regular files and real folders; "
            "remove it or put the folder itself there",
            path=folder,
        )


def append(path: Path, content: bytes) -> None:
    """Append to a file in a run or a study, which is created if it does not exist.

    Raises:
        StorageError: it is a link, or cannot be written.
    """
    with storage(path):
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        _write(path, content, os.O_APPEND)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file in its place and flush it to disk."""
    _write(path, content, os.O_TRUNC, is_flushed=True)


def _write(path: Path, content: bytes, flag: int, *, is_flushed: bool = False) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flag | _FLAGS, 0o666)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        if is_flushed:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot flush a folder
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, content: bytes) -> None:
    """Replace the content of `path` atomically; a link there is replaced itself."""
    beside = path.with_name(temporary_name(path.name))
    with storage(path):
        try:
            write_durably(beside, content)
            insist(os.replace, beside, path)
            sync(path.parent)
        finally:
            insist(beside.unlink, missing_ok=True)


def require_free(path: Path, *, is_in_folder: bool = False) -> None:
    """Refuse a path at which something stands, before what is to be written there is computed.

    Args:
        path: of a new file.
        is_in_folder: whether its folder must exist, too.

    Raises:
        UsageError: something stands there.
        StorageError: there is no such folder.
    """
    if os.path.lexists(path):
        raise UsageError(
            "{path}: exists already and was not overwritten; delete it, or choose another name or folder", path=path
        )
    if is_in_folder:
        with storage(path):
            os.stat(path.parent)


def create_durably(path: Path, content: bytes) -> None:
    """Write a new file, whole or not at all.

    Raises:
        UsageError: something stands at `path`; it stays as it is.
        StorageError: it cannot be written.
    """
    require_free(path)
    with suppress(OSError):
        sweep(path.parent, f".{path.name}.")
    replace_durably(path, content)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, if it can be; links in it are removed themselves."""
    with suppress(OSError):
        insist(shutil.rmtree, folder)


def sweep(folder: Path, prefix: str = "") -> None:
    """Remove from a folder what processes that have ended left of files and folders whose temporary names begin so."""
    for left in folder.iterdir():
        if left.name.startswith(prefix) and is_left_behind(left.name):
            with suppress(OSError):
                insist(shutil.rmtree if left.is_dir() and not left.is_symlink() else os.unlink, left)


def temporary_name(name: str) -> str:
    """A name for the next content of the file or folder `name`, beside it; of this machine, process and thread."""
    return f".{name}.{_machine()}-{os.getpid()}-{threading.get_ident()}.tmp"


def is_left_behind(name: str) -> bool:
    """Whether a file or folder of this name is one of `temporary_name`, of a process of this machine that has ended.

    >>> is_left_behind(temporary_name("best")), is_left_behind("notes.tmp")
    (False, False)
    """
    match = _TEMPORARY.fullmatch(name)
    return match is not None and match[1] in (None, _machine()) and not _is_alive(int(match[2]))


@cache
def _machine() -> str:
    """A number of this machine: on a shared disk, processes that cannot be seen may be running."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _is_alive(process: int) -> bool:
    if os.name == "nt":  # a signal of number 0 would end the process there
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it is another user's
    return True


def as_json(data: Any) -> bytes:
    """Indented UTF-8 JSON with a newline at the end."""
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


SEAL = "sha256"


def sealed_json(content: Mapping[str, Any]) -> bytes:
    """Plain data as JSON with a last key "sha256", the hash of the JSON without it.

    >>> unsealed_json(sealed_json({"a": 1}))
    {'a': 1}
    """
    return as_json({**content, SEAL: sha256(as_json(dict(content)))})


def unsealed_json(raw: bytes) -> dict[str, Any]:
    """The plain data of `sealed_json`.

    Raises:
        ValueError: it does not agree with its hash, or is no JSON object.
    """
    content = json_object(raw)
    seal = content.pop(SEAL, None)
    if seal is None or raw != sealed_json(content):
        raise ValueError(N_("its content does not agree with its SHA-256"))
    return content


def json_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in these bytes, sealed or not.

    Raises:
        ValueError: there is none.
    """
    try:
        content: Any = json.loads(raw)
    except RecursionError:
        raise ValueError(N_("it is nested too deeply")) from None
    if not isinstance(content, dict):
        raise ValueError(N_("it is not a JSON object"))
    return cast("dict[str, Any]", content)


def listing(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Size and hash of each file, for a manifest.

    >>> listing({"a": b"hello"})["a"]["bytes"]
    5
    """
    return {name: {"bytes": len(content), "sha256": sha256(content)} for name, content in files.items()}


MANIFEST = "MANIFEST.json"
MOST_MANIFEST = 1 << 22
"""Maximum bytes of a manifest; more than ten thousand files."""
MOST_FILE = 1 << 28
"""Maximum bytes of a page or a figure."""


def manifest(files: Mapping[str, bytes]) -> bytes:
    """The manifest of a folder of pages and figures, of these files by their names."""
    return sealed_json({"format": 1, "files": listing(files)})


def check_report(folder: Path) -> list[str]:
    """Complaints about a report folder, one line each: files that are missing or were changed since they were written.

    A folder that does not exist, or is empty, has no report and no complaint.
    """
    complaints = list[str]()

    @contextmanager
    def noted(name: str) -> Generator[None]:
        try:
            yield
        except (ValueError, LookupError, TypeError, AttributeError, OSError) as error:
            complaints.append(N_("{name!a:.80}: {what}; write the report again").format(name=name, what=reason(error)))

    with noted(MANIFEST):
        listed: dict[str, Any] = unsealed_json(read(folder / MANIFEST, MOST_MANIFEST))["files"] if names(folder) else {}
        for name, facts in listed.items():
            with noted(name):
                if listing({name: read(folder / name, MOST_FILE)})[name] != facts:
                    raise ValueError(N_("was changed since it was written"))
    return complaints
