"""Tokens on disk: one small binary file, memory-mapped, verified when it is opened.

The file is: 8 bytes of magic, the length of the header (8 bytes, little-endian), the SHA-256 of the header (32 bytes),
the header (JSON), zeros up to a multiple of 64, and the payload: the tokens of train, validation and test, one part
after the other, little-endian. The header holds the version, the dtype, the fingerprint of what was encoded, the
payload's SHA-256, and for each part its number of tokens and its stretches.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from vitral.core.errors import StorageError
from vitral.data.reading import shown
from vitral.data.split import PARTS

MAGIC = b"VITRALTK"
VERSION = 1

_ALIGNMENT = 64
_THIN = 50_000
_PREFIX = len(MAGIC) + 8 + 32
_DTYPES = {"uint8": "<u1", "uint16": "<u2", "uint32": "<u4"}


class DamagedStore(Exception):
    """A file of tokens is not what it says it is, and has to be made again."""


@dataclass(frozen=True, eq=False)
class Split:
    """The tokens of one part of a text.

    Attributes:
        tokens: 1-d, uint8, uint16 or uint32, usually memory-mapped and read-only.
        segments: `[n, 2]` int64, begin and end in `tokens` of each run of neighbouring blocks; a window stays in one.
    """

    tokens: np.ndarray
    segments: np.ndarray


def thinned(part: Split, most_tokens: int | None) -> Split:
    """A part with fewer stretches, spread evenly over it, where it has more than so many tokens; else the part.

    Long stretches are cut, so that there is something to choose from.
    """
    lengths = part.segments[:, 1] - part.segments[:, 0]
    if most_tokens is None or lengths.sum() <= most_tokens:
        return part
    size = max(1, min(_THIN, most_tokens // 8))
    pieces = -(-lengths // size)
    wanted = max(1, most_tokens * int(pieces.sum()) // int(lengths.sum()))  # where stretches are short, so are pieces
    while True:
        segments = _spread(part.segments, pieces, size, wanted)
        taken = int((segments[:, 1] - segments[:, 0]).sum())
        if taken <= most_tokens:
            return Split(part.tokens, segments)
        wanted = max(1, min(wanted - 1, wanted * most_tokens // taken))


def _spread(
    segments: Int[np.ndarray, "segments 2"], pieces: Int[np.ndarray, " segments"], size: int, wanted: int
) -> Int[np.ndarray, "wanted 2"]:
    """So many of the pieces into which the stretches are cut, evenly spread."""
    ends = np.cumsum(pieces)
    chosen = np.linspace(0, int(ends[-1]), wanted, endpoint=False).astype(np.int64)
    segment = np.searchsorted(ends, chosen, side="right")
    begins = segments[segment, 0] + (chosen - (ends - pieces)[segment]) * size
    return np.stack([begins, np.minimum(begins + size, segments[segment, 1])], axis=1)


@dataclass(frozen=True, eq=False)
class Store:
    """An open file of tokens.

    Attributes:
        splits: name -> its tokens.
        sha256: SHA-256 of the payload, in hexadecimal.
    """

    splits: dict[str, Split]
    sha256: str


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest unsigned type that holds every id of a vocabulary.

    >>> token_dtype(256), token_dtype(257), token_dtype(65_537)
    (dtype('uint8'), dtype('uint16'), dtype('uint32'))
    """
    sizes = {"uint8": 1 << 8, "uint16": 1 << 16, "uint32": 1 << 32}
    return np.dtype(next(_DTYPES[name] for name, size in sizes.items() if vocab_size <= size))


def write_store(path: Path, parts: Mapping[str, Split], fingerprint: str) -> None:
    """Write the parts to a file, whole or not at all.

    Args:
        path: the file, replaced if it exists.
        parts: the tokens of train, validation and test, all of one dtype of `token_dtype`.
        fingerprint: what these tokens are of; `open_store` asks for it again.

    Raises:
        StorageError: the disk did not take it.
    """
    tokens = [np.ascontiguousarray(parts[part].tokens) for part in PARTS]
    digest = hashlib.sha256()
    for array in tokens:
        digest.update(array.data)
    header = {
        "version": VERSION,
        "dtype": tokens[0].dtype.name,
        "fingerprint": fingerprint,
        "sha256": digest.hexdigest(),
        "parts": {
            part: {"tokens": int(parts[part].tokens.size), "stretches": parts[part].segments.tolist()} for part in PARTS
        },
    }
    encoded = json.dumps(header).encode("ascii")
    prefix = MAGIC + len(encoded).to_bytes(8, "little") + hashlib.sha256(encoded).digest() + encoded
    write_atomically(path, [prefix, bytes(-len(prefix) % _ALIGNMENT), *(array.data for array in tokens)])


def open_store(path: Path, fingerprint: str) -> Store:
    """Map a file of tokens into memory, once everything in it has been verified.

    Raises:
        FileNotFoundError: there is none.
        DamagedStore: it is cut short, changed, of another version, or of something else.
    """
    header, begin = _read_header(path)
    try:
        dtype, counts = np.dtype(_DTYPES[header["dtype"]]), [header["parts"][part]["tokens"] for part in PARTS]
        expected = header["version"], header["fingerprint"], begin + sum(counts) * dtype.itemsize
        if expected != (VERSION, fingerprint, path.stat().st_size):
            raise DamagedStore("another version, another text, or another size")
        tokens = np.memmap(path, dtype=dtype, mode="r", offset=begin, shape=(sum(counts),))
        if hashlib.sha256(tokens.data).hexdigest() != header["sha256"]:
            raise DamagedStore("the tokens do not have the SHA-256 that was recorded")
        parts = {}
        for part, end, count in zip(PARTS, np.cumsum(counts).tolist(), counts, strict=True):
            segments = np.asarray(header["parts"][part]["stretches"], dtype=np.int64).reshape(-1, 2)
            parts[part] = Split(tokens[end - count : end], segments)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedStore(f"the header is not one: {error}") from None
    return Store(parts, header["sha256"])


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, verified by its own SHA-256, and the offset of the payload."""
    with path.open("rb") as file:
        prefix = file.read(_PREFIX)
        length = int.from_bytes(prefix[len(MAGIC) : len(MAGIC) + 8], "little")
        if not prefix.startswith(MAGIC) or length > path.stat().st_size:
            raise DamagedStore("not a file of tokens")
        encoded = file.read(length)
    if hashlib.sha256(encoded).digest() != prefix[len(MAGIC) + 8 :]:
        raise DamagedStore("the header does not have the SHA-256 that was recorded")
    end = _PREFIX + length
    return json.loads(encoded), end + -end % _ALIGNMENT


def write_atomically(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file under a temporary name beside it, wait for the disk, and rename it: whole or not at all.

    Raises:
        StorageError: the disk did not take it; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise StorageError(
            f"{shown(path)}: cannot be written ({error.strerror}); make room there or point VITRAL_CACHE elsewhere"
        ) from None
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # The folder itself may be out of reach; the error that matters is already on its way.
        return
