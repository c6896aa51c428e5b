import errno
import os

import numpy as np
import pytest

from vitral.core.errors import StorageError
from vitral.data import SPLITS, Split
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


def test_the_file_is_what_its_description_says(tmp_path):
    write_store(tmp_path / "x.tokens", make_parts(np.dtype("<u2")), "abc")
    raw = (tmp_path / "x.tokens").read_bytes()
    assert raw[:8] == b"VITRALTK"
    header_end = 48 + int.from_bytes(raw[8:16], "little")
    assert raw[48:header_end].startswith(b'{"version": 1, "dtype": "uint16", "fingerprint": "abc"')
    payload = header_end + -header_end % 64
    assert set(raw[header_end:payload]) <= {0}
    assert np.frombuffer(raw[payload:], "<u2").tolist()[:3] == [0, 1, 65_535]
    assert len(raw) == payload + 2 * 15


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
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(DamagedStore):
            open_store(path, "abc", VOCABULARY)
    path.write_bytes(raw + b"\0")
    with pytest.raises(DamagedStore):
        open_store(path, "abc", VOCABULARY)


def test_tokens_of_something_else_are_not_taken(tmp_path):
    write_store(tmp_path / "x.tokens", make_parts(np.dtype("u1")), "abc")
    with pytest.raises(DamagedStore):
        open_store(tmp_path / "x.tokens", "abd", VOCABULARY)
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path / "y.tokens", "abc", VOCABULARY)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "x.tokens"
    path.write_bytes(b"old")

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(StorageError, match=r"x\.tokens: cannot be written \(No space left on device\).*VITRAL_CACHE"):
        write_atomically(path, [b"new"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.tokens"]
    assert path.read_bytes() == b"old"


def test_a_folder_that_cannot_be_made_is_the_disks_fault(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot be written"):
        write_atomically(tmp_path / "file" / "x.tokens", [b"new"])


def test_the_file_reaches_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (calls.append("fsync"), fsync(number)))
    monkeypatch.setattr(os, "replace", lambda old, new: (calls.append("replace"), replace(old, new)))
    write_atomically(tmp_path / "x", [b"a", b"b"])
    assert calls == ["fsync", "replace"]
    assert (tmp_path / "x").read_bytes() == b"ab"
