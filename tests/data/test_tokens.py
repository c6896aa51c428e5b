"""Tokens on disk: what is written in pieces is read whole; what is not whole is noticed."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from vitral.core.errors import StorageError
from vitral.data import SPLITS
from vitral.data.tokens import Piece, read, token_dtype, write

PIECES = [
    *(Piece("train", True, np.array([0, 1, 255])), Piece("test", True, np.array([10, 11]))),
    *(Piece("train", False, np.array([3])), Piece("validation", True, np.array([7, 8, 9]))),
    *(Piece("train", True, np.array([], dtype=np.int64)), Piece("train", False, np.array([4, 5]))),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "x", token_dtype(256), PIECES)
    return tmp_path / "x"


@pytest.mark.parametrize(("vocab_size", "name"), [(2, "uint16"), (65_536, "uint16"), (65_537, "uint32")])
def test_what_is_written_in_pieces_is_read_by_split_and_segment(tmp_path: Path, vocab_size: int, name: str) -> None:
    write(tmp_path / "x", token_dtype(vocab_size), PIECES)
    store = read(tmp_path / "x")
    assert store is not None
    splits = store.splits
    assert {split: splits[split].tokens.tolist() for split in SPLITS} == {
        "train": [0, 1, 255, 3, 4, 5],
        "validation": [7, 8, 9],
        "test": [10, 11],
    }
    assert splits["train"].segments.tolist() == [[0, 4], [4, 6]]
    raw = np.fromfile(tmp_path / "x" / "train.bin", name)  # as other programs read it
    assert raw.tolist() == splits["train"].tokens.tolist()
    for split in splits.values():
        assert (split.tokens.dtype, split.segments.dtype) == (name, np.int64)
        assert isinstance(split.tokens, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            split.tokens[0] = 1


def test_any_changed_byte_and_any_cut_of_the_tokens_is_noticed(folder: Path) -> None:
    for path in folder.glob("*.bin"):
        raw = path.read_bytes()
        wrong = [raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in range(len(raw))]
        for content in (*wrong, *(raw[:at] for at in range(len(raw))), raw + b"\0"):
            path.write_bytes(content)
            assert read(folder) is None
        path.unlink()
        assert read(folder) is None
        path.write_bytes(raw)
    assert read(folder) is not None


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(StorageError, match=r"x: cannot be written \(No space left on device\).*VITRAL_CACHE"):
        write(tmp_path / "x", token_dtype(256), PIECES)
    assert not list(tmp_path.iterdir())
