"""Files in a run or a study: no link is read or written, only regular files are, of a known size."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vitral.core.errors import StorageError, UsageError
from vitral.core.files import append, create_durably, make, names, read, replace_durably, sweep

pytestmark = pytest.mark.skipif(os.name == "nt", reason="makes links and pipes")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file and a folder that must not change, and what leads to them or to nowhere."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"secret")
    (tmp_path / "to a file").symlink_to(tmp_path / "outside" / "file")
    (tmp_path / "to a folder").symlink_to(tmp_path / "outside")
    (tmp_path / "to nothing").symlink_to(tmp_path / "outside" / "new")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "outside"


@pytest.mark.parametrize("name", ["to a file", "to a folder", "to nothing", "pipe"])
def test_links_and_pipes_are_refused(name: str, secret: Path, tmp_path: Path) -> None:
    acts: list[Callable[[], object]] = [
        lambda: read(tmp_path / name, 1 << 20),
        lambda: append(tmp_path / name, b"more"),
        lambda: names(tmp_path / name),
        lambda: make(tmp_path / name),
    ]
    for act in acts:
        with pytest.raises((UsageError, StorageError, ValueError)) as refused:
            act()
        assert "\n" not in str(refused.value)
    assert {path.name: path.read_bytes() for path in secret.iterdir()} == {"file": b"secret"}


def test_writing_to_a_links_name_replaces_the_link(secret: Path, tmp_path: Path) -> None:
    for name in ("to a file", "to nothing"):
        replace_durably(tmp_path / name, b"ours")
        assert read(tmp_path / name, 4) == b"ours"
    assert {path.name: path.read_bytes() for path in secret.iterdir()} == {"file": b"secret"}


def test_more_bytes_than_allowed_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="more than"):
        read(tmp_path / "huge", 7)


def test_what_exists_is_not_created_again(tmp_path: Path) -> None:
    create_durably(tmp_path / "page", b"one")
    with pytest.raises(UsageError, match="exists already"):
        create_durably(tmp_path / "page", b"two")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"one"]


def test_what_ended_processes_left_is_swept(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    kept = [f".best.{os.getpid()}-7.tmp", ".hidden", "notes.tmp"]
    for name in (f".best.{child}-7.tmp", *kept):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / f".run.{child}-7.tmp").mkdir()
    (tmp_path / f".link.{child}-7.tmp").symlink_to("/")
    sweep(tmp_path)
    assert names(tmp_path) == sorted(kept)
