"""Death at every call of a save, and the power gone at every call: a whole checkpoint is always found."""

import itertools
import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.reliability.conftest import Tally, scaled
from vitral.runs import Checkpoint, RunFolder

CALLS = ("open", "write", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir")
CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NEXT = {False: (4, 0), True: (3, 1)}
"""Step and version of the save that is interrupted: a new checkpoint, or step 3 replaced."""


def checkpoint(step: int, version: int = 0) -> Checkpoint:
    """Tensors that tell their step and version."""
    told = step + version / 8
    tensors = {"w": torch.full((5, 7), told)}, {"w/exp_avg": torch.full((5, 7), -told)}
    return Checkpoint(step, *tensors, {"version": version, "best_step": min(step, 2)})


def save(path: Path, step: int, version: int = 0) -> None:
    """An event, and the checkpoint that seals it."""
    folder = RunFolder.open(path)
    folder.append_metric({"event": "step", "step": step, "version": version})
    folder.save(checkpoint(step, version), keep=2, replace=version > 0)


def saved(path: Path, *steps: int) -> Path:
    """A run folder with these checkpoints."""
    RunFolder.create(path, {"seed": 7}, {})
    for step in steps:
        save(path, step)
    return path


def loaded(path: Path) -> tuple[int, int]:
    """Step and version that are loaded: whole tensors, and the log up to them."""
    folder = RunFolder.open(path)
    found = folder.load("last", warn=lambda line: None)
    version = found.state["version"]
    expected = checkpoint(found.step, version)
    assert torch.equal(found.model["w"], expected.model["w"])
    assert torch.equal(found.optimizer["w/exp_avg"], expected.optimizer["w/exp_avg"])
    event = folder.metrics()[-1]
    assert (event["step"], event["version"]) == (found.step, version)
    return found.step, version


def gone_on(path: Path) -> tuple[int, int]:
    """What a resume finds, after it has swept and rewound as it does; it saves, and nothing is left behind."""
    folder = RunFolder.open(path)
    folder.sweep()
    found = loaded(path)
    folder.rewind(folder.load("last", warn=lambda line: None))
    assert loaded(path) == found
    save(path, 5)
    assert loaded(path) == (5, 0)
    assert {name.name for name in folder.steps.iterdir() if not name.name.startswith("damaged-")} <= {
        f"step-{step:08d}" for step in (2, 3, 4, 5)
    }
    assert not [left for left in path.iterdir() if left.name.startswith(".")]
    assert [json.loads(line) for line in (path / "metrics.jsonl").read_bytes().splitlines()] == folder.metrics()
    return found


def resolved(name: str, given: tuple, options: dict[str, Any]) -> tuple[str, ...]:
    """The absolute paths of a call, whose names may be relative to open folders."""
    if name in ("fsync", "write"):
        return (os.readlink(f"/proc/self/fd/{given[0]}"),)
    folders = [options.get("src_dir_fd"), options.get("dst_dir_fd")] if "re" in name else [options.get("dir_fd")]
    roots = ["" if folder is None else os.readlink(f"/proc/self/fd/{folder}") for folder in folders]
    return tuple(os.path.join(root, os.fspath(part)) for root, part in zip(roots, given, strict=False))


@contextmanager
def watched(
    before: Callable[[str, tuple[str, ...]], None], after: Callable[[str, tuple[str, ...]], None]
) -> Iterator[None]:
    """Every call that changes the disk, seen before and after, with the absolute paths."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            original = getattr(os, name)

            def wrapped(*given: Any, name: str = name, original: Any = original, **options: Any) -> Any:
                if name == "open" and not given[1] & CHANGES:
                    return original(*given, **options)
                paths = resolved(name, given, options)
                before(name, paths)
                result = original(*given, **options)
                after(name, paths)
                return result

            patch.setattr(os, name, wrapped)
        yield


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="dies in a process of its own, made by fork")
@pytest.mark.parametrize("replace", [False, True])
def test_death_before_and_after_every_call(replace: bool, tmp_path: Path, tally: Tally) -> None:
    base = saved(tmp_path / "base", 1, 2, 3)
    count, outcomes = 0, set()
    for at in itertools.count():
        for when in ("before", "after"):
            path = tmp_path / f"{when}-{at}"
            shutil.copytree(base, path)
            if not _dies(path, at, when, lambda path: save(path, *NEXT[replace])):
                if when == "after":  # a call that fails, as some may, has no after
                    continue
                assert loaded(path) == NEXT[replace]
                assert outcomes == {(3, 0), NEXT[replace]}
                tally(f"deaths before and after a call of a save{' that replaces a checkpoint' * replace}", count)
                return
            # Who only reads does not sweep: between the two renames of a replacement it finds the one before.
            assert loaded(path) in {(3, 0), NEXT[replace], (2, 0) if replace else (3, 0)}, (when, at)
            found = gone_on(path)
            assert found in {(3, 0), NEXT[replace]}, (when, at)
            outcomes.add(found)
            count += 1
            shutil.rmtree(path)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="dies in a process of its own, made by fork")
@pytest.mark.parametrize("when", ["before", "after"])
def test_death_while_the_events_of_a_stop_are_removed(when: str, tmp_path: Path, tally: Tally) -> None:
    """The log is never unlike its seal, and the next resume removes what is left of them."""
    base = saved(tmp_path / "base", 1, 2, 3)
    kept = RunFolder.open(base).metrics()
    stopped = RunFolder.open(base)
    stopped.append_metric({"event": "stopped", "step": 3, "reason": "not finite"})
    stopped.reseal()
    assert stopped.metrics() != kept

    def rewind(path: Path) -> None:
        folder = RunFolder.open(path)
        folder.sweep()
        folder.rewind(folder.load("last", warn=lambda line: None))

    for at in itertools.count():
        path = tmp_path / str(at)
        shutil.copytree(base, path)
        died = _dies(path, at, when, rewind)
        seen = RunFolder.open(path).metrics()  # between two renames only up to the checkpoint before
        assert seen[: len(kept)] == kept[: len(seen)]
        rewind(path)
        assert RunFolder.open(path).metrics() == kept
        assert [json.loads(line) for line in (path / "metrics.jsonl").read_bytes().splitlines()] == kept
        if not died:
            tally(f"deaths {when} a call of a rewind", at)
            assert at > 3
            return


def _dies(path: Path, at: int, when: str, work: Callable[[Path], None]) -> bool:
    """Do something in a child that dies at call number `at`; gives whether it came so far."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        numbers = {"before": itertools.count(), "after": itertools.count()}

        def maybe(side: str) -> Callable[[str, tuple], None]:
            return lambda name, paths: os._exit(9) if next(numbers[side]) == at and side == when else None

        with watched(maybe("before"), maybe("after")):
            work(path)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


class Disk:
    """What a disk that loses everything not flushed would hold after some of the calls of a save."""

    def __init__(self, base: Path) -> None:
        """Begin with what is there, all of it flushed."""
        self.base, self.calls = base, list[tuple[str, tuple[str, ...]]]()
        self.content: dict[str, bytes] = {}

    def record(self, name: str, paths: tuple[str, ...]) -> None:
        """Note a call; a flush of a file keeps what the file holds then."""
        if name == "fsync" and os.path.isfile(paths[0]):
            self.content[f"{len(self.calls)}"] = Path(paths[0]).read_bytes()
        if name not in ("open", "write"):
            self.calls.append((name, paths))

    def after(self, number: int, keeps: Callable[[], bool], target: Path) -> Path:
        """The disk after the first `number` calls; `keeps` decides about each change of names that was not flushed."""
        shutil.copytree(self.base, target)
        flushed_later = [
            {given[0] for name, given in self.calls[place:number] if name == "fsync"} for place in range(number)
        ]
        for place, (name, given) in enumerate(self.calls[:number]):
            paths = [target / Path(part).relative_to(self.base) for part in given]
            if name == "fsync":
                # The name of a new file is on the disk when its folder has been flushed too.
                named = paths[0].exists() or str(Path(given[0]).parent) in flushed_later[place] or keeps()
                if str(place) in self.content and paths[0].parent.is_dir() and named:
                    paths[0].write_bytes(self.content[str(place)])
                continue
            kept = all(str(Path(part).parent) in flushed_later[place] for part in given) or keeps()
            if kept and paths[0].parent.is_dir():
                self._apply(name, paths)
        return target

    @staticmethod
    def _apply(name: str, paths: list[Path]) -> None:
        if name == "mkdir":
            paths[0].mkdir(exist_ok=True)
        elif name in ("rename", "replace"):
            if paths[0].exists() and paths[1].parent.is_dir() and (paths[0].is_file() or not paths[1].exists()):
                os.replace(paths[0], paths[1])
        elif name == "rmdir" and paths[0].is_dir():
            shutil.rmtree(paths[0])
        elif name == "unlink" and paths[0].is_file():
            paths[0].unlink()


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs Linux to tell which file is flushed")
@pytest.mark.parametrize("replace", [False, True])
def test_the_power_goes_at_every_call(replace: bool, tmp_path: Path, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    work = saved(tmp_path / "work", 1, 2, 3)
    base = tmp_path / "base"
    shutil.copytree(work, base)
    disk = Disk(work)
    with watched(lambda name, paths: None, disk.record):
        save(work, *NEXT[replace])
    disk.base, shown = base, disk.calls
    disk.calls = [(name, tuple(str(base / Path(part).relative_to(work)) for part in paths)) for name, paths in shown]
    choices: list[tuple[str, Callable[[], bool]]] = [("nothing", lambda: False), ("everything", lambda: True)]
    choices += [(f"some {n}", lambda: draw.random() < 0.5) for n in range(scaled(3, 60))]
    states = 0
    for number in range(len(disk.calls) + 1):
        for name, keeps in choices:
            path = disk.after(number, keeps, tmp_path / f"{number}-{name}")
            found = gone_on(path)
            assert found in {(3, 0), NEXT[replace]}, (seed, number, name)
            # Once the save has returned, it is the newest, whatever the disk has forgotten.
            assert found == NEXT[replace] or number < len(disk.calls), (seed, name)
            shutil.rmtree(path)
            states += 1
    tally("states of a disk after a loss of power", states)
