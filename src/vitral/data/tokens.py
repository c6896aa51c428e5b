"""Tokens on disk: plain little-endian files of ids, one for each split, with a manifest beside them.

    FOLDER/train.bin, validation.bin, test.bin   ids and nothing else, as nanoGPT writes them
    FOLDER/manifest.json                         dtype, and of each split its tokens, its SHA-256 and its segments

They are written in one pass, whatever their length, and opened by memory map after all of them was verified.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from heapq import merge
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from vitral.core.errors import StorageError, reason
from vitral.core.files import insist, remove_folder, sha256, temporary_name
from vitral.core.language import N_
from vitral.data.alphabet import UnseenCharacter
from vitral.data.batches import Split
from vitral.data.long_texts import Text
from vitral.data.sources import cache_folder
from vitral.data.split import SPLITS, Blocks
from vitral.data.tokenizers import Tokenizer, outside_special_tokens

MANIFEST = "manifest.json"
VERSION = 1
DTYPES = ("uint16", "uint32")


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


class Store(NamedTuple):
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


def token_folder() -> Path:
    """The folder of the tokens of all datasets."""
    return cache_folder() / "tokens"


def stored(fingerprint: str, vocab_size: int, make: Iterable[Piece]) -> Store:
    """The tokens of a dataset, made first if they are not there or damaged.

    Args:
        fingerprint: of the dataset.
        vocab_size: tokens of its vocabulary.
        make: the tokens, asked for only if they must be made.

    Raises:
        UsageError: the tokens cannot be made.
        StorageError: they cannot be written, or not read back.
    """
    folder = token_folder() / fingerprint
    store = read(folder)
    if store is None:
        write(folder, token_dtype(vocab_size), make)
        store = read(folder) or _refuse(folder, N_("what was written is not read back"))
    return store


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
        remove_folder(folder)  # it is damaged
        try:
            insist(os.rename, beside, folder)
        except OSError:
            if not (folder / MANIFEST).is_file():  # another process was faster, with the same tokens
                raise
    except OSError as error:
        _refuse(folder, reason(error))
    finally:
        remove_folder(beside)


def _fill(folder: Path, dtype: np.dtype, pieces: Iterable[Piece]) -> None:
    segments: dict[str, list[int]] = {split: [] for split in SPLITS}
    digests = {split: hashlib.sha256() for split in SPLITS}
    with ExitStack() as opened:
        files = {split: opened.enter_context((folder / f"{split}.bin").open("xb")) for split in SPLITS}
        for split, is_first, tokens in pieces:
            raw = np.ascontiguousarray(tokens, dtype).data
            files[split].write(raw)
            digests[split].update(raw)
            segments[split] += [0] if is_first else []
            segments[split][-1] += tokens.size
    manifest = {
        split: {"tokens": sum(lengths), "sha256": digests[split].hexdigest(), "segments": lengths}
        for split, lengths in segments.items()
    }
    (folder / MANIFEST).write_text(json.dumps({"version": VERSION, "dtype": dtype.name, "splits": manifest}), "ascii")


def read(folder: Path) -> Store | None:
    """Open the tokens in a folder after verifying all of them; None if they are not there or damaged."""
    try:
        raw = (folder / MANIFEST).read_bytes()
        manifest = json.loads(raw)
        if manifest["version"] != VERSION or manifest["dtype"] not in DTYPES:
            return None
        return Store({split: _split(folder, manifest, split) for split in SPLITS}, sha256(raw))
    except (OSError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _split(folder: Path, manifest: dict[str, Any], split: str) -> Split:
    entry, path, dtype = manifest["splits"][split], folder / f"{split}.bin", np.dtype(manifest["dtype"])
    is_whole = path.stat().st_size == entry["tokens"] * dtype.itemsize
    tokens = np.memmap(path, dtype, "r") if is_whole and entry["tokens"] else np.empty(0, dtype)
    ends = np.cumsum([0, *entry["segments"]])
    is_covered = ends.dtype == np.int64 and ends[-1] == tokens.size and (np.diff(ends) >= 0).all()
    if not (is_whole and is_covered and hashlib.sha256(tokens.data).hexdigest() == entry["sha256"]):
        raise ValueError
    return Split(tokens, np.stack([ends[:-1], ends[1:]], axis=1))


def _refuse(path: Path, why: str) -> NoReturn:
    raise StorageError(
        "{path}: cannot be written ({reason}); make room there or point VITRAL_CACHE elsewhere",
        path=path,
        reason=why,
    )


def encoded(
    text: Text,
    blocks: Mapping[str, Blocks],
    tokenizer: Tokenizer,
    others: Sequence[tuple[Text, Blocks]] = (),
    replacement: str | None = None,
) -> Iterator[Piece]:
    """The tokens of each block, in the order of the text; each block is encoded alone.

    A border of a block that lies inside a special token is moved to the end of this token, in both blocks.

    Args:
        text: the whole text.
        blocks: split -> its blocks, from `split_corpus`.
        tokenizer: the tokenizer.
        others: further texts and their blocks, which follow in the training split.
        replacement: replaces characters without a token.

    Raises:
        UsageError: the tokenizer has no token for a character; its position in the text is named.
    """
    specials = tuple(tokenizer.declared)
    for source, of in ((text, blocks), *((other, {"train": each}) for other, each in others)):
        listed = [
            zip(*each.spans.T.tolist(), repeat(split), each.is_first.tolist(), strict=False)
            for split, each in of.items()
        ]
        for *span, split, is_first in merge(*listed):
            begin, end = (outside_special_tokens(source, border, specials) for border in span)
            try:
                yield Piece(split, is_first, tokenizer.encode(source[begin:end], replacement=replacement))
            except UnseenCharacter as unseen:
                raise unseen.moved(begin) from None
