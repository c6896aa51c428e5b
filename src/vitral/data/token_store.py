"""Stored tokens: the file that keeps the tokens of a dataset in the cache, verified when it is opened.

The file is: 8 bytes of magic, the length of the header (8 bytes, little-endian), the SHA-256 of the header (32 bytes),
the header (JSON), zeros up to a multiple of 64, and the payload: the tokens of train, validation and test, one split
after the other, little-endian. The header contains the version, the dtype, the fingerprint of the dataset, the
payload's SHA-256, and for each split its number of tokens and its segments (key "stretches").

The file is opened once, and no link in its place is followed. It is memory-mapped if nobody but this user and root can
change it; otherwise its tokens are read into memory, since a mapped file may change after it was verified.
"""

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.files import insist, is_left_behind, temporary_name
from vitral.core.guarded import GuardedFolder, NotOurs
from vitral.core.language import N_
from vitral.data.batches import Split
from vitral.data.long_texts import Text
from vitral.data.opening import shown
from vitral.data.split import SPLITS

MAGIC = b"VITRALTK"
VERSION = 1
MOST_HEADER = 1 << 28
"""Bytes of a header; a text of 10 GB needs about five million."""

_ALIGNMENT = 64
_PREFIX = len(MAGIC) + 8 + 32
DTYPES = {"uint8": "<u1", "uint16": "<u2", "uint32": "<u4"}
_SCRATCH = "scratch"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_swept = set[str]()


class DamagedStore(Exception):
    """A token file is damaged or belongs to another dataset, and must be rebuilt."""


@dataclass(frozen=True, eq=False)
class Store:
    """An open token file.

    Attributes:
        splits: name -> its tokens.
        sha256: SHA-256 of the payload, in hexadecimal.
    """

    splits: dict[str, Split]
    sha256: str


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest unsigned dtype for the ids of a vocabulary.

    >>> token_dtype(256), token_dtype(257), token_dtype(65_537)
    (dtype('uint8'), dtype('uint16'), dtype('uint32'))
    """
    sizes = {"uint8": 1 << 8, "uint16": 1 << 16, "uint32": 1 << 32}
    return np.dtype(next(DTYPES[name] for name, size in sizes.items() if vocab_size <= size))


def write_store(path: Path, splits: Mapping[str, Split], fingerprint: str) -> None:
    """Write the splits to a token file atomically.

    Args:
        path: the file, replaced if it exists.
        splits: the tokens of train, validation and test, all of one dtype of `token_dtype`.
        fingerprint: the dataset's fingerprint, which `open_store` checks.

    Raises:
        StorageError: the file cannot be written.
    """
    tokens = [np.ascontiguousarray(splits[split].tokens) for split in SPLITS]
    digest = hashlib.sha256()
    for array in tokens:
        digest.update(array.data)
    header = {
        "version": VERSION,
        "dtype": tokens[0].dtype.name,
        "fingerprint": fingerprint,
        "sha256": digest.hexdigest(),
        "parts": {
            split: {"tokens": int(splits[split].tokens.size), "stretches": splits[split].segments.tolist()}
            for split in SPLITS
        },
    }
    encoded = json.dumps(header).encode("ascii")
    prefix = MAGIC + len(encoded).to_bytes(8, "little") + hashlib.sha256(encoded).digest() + encoded
    write_atomically(path, [prefix, bytes(-len(prefix) % _ALIGNMENT), *(array.data for array in tokens)])


def stored(path: Path, fingerprint: str, vocab_size: int) -> tuple[Store | None, str]:
    """The stored tokens, or None; and what is wrong with an unusable file."""
    try:
        return open_store(path, fingerprint, vocab_size), ""
    except FileNotFoundError:
        return None, ""
    except DamagedStore as damage:
        return None, str(damage)
    except OSError as error:
        return None, str(error.strerror)


def open_store(path: Path, fingerprint: str, vocab_size: int) -> Store:
    """Open a token file after verifying all of it.

    Args:
        path: the file; links in the path of its folder are followed, the file itself must not be a link.
        fingerprint: the fingerprint of the dataset.
        vocab_size: tokens of its vocabulary.

    Raises:
        FileNotFoundError: the file does not exist.
        DamagedStore: the file is truncated, changed, of another version or of another dataset, or is not a regular
            file.
    """
    try:
        with GuardedFolder(path.parent).stream(path.name) as file:
            return _opened(file, path.parent, fingerprint, vocab_size)
    except NotOurs:
        raise DamagedStore(N_("a link or not a regular file")) from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DamagedStore(N_("the header is malformed: {error}").format(error=error)) from None


def _opened(file: BinaryIO, folder: Path, fingerprint: str, vocab_size: int) -> Store:
    size = os.fstat(file.fileno()).st_size
    header, begin = _read_header(file, size)
    dtype, counts = np.dtype(DTYPES[header["dtype"]]), [header["parts"][split]["tokens"] for split in SPLITS]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise DamagedStore(N_("a number of tokens is not a number"))
    if (header["version"], header["fingerprint"], begin + sum(counts) * dtype.itemsize) != (VERSION, fingerprint, size):
        raise DamagedStore(N_("another version, another text, or another size"))
    tokens = _tokens(file, folder, dtype, begin, sum(counts))
    if hashlib.sha256(tokens.data).hexdigest() != header["sha256"]:
        raise DamagedStore(N_("the SHA-256 of the tokens does not match"))
    if tokens.max(initial=0) >= vocab_size:
        raise DamagedStore(N_("a token is not in the vocabulary of {vocab_size:,}").format(vocab_size=vocab_size))
    splits = {}
    for split, end, count in zip(SPLITS, np.cumsum(counts).tolist(), counts, strict=True):
        segments = np.asarray(header["parts"][split]["stretches"], dtype=np.int64).reshape(-1, 2)
        if not _cover(segments, count):
            sentence = N_("the segments of {split} do not cover its {number:,} tokens")
            raise DamagedStore(sentence.format(split=split, number=count))
        splits[split] = Split(tokens[end - count : end], segments)
    return Store(splits, header["sha256"])


def _read_header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """The header, verified by its own SHA-256, and the offset of the payload."""
    prefix = file.read(_PREFIX)
    length = int.from_bytes(prefix[len(MAGIC) : len(MAGIC) + 8], "little")
    if not prefix.startswith(MAGIC) or length > min(size, MOST_HEADER):
        raise DamagedStore(N_("not a token file"))
    encoded = file.read(length)
    if hashlib.sha256(encoded).digest() != prefix[len(MAGIC) + 8 :]:
        raise DamagedStore(N_("the SHA-256 of the header does not match"))
    end = _PREFIX + length
    return json.loads(encoded), end + -end % _ALIGNMENT


def _cover(segments: np.ndarray, count: int) -> bool:
    """Whether the segments follow one another from 0 to `count`."""
    ends = np.concatenate([[0], segments[:, 1]])
    return bool((segments[:, 0] == ends[:-1]).all() and (np.diff(ends) >= 0).all() and ends[-1] == count)


def _tokens(file: BinaryIO, folder: Path, dtype: np.dtype, begin: int, count: int) -> np.ndarray:
    if _only_ours(file.fileno(), folder):
        return np.memmap(file, dtype=dtype, mode="r", offset=begin, shape=(count,))
    file.seek(begin)
    return np.frombuffer(file.read(count * dtype.itemsize), dtype=dtype)


def _only_ours(descriptor: int, folder: Path) -> bool:
    """Whether only this user and root can change an open file."""
    if os.name == "nt":  # no owner numbers, no mode bits; the default cache is in the user's profile, which is private
        return True
    file, around = os.fstat(descriptor), os.stat(folder)
    if file.st_uid not in (0, os.geteuid()):
        return False
    if file.st_mode & _OTHERS_MAY_WRITE:
        # Written by an earlier version under umask 002. Somebody may have it open now; the next time it can be mapped.
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, stat.S_IMODE(file.st_mode) & ~_OTHERS_MAY_WRITE)
        return False
    return not around.st_mode & stat.S_IWOTH or bool(around.st_mode & stat.S_ISVTX)


def write_and_open(path: Path, splits: Mapping[str, Split], fingerprint: str, vocab_size: int) -> Store:
    """Write a token file and open it.

    Raises:
        StorageError: the file cannot be written, or cannot be read back.
    """
    try:
        write_store(path, splits, fingerprint)
    except StorageError:
        # Windows cannot replace a file that another process has just written and mapped: use that file.
        store, _ = stored(path, fingerprint, vocab_size)
        if store is None:
            raise
        return store
    return open_store(path, fingerprint, vocab_size)


def write_atomically(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file that others cannot write: write it beside its place, flush it to disk, and rename it.

    Raises:
        StorageError: the file cannot be written; no temporary file is left behind.
    """
    temporary = path.with_name(temporary_name(path.name))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(temporary)  # left behind by an ended process with our number
        with open(temporary, "xb", opener=_for_us) as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        insist(os.replace, temporary, path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        _remove(temporary)


def _for_us(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o644)


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        "{path}: cannot be written ({reason}); make room there or point VITRAL_CACHE elsewhere",
        path=shown(path),
        reason=reason(error),
    )


def _remove(path: Path) -> None:
    # The folder may be unreachable; the error that matters is raised elsewhere.
    with contextlib.suppress(OSError):
        insist(path.unlink, missing_ok=True)


@contextmanager
def scratch(beside: Path, texts: Sequence[Text]) -> Generator[Path | None]:
    """A temporary folder for the tokens of long texts; None if all texts are in memory.

    Raises:
        StorageError: the folder cannot be written.
    """
    if all(isinstance(text, str) for text in texts):
        yield None
        return
    folder = beside / temporary_name(_SCRATCH)
    try:
        beside.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)  # left behind by an ended process with our number
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except StorageError:
        raise
    except OSError as error:
        raise _unwritable(beside, error) from None


def sweep(folder: Path) -> None:
    """Remove the temporary files and folders of ended processes from a folder of the cache, once in a process."""
    where = os.path.realpath(folder)
    if where in _swept:
        return
    _swept.add(where)
    cache = GuardedFolder(where)
    with contextlib.suppress(OSError, UsageError):
        for name in cache.names():
            if is_left_behind(name):
                kind = cache.kind(name)
                if kind == "file":
                    cache.remove(name)
                elif kind == "folder" and name.startswith(f".{_SCRATCH}."):
                    cache.remove_folder(name, SPLITS.__contains__)
