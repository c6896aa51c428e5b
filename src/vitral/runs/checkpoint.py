"""Checkpoints: one new folder per step, safetensors and JSON only, a manifest of hashes written last.

A checkpoint is written under a temporary name, flushed, and renamed, so that a folder called `step-…` is always
whole. It is read, verified against its manifest, and only then parsed. Hashes catch accidents, not attackers.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from vitral.core.errors import StorageError, UsageError
from vitral.runs.files import as_json, sha256, storage, sync_folder, write_durably

FORMAT = 1
FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
MANIFEST = "MANIFEST.json"


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


def save_checkpoint(steps: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint as a new folder under `steps`; an existing one of the same step is kept as it is.

    Raises:
        StorageError: the disk did not take it; nothing that existed is touched.
    """
    target = steps / step_name(checkpoint.step)
    if target.exists():
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
            beside.mkdir()
            for name, data in content.items():
                write_durably(beside / name, data)
            manifest = {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in content.items()}
            write_durably(beside / MANIFEST, as_json({"format": FORMAT, "files": manifest}))
            sync_folder(beside)
            os.rename(beside, target)
            sync_folder(steps)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    return target


def load_checkpoint(folder: Path, *, with_optimizer: bool = True) -> Checkpoint:
    """Read a checkpoint whose every byte agrees with its manifest.

    Raises:
        UsageError: a file is missing, damaged or of another format; says which.
    """
    content = _verified(folder, FILES if with_optimizer else (FILES[0], FILES[2]))
    try:
        state = json.loads(content["state.json"])
        model = safetensors.torch.load(content["model.safetensors"])
        optimizer = safetensors.torch.load(content["optimizer.safetensors"]) if with_optimizer else {}
    except (ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise UsageError(f"{folder}: not a checkpoint ({error})") from None
    return Checkpoint(int(state["step"]), model, optimizer, state)


def list_checkpoints(steps: Path) -> list[Path]:
    """The checkpoints' folders, oldest first."""
    return sorted(path for path in steps.glob("step-*") if path.is_dir())


def set_aside(folder: Path) -> None:
    """Rename a damaged checkpoint, so that it is listed no more and another can take its place.

    Raises:
        StorageError: the disk did not take it.
    """
    with storage(folder):
        shutil.rmtree(folder.with_name(f"damaged-{folder.name}"), ignore_errors=True)
        os.rename(folder, folder.with_name(f"damaged-{folder.name}"))


def sweep(steps: Path) -> None:
    """Remove what an interrupted save left behind."""
    for leftover in steps.glob(".tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def prune(steps: Path, *, keep: int, also: set[str]) -> None:
    """Remove all but the newest `keep` checkpoints and those named in `also`, once the newest verifies."""
    folders = list_checkpoints(steps)
    if len(folders) <= keep:
        return
    with contextlib.suppress(UsageError):
        _verified(folders[-1], FILES)
        for folder in folders[:-keep]:
            if folder.name not in also:
                shutil.rmtree(folder, ignore_errors=True)


def _tensors(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def _verified(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The bytes of the named files, each agreeing with the manifest in size and hash."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        listed, format_ = manifest["files"], manifest["format"]
        content = {name: (folder / name).read_bytes() for name in names}
    except FileNotFoundError as error:
        raise UsageError(
            f"{folder}: {Path(str(error.filename)).name} is missing, the checkpoint is not whole"
        ) from None
    except OSError as error:
        raise StorageError(f"{folder}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{folder}: {MANIFEST} is damaged") from None
    if format_ != FORMAT:
        raise UsageError(f"{folder}: format {format_!r}, this Vitral reads {FORMAT}")
    for name, data in content.items():
        expected = listed.get(name) if isinstance(listed, dict) else None
        if not isinstance(expected, dict) or expected != {"bytes": len(data), "sha256": sha256(data)}:
            raise UsageError(f"{folder}: {name} does not agree with {MANIFEST}, the checkpoint is damaged")
    return content
