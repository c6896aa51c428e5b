"""Checkpoints: one folder per step with safetensors and JSON files, and a manifest of hashes written last.

A checkpoint is written under a temporary name, flushed and renamed, so a folder named `step-…` is always complete.
Files are read, not mapped, so the verified bytes are the parsed bytes. The checks are, in this order: file sizes
within the model's needs, the manifest's own hash, the files' hashes, the tensors' names, types and shapes; then
tensors are parsed. Hashes detect accidents, not attackers; the later checks also handle files changed together with
their hashes.

Temporary folders, which remain after a kill and which `sweep` removes: `.tmp-…` is being written, `.old-step-…` is
being replaced by a new checkpoint of the same step, `.gone-…` is being removed.
"""

import contextlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from vitral.core.errors import StorageError, UsageError
from vitral.core.files import as_json, read_capped, sha256, storage, sync_folder, write_durably

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of a model's tensors by name."""

FORMAT = 1
DAMAGED = "damaged-"
FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
MANIFEST = "MANIFEST.json"
STEP = re.compile(r"step-\d{8,9}")

MOST_BYTES = 1 << 40
"""Maximum size of a tensor file if the model is unknown."""
MOST_PLAIN = 1 << 20
"""Maximum bytes of a JSON file, and of the header of a tensor file."""
MOST_TENSORS = 10_000
WIDEST = 8
"""Maximum bytes per number."""
SLOTS = 3
"""Maximum number of optimizer tensors per parameter."""
DESCRIPTION = 512
"""Maximum bytes of one tensor's entry in the header: name, type, shape and offset."""
TYPES = {"F64", "F32", "F16", "BF16"}
SPARE = 1 << 20
"""Bytes that must remain free on the disk after writing a checkpoint."""


class OtherModel(UsageError):
    """An intact checkpoint of another model than the configured one; older checkpoints will not match either."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything needed to resume a run from a step.

    Attributes:
        step: number of completed optimizer steps.
        model: the weights by name.
        optimizer: the optimizer's tensors by name.
        state: the remaining state of the trainer, as plain data.
    """

    step: int
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    state: Mapping[str, Any]


def step_name(step: int) -> str:
    """The folder's name: `step-00000600`."""
    return f"step-{step:08d}"


def save_checkpoint(steps: Path, checkpoint: Checkpoint, *, replace: bool = False) -> Path:
    """Write a checkpoint as a new folder under `steps`.

    Args:
        steps: the folder of checkpoints.
        checkpoint: the checkpoint.
        replace: whether to replace a checkpoint of the same step; otherwise an existing one is kept unchanged.

    Raises:
        StorageError: the checkpoint cannot be written; existing files are unchanged.
    """
    target = steps / step_name(checkpoint.step)
    if target.exists() and not replace:
        return target
    content = {
        "model.safetensors": _tensors(checkpoint.model),
        "optimizer.safetensors": _tensors(checkpoint.optimizer),
        "state.json": as_json({"format": FORMAT, "step": checkpoint.step, **checkpoint.state}),
    }
    beside = steps / f".tmp-{os.getpid()}-{step_name(checkpoint.step)}"
    with storage(target):
        try:
            steps.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(beside, ignore_errors=True)
            _require_room(steps, sum(map(len, content.values())))
            beside.mkdir()
            for name, data in content.items():
                write_durably(beside / name, data)
            write_durably(beside / MANIFEST, _manifest(content))
            sync_folder(beside)
            old = steps / f".old-{target.name}"
            if target.exists():
                shutil.rmtree(old, ignore_errors=True)
                os.rename(target, old)
            os.rename(beside, target)
            sync_folder(steps)
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    return target


def load_checkpoint(folder: Path, *, with_optimizer: bool = True, shapes: Shapes | None = None) -> Checkpoint:
    """Read a checkpoint after verifying it against its manifest.

    Args:
        folder: the checkpoint's folder.
        with_optimizer: whether to load the optimizer's tensors.
        shapes: the shapes of the model's tensors; larger files are not read.

    Raises:
        UsageError: a file is missing, damaged, of another format or of another model; names it.
        StorageError: a file cannot be read.
    """
    content = _verified(folder, FILES if with_optimizer else (FILES[0], FILES[2]), shapes)
    try:
        state = json.loads(content["state.json"])
        for name in FILES[:2]:
            if name in content:
                tensors = _described(content[name], 0 if shapes is None else SLOTS * len(shapes))
                if name == FILES[0] and shapes is not None:
                    _require_shapes(folder, tensors, shapes)
        model = safetensors.torch.load(content["model.safetensors"])
        optimizer = safetensors.torch.load(content["optimizer.safetensors"]) if with_optimizer else {}
        if step_name(state["step"]) != folder.name.removeprefix(DAMAGED):
            raise ValueError(f"it is of step {state['step']}")
    except OtherModel:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, safetensors.SafetensorError) as error:
        raise UsageError(f"{folder}: not a checkpoint of this run ({_one_line(error)})") from None
    return Checkpoint(int(state["step"]), model, optimizer, state)


def list_checkpoints(steps: Path) -> list[Path]:
    """The folders of checkpoints, oldest first."""
    return sorted(path for path in steps.glob("step-*") if STEP.fullmatch(path.name) and path.is_dir())


def set_aside(folder: Path) -> None:
    """Rename a damaged checkpoint, so that it is no longer listed and can be replaced.

    Raises:
        StorageError: the folder cannot be renamed.
    """
    with storage(folder):
        shutil.rmtree(folder.with_name(DAMAGED + folder.name), ignore_errors=True)
        os.rename(folder, folder.with_name(DAMAGED + folder.name))


def sweep(steps: Path) -> None:
    """Remove the leftovers of an interrupted save, and restore a checkpoint that was not yet replaced."""
    for old in steps.glob(".old-step-*"):
        target = steps / old.name.removeprefix(".old-")
        if not target.exists() and STEP.fullmatch(target.name):
            with storage(target):
                os.rename(old, target)
    for pattern in (".tmp-*", ".old-*", ".gone-*"):
        for leftover in steps.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def prune(steps: Path, *, keep: int, also: set[str]) -> None:
    """Remove all but the newest `keep` checkpoints and those in `also`, provided that the newest is intact."""
    folders = list_checkpoints(steps)
    if len(folders) <= keep:
        return
    with contextlib.suppress(UsageError, OSError):
        _verified(folders[-1], FILES, None)
        for folder in folders[:-keep]:
            if folder.name not in also:
                # Rename first: a partly removed folder must not look like a damaged checkpoint.
                os.rename(folder, gone := folder.with_name(f".gone-{folder.name}"))
                shutil.rmtree(gone, ignore_errors=True)


def _tensors(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def _manifest(content: Mapping[str, bytes]) -> bytes:
    """Sizes and hashes of the files, and the hash of this list."""
    files = {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in content.items()}
    listed = {"format": FORMAT, "files": files}
    return as_json({**listed, "sha256": sha256(as_json(listed))})


def _require_room(folder: Path, needed: int) -> None:
    """Check the free space before writing.

    Raises:
        StorageError: there is too little space; names the needed and the free size.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE:
        raise StorageError(
            f"{folder}: a checkpoint needs {needed / 1e6:,.1f} MB, {free / 1e6:,.1f} MB are free on this disk; "
            "free some space; earlier checkpoints are intact"
        )


def _verified(folder: Path, names: tuple[str, ...], shapes: Shapes | None) -> dict[str, bytes]:
    """The bytes of the named files, verified against the manifest by size and hash."""
    try:
        present = {entry.name for entry in os.scandir(folder)}
        missing = sorted({*FILES, MANIFEST} - present)
        if missing:
            raise UsageError(f"{folder}: {missing[0]} is missing, the checkpoint is incomplete")
        strangers = sorted(present - {*FILES, MANIFEST})
        if strangers:
            raise UsageError(f"{folder}: {strangers[0]!a:.80} does not belong to a checkpoint; remove it")
        raw = read_capped(folder / MANIFEST, MOST_PLAIN)
        listed = _listed(folder, raw)
        content = {name: read_capped(folder / name, _most_bytes(name, shapes)) for name in names}
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{folder}: invalid file ({error})") from None
    except OSError as error:
        raise StorageError(f"{folder}: cannot be read ({error.strerror})") from None
    for name, data in content.items():
        if listed.get(name) != {"bytes": len(data), "sha256": sha256(data)}:
            raise UsageError(f"{folder}: {name} does not match {MANIFEST}, the checkpoint is damaged")
    return content


def _listed(folder: Path, raw: bytes) -> Mapping[str, Any]:
    """The files listed in a manifest, after verifying it."""
    try:
        manifest = json.loads(raw)
        format_, files, hashed = manifest["format"], manifest["files"], manifest["sha256"]
        listed = {"format": format_, "files": files}
        intact = raw == as_json({**listed, "sha256": hashed}) and hashed == sha256(as_json(listed))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{folder}: {MANIFEST} is damaged") from None
    if format_ != FORMAT:
        raise UsageError(f"{folder}: format {format_!a:.40}, this Vitral reads {FORMAT}")
    if not intact or not isinstance(files, dict):
        raise UsageError(f"{folder}: {MANIFEST} is damaged")
    return files


def _most_bytes(name: str, shapes: Shapes | None) -> int:
    """The maximum size of a file, checked before reading it."""
    if name == FILES[2]:
        return MOST_PLAIN
    if shapes is None:
        return MOST_BYTES
    weights = WIDEST * sum(math.prod(shape) for shape in shapes.values()) + DESCRIPTION * len(shapes)
    return MOST_PLAIN + weights * (SLOTS if name == FILES[1] else 1)


def _described(data: bytes, expected: int) -> dict[str, tuple[int, ...]]:
    """The shapes in the header of a tensor file, checked before loading; `expected` is the plausible number of tensors.

    Raises:
        ValueError: the header is too long, or a tensor is not floating-point.
    """
    length = int.from_bytes(data[:8], "little")
    if length > min(MOST_PLAIN + DESCRIPTION * expected, len(data) - 8):
        raise ValueError("the header of its tensors is too long")
    tensors = json.loads(data[8 : 8 + length])
    tensors.pop("__metadata__", None)
    if len(tensors) > max(MOST_TENSORS, expected):
        raise ValueError(f"{len(tensors):,} tensors")
    for name, tensor in tensors.items():
        if tensor["dtype"] not in TYPES:
            raise ValueError(f"{name!a:.60} has type {tensor['dtype']!a:.20}, not floating-point")
    return {name: tuple(tensor["shape"]) for name, tensor in tensors.items()}


def _require_shapes(folder: Path, found: Shapes, needed: Shapes) -> None:
    """Check the tensors against those of the model.

    Raises:
        OtherModel: a tensor differs; names the first one.
    """
    for name in sorted(found.keys() | needed.keys()):
        shown = ascii(name)[1:-1][:80]
        if name not in found:
            raise OtherModel(f"{folder}: {shown} is missing from the weights")
        if name not in needed:
            raise OtherModel(f"{folder}: {shown} does not belong to this model")
        if found[name] != needed[name]:
            raise OtherModel(f"{folder}: {shown} has shape {found[name]!s:.60}, this model needs {needed[name]}")


def _one_line(error: Exception) -> str:
    """The text of an error, shortened, without terminal control characters."""
    return ascii(str(error))[1:-1][:200]
