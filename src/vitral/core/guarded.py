"""The one door into a folder that somebody else may have made: a run or a study.

Links in the path that the user typed are followed once, when the folder is opened. Inside the folder no link is
followed, so that nothing outside it is read, overwritten or removed. Where the system can open a file relative to an
open folder (Linux, macOS) this holds even while somebody changes the folder; elsewhere (Windows) every part of a path
is looked at just before it is used.

Only regular files are read, and never more than a stated number of bytes. A file is written beside its place and
renamed. A file that is appended to is copied first if it has other hard links, so that a snapshot made of hard links
keeps its content.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from vitral.core.errors import UsageError
from vitral.core.files import insist, is_left_behind, storage, temporary_name
from vitral.core.language import N_, _

Kind = Literal["file", "folder", "link", "other"]

RELATIVE = {os.open, os.stat, os.mkdir, os.unlink, os.rmdir, os.rename} <= os.supports_dir_fd
"""Whether this system can name a file relative to an open folder."""

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FLAGS = _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)
_PIECE = 1 << 20


class NotOurs(UsageError):
    """A link, a device or another strange object stands where a file or folder of ours is expected."""


class GuardedFolder:
    """A folder in which no link is followed.

    Names are paths relative to the folder, with `/` between their parts.

    Attributes:
        path: the folder as the user typed it, for messages.
    """

    def __init__(self, path: str | Path) -> None:
        """Follow the links in `path`; the folder need not exist yet."""
        self.path = Path(path)
        self._root = os.path.realpath(path)
        self._inside: tuple[str, ...] = ()

    def within(self, name: str) -> "GuardedFolder":
        """The folder `name` inside this one, guarded in the same way."""
        inner = GuardedFolder.__new__(GuardedFolder)
        inner.path, inner._root = self.path / name, self._root
        inner._inside = (*self._inside, *_parts(name))
        return inner

    def kind(self, name: str) -> Kind | None:
        """What stands at `name`, itself and not the target of a link; None if there is nothing."""
        try:
            with self._beside(name) as (folder, last):
                return _kind(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, name: str = "") -> list[str]:
        """The names in a folder, sorted; empty if it does not exist.

        Raises:
            NotOurs: it is a link or a file.
        """
        try:
            with self._folder(name) as folder:
                return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def size(self, name: str) -> int:
        """The bytes of a regular file.

        Raises:
            NotOurs: it is not a regular file.
            OSError: it does not exist.
        """
        with self.stream(name) as file:
            return os.fstat(file.fileno()).st_size

    def modified(self, name: str) -> float:
        """When a regular file was written last, in seconds of Unix time.

        Raises:
            NotOurs: it is not a regular file.
            OSError: it does not exist.
        """
        with self.stream(name) as file:
            return os.fstat(file.fileno()).st_mtime

    def read(self, name: str, most: int) -> bytes:
        """The bytes of a regular file.

        Raises:
            NotOurs: it is not a regular file, or a link.
            ValueError: it has more than `most` bytes.
            OSError: it cannot be read.
        """
        with self.stream(name) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1) if size <= most else b""  # one more: it may have grown
        if max(size, len(content)) > most:
            raise ValueError(_("{size:,} bytes, more than {most:,}", size=max(size, len(content)), most=most))
        return content

    @contextmanager
    def stream(self, name: str) -> Generator[BinaryIO]:
        """A regular file, open for reading inside the block.

        Raises:
            NotOurs: it is not a regular file, or a link.
            OSError: it cannot be read.
        """
        with self._open(name, os.O_RDONLY) as descriptor, open(descriptor, "rb", closefd=False) as file:
            yield file

    @contextmanager
    def held(self, name: str) -> Generator[int]:
        """The descriptor of a file, created if it does not exist, open for reading and writing inside the block.

        Raises:
            NotOurs: it is not a regular file, or a link.
            OSError: it cannot be opened.
        """
        with self._open(name, os.O_RDWR | os.O_CREAT) as descriptor:
            yield descriptor

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file durably: written beside its place, flushed to disk, renamed.

        Raises:
            NotOurs: a folder on the way is a link.
            StorageError: the file cannot be written; a former one is intact.
        """
        with storage(self.path / name), self._beside(name) as (folder, last):
            _replace(last, folder, [content])

    def write_new(self, name: str, content: bytes) -> None:
        """Write a new file in place and flush it; the folder it is in is not flushed.

        Raises:
            StorageError: the file exists or cannot be written.
        """
        with storage(self.path / name), self._beside(name) as (folder, last):
            _write(last, folder, [content])

    def create(self, name: str, content: bytes) -> bool:
        """Write a file that does not exist yet, whole or not at all; return whether it is ours.

        Of several processes, on whatever machines, that create the same name, one succeeds. It is written beside its
        place and given its name by a hard link, or, on a file system without them, created exclusively.

        Raises:
            NotOurs: a folder on the way is a link.
            StorageError: it cannot be written.
        """
        with (
            storage(self.path / name),
            self._beside(name) as (folder, last),
            _written_beside(last, folder, [content]) as beside,
        ):
            is_ours = _named_first(beside, last, folder, content)
            _sync(folder)
        return is_ours

    def append(self, name: str, content: bytes) -> None:
        """Append to a file, which is created if it does not exist.

        Raises:
            NotOurs: it is a link or not a regular file.
            StorageError: it cannot be written.
        """
        with storage(self.path / name):
            with self._open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as descriptor:
                if os.fstat(descriptor).st_nlink == 1:
                    _write_all(descriptor, content)
                    return
            self.copy(name, name)
        self.append(name, content)

    def copy(self, name: str, to: str, most: int | None = None) -> None:
        """Copy a file, or its first `most` bytes, durably; it may be copied to its own name.

        Raises:
            NotOurs: it is a link or not a regular file.
            StorageError: it cannot be written.
        """
        with storage(self.path / to), self.stream(name) as file, self._beside(to) as (folder, last):
            _replace(last, folder, _pieces(file, most))

    def make(self, name: str = "") -> None:
        """Create a folder, unless it exists; the folders above it too.

        Raises:
            NotOurs: something else stands there, or a link.
            StorageError: it cannot be created.
        """
        with storage(self.path / name):
            os.makedirs(self._root, exist_ok=True)
            parts = (*self._inside, *_parts(name))
            top = self.__class__(self._root)
            top.path = self.path if not self._inside else self.path.parents[len(self._inside) - 1]
            for number in range(1, len(parts) + 1):
                with top._beside("/".join(parts[:number])) as (folder, last), contextlib.suppress(FileExistsError):
                    os.mkdir(last, dir_fd=folder)
            with top._folder("/".join(parts)):
                pass

    def rename(self, name: str, to: str) -> None:
        """Rename a file or folder inside this folder; a link is renamed itself.

        Raises:
            OSError: it cannot be renamed.
        """
        with self._beside(name) as (folder, last), self._beside(to) as (target, target_last):
            insist(os.rename, last, target_last, src_dir_fd=folder, dst_dir_fd=target)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself, if there is one.

        Raises:
            OSError: it cannot be removed.
        """
        with contextlib.suppress(FileNotFoundError), self._beside(name) as (folder, last):
            insist(os.unlink, last, dir_fd=folder)

    def remove_folder(self, name: str, ours: Callable[[str], bool]) -> bool:
        """Remove a real folder that contains nothing but files and folders of ours; return whether it is gone.

        Args:
            name: the folder.
            ours: whether a path inside it, relative to it, is one that Vitral writes.
        """
        try:
            inside = list(self._everything(name))
            if not all(kind in ("file", "folder") and ours(path) for path, kind in inside):
                return False
            for path, kind in reversed(inside):
                with self._beside(f"{name}/{path}") as (folder, last):
                    insist(os.rmdir if kind == "folder" else os.unlink, last, dir_fd=folder)
            with self._beside(name) as (folder, last):
                insist(os.rmdir, last, dir_fd=folder)
        except (OSError, NotOurs):
            return self.kind(name) is None
        return True

    def sweep(self, name: str = "") -> None:
        """Remove the temporary files of ended processes from a folder."""
        for left in self.names(name):
            if is_left_behind(left):
                with contextlib.suppress(OSError):
                    self.remove(f"{name}/{left}" if name else left)

    def sync(self, name: str = "") -> None:
        """Flush a file, or the names in a folder, to disk."""
        with storage(self.path / name):
            if name and self.kind(name) == "file":
                with self._open(name, os.O_RDWR) as descriptor:
                    os.fsync(descriptor)
            else:
                with self._folder(name) as folder:
                    _sync(folder if isinstance(folder, int) else None)

    @contextmanager
    def lent(self, name: str = "") -> Generator[str]:
        """A path of a folder inside this one, for a library that writes files itself, valid inside the block."""
        with self._folder(name) as folder:
            by_descriptor = f"/proc/self/fd/{folder}"
            usable = isinstance(folder, int) and os.path.isdir(by_descriptor)
            yield by_descriptor if usable else os.path.join(self._root, *self._inside, *_parts(name))

    @contextmanager
    def _open(self, name: str, flags: int) -> Generator[int]:
        """A regular file, open inside the block."""
        with self._beside(name) as (folder, last):
            try:
                descriptor = os.open(last, flags | _FLAGS, 0o666, dir_fd=folder)
            except OSError as error:
                self._explain(name, folder, last)
                raise error
            try:
                kind = _kind(os.fstat(descriptor).st_mode)
                if kind != "file":
                    raise self._refusal(name, kind)
                yield descriptor
            finally:
                os.close(descriptor)

    @contextmanager
    def _folder(self, name: str) -> Generator[int | str]:
        """A folder inside this one: open, as a descriptor, or where that is not possible, its path."""
        parts = (*self._inside, *_parts(name))
        if not RELATIVE:
            path = self._root
            for part in parts:
                path = os.path.join(path, part)
                if _kind(os.lstat(path).st_mode) != "folder":
                    raise self._refusal(name, _kind(os.lstat(path).st_mode))
            yield path
            return
        flags = os.O_RDONLY | _FOLDER | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(self._root, flags)
        try:
            for part in parts:
                try:
                    inner = os.open(part, flags | _NO_LINK, dir_fd=descriptor)
                except OSError as error:
                    self._explain(name, descriptor, part, ("link", "other", "file"))
                    raise error
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _beside(self, name: str) -> Generator[tuple[int | None, str]]:
        """The open folder that contains `name` and the last part of the name; or None and the whole path."""
        *parts, last = _parts(name)
        with self._folder("/".join(parts)) as folder:
            yield (folder, last) if isinstance(folder, int) else (None, os.path.join(folder, last))

    def _everything(self, name: str, inside: str = "") -> Iterator[tuple[str, Kind | None]]:
        """Every path inside a folder, relative to it, a folder before its content."""
        for last in self.names(f"{name}/{inside}" if inside else name):
            path = f"{inside}/{last}" if inside else last
            kind = self.kind(f"{name}/{path}")
            yield path, kind
            if kind == "folder":
                yield from self._everything(name, path)

    def _explain(self, name: str, folder: int | None, last: str, refused: tuple[Kind, ...] = ("link", "other")) -> None:
        """Refuse what could not be opened if it is not a file or folder at all."""
        try:
            kind = _kind(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode)
        except OSError:
            return
        if kind in refused:
            raise self._refusal(name, kind) from None

    def _refusal(self, name: str, kind: Kind) -> NotOurs:
        kinds = {
            "link": N_("a link"),
            "other": N_("a device or a pipe"),
            "folder": N_("a folder"),
            "file": N_("a file"),
        }
        return NotOurs(
            "{path}: is {kind}, or lies behind one; inside this folder Vitral uses only regular "
            "files and real folders; remove it or put the file itself there",
            path=self.path / name,
            kind=_(kinds[kind]),
        )


def _parts(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("/")) if name else ()
    if any(part in ("", ".", "..") or "\0" in part or os.sep in part for part in parts):
        raise NotOurs("{name!a:.80} is not a name inside a folder", name=name)
    return parts


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def _pieces(file: BinaryIO, most: int | None) -> Iterator[bytes]:
    while piece := file.read(_PIECE if most is None else min(_PIECE, most)):
        most = None if most is None else most - len(piece)
        yield piece


def _replace(name: str, folder: int | None, pieces: Iterable[bytes]) -> None:
    with _written_beside(name, folder, pieces) as beside:
        insist(os.replace, beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        _sync(folder)


@contextmanager
def _written_beside(name: str, folder: int | None, pieces: Iterable[bytes]) -> Generator[str]:
    """A file with this content under a temporary name beside `name`, gone after the block."""
    head, last = os.path.split(name)
    beside = os.path.join(head, temporary_name(last))
    with contextlib.suppress(FileNotFoundError):  # left behind by an ended process with our number
        insist(os.unlink, beside, dir_fd=folder)
    try:
        _write(beside, folder, pieces)
        yield beside
    finally:
        with contextlib.suppress(OSError):
            insist(os.unlink, beside, dir_fd=folder)


def _named_first(beside: str, name: str, folder: int | None, content: bytes) -> bool:
    """Give a file its name, unless something has it; return whether it was free."""
    try:
        os.link(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        # A server's answer that was lost on the way is asked for again, and then is "exists" although it was free.
        return os.stat(beside, dir_fd=folder).st_nlink > 1
    except OSError:
        if os.stat(beside, dir_fd=folder).st_nlink > 1:
            return True
        try:
            _write(name, folder, [content])
        except FileExistsError:
            return False
    return True


def _write(name: str, folder: int | None, pieces: Iterable[bytes]) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666, dir_fd=folder)
    try:
        for piece in pieces:
            _write_all(descriptor, piece)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def _sync(folder: int | None) -> None:
    if folder is not None:  # Windows cannot flush a folder
        os.fsync(folder)
