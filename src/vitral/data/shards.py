"""Sharded tokens: a text's tokens in many files that are read by memory map, with a manifest that names each by hash.

A store is a folder: `shards.json` (the manifest, sealed by its own hash), `tokenizer.json`, and `shards/000000.bin`
and so on, each the tokens of consecutive pieces of the text (`presplit`), little-endian and nothing else. Sizes are
compared whenever a store is opened, hashes by `Shards.verify`. Some pieces, spread over the text, are held out for
validation and test; which ones is a function of their number.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.core.checked import checked
from vitral.core.config import shown as configured
from vitral.core.errors import UsageError, reason
from vitral.core.files import sha256
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_, _
from vitral.core.seals import json_object, unsealed_json
from vitral.data.batches import Split
from vitral.data.config import CorpusConfig
from vitral.data.long_texts import PIECE
from vitral.data.opening import shown
from vitral.data.permutations import permuted
from vitral.data.split import SPLIT_SEED, SPLITS, Blocks
from vitral.data.token_store import DTYPES
from vitral.data.tokenizers import Tokenizer, tokenizer_from_plain

MANIFEST, TOKENIZER, UNFINISHED = "shards.json", "tokenizer.json", "unfinished.json"
FORMAT = "vitral shards"
VERSION = 1
MOST_TESTED, MOST_VALIDATED = 1024, 512
"""Pieces held out at most."""

_MOST_MANIFEST = 1 << 30
_MOST_OPEN = 256
"""Shards kept mapped at once; each holds a file descriptor."""
_READ = 1 << 22
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NO_TICK: Callable[[], None] = lambda: None  # noqa: E731


class ShardedTokens:
    """Tokens of consecutive parts of shards, indexed like one array; shards are mapped when they are needed."""

    ndim = 1

    def __init__(self, shards: "Shards", parts: np.ndarray) -> None:
        """Use these parts, `[n, 3]`: shard, first token, end."""
        self._shards, self._parts = shards, parts
        self._ends = np.cumsum(parts[:, 2] - parts[:, 1])
        self.dtype, self.size = shards.dtype, int(self._ends[-1]) if len(parts) else 0
        self.shape = (self.size,)
        self._firsts = self._ends - (parts[:, 2] - parts[:, 1])

    def __len__(self) -> int:
        """Number of tokens."""
        return self.size

    def __getitem__(self, where: Any) -> Any:
        """A slice with step 1, or the tokens at an array of places (an array of its shape)."""
        if isinstance(where, slice):
            begin, end, step = where.indices(self.size)
            if step != 1:
                raise TypeError("a slice of sharded tokens must have step 1")
            return self._slice(begin, max(begin, end))
        places = np.asarray(where)
        if places.size and not (places.min() >= 0 and places.max() < self.size):
            raise IndexError(f"a place outside the {self.size} tokens")
        flat = places.ravel()
        part = np.searchsorted(self._ends, flat, side="right")
        found = np.empty(flat.size, dtype=self.dtype)
        order = np.argsort(part, kind="stable")
        borders = np.flatnonzero(np.diff(part[order])) + 1
        for chosen in np.split(order, borders) if flat.size else ():
            number = part[chosen[0]]
            shard, first, _end = self._parts[number].tolist()
            found[chosen] = self._shards.tokens(shard)[flat[chosen] - self._firsts[number] + first]
        return self._shards.known(found.reshape(places.shape))

    def _slice(self, begin: int, end: int) -> np.ndarray:
        first, last = np.searchsorted(self._ends, [begin, max(begin, end - 1)], side="right").tolist()
        pieces = [np.empty(0, dtype=self.dtype)]
        for number in range(first, last + 1) if end > begin else ():
            shard, start, stop = self._parts[number].tolist()
            offset = start - int(self._firsts[number])
            pieces.append(self._shards.tokens(shard)[max(start, begin + offset) : min(stop, end + offset)])
        return self._shards.known(np.concatenate(pieces))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All tokens in memory: for a held-out part, or for a text that is not long."""
        found = self._slice(0, self.size)
        return found if dtype is None else found.astype(dtype)


@dataclass(frozen=True)
class Shard:
    """One file of tokens.

    Attributes:
        file: its name in the store.
        sha256: its hash, in hexadecimal.
        tokens: number of tokens.
        characters: of the text that they are.
        held_out: the spans that are not for training: split ("validation" or "test"), first token and end, first
            character and end, in this shard.
        cut_words: pieces that begin where a word may be cut.
    """

    file: str
    sha256: str
    tokens: int
    characters: int
    held_out: tuple[tuple[str, int, int, int, int], ...]
    cut_words: int = 0

    def plain(self) -> dict[str, Any]:
        """The entry of the manifest."""
        held_out = [list(span) for span in self.held_out]
        return {**self.__dict__, "held_out": held_out}

    @classmethod
    def parse(cls, plain: Mapping[str, Any]) -> "Shard":
        """The shard of an entry.

        Raises:
            ValueError, TypeError, KeyError: it is malformed.
        """
        shard = cls(**{**plain, "held_out": tuple((str(name), *map(int, span)) for name, *span in plain["held_out"])})
        numbers = [0, *(place for _, begin, end, _, _ in shard.held_out for place in (begin, end)), shard.tokens]
        places = [0, *(place for *_, begin, end in shard.held_out for place in (begin, end)), shard.characters]
        whole = all(type(number) is int for number in (*numbers, *places, shard.cut_words))
        if not whole or sorted(numbers) != numbers or sorted(places) != places:
            raise ValueError("numbers that cannot be")
        if shard_name(int(Path(shard.file).stem)) != shard.file or not _SHA256.fullmatch(shard.sha256):
            raise ValueError("a name or a hash that cannot be")
        if any(name not in SPLITS[1:] for name, *_ in shard.held_out):
            raise ValueError("a split that cannot be")
        return shard


def shard_name(number: int) -> str:
    """The file of a shard in its store."""
    return f"shards/{number:06d}.bin"


class Shards:
    """An open store: its manifest, its tokenizer, and a view of each split.

    Attributes:
        path: the folder.
        manifest: `shards.json` without its seal.
        sha256: SHA-256 of `shards.json`, which names everything else by its hash: the identity of the text.
        tokenizer: the tokenizer.
        shards: the files.
        dtype: of a token.
    """

    def __init__(self, path: str | Path) -> None:
        """Open a store; its manifest, tokenizer and the size of every shard are verified.

        Raises:
            UsageError: it is not whole; names what is missing, cut or changed.
        """
        self.path, self._folder = Path(path), GuardedFolder(path)
        raw = self._read(MANIFEST, _MOST_MANIFEST)
        try:
            self.manifest = unsealed_json(raw)
            if (self.manifest["format"], self.manifest["version"]) != (FORMAT, VERSION):
                raise ValueError(_("another version"))
            self.shards = tuple(Shard.parse(plain) for plain in self.manifest["shards"])
            self.dtype = np.dtype(DTYPES[self.manifest["dtype"]])
            tokenizer_hash = self.manifest["tokenizer"]["sha256"]
            self.num_characters = sum(shard.characters for shard in self.shards)
            if not self.shards or [shard.file for shard in self.shards] != list(
                map(shard_name, range(len(self.shards)))
            ):
                raise ValueError(_("its shards are not in order"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                "{path}: damaged ({reason}); restore it from a copy, or make the shards again in a new folder",
                path=self._shown(MANIFEST),
                reason=error,
            ) from None
        self.sha256 = sha256(raw)
        described = self._read(TOKENIZER, _MOST_MANIFEST)
        if sha256(described) != tokenizer_hash:
            raise self._changed(TOKENIZER)
        self.tokenizer: Tokenizer = tokenizer_from_plain(json_object(described))
        self._open = dict[int, np.ndarray]()
        for shard in self.shards:
            self._require_size(shard)

    @property
    def name(self) -> str:
        """The name of the text."""
        return str(self.manifest["text"]["name"])

    @property
    def num_bytes(self) -> int:
        """Bytes of the text's files."""
        return int(self.manifest["text"]["bytes"])

    @property
    def num_tokens(self) -> int:
        """Tokens of all shards."""
        return sum(shard.tokens for shard in self.shards)

    def tokens(self, number: int) -> np.ndarray:
        """The tokens of one shard, memory-mapped.

        Raises:
            UsageError: its file is missing, or has another size.
        """
        if number not in self._open:
            shard = self.shards[number]
            while len(self._open) >= _MOST_OPEN:
                del self._open[next(iter(self._open))]
            self._require_size(shard)
            with self._folder.stream(shard.file) as file:
                empty = np.empty(0, dtype=self.dtype)
                self._open[number] = np.memmap(file, dtype=self.dtype, mode="r") if shard.tokens else empty
        return self._open[number]

    def known(self, tokens: np.ndarray) -> np.ndarray:
        """The tokens, all of which are in the vocabulary.

        Raises:
            UsageError: one is not.
        """
        if tokens.size and int(tokens.max()) >= self.tokenizer.vocab_size:
            raise UsageError(
                "{path}: a shard has changed, it holds a token outside the vocabulary; vitral doctor {path} names it",
                path=shown(self.path),
            )
        return tokens

    def verify(self, tick: Callable[[], None] = _NO_TICK) -> None:
        """Compare every shard with its hash; `tick` is called after each.

        Raises:
            UsageError: one is missing or has changed; names it.
        """
        for shard in self.shards:
            self._require_size(shard)
            digest = hashlib.sha256()
            with self._folder.stream(shard.file) as file:
                while read := file.read(_READ):
                    digest.update(read)
            if digest.hexdigest() != shard.sha256:
                raise self._changed(shard.file)
            tick()

    def splits(self) -> dict[str, Split]:
        """The tokens of train, validation and test; pieces that follow one another are one segment."""
        spans = self._spans(lambda shard: shard.tokens, 1)
        return {split: self._split(spans[split]) for split in SPLITS}

    def blocks(self) -> dict[str, Blocks]:
        """The same in characters of the text."""
        spans = self._spans(lambda shard: shard.characters, 3)
        return {split: Blocks(spans[split][:, 1:] + spans[split][:, :1]) for split in SPLITS}

    def _spans(self, size: Callable[[Shard], int], place: int) -> dict[str, np.ndarray]:
        """Of each split, its parts of shards, `[n, 3]` int64: where the shard begins in all, begin and end in it."""
        spans: dict[str, list[tuple[int, int, int]]] = {split: [] for split in SPLITS}
        start = 0
        for shard in self.shards:
            reached = 0
            for span in (*shard.held_out, ("", size(shard), 0, size(shard), 0)):
                numbers = span[1:]
                begin, end = numbers[place - 1], numbers[place]
                if reached < begin:
                    spans["train"].append((start, reached, begin))
                if begin < end:
                    spans[span[0]].append((start, begin, end))
                reached = end
            start += size(shard)
        return {split: np.array(found, dtype=np.int64).reshape(-1, 3) for split, found in spans.items()}

    def _split(self, spans: np.ndarray) -> Split:
        starts = np.cumsum([0, *(shard.tokens for shard in self.shards)])[:-1]
        # Of several shards that begin at one place all but the last are empty.
        parts = np.column_stack([np.searchsorted(starts, spans[:, 0], side="right") - 1, spans[:, 1:]])
        begins, ends = spans[:, 0] + spans[:, 1], spans[:, 0] + spans[:, 2]
        local = np.cumsum(spans[:, 2] - spans[:, 1])
        last = np.append(begins[1:] != ends[:-1], True)[: len(spans)]
        stops = local[last]
        segments = np.column_stack([np.concatenate([[0], stops])[: len(stops)], stops]).astype(np.int64)
        return Split(ShardedTokens(self, parts), segments)

    def _read(self, name: str, most: int) -> bytes:
        try:
            return self._folder.read(name, most)
        except FileNotFoundError:
            raise self._missing(name) from None
        except (OSError, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            why = reason(error) if isinstance(error, OSError) else error
            raise UsageError("{path}: cannot be read ({reason})", path=self._shown(name), reason=why) from None

    def _require_size(self, shard: Shard) -> None:
        try:
            size = self._folder.size(shard.file)
        except FileNotFoundError:
            raise self._missing(shard.file) from None
        except OSError as error:
            raise UsageError(
                "{path}: cannot be read ({reason})", path=self._shown(shard.file), reason=reason(error)
            ) from None
        if size != shard.tokens * self.dtype.itemsize:
            raise UsageError(
                "{path}: has {size:,} bytes instead of {wanted:,}: the shard was cut or changed; restore it from a "
                "copy, or make the shards again in a new folder",
                path=self._shown(shard.file),
                size=size,
                wanted=shard.tokens * self.dtype.itemsize,
            )

    def _missing(self, name: str) -> UsageError:
        return UsageError(
            "{path}: is missing; restore it from a copy, or make the shards again in a new folder",
            path=self._shown(name),
        )

    def _changed(self, name: str) -> UsageError:
        return UsageError(
            "{path}: has changed, its SHA-256 is not that of {manifest}; restore it from a copy, or make the shards "
            "again in a new folder",
            path=self._shown(name),
            manifest=MANIFEST,
        )

    def _shown(self, name: str) -> str:
        return shown(self.path / name)


class ShardText:
    """The text of a store, decoded from its tokens when it is needed; sliced like a str."""

    def __init__(self, shards: Shards) -> None:
        """Use this store."""
        self._shards = shards
        self._ends = np.cumsum([shard.characters for shard in shards.shards])
        self._recent: tuple[int, str] = -1, ""

    def __len__(self) -> int:
        """Number of characters."""
        return self._shards.num_characters

    def __getitem__(self, where: slice) -> str:
        """A slice of characters, with step 1."""
        begin, end, step = where.indices(len(self))
        if step != 1:
            raise TypeError("a slice of a sharded text must have step 1")
        if begin >= end:
            return ""
        first, last = np.searchsorted(self._ends, [begin, end - 1], side="right").tolist()
        start = int(self._ends[first]) - self._shards.shards[first].characters
        return "".join(map(self._shard, range(first, last + 1)))[begin - start : end - start]

    def pieces(self) -> Iterator[str]:
        """The whole text in order, at most a million characters at a time."""
        for number in range(len(self._ends)):
            begin, text = 0, self._shard(number)
            while begin < len(text):
                end = begin + PIECE
                end -= text[end - 1 : end + 1] == "\r\n"
                yield text[begin:end]
                begin = end

    def _shard(self, number: int) -> str:
        if self._recent[0] != number:
            tokens = self._shards.known(np.asarray(self._shards.tokens(number)))
            self._recent = number, self._shards.tokenizer.decode(tokens)
        return self._recent[1]


@checked(first=True)
def is_sharded(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is a store, finished or not.

    Raises:
        UsageError: it is one that was not finished.
    """
    if os.path.lexists(os.path.join(path, MANIFEST)):
        return True
    if os.path.lexists(os.path.join(path, UNFINISHED)):
        raise UsageError(
            "{path}: its shards are not finished; go on with the vitral corpus … --shards {path} that began them",
            path=shown(path),
        )
    return False


def held_out(num_pieces: int) -> dict[int, str]:
    """The pieces that are not for training, and their split: the first of a random order that is always the same.

    One piece in ten is for test, one in twenty for validation, at least one of each and at most `MOST_TESTED` and
    `MOST_VALIDATED`.

    >>> sorted(held_out(20).values())
    ['test', 'test', 'validation']
    """
    num_test = min(max(1, (num_pieces + 5) // 10), MOST_TESTED)
    num_validation = min(max(1, (num_pieces + 10) // 20), MOST_VALIDATED)
    order = permuted(np.arange(num_test + num_validation), num_pieces, SPLIT_SEED, "pieces").tolist()
    return {piece: "test" if place < num_test else "validation" for place, piece in enumerate(order)}


def refuse_choices(config: CorpusConfig, shards: Shards) -> None:
    """Refuse a configuration by which these shards would not have been made.

    Raises:
        UsageError: a key has another value.
    """
    made = {**CorpusConfig().plain(), **shards.manifest["config"]}
    given = config.plain()
    for key in sorted({*made, *given} - {"source"}):
        if given.get(key) != made.get(key):
            raise UsageError(
                "corpus.{key}: the shards in {path} were made with {made}, not with {given}; leave it out, or make "
                "other shards",
                key=key,
                path=shown(shards.path),
                made=_value(made.get(key)),
                given=_value(given.get(key)),
            )


def _value(value: Any) -> str:
    return _("its default value") if value is None else configured(value)


CUT_WORDS = N_("{number:,} pieces begin where a word may be cut: no white space within {bytes:,} bytes.")
