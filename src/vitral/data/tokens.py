"""Tokens on disk: plain little-endian files of ids, one for each split, with a manifest beside them.

    FOLDER/train.bin, validation.bin, test.bin   ids and nothing else, as nanoGPT writes them
    FOLDER/manifest.json                         dtype, and of each split its tokens, its SHA-256 and its segments

They are written in one pass, whatever their length, and opened by memory map after all of them was verified.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vitral.core.errors import StorageError, reason
from vitral.core.files import insist, remove_folder, temporary_name
from vitral.core.language import N_
from vitral.data.batches import Split
from vitral.data.opening import shown
from vitral.data.split import SPLITS

MANIFEST = "manifest.json"
VERSION = 1
DTYPES = ("uint16", "uint32")
_BUFFER = 1 << 20


class DamagedStore(Exception):
    """Stored tokens are damaged or those of another text, and must be made again."""


class Piece(NamedTuple):
    """Tokens that follow one another in a text.

    Attributes:
        split: the split they belong to.
        is_first: whether a segment begins with them.
        tokens: their ids.
    """

    split: str
    is_first: bool
    tokens: np.ndarray


@dataclass(frozen=True, eq=False)
class Store:
    """Open tokens.

    Attributes:
        splits: name -> its tokens.
        sha256: SHA-256 of the manifest, in hexadecimal, which names the tokens by theirs.
    """

    splits: dict[str, Split]
    sha256: str


def token_dtype(vocab_size: int) -> np.dtype:
    """The dtype for the ids of a vocabulary.

    >>> token_dtype(65_536), token_dtype(65_537)
    (dtype('uint16'), dtype('uint32'))
    """
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def stored(folder: Path, vocab_size: int, make: Iterable[Piece]) -> tuple[Store, str]:
    """The tokens of a folder, made first if they are not there; and what was wrong with them if they were damaged.

    Args:
        folder: whose name is the fingerprint of the dataset.
        vocab_size: tokens of its vocabulary.
        make: the tokens, asked for only if they must be made.

    Raises:
        UsageError: the tokens cannot be made.
        StorageError: they cannot be written, or not read back.
    """
    damage = ""
    if folder.exists():
        try:
            return read(folder), ""
        except DamagedStore as error:
            damage = str(error)
    write(folder, token_dtype(vocab_size), make)
    try:
        return read(folder), damage
    except DamagedStore as error:
        raise _unwritable(folder, error) from None


def write(folder: Path, dtype: np.dtype, pieces: Iterable[Piece]) -> None:
    """Write the tokens of all splits in one pass, to a folder that is whole or not there at all.

    Raises:
        StorageError: it cannot be written; nothing is left behind.
    """
    beside = folder.with_name(temporary_name(folder.name))
    try:
        remove_folder(beside)  # left behind by an ended process with our number
        beside.mkdir(parents=True)
        _fill(beside, dtype, pieces)
        with suppress(FileNotFoundError):
            insist(os.rename, folder, beside / "damaged")
        try:
            insist(os.rename, beside, folder)
        except OSError:
            if not (folder / MANIFEST).is_file():  # another process was faster, with the same tokens
                raise
        remove_folder(folder / "damaged")
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        remove_folder(beside)


def _fill(folder: Path, dtype: np.dtype, pieces: Iterable[Piece]) -> None:
    segments: dict[str, list[int]] = {split: [] for split in SPLITS}
    digests = {split: hashlib.sha256() for split in SPLITS}
    with ExitStack() as opened:
        files = {split: opened.enter_context((folder / f"{split}.bin").open("xb", _BUFFER)) for split in SPLITS}
        for split, is_first, tokens in pieces:
            raw = np.ascontiguousarray(tokens, dtype).data
            files[split].write(raw)
            digests[split].update(raw)
            segments[split] += [0] if is_first else []
            segments[split][-1] += tokens.size
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    told = {
        split: {"tokens": sum(lengths), "sha256": digests[split].hexdigest(), "segments": lengths}
        for split, lengths in segments.items()
    }
    (folder / MANIFEST).write_text(json.dumps({"version": VERSION, "dtype": dtype.name, "splits": told}), "ascii")


def read(folder: Path) -> Store:
    """Open the tokens in a folder after verifying all of them.

    Raises:
        DamagedStore: a file is missing, cut or changed, or of another version.
    """
    try:
        raw = (folder / MANIFEST).read_bytes()
        manifest = json.loads(raw)
        if manifest["version"] != VERSION or manifest["dtype"] not in DTYPES:
            raise DamagedStore(N_("another version"))
        opened = {split: _split(folder / f"{split}.bin", manifest, split) for split in SPLITS}
    except OSError as error:
        raise DamagedStore(reason(error)) from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DamagedStore(N_("the manifest is malformed: {error}").format(error=error)) from None
    return Store(opened, hashlib.sha256(raw).hexdigest())


def _split(path: Path, manifest: dict[str, Any], split: str) -> Split:
    told, dtype = manifest["splits"][split], np.dtype(manifest["dtype"])
    if path.stat().st_size != told["tokens"] * dtype.itemsize:
        raise DamagedStore(N_("{file} has another size").format(file=path.name))
    tokens = np.memmap(path, dtype, "r") if told["tokens"] else np.empty(0, dtype)
    if hashlib.sha256(tokens.data).hexdigest() != told["sha256"]:
        raise DamagedStore(N_("the SHA-256 of {file} does not match").format(file=path.name))
    ends = np.cumsum([0, *told["segments"]])
    if ends.dtype != np.int64 or ends[-1] != tokens.size or (np.diff(ends) < 0).any():
        sentence = N_("the segments of {split} do not cover its {number:,} tokens")
        raise DamagedStore(sentence.format(split=split, number=tokens.size))
    return Split(tokens, np.stack([ends[:-1], ends[1:]], axis=1))


def _unwritable(path: Path, error: Exception) -> StorageError:
    return StorageError(
        "{path}: cannot be written ({reason}); make room there or point VITRAL_CACHE elsewhere",
        path=shown(path),
        reason=reason(error) if isinstance(error, OSError) else error,
    )
