"""Death at every call of a save, and the power gone at every call: a whole checkpoint is always found."""

import itertools
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
from vitral.runs.checkpoint import sweep

CALLS = ("open", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir")


def checkpoint(step: int) -> Checkpoint:
    """Tensors that tell their step."""
    return Checkpoint(
        step, {"w": torch.full((5, 7), float(step))}, {"w/exp_avg": torch.full((5, 7), -float(step))}, {"told": step}
    )


def saved(path: Path, *steps: int) -> RunFolder:
    """A run folder with these checkpoints."""
    folder = RunFolder.create(path, {"seed": 7}, {})
    folder.append_metric({"event": "step", "step": 1})
    for step in steps:
        folder.save(checkpoint(step), best=True, keep=2)
    return folder


def found(folder: RunFolder) -> int:
    """The step that is loaded, its tensors verified; whatever is passed over is allowed, a mix is not."""
    sweep(folder.steps)
    loaded = folder.load("last", warn=lambda line: None)
    assert torch.equal(loaded.model["w"], torch.full((5, 7), float(loaded.step)))
    assert torch.equal(loaded.optimizer["w/exp_avg"], torch.full((5, 7), -float(loaded.step)))
    assert loaded.state["told"] == loaded.step
    return loaded.step


@contextmanager
def watched(before: Callable[[str, tuple], None], after: Callable[[str, tuple], None]) -> Iterator[None]:
    """Every call that changes the disk, seen before and after."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            original = getattr(os, name)

            def wrapped(*given: Any, name: str = name, original: Any = original, **options: Any) -> Any:
                before(name, given)
                result = original(*given, **options)
                after(name, given)
                return result

            patch.setattr(os, name, wrapped)
        yield


@pytest.mark.skipif(not hasattr(os, "fork"), reason="dies in a process of its own, made by fork")
def test_death_before_and_after_every_call(tmp_path: Path, tally: Tally) -> None:
    base = saved(tmp_path / "base", 1, 2, 3).path
    count, outcomes = 0, set()
    for at in itertools.count():
        for when in ("before", "after"):
            path = tmp_path / f"{when}-{at}"
            shutil.copytree(base, path)
            if not _dies(path, at, when):
                if when == "after":  # a call that fails, as some may, has no after
                    continue
                assert found(RunFolder.open(path)) == 4
                assert outcomes == {3, 4}
                tally("deaths before and after a call of a save", count)
                return
            step = found(RunFolder.open(path))
            assert step in (3, 4), (when, at)
            outcomes.add(step)
            RunFolder.open(path).save(checkpoint(5), best=False, keep=2)
            assert found(RunFolder.open(path)) == 5
            count += 1


def _dies(path: Path, at: int, when: str) -> bool:
    """Save step 4 in a child that dies at call number `at`; gives whether it came so far."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        numbers = {"before": itertools.count(), "after": itertools.count()}

        def maybe(side: str) -> Callable[[str, tuple], None]:
            return lambda name, given: os._exit(9) if next(numbers[side]) == at and side == when else None

        with watched(maybe("before"), maybe("after")):
            RunFolder.open(path).save(checkpoint(4), best=True, keep=2)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


class Disk:
    """What a disk that loses everything not flushed would hold after some of the calls of a save."""

    def __init__(self, base: Path) -> None:
        """Begin with what is there, all of it flushed."""
        self.base, self.calls = base, list[tuple[str, tuple[str, ...]]]()
        self.content: dict[str, bytes] = {}

    def record(self, name: str, given: tuple) -> None:
        """Note a call; a flush of a file keeps what the file holds then."""
        if name == "fsync":
            path = os.readlink(f"/proc/self/fd/{given[0]}")
            if os.path.isfile(path):
                self.content[f"{len(self.calls)}"] = Path(path).read_bytes()
            self.calls.append((name, (path,)))
        elif name != "open":
            paths = tuple(os.fspath(part) for part in given if isinstance(part, str | os.PathLike))
            if all(map(os.path.isabs, paths)):  # what is inside a folder that is removed goes with it
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
def test_the_power_goes_at_every_call(tmp_path: Path, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    work = saved(tmp_path / "work", 1, 2, 3).path
    base = tmp_path / "base"
    shutil.copytree(work, base)
    disk = Disk(work)
    with watched(lambda name, given: None, disk.record):
        RunFolder.open(work).save(checkpoint(4), best=True, keep=2)
    disk.base, shown = base, disk.calls
    disk.calls = [(name, tuple(str(base / Path(part).relative_to(work)) for part in given)) for name, given in shown]
    choices: list[tuple[str, Callable[[], bool]]] = [("nothing", lambda: False), ("everything", lambda: True)]
    choices += [(f"some {n}", lambda: draw.random() < 0.5) for n in range(scaled(3, 60))]
    states = 0
    for number in range(len(disk.calls) + 1):
        for name, keeps in choices:
            path = disk.after(number, keeps, tmp_path / f"{number}-{name}")
            step = found(RunFolder.open(path))
            assert step in (3, 4), (seed, number, name)
            # Once the save has returned, it is the newest, whatever the disk has forgotten.
            assert step == 4 or number < len(disk.calls), (seed, name)
            shutil.rmtree(path)
            states += 1
    tally("states of a disk after a loss of power", states)
