"""Checkpoints: one folder per step with safetensors and JSON files, and a manifest of hashes written last.

A checkpoint is written under a temporary name, flushed and renamed, so a folder named `step-…` is always complete.
Files are read, not mapped, so the verified bytes are the parsed bytes (`vitral.runs.checkpoint_files` verifies them).

A checkpoint of format 2 seals the whole run: `state.json` contains the run's identity (`vitral.runs.identity`), and
`history.json` the hash of metrics.jsonl up to the checkpoint. Format 1, without the two, is still read.

Temporary folders, which remain after a kill and which `sweep` removes: `.tmp-…` is being written, `.old-step-…` is
being replaced by a new checkpoint of the same step, `.gone-…` is being removed.
"""

import contextlib
import json
import math
import os
import re
import shutil
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors

from vitral.core.errors import StorageError, UsageError
from vitral.core.files import as_json, is_temporary, storage
from vitral.core.guarded import GuardedFolder
from vitral.core.language import _
from vitral.core.seals import listing, sealed_json
from vitral.runs.checkpoint_files import (
    FILES,
    FORMAT,
    HISTORY,
    MANIFEST,
    MOST_PLAIN,
    OPTIMIZER,
    SLOTS,
    STATE,
    WEIGHTS,
    Shapes,
    described,
    read_verified,
    require_shapes,
    sealed_in,
    verified,
)

if TYPE_CHECKING:
    from torch import Tensor

DAMAGED = "damaged-"
SEALS = {"metrics", "stopped"}
"""Keys of a history whose values are seals of metrics.jsonl."""
STEP = re.compile(r"step-\d{8,9}")
LEFTOVER = re.compile(r"\.(tmp-\d{1,10}-|old-|gone-)step-\d{8,9}")

SPARE = 1 << 20
"""Bytes that must remain free on the disk after writing a checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything needed to resume a run from a step.

    Attributes:
        step: number of completed optimizer steps.
        model: the weights by name.
        optimizer: the optimizer's tensors by name.
        state: the remaining state of the trainer and the run's identity, as plain data.
        history: facts that do not affect the next step: the seal of metrics.jsonl and of environment.json; empty in
            format 1.
        format: of the files it was read from.
        manifest: SHA-256 of its manifest, in hexadecimal; empty until it is written.
    """

    step: int
    model: "Mapping[str, Tensor]"
    optimizer: "Mapping[str, Tensor]"
    state: Mapping[str, Any]
    history: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT
    manifest: str = ""


def step_name(step: int) -> str:
    """The folder's name: `step-00000600`."""
    return f"step-{step:08d}"


def save_checkpoint(steps: GuardedFolder | Path, checkpoint: Checkpoint, *, replace: bool = False) -> Path:
    """Write a checkpoint as a new folder under `steps`.

    Args:
        steps: the folder of checkpoints.
        checkpoint: the checkpoint.
        replace: whether to replace a checkpoint of the same step; otherwise an existing one is kept unchanged.

    Raises:
        UsageError: a link stands in the way.
        StorageError: the checkpoint cannot be written; existing files are unchanged.
    """
    content = {
        WEIGHTS: as_tensors(checkpoint.model),
        OPTIMIZER: as_tensors(checkpoint.optimizer),
        STATE: as_json({"format": FORMAT, "step": checkpoint.step, **checkpoint.state}),
        HISTORY: as_json(dict(checkpoint.history)),
    }
    return _write(_guarded(steps), step_name(checkpoint.step), content, replace=replace)


def reseal(steps: GuardedFolder, name: str, history: Mapping[str, Any]) -> None:
    """Replace the history of an intact checkpoint; its other files stay equal to the byte.

    Raises:
        UsageError: the checkpoint is damaged.
        StorageError: the checkpoint cannot be written; the former one is intact.
    """
    folder = steps.within(name)
    sealed = sealed_in(folder)
    content = {file: read_verified(folder, sealed, file, None) for file in sealed.expected}
    _write(steps, name, {**content, HISTORY: as_json(dict(history))}, replace=True)


def _write(steps: GuardedFolder, name: str, content: Mapping[str, bytes], *, replace: bool) -> Path:
    there = steps.kind(name) == "folder"
    if there and not replace:
        return steps.path / name
    beside, old = f".tmp-{os.getpid()}-{name}", f".old-{name}"
    with storage(steps.path / name):
        try:
            steps.make()
            if not there and steps.kind(name) is not None:  # a link: without this the checkpoint would be lost
                set_aside(steps, name)
            _remove(steps, beside)
            _require_room(steps, sum(map(len, content.values())))
            steps.make(beside)
            manifest = sealed_json({"format": FORMAT, "files": listing(content)})
            for file, data in {**content, MANIFEST: manifest}.items():
                steps.write_new(f"{beside}/{file}", data)
            steps.sync(beside)
            if there:
                _remove(steps, old)
                steps.rename(name, old)
            steps.rename(beside, name)
            steps.sync()
            _remove(steps, old)
        except BaseException:
            _remove(steps, beside)
            raise
    return steps.path / name


def load_checkpoint(
    folder: GuardedFolder | Path, *, with_optimizer: bool = True, shapes: Shapes | None = None
) -> Checkpoint:
    """Read a checkpoint after verifying it against its manifest.

    Args:
        folder: the checkpoint's folder.
        with_optimizer: whether to load the optimizer's tensors.
        shapes: the shapes of the model's tensors; larger files are not read.

    Raises:
        UsageError: a file is missing, damaged, of another format or of another model; names it.
        StorageError: a file cannot be read.
    """
    guarded = _guarded(folder)
    skipped = set() if with_optimizer else {OPTIMIZER}
    content, sealed = verified(guarded, tuple(name for name in FILES if name not in skipped), shapes)
    with _understood(guarded):
        found = {
            name: described(content[name], 0 if shapes is None else SLOTS * len(shapes))
            for name in (WEIGHTS, OPTIMIZER)
            if name not in skipped
        }
        if shapes is not None:
            require_shapes(guarded.path, found[WEIGHTS], shapes)
        import safetensors.torch  # loads PyTorch, which takes seconds and which a list of runs does not need

        model = safetensors.torch.load(content.pop(WEIGHTS))
        optimizer = safetensors.torch.load(content.pop(OPTIMIZER)) if with_optimizer else {}
        state, history = _plain(guarded, content)
        return Checkpoint(int(state["step"]), model, optimizer, state, history, sealed.format, sealed.sha256)


def load_state(folder: GuardedFolder | Path) -> Checkpoint:
    """A checkpoint without its tensors: its state and history, verified; tensor files only have to be there.

    Raises:
        UsageError: a file is missing, damaged or of another format; names it.
        StorageError: a file cannot be read.
    """
    guarded = _guarded(folder)
    content, sealed = verified(guarded, (STATE, HISTORY), None)
    with _understood(guarded):
        state, history = _plain(guarded, content)
        return Checkpoint(int(state["step"]), {}, {}, state, history, sealed.format, sealed.sha256)


def count_weights(folder: GuardedFolder | Path) -> int:
    """The numbers in the weights of a checkpoint, by the header of their file; the weights themselves are not read.

    Raises:
        UsageError: the header is malformed, or is not that of a file of this size.
        OSError: the file cannot be read.
    """
    guarded = _guarded(folder)
    with _understood(guarded):
        with guarded.stream(WEIGHTS) as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(min(length, MOST_PLAIN))
            size = os.fstat(file.fileno()).st_size
        tensors = json.loads(header)
        tensors.pop("__metadata__", None)
        if size != 8 + length + max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0):
            raise ValueError(_("its weights are of another size"))
        return sum(math.prod(tensor["shape"]) for tensor in tensors.values())


def _plain(folder: GuardedFolder, content: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """State and history of a checkpoint.

    Raises:
        ValueError: they are not objects, or of another step than the folder's name.
    """
    state, history = (json.loads(content.get(name, b"{}")) for name in (STATE, HISTORY))
    if not isinstance(state, dict) or not isinstance(history, dict):
        raise ValueError(_("its state is not an object"))
    if step_name(state["step"]) != folder.path.name.removeprefix(DAMAGED):
        raise ValueError(_("it is of step {step}", step=state["step"]))
    for key in SEALS & history.keys():
        seal = history[key]
        if not (type(seal["bytes"]) is type(seal["lines"]) is int and isinstance(seal["sha256"], str)):
            raise ValueError(_("its seal of metrics.jsonl is not one"))
    return state, history


@contextlib.contextmanager
def _understood(folder: GuardedFolder) -> Generator[None]:
    """Convert what malformed content of a checkpoint raises to one line."""
    try:
        yield
    except UsageError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, safetensors.SafetensorError) as error:
        raise UsageError(
            "{path}: not a checkpoint of this run ({error})", path=folder.path, error=ascii(str(error))[1:-1][:200]
        ) from None


def list_checkpoints(steps: GuardedFolder | Path) -> list[Path]:
    """Everything that has the name of a checkpoint, oldest first; a link or a file is refused when it is read.

    Raises:
        UsageError: `steps` is a link.
    """
    guarded = _guarded(steps)
    return [guarded.path / name for name in guarded.names() if STEP.fullmatch(name)]


def set_aside(steps: GuardedFolder, name: str) -> None:
    """Rename a damaged checkpoint, so that it is no longer listed and can be replaced.

    Raises:
        StorageError: the folder cannot be renamed.
    """
    with storage(steps.path / name):
        aside = DAMAGED + name
        for number in range(2, 1000):
            if steps.kind(aside) is None or _remove(steps, aside):
                break
            aside = f"{DAMAGED}{number}-{name}"
        steps.rename(name, aside)


def sweep(steps: GuardedFolder | Path) -> None:
    """Remove what interrupted saves and ended processes left, and restore a checkpoint that was not yet replaced."""
    guarded = _guarded(steps)
    for old in guarded.names():
        target = old.removeprefix(".old-")
        is_kept = old.startswith(".old-") and STEP.fullmatch(target) and guarded.kind(old) == "folder"
        if is_kept and guarded.kind(target) is None:
            with storage(guarded.path / target):
                guarded.rename(old, target)
    for leftover in guarded.names():
        if LEFTOVER.fullmatch(leftover):
            _remove(guarded, leftover)
    guarded.sweep()


def prune(steps: GuardedFolder | Path, *, keep: int, also: set[str]) -> None:
    """Remove all but the newest `keep` checkpoints and those in `also`, provided that the newest is intact."""
    guarded = _guarded(steps)
    names = [folder.name for folder in list_checkpoints(guarded)]
    if len(names) <= keep:
        return
    with contextlib.suppress(UsageError, OSError):
        newest = guarded.within(names[-1])
        sealed = sealed_in(newest)
        for file in sealed.expected:
            read_verified(newest, sealed, file, None)
        for name in names[:-keep]:
            if name not in also and guarded.kind(name) == "folder":
                # Rename first: a partly removed folder must not look like a damaged checkpoint.
                guarded.rename(name, f".gone-{name}")
                _remove(guarded, f".gone-{name}")


def _guarded(folder: GuardedFolder | Path) -> GuardedFolder:
    return folder if isinstance(folder, GuardedFolder) else GuardedFolder(folder)


def _remove(steps: GuardedFolder, name: str) -> bool:
    """Remove a folder that contains nothing but files of a checkpoint, and what a killed process was copying."""
    own = {*FILES, MANIFEST}
    return steps.remove_folder(name, lambda file: file in own or is_temporary(file))


def as_tensors(tensors: "Mapping[str, Tensor]") -> bytes:
    """The content of a file of tensors."""
    import safetensors.torch

    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def _require_room(folder: GuardedFolder, needed: int) -> None:
    """Check the free space before writing.

    Raises:
        StorageError: there is too little space; names the needed and the free size.
    """
    free = shutil.disk_usage(folder.path).free
    needed += SPARE
    if free < needed:
        raise StorageError(
            "{path}: a checkpoint needs {needed:,.1f} MB, {free:,.1f} MB are free on this disk; free "
            "some space; earlier checkpoints are intact",
            path=folder.path,
            needed=math.ceil(needed / 1e5) / 10,
            free=free // 1e5 / 10,
        )
