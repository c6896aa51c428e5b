"""Making shards: a text too large for one process, tokenized shard by shard in as many as there are.

`make_shard` makes one shard of a plan (`vitral.data.shard_plan`) and publishes its file and then its record, each by
renaming; `seal` writes the manifest when all are there. A shard that is there is never made again, and every shard is a
function of the plan alone: so the bytes are the same however many processes made them, and however often one was
killed.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from vitral.core.errors import StorageError, UsageError, VitralError, reason
from vitral.core.files import sha256
from vitral.core.guarded import GuardedFolder
from vitral.core.seals import sealed_json, unsealed_json
from vitral.data.alphabet import UnseenCharacter
from vitral.data.config import BPEConfig, CorpusConfig
from vitral.data.opening import shown
from vitral.data.shard_plan import MOST_BYTES, PIECE_BYTES, SHARD_PIECES, plan_of, plan_shards
from vitral.data.shards import (
    CUT_WORDS,
    FORMAT,
    MANIFEST,
    UNFINISHED,
    VERSION,
    Shard,
    Shards,
    held_out,
    shard_name,
)
from vitral.data.token_store import DTYPES

_RECORD_ENDS = ".json"
_MOST_DEATHS = 3
"""Times in a row that a worker may be killed before another shard is finished."""

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
    plan_shards(config, out, piece_bytes=piece_bytes, shard_pieces=shard_pieces)
    with _unless_sealed(out):
        _make_all(out, workers, tick)
    return seal(out)


def _make_all(out: Path, workers: int, tick: Tick) -> None:
    """Make the shards that are missing, again if a worker is killed."""
    deaths, number = 0, 0 if _is_sealed(out) else plan_of(out).num_shards

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


def make_shard(out: str | Path, number: int) -> None:
    """Make one shard, unless it is there.

    Raises:
        UsageError: a file of the text has changed, or has a character without a token.
        StorageError: it cannot be written.
    """
    folder, name = GuardedFolder(out), shard_name(number)
    if folder.kind(name + _RECORD_ENDS) is not None or _is_sealed(out):
        return
    with _unless_sealed(out):
        _make_shard(folder, number)


def _make_shard(folder: GuardedFolder, number: int) -> None:
    made, name = plan_of(folder.path), shard_name(number)
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
        with _unless_sealed(out):
            for number in range(rank, plan_of(Path(out)).num_shards, world_size):
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
        with _unless_sealed(out):
            _write_manifest(folder)
    _clear(folder)
    return Shards(out)


def _write_manifest(folder: GuardedFolder) -> None:
    made = plan_of(folder.path)
    if missing := _missing(folder.path):
        raise UsageError(
            "{path}: {number:,} shards are still to be made, the first is {first}",
            path=shown(folder.path),
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
        shard = Shard.parse(unsealed_json(folder.read(name, MOST_BYTES))["shard"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "{path}: damaged ({reason}); remove it, and its shard is made again",
            path=shown(folder.path / name),
            reason=reason(error) if isinstance(error, OSError) else error,
        ) from None
    if shard.file != shard_name(number) or folder.kind(shard.file) != "file":
        raise UsageError(
            "{path}: is missing; remove {record}, and it is made again",
            path=shown(folder.path / shard_name(number)),
            record=name,
        )
    return shard


@contextlib.contextmanager
def _unless_sealed(out: str | Path) -> Generator[None]:
    """Do something with shards that are unfinished; it may fail if another process finishes all of them meanwhile."""
    try:
        yield
    except (OSError, VitralError):
        if not _is_sealed(out):
            raise


def _is_sealed(out: str | Path) -> bool:
    return GuardedFolder(out).kind(MANIFEST) is not None


def _missing(out: Path) -> list[int]:
    """The shards that are still to be made."""
    if _is_sealed(out):
        return []
    there = set(GuardedFolder(out).names("shards"))
    names = ((number, Path(shard_name(number)).name) for number in range(plan_of(out).num_shards))
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
