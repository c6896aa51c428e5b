"""Checkpoints: one new folder per step, safetensors and JSON only, a manifest of hashes written last.

A checkpoint is written under a temporary name, flushed, and renamed, so that a folder called `step-…` is always
whole. Files are read, never mapped: what has been verified is what is parsed. In this order: sizes within what the
model needs, the manifest's own hash, the files' hashes, the tensors' names, types and shapes, and only then tensors.
Hashes catch accidents, not attackers; who has changed a file and its hash meets the checks that follow.

Beside the checkpoints lie, for a moment or after a kill, folders that `sweep` knows: `.tmp-…`, one being written;
`.old-step-…`, one whose successor of the same step takes its place; `.gone-…`, one being removed.
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
from vitral.runs.files import as_json, read_capped, sha256, storage, sync_folder, write_durably

Shapes = Mapping[str, tuple[int, ...]]
"""The tensors a model needs, by name."""

FORMAT = 1
DAMAGED = "damaged-"
FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
MANIFEST = "MANIFEST.json"
STEP = re.compile(r"step-\d{8,9}")

MOST_BYTES = 1 << 40
"""Of a file of tensors, where the model is not known."""
MOST_PLAIN = 1 << 20
"""Bytes of a JSON file here, and of the description of tensors in front of them."""
MOST_TENSORS = 10_000
WIDEST = 8
"""Bytes of a number."""
SLOTS = 3
"""Tensors an optimizer keeps for a parameter, at most."""
DESCRIPTION = 512
"""Bytes that describe one tensor, at most: its name, type, shape and place."""
TYPES = {"F64", "F32", "F16", "BF16"}
SPARE = 1 << 20
"""Bytes that a checkpoint leaves free on the disk."""


class OtherModel(UsageError):
    """A whole checkpoint, of another model than the configuration's: no older one will be right either."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on from a step.

    Attributes:
        step: optimizer steps done.
        model: the weights by name.
        optimizer: the optimizer's tensors by name.
        state: plain data: what else must be the same after a resume.
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
        steps: where checkpoints are.
        checkpoint: what to keep.
        replace: whether one of the same step gives way to it; else that one is kept, and nothing is written.

    Raises:
        StorageError: the disk did not take it; nothing that existed is touched.
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
    """Read a checkpoint whose every byte agrees with its manifest.

    Args:
        folder: the checkpoint's.
        with_optimizer: whether the optimizer's tensors are wanted.
        shapes: what the model needs; with it nothing larger is even read.

    Raises:
        UsageError: a file is missing, damaged, of another format or of another model; says which.
        StorageError: the disk does not give it.
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
    """The checkpoints' folders, oldest first."""
    return sorted(path for path in steps.glob("step-*") if STEP.fullmatch(path.name) and path.is_dir())


def set_aside(folder: Path) -> None:
    """Rename a damaged checkpoint, so that it is listed no more and another can take its place.

    Raises:
        StorageError: the disk did not take it.
    """
    with storage(folder):
        shutil.rmtree(folder.with_name(DAMAGED + folder.name), ignore_errors=True)
        os.rename(folder, folder.with_name(DAMAGED + folder.name))


def sweep(steps: Path) -> None:
    """Remove what an interrupted save left behind, and put back what it had not replaced yet."""
    for old in steps.glob(".old-step-*"):
        target = steps / old.name.removeprefix(".old-")
        if not target.exists() and STEP.fullmatch(target.name):
            with storage(target):
                os.rename(old, target)
    for pattern in (".tmp-*", ".old-*", ".gone-*"):
        for leftover in steps.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def prune(steps: Path, *, keep: int, also: set[str]) -> None:
    """Remove all but the newest `keep` checkpoints and those named in `also`, once the newest verifies."""
    folders = list_checkpoints(steps)
    if len(folders) <= keep:
        return
    with contextlib.suppress(UsageError, OSError):
        _verified(folders[-1], FILES, None)
        for folder in folders[:-keep]:
            if folder.name not in also:
                # A name that is no checkpoint's first: half a folder must never look like a damaged one.
                os.rename(folder, gone := folder.with_name(f".gone-{folder.name}"))
                shutil.rmtree(gone, ignore_errors=True)


def _tensors(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def _manifest(content: Mapping[str, bytes]) -> bytes:
    """Sizes and hashes of the files, and the hash of all that is said about them."""
    files = {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in content.items()}
    said = {"format": FORMAT, "files": files}
    return as_json({**said, "sha256": sha256(as_json(said))})


def _require_room(folder: Path, needed: int) -> None:
    """Refuse to begin what the disk cannot hold.

    Raises:
        StorageError: naming what is needed and what is free.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE:
        raise StorageError(
            f"{folder}: a checkpoint needs {needed / 1e6:,.1f} MB, {free / 1e6:,.1f} MB are free on this disk; "
            "make room; what was saved before is intact"
        )


def _verified(folder: Path, names: tuple[str, ...], shapes: Shapes | None) -> dict[str, bytes]:
    """The bytes of the named files, each agreeing with the manifest in size and hash."""
    try:
        present = {entry.name for entry in os.scandir(folder)}
        missing = sorted({*FILES, MANIFEST} - present)
        if missing:
            raise UsageError(f"{folder}: {missing[0]} is missing, the checkpoint is not whole")
        strangers = sorted(present - {*FILES, MANIFEST})
        if strangers:
            raise UsageError(f"{folder}: {strangers[0]!a:.80} does not belong to a checkpoint; remove it")
        raw = read_capped(folder / MANIFEST, MOST_PLAIN)
        listed = _listed(folder, raw)
        content = {name: read_capped(folder / name, _most_bytes(name, shapes)) for name in names}
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{folder}: a file of it cannot be right ({error})") from None
    except OSError as error:
        raise StorageError(f"{folder}: cannot be read ({error.strerror})") from None
    for name, data in content.items():
        if listed.get(name) != {"bytes": len(data), "sha256": sha256(data)}:
            raise UsageError(f"{folder}: {name} does not agree with {MANIFEST}, the checkpoint is damaged")
    return content


def _listed(folder: Path, raw: bytes) -> Mapping[str, Any]:
    """The files a manifest lists, once it has been found to be what was written."""
    try:
        manifest = json.loads(raw)
        format_, files, hashed = manifest["format"], manifest["files"], manifest["sha256"]
        said = {"format": format_, "files": files}
        whole = raw == as_json({**said, "sha256": hashed}) and hashed == sha256(as_json(said))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{folder}: {MANIFEST} is damaged") from None
    if format_ != FORMAT:
        raise UsageError(f"{folder}: format {format_!a:.40}, this Vitral reads {FORMAT}")
    if not whole or not isinstance(files, dict):
        raise UsageError(f"{folder}: {MANIFEST} is damaged")
    return files


def _most_bytes(name: str, shapes: Shapes | None) -> int:
    """What a file may have at most, before anything of it is read."""
    if name == FILES[2]:
        return MOST_PLAIN
    if shapes is None:
        return MOST_BYTES
    weights = WIDEST * sum(math.prod(shape) for shape in shapes.values()) + DESCRIPTION * len(shapes)
    return MOST_PLAIN + weights * (SLOTS if name == FILES[1] else 1)


def _described(data: bytes, expected: int) -> dict[str, tuple[int, ...]]:
    """The tensors that a file says it holds, before any of them is made; `expected`: so many there may well be.

    Raises:
        ValueError: the description is too long, or speaks of something else than floating-point numbers.
    """
    length = int.from_bytes(data[:8], "little")
    if length > min(MOST_PLAIN + DESCRIPTION * expected, len(data) - 8):
        raise ValueError("the description of its tensors is too long")
    tensors = json.loads(data[8 : 8 + length])
    tensors.pop("__metadata__", None)
    if len(tensors) > max(MOST_TENSORS, expected):
        raise ValueError(f"{len(tensors):,} tensors")
    for name, tensor in tensors.items():
        if tensor["dtype"] not in TYPES:
            raise ValueError(f"{name!a:.60} holds {tensor['dtype']!a:.20}, no floating-point numbers")
    return {name: tuple(tensor["shape"]) for name, tensor in tensors.items()}


def _require_shapes(folder: Path, found: Shapes, needed: Shapes) -> None:
    """Refuse tensors that are not those of the model.

    Raises:
        OtherModel: naming the first that differs.
    """
    for name in sorted(found.keys() | needed.keys()):
        shown = ascii(name)[1:-1][:80]
        if name not in found:
            raise OtherModel(f"{folder}: {shown} is missing from the weights")
        if name not in needed:
            raise OtherModel(f"{folder}: {shown} has no place in this model")
        if found[name] != needed[name]:
            raise OtherModel(f"{folder}: {shown} has shape {found[name]!s:.60}, this model needs {needed[name]}")


def _one_line(error: Exception) -> str:
    """What an error says, briefly, with nothing that could steer a terminal."""
    return ascii(str(error))[1:-1][:200]
