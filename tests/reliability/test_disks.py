"""A disk that is full, forbids or fails: one line, exit code 4, and what was there is there."""

import contextlib
import errno
import os
import random
import resource
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.conftest import STEPS, Tally, last_bytes, measured, scaled
from vitral.core import files
from vitral.core.errors import StorageError
from vitral.core.files import replace_durably
from vitral.data import prepare
from vitral.runs import RunFolder
from vitral.runs.checkpoint import load_checkpoint
from vitral.training import RunConfig, resume, train

SIZES = scaled(12, 40)
ERRORS = {"ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT, "EIO": errno.EIO}
CALLS = ("fsync", "rename", "replace", "mkdir", "write")


def copy_of(folder: RunFolder, path: Path, *, without_last: bool = False) -> RunFolder:
    """The same run elsewhere, or as it was one step before its end."""
    shutil.copytree(folder.path, path)
    copied = RunFolder.open(path)
    if without_last:
        shutil.rmtree(copied.steps / f"step-{STEPS:08d}")
    return copied


def files_of(path: Path) -> dict[str, bytes]:
    """Everything under a folder but the lock."""
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file() and f.name != ".lock"}


def checkpoints_of(folder: RunFolder) -> list[int]:
    """The steps whose checkpoints verify."""
    return [load_checkpoint(path).step for path in sorted(folder.steps.glob("step-*"))]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits the size of files of a process of its own, made by fork")
def test_files_may_not_grow(straight: RunFolder, config: RunConfig, tmp_path: Path, tally: Tally) -> None:
    largest = max(path.stat().st_size for path in straight.steps.rglob("*.safetensors"))
    stopped = 0
    for number in range(SIZES):
        folder = copy_of(straight, tmp_path / f"run-{number}", without_last=True)
        before = checkpoints_of(folder)
        code = _resumed_within(folder.path, number * largest // (SIZES - 4))
        assert code in (0, 4)
        stopped += code == 4
        assert checkpoints_of(folder)[:2] in (before, [*before, STEPS][-2:])
        assert not list(folder.steps.glob(".*"))
        resume(folder.path) if code == 4 else None
        assert checkpoints_of(folder)[-1] == STEPS
        assert last_bytes(folder) == last_bytes(straight)
    assert 0 < stopped < SIZES
    tally("sizes a file may not pass (RLIMIT_FSIZE)", SIZES)


def _resumed_within(path: Path, size: int) -> int:
    """The exit code of a resume whose files may have so many bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        code = 77
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            resume(path)
            code = 0
        except StorageError as error:
            code = 4 if "\n" not in str(error) and str(path) in str(error) else 78
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def failing(patch: pytest.MonkeyPatch, call: str, number: int, code: int, times: int = 1) -> Callable[[], bool]:
    """Let os.`call` fail some times from call number `number` on; gives whether it came to that."""
    original, seen = getattr(os, call), [0]

    def wrapped(*given: Any, **options: Any) -> Any:
        seen[0] += 1
        if number <= seen[0] < number + times:
            raise OSError(code, os.strerror(code))
        return original(*given, **options)

    patch.setattr(os, call, wrapped)
    return lambda: seen[0] >= number


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ERRORS)
def test_every_call_of_a_checkpoint_may_fail(
    name: str, call: str, straight: RunFolder, tmp_path: Path, tally: Tally
) -> None:
    number = 1
    while True:
        folder = copy_of(straight, tmp_path / f"run-{number}", without_last=True)
        before = checkpoints_of(folder)
        with pytest.MonkeyPatch.context() as patch:
            reached = failing(patch, call, number, ERRORS[name])
            try:
                resume(folder.path)
            except StorageError as error:
                assert "\n" not in str(error)
                assert str(folder.path) in str(error)
                assert error.exit_code == 4
            else:
                if not reached():
                    break
        kept = checkpoints_of(folder)
        assert kept[: len(before)] == before or kept[-1] == STEPS
        if kept[-1] != STEPS:
            resume(folder.path)
        assert checkpoints_of(folder)[-1] == STEPS
        number += 1
    tally(f"calls of a resume that failed once ({call}: {name})", number - 1)
    assert number > 1 or call == "mkdir"


@pytest.mark.parametrize("call", ["rename", "replace", "unlink", "rmdir"])
def test_a_change_of_names_may_be_refused_twice(
    call: str, straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    number, waited = 1, list[float]()
    monkeypatch.setattr(files, "sleep", waited.append)
    while True:
        folder = copy_of(straight, tmp_path / f"run-{number}", without_last=True)
        waited.clear()
        with pytest.MonkeyPatch.context() as patch:
            reached = failing(patch, call, number, errno.EACCES, times=2)
            resume(folder.path)
            if not reached():
                break
        assert waited == [*files.PAUSES[:2]]
        assert last_bytes(folder) == last_bytes(straight)
        number += 1
    tally(f"changes of names that were refused twice ({call})", number - 1)
    assert number > 1


def test_a_change_of_names_that_stays_refused_is_one_line_after_a_second(
    straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, waited = copy_of(straight, tmp_path / "run", without_last=True), list[float]()
    monkeypatch.setattr(files, "sleep", waited.append)
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, "rename", 1, errno.EACCES, times=999)
        with pytest.raises(StorageError, match=str(folder.path)):
            resume(folder.path)
    assert 0 < sum(files.PAUSES) < 1
    assert waited[: len(files.PAUSES)] == [*files.PAUSES]
    resume(folder.path)
    assert last_bytes(folder) == last_bytes(straight)


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_the_token_cache(name: str, call: str, config: RunConfig, tmp_path: Path) -> None:
    prepare(config.corpus, cache=tmp_path)
    before = files_of(tmp_path)
    changed = config.corpus.model_copy(update={"split": "blocks"})
    text = Path(config.corpus.source)
    longer = tmp_path.parent / f"{tmp_path.name}-longer.txt"
    longer.write_text(text.read_text(encoding="utf-8") * 3, encoding="utf-8")
    changed = changed.model_copy(update={"source": str(longer)})
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, call, 1, ERRORS[name])
        with pytest.raises(StorageError, match="VITRAL_CACHE") as refused:
            prepare(changed, cache=tmp_path)
    assert "\n" not in str(refused.value)
    assert files_of(tmp_path) == before
    prepare(changed, cache=tmp_path)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs Linux to tell which file is written")
@pytest.mark.parametrize("name", ERRORS)
def test_the_log(name: str, straight: RunFolder, tmp_path: Path) -> None:
    folder = copy_of(straight, tmp_path / "run", without_last=True)
    original = os.write

    def half(descriptor: int, content: memoryview) -> int:
        """The disk takes half a line of the log, and then no more."""
        if not os.readlink(f"/proc/self/fd/{descriptor}").endswith("/metrics.jsonl"):
            return original(descriptor, content)
        original(descriptor, content[: len(content) // 2])
        raise OSError(ERRORS[name], os.strerror(ERRORS[name]))

    before = checkpoints_of(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(StorageError, match=r"metrics\.jsonl: cannot be written") as refused:
            resume(folder.path)
    assert "\n" not in str(refused.value)
    assert checkpoints_of(folder) == before
    notes = list[str]()
    resume(folder.path, callback=lambda event: notes.append(event["text"]) if event["event"] == "note" else None)
    assert len([note for note in notes if "metrics.jsonl: an incomplete last line" in note]) == 1
    assert measured(folder) == measured(straight)


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_report(name: str, call: str, tmp_path: Path) -> None:
    (tmp_path / "run.html").write_bytes(b"old")
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, call, 1, ERRORS[name])
        with pytest.raises(StorageError, match=r"run\.html: cannot be written") as refused:
            replace_durably(tmp_path / "run.html", b"new")
    assert "\n" not in str(refused.value)
    assert files_of(tmp_path) == {"run.html": b"old"}


def test_too_little_room_is_said_before_anything_is_written(
    config: RunConfig, straight: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_of(straight, tmp_path / "run", without_last=True)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    with pytest.raises(StorageError, match=r"needs 1\.1 MB, 1\.0 MB are free") as refused:
        resume(folder.path)
    assert "intact" in str(refused.value)
    assert checkpoints_of(folder)[-1] == STEPS - 1


def test_a_run_that_cannot_be_made_leaves_nothing(config: RunConfig, tmp_path: Path) -> None:
    step = scaled(3, 1)
    for number in range(1 + random.SystemRandom().randrange(step), 30, step):
        with pytest.MonkeyPatch.context() as patch:
            reached = failing(patch, "fsync", number, errno.ENOSPC)
            with contextlib.suppress(StorageError):
                train(config, tmp_path / "run")
            if not reached():
                break
        path = tmp_path / "run"
        if path.exists():  # a run that has begun goes on
            assert resume(path).metrics("end")[-1]["finished"]
            shutil.rmtree(path)
        assert list(tmp_path.iterdir()) == []
