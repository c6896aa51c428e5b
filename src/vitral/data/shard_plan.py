"""The plan of shards: which files, which tokenizer, and where the text is cut; every shard follows from it.

`plan_shards` reads the files once, makes the tokenizer and writes `unfinished.json`; `plan_of` reads it again, in every
process that makes shards.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError, reason
from vitral.core.files import as_json, sha256
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_
from vitral.core.seals import sealed_json, unsealed_json
from vitral.data.config import BPEConfig, CorpusConfig
from vitral.data.corpora import as_path, own_files
from vitral.data.dataset import LEARN_FROM
from vitral.data.folders import is_surely_text, no_match, refuse_own, user_files
from vitral.data.long_texts import PIECE, Text, joined_text, pieces
from vitral.data.opening import opened, shown, stamp_of
from vitral.data.presplit import RULE, SourceFile, Stream, cut_into
from vitral.data.presplit import VERSION as RULE_VERSION
from vitral.data.shards import (
    MANIFEST,
    TOKENIZER,
    UNFINISHED,
    held_out,
)
from vitral.data.split import SPLIT_SEED
from vitral.data.texts import Document, Reading, read_long
from vitral.data.token_store import token_dtype
from vitral.data.tokenizers import Tokenizer, build_tokenizer, tokenizer_from_plain

PIECE_BYTES = 1 << 16
SHARD_PIECES = 1 << 8
MOST_BYTES = 1 << 30
"""Maximum bytes of a plan, of a tokenizer, and of the record of a shard."""

_OF_A_STORE = ("tokenizer", "specials", "newlines", "separator", "glob")


@dataclass(frozen=True)
class ShardPlan:
    """A plan.

    Attributes:
        plain: the plan as plain data: the text, its files, the cut and the split.
        stream: the text, piece by piece.
        tokenizer: the tokenizer.
    """

    plain: dict[str, Any]
    stream: Stream
    tokenizer: Tokenizer

    @property
    def shards(self) -> Sequence[range]:
        """The pieces of each shard."""
        return cut_into(self.stream.num_pieces, self.plain["cut"]["shard_pieces"])

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return len(self.shards)


def plan_shards(
    config: CorpusConfig, out: Path, *, piece_bytes: int = PIECE_BYTES, shard_pieces: int = SHARD_PIECES
) -> None:
    """Read the files once, make the tokenizer, and write what everything else follows from.

    Raises:
        UsageError: the text cannot be used, or has changed since it was begun; or `out` holds something else.
        StorageError: `out` cannot be written.
    """
    _refuse_unused(config)
    name, files, remarks = _files(config)
    cut = {"rule": RULE, "version": RULE_VERSION, "piece_bytes": piece_bytes, "shard_pieces": shard_pieces}
    folder = GuardedFolder(out)
    if folder.kind(MANIFEST) is None and folder.kind(UNFINISHED) is not None:
        try:
            _require_same(out, UNFINISHED, config, cut, files)
            return
        except UsageError:
            if folder.kind(MANIFEST) is None:  # else another process has finished them meanwhile
                raise
    if folder.kind(MANIFEST) is not None:
        _require_same(out, MANIFEST, config, cut, files)
        return
    if folder.names() and not _is_barely_begun(folder):
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


def _is_barely_begun(folder: GuardedFolder) -> bool:
    """Whether a folder has no more than the beginning of a plan, whose process was killed."""
    folder.sweep()
    names = set(folder.names())
    return (
        names in ({"shards"}, {"shards", TOKENIZER})
        and folder.kind("shards") == "folder"
        and not folder.names("shards")
    )


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
        plain = unsealed_json(GuardedFolder(out).read(begun, MOST_BYTES))
        made = {**plain["config"], **{key: plain["cut"][key] for key in cut}}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(out / begun, error) from None
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


def plan_of(out: Path) -> ShardPlan:
    """Read the plan in a folder.

    Raises:
        UsageError: there is none, or it is damaged, or the tokenizer is another.
    """
    folder = GuardedFolder(out)
    try:
        return _parsed(folder.read(UNFINISHED, MOST_BYTES), folder.read(TOKENIZER, MOST_BYTES))
    except UsageError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(out / UNFINISHED, error) from None


@lru_cache(maxsize=2)
def _parsed(raw: bytes, described: bytes) -> ShardPlan:
    plain = unsealed_json(raw)
    if sha256(described) != plain["tokenizer"]["sha256"]:
        raise UsageError("{file} has changed; remove the folder, and begin again", file=TOKENIZER)
    config = CorpusConfig.parse(plain["config"])
    files = tuple(
        SourceFile(Path(file["path"]), (file["stamp"][0], file["stamp"][1]), file["mark"]) for file in plain["here"]
    )
    stream = Stream(files, config.separator, config.newlines, config.specials or (), plain["cut"]["piece_bytes"])
    return ShardPlan(plain, stream, tokenizer_from_plain(json.loads(described)))


def _damaged(file: Path, error: Exception) -> UsageError:
    why = reason(error) if isinstance(error, OSError) else error
    return UsageError("{path}: damaged ({reason}); remove the folder, and begin again", path=shown(file), reason=why)
