"""Death at every call of a save, and the power gone at every call: a whole checkpoint is always found."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.reliability.children import ON_LINUX, deaths, watched
from tests.reliability.conftest import Tally, trials
from vitral.runs import Checkpoint, RunFolder

pytestmark = ON_LINUX

SAVES = {"a save": (4, 0), "a save that replaces a checkpoint": (3, 1)}
"""Step and version of the save that is interrupted."""


def checkpoint(step: int, version: int = 0) -> Checkpoint:
    """Tensors that tell their step and version."""
    told = step + version / 8
    tensors = {"w": torch.full((5, 7), told)}, {"w/exp_avg": torch.full((5, 7), -told)}
    return Checkpoint(step, *tensors, {"version": version, "best_step": min(step, 2)})


def save(path: Path, step: int, version: int = 0) -> None:
    """An event, and the checkpoint that seals it."""
    folder = RunFolder.open(path)
    folder.append_metric({"event": "step", "step": step, "version": version})
    folder.save(checkpoint(step, version), keep=2)


def saved(path: Path) -> Path:
    """A run folder with three checkpoints, of which two are kept."""
    RunFolder.create(path, {"seed": 7}, {})
    for step in (1, 2, 3):
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


def rewind(path: Path) -> None:
    """What a resume does first."""
    folder = RunFolder.open(path)
    folder.sweep()
    folder.rewind(folder.load("last", warn=lambda line: None))


def gone_on(path: Path) -> tuple[int, int]:
    """What a resume finds, which then saves; nothing is left behind."""
    rewind(path)
    found = loaded(path)
    save(path, 5)
    assert loaded(path) == (5, 0)
    folder = RunFolder.open(path)
    assert {name.name for name in folder.steps.iterdir() if not name.name.startswith("damaged-")} <= {
        f"step-{step:08d}" for step in (2, 3, 4, 5)
    }
    assert not [left for left in path.iterdir() if left.name.startswith(".")]
    assert [json.loads(line) for line in (path / "metrics.jsonl").read_bytes().splitlines()] == folder.metrics()
    return found


@trials(7, 3, 1)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", SAVES)
def test_death_at_any_call(what: str, when: str, trials: int, tmp_path: Path, tally: Tally) -> None:
    """Whoever only reads does not sweep: between the two renames of a replacement it finds the one before."""
    base, new = saved(tmp_path / "base"), SAVES[what]
    found = list[tuple[int, int]]()
    for path, died in deaths(
        lambda path: shutil.copytree(base, path), lambda path: save(path, *new), tmp_path, trials, when
    ):
        assert loaded(path) in {(3, 0), new, (2, 0) if new[1] else new}
        found.append(gone_on(path))
        assert found[-1] in {(3, 0), new} if died else {new}
    assert found[0] == (3, 0)
    tally(f"deaths before and after a call of {what}", len(found) - 1)


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


@trials(1, 2, 60)
@pytest.mark.parametrize("what", SAVES)
def test_the_power_goes_at_every_call(
    what: str, trials: int, draw: random.Random, tmp_path: Path, tally: Tally
) -> None:
    """Everything not flushed is lost, is kept, or some of it: so often is that drawn."""
    work, base, new = saved(tmp_path / "work"), tmp_path / "base", SAVES[what]
    shutil.copytree(work, base)
    disk = Disk(work)
    with watched(lambda name, paths: None, disk.record):
        save(work, *new)
    disk.base, shown = base, disk.calls
    disk.calls = [(name, tuple(str(base / Path(part).relative_to(work)) for part in paths)) for name, paths in shown]
    choices: list[Callable[[], bool]] = [lambda: False, lambda: True, *[lambda: draw.random() < 0.5] * trials]
    for number in range(len(disk.calls) + 1):
        for keeps in choices:
            path = disk.after(number, keeps, tmp_path / "after")
            found = gone_on(path)
            # Once the save has returned, it is the newest, whatever the disk has forgotten.
            assert found in ({(3, 0), new} if number < len(disk.calls) else {new}), number
            shutil.rmtree(path)
    tally("states of a disk after a loss of power", (len(disk.calls) + 1) * len(choices))
