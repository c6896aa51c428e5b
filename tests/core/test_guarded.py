"""A guarded folder: nothing outside it is read, written or removed, whatever stands inside."""

import os
from pathlib import Path

import pytest

from vitral.core.errors import VitralError
from vitral.core.guarded import GuardedFolder, NotOurs

pytestmark = pytest.mark.skipif(os.name == "nt", reason="makes links and pipes")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that must not change."""
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    (tmp_path / "outside" / "inner" / "secret").write_bytes(b"inner secret")
    return tmp_path / "outside"


@pytest.fixture
def folder(tmp_path: Path, outside: Path) -> GuardedFolder:
    """A folder with one ordinary file, and links and devices to harm."""
    made = GuardedFolder(tmp_path / "run")
    made.make("steps")
    made.write("metrics", b"1\n")
    (tmp_path / "run" / "file-link").symlink_to(outside / "secret")
    (tmp_path / "run" / "folder-link").symlink_to(outside)
    (tmp_path / "run" / "nowhere").symlink_to(outside / "new")
    os.mkfifo(tmp_path / "run" / "pipe")
    return made


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


STRANGE = [
    "file-link",
    "folder-link",
    "folder-link/secret",
    "nowhere",
    "pipe",
    "../outside/secret",
    "/etc/passwd",
    "a//b",
]


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("act", ["read", "append", "names", "size", "copy", "inside"])
def test_what_stands_outside_is_neither_read_nor_changed(
    name: str, act: str, folder: GuardedFolder, outside: Path
) -> None:
    before = contents(outside)
    acts = {
        "read": lambda: folder.read(name, 1 << 20),
        "append": lambda: folder.append(name, b"more"),
        "names": lambda: folder.names(name),
        "size": lambda: folder.size(name),
        "copy": lambda: folder.copy(name, "copied"),
        "inside": lambda: folder.within(name).write("x", b"x"),
    }
    with pytest.raises(VitralError) as refused:
        acts[act]()
    assert "\n" not in str(refused.value)
    assert contents(outside) == before
    assert folder.names() == ["file-link", "folder-link", "metrics", "nowhere", "pipe", "steps"]


def test_writing_to_a_links_name_replaces_the_link(folder: GuardedFolder, outside: Path) -> None:
    before = contents(outside)
    for name in ("file-link", "nowhere"):
        folder.write(name, b"ours")
        assert folder.read(name, 10) == b"ours"
        assert folder.kind(name) == "file"
    assert contents(outside) == before


def test_the_typed_path_may_be_a_link(folder: GuardedFolder, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(tmp_path / "run")
    alias = GuardedFolder(tmp_path / "alias")
    alias.write("metrics", b"2\n")
    assert folder.read("metrics", 2) == b"2\n"


def test_a_snapshot_of_hard_links_keeps_its_content(folder: GuardedFolder, tmp_path: Path) -> None:
    os.link(tmp_path / "run" / "metrics", tmp_path / "snapshot")
    folder.append("metrics", b"2\n")
    folder.append("metrics", b"3\n")
    assert (tmp_path / "snapshot").read_bytes() == b"1\n"
    assert folder.read("metrics", 6) == b"1\n2\n3\n"


def test_more_bytes_than_allowed_are_refused(folder: GuardedFolder, tmp_path: Path) -> None:
    with (tmp_path / "run" / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="more than"):
        folder.read("huge", 7)
    assert folder.read("metrics", 2) == b"1\n"


def test_only_folders_of_ours_are_removed(folder: GuardedFolder, outside: Path, tmp_path: Path) -> None:
    before = contents(outside)
    folder.make("steps/one/two")
    folder.write("steps/one/two/state", b"x")
    assert not folder.remove_folder("steps/one", lambda path: path == "two")
    assert folder.read("steps/one/two/state", 1) == b"x"
    (tmp_path / "run" / "steps" / "one" / "state").symlink_to(outside / "secret")
    assert not folder.remove_folder("steps/one", lambda path: True)
    assert not folder.remove_folder("folder-link", lambda path: True)
    folder.remove("steps/one/state")
    assert folder.remove_folder("steps/one", lambda path: path in ("two", "two/state"))
    assert folder.names("steps") == []
    assert contents(outside) == before


def test_temporary_files_of_ended_processes_are_swept(folder: GuardedFolder, tmp_path: Path) -> None:
    child = os.fork() if hasattr(os, "fork") else None
    if child == 0:
        os._exit(0)
    assert child is not None
    os.waitpid(child, 0)
    for name in (f".best.{child}-7.tmp", f".best.{os.getpid()}-7.tmp", "notes.tmp", ".hidden"):
        (tmp_path / "run" / name).write_bytes(b"x")
    folder.sweep()
    assert [name for name in folder.names() if "tmp" in name or name == ".hidden"] == [
        f".best.{os.getpid()}-7.tmp",
        ".hidden",
        "notes.tmp",
    ]


def test_without_descriptors_of_folders_links_are_refused_too(
    folder: GuardedFolder, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitral.core.guarded.RELATIVE", False)
    before = contents(outside)
    for name in STRANGE:
        with pytest.raises(NotOurs):
            folder.read(name, 1 << 20)
        with pytest.raises(VitralError):
            folder.append(name, b"x")
    folder.make("a/b")
    folder.write("a/b/c", b"c")
    assert folder.read("a/b/c", 1) == b"c"
    assert folder.remove_folder("a", lambda path: True)
    assert contents(outside) == before
