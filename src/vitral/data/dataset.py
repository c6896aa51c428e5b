"""From a configuration to tokens ready for training, each step done once and kept: load, split, tokenize, store."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from vitral.core.errors import StorageError, UsageError
from vitral.data.alphabet import UnseenCharacter
from vitral.data.config import BPEConfig, CorpusConfig
from vitral.data.corpora import Corpus, load_corpus
from vitral.data.download import cache_folder
from vitral.data.longtext import Text, hash_text
from vitral.data.reading import read_bytes, shown
from vitral.data.split import BLOCK, PARTS, SPLIT_SEED, Blocks, split_text
from vitral.data.store import DamagedStore, Split, Store, open_store, token_dtype, write_atomically, write_store
from vitral.data.tokenizers import CharTokenizer, Tokenizer, build_tokenizer, tokenizer_from_plain
from vitral.data.trainingpart import Addition, additions, narrowed, part_key

_Blocks = Mapping[str, Blocks]
_Cut = tuple[Text, Blocks]

LEARN_FROM = 1 << 24
"""Characters of a long text that byte-pair merges are learned from, in blocks spread evenly over the training part."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A text as tokens, and all that is to be remembered about how it became them.

    Attributes:
        config: what was asked for.
        corpus_name: see `Corpus.name`.
        num_bytes: bytes read.
        num_characters: characters of the text.
        sha256: see `Corpus.sha256`.
        notes: what was done to the text on the way, a sentence each.
        tokenizer: the tokenizer.
        splits: `train`, `validation`, `test` -> tokens.
        fingerprint: hash of the text, the tokenizer and the split, in hexadecimal: equal fingerprints, equal tokens.
        store_sha256: SHA-256 of the stored tokens, in hexadecimal.
        trained_on: what the training part is made of, as plain data, where it is not simply the text's own; else empty.
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

    def describe(self) -> dict[str, Any]:
        """What a run records about its text (`corpus.json`), JSON-ready."""
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
                "tokens": {part: int(self.splits[part].tokens.size) for part in PARTS},
            },
            "tokenizer": self.tokenizer.name,
            "vocab_size": self.tokenizer.vocab_size,
            "notes": list(self.notes),
            "fingerprint": self.fingerprint,
            "store_sha256": self.store_sha256,
            **({"trained_on": dict(self.trained_on)} if self.trained_on else {}),
        }


def prepare(
    config: CorpusConfig,
    *,
    tokenizer: Tokenizer | None = None,
    cache: Path | None = None,
    corpus: Corpus | None = None,
) -> Dataset:
    """Load, split, tokenize and store a text, or open what was stored the last time.

    Args:
        config: which text, which tokenizer, which split.
        tokenizer: one that exists already, for example a run's; the one in `config` is then not built.
        cache: folder for downloads and tokens, see `cache_folder`.
        corpus: the text, if it has been loaded already.

    Raises:
        UsageError: the text cannot be used: see `load_corpus`, `split_text`, `narrowed` and `additions`; or the
            tokenizer given has no token for one of its characters.
        StorageError: the tokens cannot be stored.
    """
    folder = cache_folder(cache)
    corpus = corpus or load_corpus(config, cache=folder)
    blocks = split_text(len(corpus.text), config.split)
    blocks = {**blocks, "train": narrowed(corpus.text, blocks["train"], config)}
    added = additions(config, corpus, folder)
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
            parts = encode_splits(corpus.text, blocks, tokenizer, scratch, others)
            store = _write_and_open(path, parts, fingerprint)
    if damaged:
        notes.append(f"The stored tokens were damaged ({damaged}) and have been made again.")
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
    """Encode each block alone and lay the blocks of a part side by side.

    Args:
        text: the whole text.
        blocks: part -> its blocks, from `split_text`.
        tokenizer: the tokenizer.
        scratch: a folder for tokens that shall not be held in memory.
        others: further texts and their blocks, which follow in the training part.

    Raises:
        UsageError: the tokenizer has no token for a character; its position in the text is named.
    """
    dtype = token_dtype(tokenizer.vocab_size)
    parts = {}
    for part, spans in blocks.items():
        lengths: list[int] = []
        sources = [(text, spans), *(others if part == "train" else ())]
        encoded = chain.from_iterable(_encoded(*source, tokenizer, dtype, lengths) for source in sources)
        tokens = np.concatenate(list(encoded)) if scratch is None else _on_disk(scratch / part, encoded, dtype)
        ends = np.cumsum([0, *lengths])
        parts[part] = Split(tokens, np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64))
    return parts


def _encoded(
    text: Text, spans: Blocks, tokenizer: Tokenizer, dtype: np.dtype, lengths: list[int]
) -> Iterator[np.ndarray]:
    """The tokens of each block; the length of each run of neighbouring ones is added to `lengths`."""
    for run in spans.runs():
        lengths.append(0)
        for block in run:
            tokens = _encode_block(text, block, tokenizer).astype(dtype)
            lengths[-1] += tokens.size
            yield tokens


def _on_disk(path: Path, pieces: Iterator[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """These tokens, mapped from a file."""
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece.data)
    return np.memmap(path, dtype=dtype, mode="r")


@contextmanager
def _scratch(beside: Path, texts: Sequence[Text]) -> Iterator[Path | None]:
    """A folder for the tokens of long texts while they are made, none for those that memory holds.

    Raises:
        StorageError: the disk did not take it.
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
    """Build the tokenizer; merges take seconds to learn, so they are kept and found again.

    Args:
        config: which tokenizer.
        texts: each text with the blocks of it that are trained on.
        text_key: what tells these texts and their split from others.
        folder: the cache.
    """
    first = texts[0][0]
    if not isinstance(config.tokenizer, BPEConfig):
        return _of_all([build_tokenizer(config, text, []) for text, _ in texts])
    text_hash, split_key = text_key
    key = _hash(text_hash, config.tokenizer.plain(), split_key, version("tokenizers"))
    path = folder / "tokenizers" / f"{key}.json"
    kept = _kept_tokenizer(path)
    if kept is not None:
        return kept
    learned_from = [text[begin:end] for text, blocks in texts for begin, end in _to_learn_from(text, blocks)]
    tokenizer = build_tokenizer(config, first, learned_from)
    plain = tokenizer.plain()
    write_atomically(path, [json.dumps({"sha256": _hash(plain), "tokenizer": plain}).encode("ascii")])
    return tokenizer


def _of_all(tokenizers: Sequence[Tokenizer]) -> Tokenizer:
    """One tokenizer for several texts: the characters of all; bytes are the same for each."""
    alphabets = [tokenizer.alphabet for tokenizer in tokenizers if isinstance(tokenizer, CharTokenizer)]
    return CharTokenizer("".join(sorted(set().union(*alphabets)))) if len(alphabets) > 1 else tokenizers[0]


def _to_learn_from(text: Text, training: Blocks) -> Blocks:
    stride = 1 if isinstance(text, str) else max(1, training.num_characters // LEARN_FROM)
    return training[::stride]


def _kept_tokenizer(path: Path) -> Tokenizer | None:
    """The tokenizer in this file, if it is there and whole."""
    if not path.is_file():
        return None
    try:
        kept = json.loads(read_bytes(path))
        return tokenizer_from_plain(kept["tokenizer"]) if kept["sha256"] == _hash(kept["tokenizer"]) else None
    except (UsageError, ValueError, KeyError, TypeError):
        return None


def _stored(path: Path, fingerprint: str) -> tuple[Store | None, str]:
    """The stored tokens, or None; and what is wrong with the file, if there is one that cannot be used."""
    try:
        return open_store(path, fingerprint), ""
    except FileNotFoundError:
        return None, ""
    except DamagedStore as damage:
        return None, str(damage)
    except OSError as error:
        return None, str(error.strerror)


def _write_and_open(path: Path, parts: Mapping[str, Split], fingerprint: str) -> Store:
    try:
        write_store(path, parts, fingerprint)
    except StorageError:
        # Windows does not replace a file that another process has just written and mapped; that one will do.
        store, _ = _stored(path, fingerprint)
        if store is None:
            raise
        return store
    return open_store(path, fingerprint)


def _shortfall(config: CorpusConfig, tokenizer: Tokenizer) -> list[str]:
    wanted = getattr(config.tokenizer, "vocab_size", tokenizer.vocab_size)
    if tokenizer.vocab_size >= wanted:
        return []
    return [f"The text gave {tokenizer.vocab_size:,} tokens, not the {wanted:,} asked for: no other pair occurs twice."]


def _split_key(config: CorpusConfig, added: Sequence[Addition]) -> list[Any]:
    return [config.split, BLOCK, SPLIT_SEED, *part_key(config, added)]


def _trained_on(config: CorpusConfig, training: Blocks, added: Sequence[Addition]) -> dict[str, Any]:
    """What the training part is made of, JSON-ready; empty where it is the text's own and whole."""
    if not part_key(config, added):
        return {}
    return {"training_characters": training.num_characters, "also": [addition.describe() for addition in added]}


def _hash(*plain: Any) -> str:
    """A hash of plain data, in hexadecimal: of its JSON with sorted keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode("ascii")).hexdigest()[:32]
