"""Making shards: a text too large for one process, tokenized shard by shard in as many as there are.

`plan` reads the files once, makes the tokenizer and writes `unfinished.json`, from which everything follows;
`make_shard` makes one shard and publishes its file and then its record, each by renaming; `seal` writes the manifest
when all are there. A shard that is there is never made again, and every shard is a function of the plan alone: so the
bytes are the same however many processes made them, and however often one was killed.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.files import as_json, sha256
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_
from vitral.core.seals import sealed_json, unsealed_json
from vitral.data.alphabet import UnseenCharacter
from vitral.data.config import BPEConfig, CorpusConfig
from vitral.data.corpora import as_path, own_files
from vitral.data.dataset import LEARN_FROM
from vitral.data.folders import is_surely_text, no_match, refuse_own, user_files
from vitral.data.long_texts import PIECE, Text, joined_text, pieces
from vitral.data.opening import opened, shown, stamp_of
from vitral.data.presplit import RULE, SourceFile, Stream, cut_into
from vitral.data.presplit import VERSION as RULE_VERSION
from vitral.data.shards import (
    CUT_WORDS,
    FORMAT,
    MANIFEST,
    TOKENIZER,
    UNFINISHED,
    VERSION,
    Shard,
    Shards,
    held_out,
    shard_name,
)
from vitral.data.split import SPLIT_SEED
from vitral.data.texts import Document, Reading, read_long
from vitral.data.token_store import DTYPES, token_dtype
from vitral.data.tokenizers import Tokenizer, build_tokenizer, tokenizer_from_plain

PIECE_BYTES = 1 << 16
SHARD_PIECES = 1 << 8

_RECORD_ENDS = ".json"
_MOST_PLAN = 1 << 30
_MOST_DEATHS = 3
"""Times in a row that a worker may be killed before another shard is finished."""
_READING = ("encoding", "field")
_OF_A_STORE = ("tokenizer", "specials", "newlines", "separator", "glob")

Tick = Callable[[int, int], None]
"""Called with the number of finished shards and of all."""


def make_shards(
    config: CorpusConfig,
    out: Path,
    *,
    workers: int = 1,
    piece_bytes: int = PIECE_BYTES,
    shard_pieces: int = SHARD_PIECES,
    tick: Tick = lambda done, number: None,
) -> Shards:
    """Tokenize a file or folder into shards, or go on with it.

    Args:
        config: the text, its tokenizer and how it is read.
        out: folder to create, or one whose shards are not finished.
        workers: processes.
        piece_bytes: bytes of a piece, about.
        shard_pieces: pieces of a shard.
        tick: called when a shard is finished.

    Raises:
        UsageError: the text cannot be used, or has changed; or `out` holds something else.
        StorageError: a shard cannot be written, or workers are killed again and again.
    """
    plan(config, out, piece_bytes=piece_bytes, shard_pieces=shard_pieces)
    deaths, number = 0, 0 if _is_sealed(out) else _plan_of(out).num_shards

    def told(left: int) -> None:
        tick(number - left, number)

    while missing := _missing(out):
        told(len(missing))
        try:
            _make(out, missing, min(workers, len(missing)), told)
        except BrokenProcessPool:
            deaths = deaths + 1 if len(_missing(out)) == len(missing) else 0
            if deaths == _MOST_DEATHS:
                raise StorageError(
                    "{path}: a worker was killed {times} times before it finished a shard; is there too little "
                    "memory? The finished shards are kept: go on with fewer --workers",
                    path=shown(out),
                    times=deaths,
                ) from None
    return seal(out)


@dataclass(frozen=True)
class _Plan:
    """What is decided before a shard is made."""

    plain: dict[str, Any]
    stream: Stream
    tokenizer: Tokenizer

    @property
    def shards(self) -> Sequence[range]:
        return cut_into(self.stream.num_pieces, self.plain["cut"]["shard_pieces"])

    @property
    def num_shards(self) -> int:
        return len(self.shards)


def plan(config: CorpusConfig, out: Path, *, piece_bytes: int = PIECE_BYTES, shard_pieces: int = SHARD_PIECES) -> None:
    """Read the files once, make the tokenizer, and write what everything else follows from.

    Raises:
        UsageError: the text cannot be used, or has changed since it was begun; or `out` holds something else.
        StorageError: `out` cannot be written.
    """
    _refuse_unused(config)
    name, files, remarks = _files(config)
    cut = {"rule": RULE, "version": RULE_VERSION, "piece_bytes": piece_bytes, "shard_pieces": shard_pieces}
    folder = GuardedFolder(out)
    for begun in (MANIFEST, UNFINISHED):
        if folder.kind(begun) is not None:
            _require_same(out, begun, config, cut, files)
            return
    if folder.names():
        raise UsageError("{path}: is there already, and not empty; give a new folder", path=shown(out))
    read, texts, notes = _survey(files, config)
    stream = Stream(
        tuple(SourceFile(path, stamp, 3 * document.had_mark) for path, _, stamp, document in read),
        config.separator,
        config.newlines,
        config.specials or (),
        piece_bytes,
    )
    if stream.num_bytes < 3 * piece_bytes:
        raise UsageError(
            "{name}: a text of {size:,} bytes is too short for shards, which need at least {least:,}; vitral train "
            "reads it as it is",
            name=shown(name),
            size=stream.num_bytes,
            least=3 * piece_bytes,
        )
    tokenizer, learned_from = _tokenizer(config, joined_text(texts, config.separator), stream)
    described = as_json(tokenizer.plain())
    plain = {
        "text": {
            "name": shown(name),
            "bytes": sum(document.num_bytes for *_, document in read),
            "files": [
                {"path": relative, "bytes": document.num_bytes, "sha256": document.sha256}
                for _, relative, _, document in read
            ],
            "notes": [*remarks, *notes],
        },
        "config": _chosen(config),
        "tokenizer": {
            "file": TOKENIZER,
            "sha256": sha256(described),
            "vocab_size": tokenizer.vocab_size,
            "learned_from": learned_from,
        },
        "cut": {**cut, "pieces": stream.num_pieces},
        "split": {"seed": SPLIT_SEED, **_counted(held_out(stream.num_pieces))},
        "dtype": token_dtype(tokenizer.vocab_size).name,
        "byte_order": "little",
    }
    here = [
        {"path": os.path.abspath(path), "stamp": list(stamp), "mark": 3 * document.had_mark}
        for path, _, stamp, document in read
    ]
    folder.make()
    folder.make("shards")
    folder.write(TOKENIZER, described)
    folder.write(UNFINISHED, sealed_json({**plain, "here": here}))


def make_shard(out: str | Path, number: int) -> None:
    """Make one shard, unless it is there.

    Raises:
        UsageError: a file of the text has changed, or has a character without a token.
        StorageError: it cannot be written.
    """
    folder, name = GuardedFolder(out), shard_name(number)
    if folder.kind(name + _RECORD_ENDS) is not None or _is_sealed(out):
        return
    made = _plan_of(Path(out))
    dtype = np.dtype(DTYPES[made.plain["dtype"]])
    splits = held_out(made.stream.num_pieces)
    tokens, spans = list[np.ndarray](), list[tuple[str, int, int, int, int]]()
    num_tokens = num_characters = cut_words = 0
    for piece in made.shards[number]:
        text = made.stream.piece(piece)
        try:
            tokens.append(made.tokenizer.encode(text).astype(dtype))
        except UnseenCharacter as unseen:  # the text has changed
            raise unseen.moved(num_characters) from None
        ends = num_tokens + len(tokens[-1]), num_characters + len(text)
        if piece in splits:
            spans.append((splits[piece], num_tokens, ends[0], num_characters, ends[1]))
        num_tokens, num_characters = ends
        cut_words += made.stream.begin(piece)[1]
    content = np.concatenate(tokens).tobytes()
    folder.write(name, content)
    shard = Shard(name, sha256(content), num_tokens, num_characters, tuple(spans), cut_words)
    folder.write(name + _RECORD_ENDS, sealed_json({"shard": shard.plain()}))


def share(out: str, rank: int, world_size: int) -> None:
    """Make the shards of one of several workers: every `world_size`-th, from number `rank`.

    `functools.partial(run_share, out)` is a step of a pipeline of datatrove, whose executors start such workers on a
    machine or a cluster.
    """
    if not _is_sealed(out):
        for number in range(rank, _plan_of(Path(out)).num_shards, world_size):
            make_shard(out, number)


def run_share(out: str, data: Any, rank: int = 0, world_size: int = 1) -> Any:
    """`share` with the arguments that datatrove gives a step of a pipeline."""
    share(out, rank, world_size)
    return data


def seal(out: str | Path) -> Shards:
    """Write the manifest of shards that are all there, and open them.

    Raises:
        UsageError: one is missing.
        StorageError: the manifest cannot be written.
    """
    folder = GuardedFolder(out)
    if not _is_sealed(out):
        made = _plan_of(Path(out))
        if missing := _missing(Path(out)):
            raise UsageError(
                "{path}: {number:,} shards are still to be made, the first is {first}",
                path=shown(out),
                number=len(missing),
                first=shard_name(missing[0]),
            )
        shards = [_record(folder, number) for number in range(made.num_shards)]
        plain = {key: value for key, value in made.plain.items() if key != "here"}
        cut_words = sum(shard.cut_words for shard in shards)
        if cut_words and isinstance(CorpusConfig.parse(plain["config"]).tokenizer, BPEConfig):
            noted = CUT_WORDS.format(number=cut_words, bytes=plain["cut"]["piece_bytes"])
            plain["text"] = {**plain["text"], "notes": [*plain["text"]["notes"], noted]}
        whole = {
            "format": FORMAT,
            "version": VERSION,
            **plain,
            "tokens": sum(shard.tokens for shard in shards),
            "characters": sum(shard.characters for shard in shards),
            "shards": [shard.plain() for shard in shards],
        }
        folder.write(MANIFEST, sealed_json(whole))
    _clear(folder)
    return Shards(out)


def _clear(folder: GuardedFolder) -> None:
    """Remove what only unfinished shards need."""
    folder.sweep("shards")
    for name in folder.names("shards"):
        if name.endswith(_RECORD_ENDS):
            with contextlib.suppress(OSError, UsageError):  # another process may be removing it
                folder.remove(f"shards/{name}")
    with contextlib.suppress(OSError, UsageError):
        folder.remove(UNFINISHED)


def _record(folder: GuardedFolder, number: int) -> Shard:
    name = shard_name(number) + _RECORD_ENDS
    try:
        shard = Shard.parse(unsealed_json(folder.read(name, _MOST_PLAN))["shard"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "{path}: damaged ({reason}); remove it, and its shard is made again",
            path=shown(folder.path / name),
            reason=error,
        ) from None
    if shard.file != shard_name(number) or folder.kind(shard.file) != "file":
        raise UsageError(
            "{path}: is missing; remove {record}, and it is made again",
            path=shown(folder.path / shard_name(number)),
            record=name,
        )
    return shard


def _is_sealed(out: str | Path) -> bool:
    return GuardedFolder(out).kind(MANIFEST) is not None


def _missing(out: Path) -> list[int]:
    """The shards that are still to be made."""
    if _is_sealed(out):
        return []
    there = set(GuardedFolder(out).names("shards"))
    names = ((number, Path(shard_name(number)).name) for number in range(_plan_of(out).num_shards))
    return [number for number, name in names if not {name, name + _RECORD_ENDS} <= there]


def _make(out: Path, missing: Sequence[int], workers: int, tick: Callable[[int], None]) -> None:
    """Make shards here, or in processes of their own; `tick` is called with the number left."""
    if workers == 1:
        for done, number in enumerate(missing, start=1):
            make_shard(out, number)
            tick(len(missing) - done)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker) as pool:
        futures = [pool.submit(make_shard, str(out), number) for number in missing]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                tick(len(missing) - done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin_worker() -> None:
    """In a worker: leave Ctrl-C to the first process, and end when that one has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = multiprocessing.parent_process()
    if first is not None:
        threading.Thread(target=lambda: (wait([first.sentinel]), os._exit(1)), daemon=True).start()


@lru_cache(maxsize=2)
def _parsed(raw: bytes, described: bytes) -> _Plan:
    plain = unsealed_json(raw)
    if sha256(described) != plain["tokenizer"]["sha256"]:
        raise UsageError("{file} has changed; remove the folder, and begin again", file=TOKENIZER)
    config = CorpusConfig.parse(plain["config"])
    files = tuple(
        SourceFile(Path(file["path"]), (file["stamp"][0], file["stamp"][1]), file["mark"]) for file in plain["here"]
    )
    stream = Stream(files, config.separator, config.newlines, config.specials or (), plain["cut"]["piece_bytes"])
    return _Plan(plain, stream, tokenizer_from_plain(json.loads(described)))


def _plan_of(out: Path) -> _Plan:
    folder = GuardedFolder(out)
    try:
        return _parsed(folder.read(UNFINISHED, _MOST_PLAN), folder.read(TOKENIZER, _MOST_PLAN))
    except UsageError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise UsageError(
            "{path}: damaged ({reason}); remove the folder, and begin again",
            path=shown(out / UNFINISHED),
            reason=why,
        ) from None


def _refuse_unused(config: CorpusConfig) -> None:
    default = CorpusConfig().plain()
    for key, value in config.plain().items():
        if key not in ("source", *_OF_A_STORE) and value != default.get(key):
            raise UsageError("corpus.{key}: shards are made of whole UTF-8 files; leave it out", key=key)


def _chosen(config: CorpusConfig) -> dict[str, Any]:
    """What decides the tokens, beside the files."""
    return {key: value for key, value in config.plain().items() if key in _OF_A_STORE}


def _counted(splits: dict[int, str]) -> dict[str, int]:
    names = list(splits.values())
    return {"validation": names.count("validation"), "test": names.count("test")}


def _files(config: CorpusConfig) -> tuple[str, list[tuple[Path, str]], list[str]]:
    """Name of the text, its files with their paths in it, and notes."""
    own = next((path for path in own_files(config.source) if path.is_file()), None)
    root = own or as_path(config.source)
    if os.path.isdir(root):
        listing = user_files(root, config.glob)
        refuse_own(root, listing)
        if config.glob is not None and not listing.files:
            raise no_match(root, config.glob, user_files(root))
        name = root.resolve().name or shown(root)
        return name, [(path, path.relative_to(root).as_posix()) for path in listing.files], []
    if not os.path.lexists(root):
        raise UsageError("{path}: shards are made of a file or a folder of files, and there is none", path=shown(root))
    return config.source if own else root.name, [(root, root.name)], []


_Read = tuple[Path, str, tuple[int, int], Document]


def _survey(files: list[tuple[Path, str]], config: CorpusConfig) -> tuple[list[_Read], list[Text], list[str]]:
    """Read every file once: those that are text, and a note of the others."""
    reading, read, skipped = Reading.of(config), list[_Read](), list[str]()
    for path, relative in files:
        if not path.is_file():
            skipped.append(relative)
            continue
        with opened(path) as file:
            stamp = stamp_of(file.fileno())
            try:
                document = read_long(file, path, reading) if stamp[0] else None
            except UsageError:
                if is_surely_text(path) or len(files) == 1:
                    raise
                document = None
        foreign = document is not None and not is_surely_text(path) and len(files) > 1
        if document is None or not len(document.text) or (foreign and _has_nul(document.text)):
            skipped.append(relative)
        else:
            read.append((path, relative, stamp, document))
    if not read:
        raise UsageError("{path}: no UTF-8 text in it; shards need one", path=shown(config.source))
    notes = [SKIPPED.format(files=len(skipped))] if skipped else []
    return read, [document.text for *_, document in read], notes


SKIPPED = N_("{files:,} files were skipped, empty or not UTF-8 text.")


def _has_nul(text: Text) -> bool:
    return any("\0" in piece for piece in pieces(text))


def _tokenizer(config: CorpusConfig, text: Text, stream: Stream) -> tuple[Tokenizer, dict[str, int]]:
    """The tokenizer, and what its merges were learned from: evenly spaced pieces of the training split."""
    if not isinstance(config.tokenizer, BPEConfig):
        return build_tokenizer(config, text, []), {}
    reserved = held_out(stream.num_pieces)
    training = [piece for piece in range(stream.num_pieces) if piece not in reserved]
    chosen = training[:: max(1, len(training) * stream.piece_bytes // LEARN_FROM)]
    learned = [stream.piece(piece) for piece in chosen]
    return build_tokenizer(config, text, learned), {"pieces": len(learned), "characters": sum(map(len, learned))}


def _require_same(
    out: Path, begun: str, config: CorpusConfig, cut: dict[str, Any], files: list[tuple[Path, str]]
) -> None:
    """Refuse to go on with shards of another text, or made in another way.

    Raises:
        UsageError: they are.
    """
    try:
        plain = unsealed_json(GuardedFolder(out).read(begun, _MOST_PLAN))
        made = {**plain["config"], **{key: plain["cut"][key] for key in cut}}
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise UsageError(
            "{path}: damaged ({reason}); remove the folder, and begin again",
            path=shown(out / begun),
            reason=why,
        ) from None
    wanted = {**_chosen(config), **cut}
    different = [key for key in sorted({*made, *wanted}) if made.get(key) != wanted.get(key)]
    if different:
        raise UsageError(
            "{path}: holds shards that were made with another {key}: {made!r}, not {wanted!r}; give a new folder",
            path=shown(out),
            key=different[0],
            made=made.get(different[0]),
            wanted=wanted.get(different[0]),
        )
    there = {relative: path for path, relative in files}
    for index, file in enumerate(plain["text"]["files"]):
        stamp = _stamp(there.get(file["path"]))
        here = plain["here"][index] if begun == UNFINISHED else None
        if here is not None and stamp is not None and list(stamp) != here["stamp"]:
            if file["sha256"] != _sha256(there[file["path"]]):
                stamp = None
            else:  # written again with the same bytes
                here["stamp"] = list(stamp)
        if stamp is None or stamp[0] != file["bytes"]:
            raise UsageError(
                "{path}: holds shards of another text: {file} is no longer the file that it was; give a new folder",
                path=shown(out),
                file=shown(file["path"]),
            )
    if begun == UNFINISHED:
        GuardedFolder(out).write(begun, sealed_json(plain))


def _stamp(path: Path | None) -> tuple[int, int] | None:
    if path is None or not path.is_file():
        return None
    with opened(path) as file:
        return stamp_of(file.fileno())


def _sha256(path: Path) -> str:
    with opened(path) as file:
        digest = hashlib.sha256()
        while read := file.read(PIECE):
            digest.update(read)
        return digest.hexdigest()
