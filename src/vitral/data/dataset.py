"""Datasets: load, split and tokenize a text, and cache the tokens in a verified file.

The token file is: 8 bytes of magic, the length of the header (8 bytes, little-endian), the SHA-256 of the header (32
bytes), the header (JSON), zeros up to a multiple of 64, and the payload: the tokens of train, validation and test, one
split after the other, little-endian. The header contains the version, the dtype, the fingerprint of the dataset, the
payload's SHA-256, and for each split its number of tokens and its segments (key "stretches"). The file is
memory-mapped, and verified when it is opened.
"""

import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from vitral.core.errors import StorageError, UsageError
from vitral.core.renamed import renamed
from vitral.data.alphabet import UnseenCharacter
from vitral.data.batches import Split
from vitral.data.config import BPEConfig, CorpusConfig
from vitral.data.corpora import Corpus, cache_folder, load_corpus
from vitral.data.split import (
    BLOCK,
    SPLIT_SEED,
    SPLITS,
    Addition,
    Blocks,
    load_additions,
    restricted,
    split_text,
    train_key,
)
from vitral.data.texts import Text, hash_text, read_bytes, shown
from vitral.data.tokenizers import CharTokenizer, Tokenizer, build_tokenizer, tokenizer_from_plain

_Blocks = Mapping[str, Blocks]
_Cut = tuple[Text, Blocks]

LEARN_FROM = 1 << 24
"""Characters of a long text from which byte-pair merges are learned, in evenly spaced training blocks."""


MAGIC = b"VITRALTK"
VERSION = 1

_ALIGNMENT = 64
_PREFIX = len(MAGIC) + 8 + 32
_DTYPES = {"uint8": "<u1", "uint16": "<u2", "uint32": "<u4"}


class DamagedStore(Exception):
    """A token file is damaged or belongs to another dataset, and must be rebuilt."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A tokenized text, with everything a run records about its origin.

    Attributes:
        config: the corpus configuration.
        corpus_name: see `Corpus.name`.
        num_bytes: bytes read.
        num_characters: characters of the text.
        sha256: see `Corpus.sha256`.
        notes: changes made to the text, one sentence each.
        tokenizer: the tokenizer.
        splits: `train`, `validation`, `test` -> tokens.
        fingerprint: hash of the text, the tokenizer and the split, in hexadecimal: equal fingerprints, equal tokens.
        store_sha256: SHA-256 of the stored tokens, in hexadecimal.
        trained_on: how the training split differs from the text's own, as plain data; empty if it does not.
    """

    config: CorpusConfig
    corpus_name: str
    num_bytes: int
    num_characters: int
    sha256: str
    notes: tuple[str, ...]
    tokenizer: Tokenizer
    splits: dict[str, Split]
    fingerprint: str
    store_sha256: str = ""
    trained_on: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, Split]:
        """The former name of `splits`."""
        renamed("parts", "splits")
        return self.splits

    def describe(self) -> dict[str, Any]:
        """The description saved with a run (`corpus.json`), JSON-ready."""
        return {
            "source": self.config.source,
            "name": self.corpus_name,
            "bytes": self.num_bytes,
            "characters": self.num_characters,
            "sha256": self.sha256,
            "split": {
                "method": self.config.split,
                "block": BLOCK,
                "seed": SPLIT_SEED,
                "tokens": {split: int(self.splits[split].tokens.size) for split in SPLITS},
            },
            "tokenizer": self.tokenizer.name,
            "vocab_size": self.tokenizer.vocab_size,
            "notes": list(self.notes),
            "fingerprint": self.fingerprint,
            "store_sha256": self.store_sha256,
            **({"trained_on": dict(self.trained_on)} if self.trained_on else {}),
        }


@dataclass(frozen=True, eq=False)
class Store:
    """An open token file.

    Attributes:
        splits: name -> its tokens.
        sha256: SHA-256 of the payload, in hexadecimal.
    """

    splits: dict[str, Split]
    sha256: str


def prepare(
    config: CorpusConfig,
    *,
    tokenizer: Tokenizer | None = None,
    cache: Path | None = None,
    corpus: Corpus | None = None,
) -> Dataset:
    """Load, split, tokenize and store a text, or open its stored tokens.

    Args:
        config: text, tokenizer and split.
        tokenizer: an existing tokenizer, for example of a run, to use instead of building the one in `config`.
        cache: folder for downloads and tokens, see `cache_folder`.
        corpus: the text, if it is already loaded.

    Raises:
        UsageError: the text cannot be used: see `load_corpus`, `split_text`, `restricted` and `load_additions`; or the
            tokenizer given has no token for one of its characters.
        StorageError: the tokens cannot be stored.
    """
    folder = cache_folder(cache)
    corpus = corpus or load_corpus(config, cache=folder)
    blocks = split_text(len(corpus.text), config.split)
    blocks = {**blocks, "train": restricted(corpus.text, blocks["train"], config)}
    added = load_additions(config, corpus, folder)
    others = [(addition.corpus.text, addition.blocks) for addition in added]
    text_hash = hash_text(corpus.text)
    key = [text_hash, _split_key(config, added)]
    notes = [*corpus.notes, *chain.from_iterable(addition.corpus.notes for addition in added)]
    if tokenizer is None:
        tokenizer = _make_tokenizer(config, [(corpus.text, blocks["train"]), *others], key, folder)
        notes += _shortfall(config, tokenizer)
    fingerprint = _hash(text_hash, tokenizer.plain(), key[1])
    path = folder / "tokens" / f"{fingerprint}.tokens"
    store, damaged = _stored(path, fingerprint)
    if store is None:
        with _scratch(path.parent, [corpus.text, *(text for text, _ in others)]) as scratch:
            splits = encode_splits(corpus.text, blocks, tokenizer, scratch, others)
            store = _write_and_open(path, splits, fingerprint)
    if damaged:
        notes.append(f"The stored tokens were damaged ({damaged}) and have been rebuilt.")
    return Dataset(
        config=config,
        corpus_name=corpus.name,
        num_bytes=corpus.num_bytes,
        num_characters=len(corpus.text),
        sha256=corpus.sha256,
        notes=tuple(notes),
        tokenizer=tokenizer,
        splits=store.splits,
        fingerprint=fingerprint,
        store_sha256=store.sha256,
        trained_on=_trained_on(config, blocks["train"], added),
    )


def encode_splits(
    text: Text,
    blocks: _Blocks,
    tokenizer: Tokenizer,
    scratch: Path | None = None,
    others: Sequence[_Cut] = (),
) -> dict[str, Split]:
    """Encode each block separately and concatenate the blocks of each split.

    Args:
        text: the whole text.
        blocks: split -> its blocks, from `split_text`.
        tokenizer: the tokenizer.
        scratch: a folder for tokens too large for memory; None keeps them in memory.
        others: further texts and their blocks, which follow in the training split.

    Raises:
        UsageError: the tokenizer has no token for a character; its position in the text is named.
    """
    dtype = token_dtype(tokenizer.vocab_size)
    splits = {}
    for split, spans in blocks.items():
        lengths: list[int] = []
        sources = [(text, spans), *(others if split == "train" else ())]
        encoded = chain.from_iterable(_encoded(*source, tokenizer, dtype, lengths) for source in sources)
        tokens = np.concatenate(list(encoded)) if scratch is None else _on_disk(scratch / split, encoded, dtype)
        ends = np.cumsum([0, *lengths])
        splits[split] = Split(tokens, np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64))
    return splits


def _encoded(
    text: Text, spans: Blocks, tokenizer: Tokenizer, dtype: np.dtype, lengths: list[int]
) -> Iterator[np.ndarray]:
    """The tokens of each block; appends the number of tokens of each run of adjacent blocks to `lengths`."""
    for run in spans.runs():
        lengths.append(0)
        for block in run:
            tokens = _encode_block(text, block, tokenizer).astype(dtype)
            lengths[-1] += tokens.size
            yield tokens


def _on_disk(path: Path, pieces: Iterator[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Write the tokens to a file and memory-map it."""
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece.data)
    return np.memmap(path, dtype=dtype, mode="r")


@contextmanager
def _scratch(beside: Path, texts: Sequence[Text]) -> Iterator[Path | None]:
    """A temporary folder for the tokens of long texts; None if all texts are in memory.

    Raises:
        StorageError: the folder cannot be written.
    """
    if all(isinstance(text, str) for text in texts):
        yield None
        return
    try:
        beside.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".scratch-", dir=beside))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"{shown(beside)}: cannot be written ({error.strerror}); make room there or point VITRAL_CACHE elsewhere"
        ) from None


def _encode_block(text: Text, block: tuple[int, int], tokenizer: Tokenizer) -> np.ndarray:
    begin, end = block
    try:
        return tokenizer.encode(text[begin:end])
    except UnseenCharacter as unseen:
        raise unseen.moved(begin) from None


def _make_tokenizer(config: CorpusConfig, texts: Sequence[_Cut], text_key: list[Any], folder: Path) -> Tokenizer:
    """Build the tokenizer; merges take seconds to learn, so they are cached.

    Args:
        config: the tokenizer to build.
        texts: each text with its training blocks.
        text_key: identifies these texts and their split.
        folder: the cache.
    """
    first = texts[0][0]
    if not isinstance(config.tokenizer, BPEConfig):
        return _merged_tokenizer([build_tokenizer(config, text, []) for text, _ in texts])
    text_hash, split_key = text_key
    key = _hash(text_hash, config.tokenizer.plain(), split_key, version("tokenizers"))
    path = folder / "tokenizers" / f"{key}.json"
    cached = _cached_tokenizer(path)
    if cached is not None:
        return cached
    learned_from = [text[begin:end] for text, blocks in texts for begin, end in _blocks_to_learn_from(text, blocks)]
    tokenizer = build_tokenizer(config, first, learned_from)
    plain = tokenizer.plain()
    write_atomically(path, [json.dumps({"sha256": _hash(plain), "tokenizer": plain}).encode("ascii")])
    return tokenizer


def _merged_tokenizer(tokenizers: Sequence[Tokenizer]) -> Tokenizer:
    """One tokenizer for several texts: a character tokenizer gets the union of the alphabets."""
    alphabets = [tokenizer.alphabet for tokenizer in tokenizers if isinstance(tokenizer, CharTokenizer)]
    return CharTokenizer("".join(sorted(set().union(*alphabets)))) if len(alphabets) > 1 else tokenizers[0]


def _blocks_to_learn_from(text: Text, training: Blocks) -> Blocks:
    stride = 1 if isinstance(text, str) else max(1, training.num_characters // LEARN_FROM)
    return training[::stride]


def _cached_tokenizer(path: Path) -> Tokenizer | None:
    """The tokenizer in this file, if the file exists and is intact."""
    if not path.is_file():
        return None
    try:
        kept = json.loads(read_bytes(path))
        return tokenizer_from_plain(kept["tokenizer"]) if kept["sha256"] == _hash(kept["tokenizer"]) else None
    except (UsageError, ValueError, KeyError, TypeError):
        return None


def _stored(path: Path, fingerprint: str) -> tuple[Store | None, str]:
    """The stored tokens, or None; and what is wrong with an unusable file."""
    try:
        return open_store(path, fingerprint), ""
    except FileNotFoundError:
        return None, ""
    except DamagedStore as damage:
        return None, str(damage)
    except OSError as error:
        return None, str(error.strerror)


def _write_and_open(path: Path, splits: Mapping[str, Split], fingerprint: str) -> Store:
    try:
        write_store(path, splits, fingerprint)
    except StorageError:
        # Windows cannot replace a file that another process has just written and mapped: use that file.
        store, _ = _stored(path, fingerprint)
        if store is None:
            raise
        return store
    return open_store(path, fingerprint)


def _shortfall(config: CorpusConfig, tokenizer: Tokenizer) -> list[str]:
    wanted = getattr(config.tokenizer, "vocab_size", tokenizer.vocab_size)
    if tokenizer.vocab_size >= wanted:
        return []
    return [f"The text yields {tokenizer.vocab_size:,} tokens instead of {wanted:,}: no other pair occurs twice."]


def _split_key(config: CorpusConfig, added: Sequence[Addition]) -> list[Any]:
    return [config.split, BLOCK, SPLIT_SEED, *train_key(config, added)]


def _trained_on(config: CorpusConfig, training: Blocks, added: Sequence[Addition]) -> dict[str, Any]:
    """How the training split differs from the default, JSON-ready; empty if it does not."""
    if not train_key(config, added):
        return {}
    return {"training_characters": training.num_characters, "also": [addition.describe() for addition in added]}


def _hash(*plain: Any) -> str:
    """A hash of plain data in hexadecimal, computed from its JSON with sorted keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode("ascii")).hexdigest()[:32]


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest unsigned dtype for the ids of a vocabulary.

    >>> token_dtype(256), token_dtype(257), token_dtype(65_537)
    (dtype('uint8'), dtype('uint16'), dtype('uint32'))
    """
    sizes = {"uint8": 1 << 8, "uint16": 1 << 16, "uint32": 1 << 32}
    return np.dtype(next(_DTYPES[name] for name, size in sizes.items() if vocab_size <= size))


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


def open_store(path: Path, fingerprint: str) -> Store:
    """Memory-map a token file after verifying all of it.

    Raises:
        FileNotFoundError: the file does not exist.
        DamagedStore: the file is truncated, changed, of another version or of another dataset.
    """
    header, begin = _read_header(path)
    try:
        dtype, counts = np.dtype(_DTYPES[header["dtype"]]), [header["parts"][split]["tokens"] for split in SPLITS]
        expected = header["version"], header["fingerprint"], begin + sum(counts) * dtype.itemsize
        if expected != (VERSION, fingerprint, path.stat().st_size):
            raise DamagedStore("another version, another text, or another size")
        tokens = np.memmap(path, dtype=dtype, mode="r", offset=begin, shape=(sum(counts),))
        if hashlib.sha256(tokens.data).hexdigest() != header["sha256"]:
            raise DamagedStore("the SHA-256 of the tokens does not match")
        splits = {}
        for split, end, count in zip(SPLITS, np.cumsum(counts).tolist(), counts, strict=True):
            segments = np.asarray(header["parts"][split]["stretches"], dtype=np.int64).reshape(-1, 2)
            splits[split] = Split(tokens[end - count : end], segments)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedStore(f"the header is malformed: {error}") from None
    return Store(splits, header["sha256"])


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, verified by its own SHA-256, and the offset of the payload."""
    with path.open("rb") as file:
        prefix = file.read(_PREFIX)
        length = int.from_bytes(prefix[len(MAGIC) : len(MAGIC) + 8], "little")
        if not prefix.startswith(MAGIC) or length > path.stat().st_size:
            raise DamagedStore("not a token file")
        encoded = file.read(length)
    if hashlib.sha256(encoded).digest() != prefix[len(MAGIC) + 8 :]:
        raise DamagedStore("the SHA-256 of the header does not match")
    end = _PREFIX + length
    return json.loads(encoded), end + -end % _ALIGNMENT


def write_atomically(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file atomically: write a temporary file beside it, flush it to disk, and rename it.

    Raises:
        StorageError: the file cannot be written; no temporary file is left behind.
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
        # The folder may be unreachable; the error that matters is already being raised.
        return
