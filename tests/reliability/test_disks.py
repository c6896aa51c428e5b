"""A disk that is full, forbids or fails: one line, exit code 4, and what was there is there."""

import contextlib
import errno
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.children import ON_LINUX, ended, forked
from tests.reliability.conftest import STEPS, Tally, last_bytes, measured, trials
from vitral.core import files
from vitral.core.errors import StorageError
from vitral.runs import RunFolder
from vitral.runs.checkpoint import load_checkpoint
from vitral.training import RunConfig, resume, train

pytestmark = ON_LINUX

ERRORS = [OSError(code, os.strerror(code)) for code in (errno.ENOSPC, errno.EDQUOT, errno.EIO)]
EACH = pytest.mark.parametrize("error", ERRORS, ids=str)


@pytest.fixture
def before_the_end(straight: RunFolder, tmp_path: Path) -> Callable[[], RunFolder]:
    """Makes the run as it was one step before its end."""

    def copied() -> RunFolder:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        folder = RunFolder.open(Path(shutil.copytree(straight.path, tmp_path / "run")))
        shutil.rmtree(folder.steps / f"step-{STEPS:08d}")
        return folder

    return copied


def checkpoints_of(folder: RunFolder) -> list[int]:
    """The steps whose checkpoints verify."""
    return [load_checkpoint(path).step for path in sorted(folder.steps.glob("step-*"))]


@trials(4, 8, 40)
def test_files_may_not_grow(
    trials: int, straight: RunFolder, before_the_end: Callable[[], RunFolder], tally: Tally
) -> None:
    largest = max(path.stat().st_size for path in straight.steps.rglob("*.safetensors"))
    codes = set[int]()
    for number in range(trials):
        folder = before_the_end()
        before = checkpoints_of(folder)
        codes.add(code := _resumed_within(folder.path, number * largest // (trials * 2 // 3)))
        assert checkpoints_of(folder)[:2] in (before, [*before, STEPS][-2:])
        assert not list(folder.steps.glob(".*"))
        resume(folder.path) if code == 4 else None
        assert last_bytes(folder) == last_bytes(straight)
    assert codes == {0, 4}
    tally("sizes a file may not pass (RLIMIT_FSIZE)", trials)


def _resumed_within(path: Path, size: int) -> int:
    """The exit code of a resume whose files may have so many bytes."""

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        try:
            resume(path)
        except StorageError as error:
            os._exit(4 if "\n" not in str(error) and str(path) in str(error) else 78)

    return ended(forked(child))


def failing(patch: pytest.MonkeyPatch, call: str, number: int, error: OSError, times: int = 1) -> Callable[[], bool]:
    """Let os.`call` fail some times from call number `number` on; gives whether it came to that."""
    original, seen = getattr(os, call), [0]

    def wrapped(*given: Any, **options: Any) -> Any:
        seen[0] += 1
        if number <= seen[0] < number + times:
            raise error
        return original(*given, **options)

    patch.setattr(os, call, wrapped)
    return lambda: seen[0] >= number


@trials(5, 3, 1)
@pytest.mark.parametrize("call", ["fsync", "rename", "replace", "mkdir", "write"])
def test_every_call_of_a_checkpoint_may_fail(
    call: str, trials: int, before_the_end: Callable[[], RunFolder], tally: Tally
) -> None:
    """Every so-manyth, in turn for each reason."""
    for number in range(1, 999, trials):
        folder = before_the_end()
        before = checkpoints_of(folder)
        with pytest.MonkeyPatch.context() as patch:
            reached = failing(patch, call, number, ERRORS[number % 3])
            try:
                resume(folder.path)
            except StorageError as error:
                assert str(folder.path) in str(error)
                assert error.exit_code == 4
            else:
                if not reached():
                    assert number > 1 or call == "mkdir"
                    tally("calls of a resume that failed once", number // trials)
                    return
        kept = checkpoints_of(folder)
        assert kept[: len(before)] == before or kept[-1] == STEPS
        if kept[-1] != STEPS:
            resume(folder.path)
        assert checkpoints_of(folder)[-1] == STEPS


REFUSED = PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize("call", ["rename", "replace", "unlink"])
def test_a_change_of_names_may_be_refused_twice(
    call: str,
    straight: RunFolder,
    before_the_end: Callable[[], RunFolder],
    monkeypatch: pytest.MonkeyPatch,
    tally: Tally,
) -> None:
    number, waited = 1, list[float]()
    monkeypatch.setattr(files, "sleep", waited.append)
    while True:
        folder = before_the_end()
        waited.clear()
        with pytest.MonkeyPatch.context() as patch:
            reached = failing(patch, call, number, REFUSED, times=2)
            resume(folder.path)
            if not reached():
                break
        assert waited == [*files.PAUSES[:2]]
        assert last_bytes(folder) == last_bytes(straight)
        number += 1
    tally(f"changes of names that were refused twice ({call})", number - 1)
    assert number > 1


@EACH
def test_the_log(
    error: OSError, straight: RunFolder, before_the_end: Callable[[], RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, original = before_the_end(), os.write

    def half(descriptor: int, content: memoryview) -> int:
        """The disk takes half a line of the log, and then no more."""
        if not os.readlink(f"/proc/self/fd/{descriptor}").endswith("/metrics.jsonl"):
            return original(descriptor, content)
        original(descriptor, content[: len(content) // 2])
        raise error

    before = checkpoints_of(folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(StorageError, match=r"metrics\.jsonl: cannot be written"):
            resume(folder.path)
    assert checkpoints_of(folder) == before
    resume(folder.path)
    assert measured(folder) == measured(straight)


@trials(7, 4, 1)
def test_a_run_that_cannot_be_made_leaves_nothing(trials: int, config: RunConfig, tmp_path: Path) -> None:
    """The disk is full at every so-manyth flush."""
    path = tmp_path / "run"
    for number in range(1, 30, trials):
        with pytest.MonkeyPatch.context() as patch:
            reached = failing(patch, "fsync", number, ERRORS[0])
            with contextlib.suppress(StorageError):
                train(config, path)
            if not reached():
                break
        if path.exists():  # a run that has begun goes on
            assert resume(path).metrics("end")[-1]["finished"]
            shutil.rmtree(path)
        assert list(tmp_path.iterdir()) == []
