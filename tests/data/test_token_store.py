import errno
import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from vitral.core.errors import StorageError
from vitral.core.files import temporary_name
from vitral.data import SPLITS, Split, token_store
from vitral.data.token_store import DamagedStore, open_store, token_dtype, write_atomically, write_store

VOCABULARY = 1 << 32


def make_parts(dtype: np.dtype) -> dict[str, Split]:
    top = np.iinfo(dtype).max
    tokens = {"train": [0, 1, top, 3, 4, 5, 6], "validation": [7, 8, 9], "test": [10, 11, 12, 13, top]}
    segments = {"train": [[0, 4], [4, 7]], "validation": [[0, 3]], "test": [[0, 2], [2, 5]]}
    return {part: Split(np.array(tokens[part], dtype=dtype), np.array(segments[part])) for part in SPLITS}


@pytest.mark.parametrize(
    ("vocab_size", "name"),
    [(2, "uint8"), (256, "uint8"), (257, "uint16"), (65_536, "uint16"), (65_537, "uint32"), (1_000_000, "uint32")],
)
def test_what_is_written_is_read_in_the_smallest_type(tmp_path, vocab_size, name):
    dtype = token_dtype(vocab_size)
    assert dtype.name == name
    parts = make_parts(dtype)
    write_store(tmp_path / "x.tokens", parts, "f" * 32)
    store = open_store(tmp_path / "x.tokens", "f" * 32, VOCABULARY)
    for part in SPLITS:
        assert store.splits[part].tokens.dtype == dtype
        assert store.splits[part].tokens.tolist() == parts[part].tokens.tolist()
        assert store.splits[part].segments.tolist() == parts[part].segments.tolist()
        assert store.splits[part].segments.dtype == np.int64
        assert isinstance(store.splits[part].tokens, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            store.splits[part].tokens[0] = 1


def test_any_changed_byte_and_any_cut_is_noticed(tmp_path):
    path = tmp_path / "x.tokens"
    write_store(path, make_parts(np.dtype("u1")), "abc")
    raw = path.read_bytes()
    header_end = 48 + int.from_bytes(raw[8:16], "little")
    padding = range(header_end, header_end + -header_end % 64)
    for index in set(range(len(raw))) - set(padding):
        path.write_bytes(raw[:index] + bytes([raw[index] ^ 1]) + raw[index + 1 :])
        with pytest.raises(DamagedStore):
            open_store(path, "abc", VOCABULARY)
    for length in range(0, len(raw), 7):
        path.write_bytes(raw[:length])
        with pytest.raises(DamagedStore):
            open_store(path, "abc", VOCABULARY)
    path.write_bytes(raw + b"\0")
    with pytest.raises(DamagedStore):
        open_store(path, "abc", VOCABULARY)
    path.write_bytes(raw)
    with pytest.raises(DamagedStore):  # of something else
        open_store(path, "abd", VOCABULARY)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "x.tokens"
    path.write_bytes(b"old")

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(StorageError, match=r"x\.tokens: cannot be written \(No space left on device\).*VITRAL_CACHE"):
        write_atomically(path, [b"new"])
    monkeypatch.undo()
    with pytest.raises(StorageError, match="cannot be written"):
        write_atomically(path / "y.tokens", [b"new"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.tokens"]
    assert path.read_bytes() == b"old"


def stored_tokens(folder, **changes: Split):
    path = folder / "x.tokens"
    parts = make_parts(np.dtype("u1")) | changes
    write_store(path, parts, "abc")
    return path


def tokens_of(path, vocab_size=256):
    return open_store(path, "abc", vocab_size).splits["train"].tokens


@pytest.mark.parametrize(("vocab_size", "whole"), [(256, True), (255, False), (2, False)])
def test_a_token_outside_the_vocabulary_is_damage(tmp_path, vocab_size, whole):
    path = stored_tokens(tmp_path)
    if whole:
        assert tokens_of(path, vocab_size).max() == 255
    else:
        with pytest.raises(DamagedStore):
            tokens_of(path, vocab_size)


@pytest.mark.parametrize(
    "segments",
    [[[0, 3]], [[1, 4], [4, 7]], [[0, 5], [4, 7]], [[0, 3], [4, 7]], [[0, 9], [9, 7]], [[-7, 0], [0, 7]], [], [[0, 8]]],
    ids=str,
)
def test_segments_that_do_not_cover_the_tokens_are_damage(tmp_path, segments):
    train = Split(np.arange(7, dtype=np.uint8), np.array(segments, dtype=np.int64).reshape(-1, 2))
    with pytest.raises(DamagedStore):
        tokens_of(stored_tokens(tmp_path, train=train))


@pytest.mark.parametrize(
    "change",
    [
        {"parts": {}},
        {"dtype": "object"},
        {"sha256": None},
        {"parts": {part: {"tokens": -5, "stretches": []} for part in SPLITS}},
        {"parts": {part: {"tokens": True, "stretches": [[0, 1 << 80]]} for part in SPLITS}},
    ],
    ids=str,
)
def test_a_header_with_a_matching_hash_is_checked_all_the_same(tmp_path, change):
    raw = stored_tokens(tmp_path).read_bytes()
    end = 48 + int.from_bytes(raw[8:16], "little")
    header = json.dumps(json.loads(raw[48:end]) | change).encode()
    prefix = raw[:8] + len(header).to_bytes(8, "little") + hashlib.sha256(header).digest() + header
    (tmp_path / "x.tokens").write_bytes(prefix + bytes(-len(prefix) % 64) + raw[end + -end % 64 :])
    with pytest.raises(DamagedStore):
        tokens_of(tmp_path / "x.tokens")


POSIX = pytest.mark.skipif(os.name == "nt", reason="files have no owner number and no mode bits there")


@POSIX
@pytest.mark.parametrize(
    ("mode", "folder_mode", "is_mapped"),
    [
        (0o644, 0o755, True),
        (0o600, 0o775, True),
        (0o444, 0o1777, True),
        (0o664, 0o755, False),
        (0o646, 0o755, False),
        (0o644, 0o777, False),
    ],
)
def test_only_a_file_that_nobody_else_can_change_is_mapped(tmp_path, mode, folder_mode, is_mapped):
    (tmp_path / "cache").mkdir()
    path = stored_tokens(tmp_path / "cache")
    path.chmod(mode)
    path.parent.chmod(folder_mode)
    tokens = tokens_of(path)
    assert isinstance(tokens, np.memmap) == is_mapped
    assert folder_mode == 0o777 or isinstance(tokens_of(path), np.memmap)  # the file is closed to others then
    assert tokens.tolist() == make_parts(np.dtype("u1"))["train"].tokens.tolist()
    with pytest.raises(ValueError, match="read-only"):
        tokens[0] = 1


@POSIX
def test_a_file_of_another_user_is_not_mapped(tmp_path, monkeypatch):
    path = stored_tokens(tmp_path)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not isinstance(tokens_of(path), np.memmap)


@POSIX
def test_a_link_or_a_pipe_in_its_place_is_not_opened_and_a_linked_cache_is(tmp_path):
    (tmp_path / "real").mkdir()
    path = stored_tokens(tmp_path / "real")
    (tmp_path / "cache").symlink_to(tmp_path / "real")
    assert tokens_of(tmp_path / "cache" / "x.tokens").size == 7
    (tmp_path / "link.tokens").symlink_to(path)
    os.mkfifo(tmp_path / "pipe.tokens")
    (tmp_path / "folder.tokens").mkdir()
    for name in ("link", "pipe", "folder"):
        with pytest.raises(DamagedStore):
            tokens_of(tmp_path / f"{name}.tokens")


@POSIX
def test_only_what_ended_processes_left_is_swept(tmp_path, monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    def of_ended(name):
        return temporary_name(name).replace(f"-{os.getpid()}-", f"-{ended.pid}-")

    mine, theirs, scratch = temporary_name("x.tokens"), of_ended("x.tokens"), of_ended("scratch")
    machine = mine.split(".")[-2].split("-")[0]
    elsewhere = theirs.replace(machine, f"{int(machine, 16) ^ 1:08x}")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "train").write_bytes(b"mine")
    cache = tmp_path / "cache"
    for folder in (scratch, of_ended("other"), temporary_name("scratch"), of_ended("scratch.linked")):
        (cache / folder).mkdir(parents=True)
        (cache / folder / "train").write_bytes(b"tokens")
    (cache / of_ended("scratch.linked") / "diary.txt").write_bytes(b"mine")
    (cache / of_ended("scratch.link")).symlink_to(tmp_path / "outside")
    for name in (mine, elsewhere, "x.tokens", ".hidden"):
        (cache / name).write_bytes(b"kept")
    kept = {entry.name for entry in cache.iterdir()} - {scratch}
    (cache / theirs).write_bytes(b"left")
    (cache / f".x.json.{ended.pid}-140001.tmp").write_bytes(b"left by an earlier version")
    monkeypatch.setattr(token_store, "_swept", set())
    token_store.sweep(cache)
    assert {entry.name for entry in cache.iterdir()} == kept
    assert (tmp_path / "outside" / "train").read_bytes() == b"mine"
    (cache / theirs).write_bytes(b"left")
    token_store.sweep(cache)
    assert (cache / theirs).exists()  # once in a process
    token_store.sweep(tmp_path / "nowhere")
