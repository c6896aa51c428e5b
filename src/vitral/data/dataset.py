"""From a configuration to tokens ready for training, each step done once and kept: load, split, tokenize, store."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from vitral.core.errors import StorageError, UsageError
from vitral.data.alphabet import UnseenCharacter, utf8
from vitral.data.config import BPEConfig, CorpusConfig
from vitral.data.corpora import Corpus, load_corpus
from vitral.data.download import cache_folder
from vitral.data.reading import read_bytes
from vitral.data.split import BLOCK, PARTS, SPLIT_SEED, runs_of_blocks, split_text
from vitral.data.store import DamagedStore, Part, Store, open_store, token_dtype, write_atomically, write_store
from vitral.data.tokenizers import Tokenizer, build_tokenizer, tokenizer_from_plain

_Blocks = dict[str, list[tuple[int, int]]]


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
        parts: `train`, `validation`, `test` -> tokens.
        fingerprint: hash of the text, the tokenizer and the split, in hexadecimal: equal fingerprints, equal tokens.
        store_sha256: SHA-256 of the stored tokens, in hexadecimal.
    """

    config: CorpusConfig
    corpus_name: str
    num_bytes: int
    num_characters: int
    sha256: str
    notes: tuple[str, ...]
    tokenizer: Tokenizer
    parts: dict[str, Part]
    fingerprint: str
    store_sha256: str = ""

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
                "tokens": {part: int(self.parts[part].tokens.size) for part in PARTS},
            },
            "tokenizer": self.tokenizer.name,
            "vocab_size": self.tokenizer.vocab_size,
            "notes": list(self.notes),
            "fingerprint": self.fingerprint,
            "store_sha256": self.store_sha256,
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
        UsageError: the text cannot be used: see `load_corpus` and `split_text`; or the tokenizer given has no token for
            one of its characters.
        StorageError: the tokens cannot be stored.
    """
    folder = cache_folder(cache)
    corpus = corpus or load_corpus(config, cache=folder)
    blocks = split_text(len(corpus.text), config.split)
    text_hash = _hash_text(corpus.text)
    notes = list(corpus.notes)
    if tokenizer is None:
        tokenizer = _make_tokenizer(config, corpus.text, text_hash, blocks, folder)
        notes += _shortfall(config, tokenizer)
    fingerprint = _hash(text_hash, tokenizer.plain(), _split_key(config))
    path = folder / "tokens" / f"{fingerprint}.tokens"
    store, damaged = _stored(path, fingerprint)
    if store is None:
        store = _write_and_open(path, encode_parts(corpus.text, blocks, tokenizer), fingerprint)
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
        parts=store.parts,
        fingerprint=fingerprint,
        store_sha256=store.sha256,
    )


def encode_parts(text: str, blocks: Mapping[str, list[tuple[int, int]]], tokenizer: Tokenizer) -> dict[str, Part]:
    """Encode each block alone and lay the blocks of a part side by side.

    Args:
        text: the whole text.
        blocks: part -> its blocks, from `split_text`.
        tokenizer: the tokenizer.

    Raises:
        UsageError: the tokenizer has no token for a character; its position in the text is named.
    """
    dtype = token_dtype(tokenizer.vocab_size)
    parts = {}
    for part, spans in blocks.items():
        pieces: list[np.ndarray] = []
        ends = [0]
        for run in runs_of_blocks(spans):
            encoded = [_encode_block(text, block, tokenizer).astype(dtype) for block in run]
            pieces += encoded
            ends.append(ends[-1] + sum(piece.size for piece in encoded))
        stretches = np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64)
        parts[part] = Part(np.concatenate(pieces), stretches)
    return parts


def _encode_block(text: str, block: tuple[int, int], tokenizer: Tokenizer) -> np.ndarray:
    begin, end = block
    try:
        return tokenizer.encode(text[begin:end])
    except UnseenCharacter as unseen:
        raise unseen.moved(begin) from None


def _make_tokenizer(config: CorpusConfig, text: str, text_hash: str, blocks: _Blocks, folder: Path) -> Tokenizer:
    """Build the tokenizer; merges take seconds to learn, so they are kept and found again."""
    if not isinstance(config.tokenizer, BPEConfig):
        return build_tokenizer(config, text, [])
    key = _hash(text_hash, config.tokenizer.plain(), _split_key(config), version("tokenizers"))
    path = folder / "tokenizers" / f"{key}.json"
    kept = _kept_tokenizer(path)
    if kept is not None:
        return kept
    tokenizer = build_tokenizer(config, text, [text[begin:end] for begin, end in blocks["train"]])
    plain = tokenizer.plain()
    write_atomically(path, [json.dumps({"sha256": _hash(plain), "tokenizer": plain}).encode("ascii")])
    return tokenizer


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


def _write_and_open(path: Path, parts: Mapping[str, Part], fingerprint: str) -> Store:
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


def _split_key(config: CorpusConfig) -> list[Any]:
    return [config.split, BLOCK, SPLIT_SEED]


def _hash_text(text: str) -> str:
    return hashlib.sha256(utf8(text)).hexdigest()


def _hash(*plain: Any) -> str:
    """A hash of plain data, in hexadecimal: of its JSON with sorted keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode("ascii")).hexdigest()[:32]
