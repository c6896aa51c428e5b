"""Checkpoints: one folder per step with safetensors and JSON files, and a manifest of hashes written last.

A checkpoint is written under a temporary name, flushed and renamed, so a folder named `step-…` is always complete. It
seals the whole run: `state.json` contains the run's identity (`vitral.runs.identity`), and `history.json` the hash of
metrics.jsonl up to the checkpoint. Files are read, not mapped, so the verified bytes are the parsed bytes.

Temporary folders, which remain after a kill and which `sweep` removes: `.tmp-…` is being written, `.old-step-…` is
being replaced by a new checkpoint of the same step, `.gone-…` is being removed.
"""

import json
import math
import os
import re
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
from safetensors import safe_open

from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.files import (
    as_json,
    insist,
    listing,
    make,
    names,
    read,
    remove_folder,
    sealed_json,
    sha256,
    storage,
    sync,
    unsealed_json,
    write_durably,
)
from vitral.core.language import N_

if TYPE_CHECKING:
    from torch import Tensor


DAMAGED = "damaged-"
LEFTOVERS = (".tmp-", ".old-", ".gone-")


@dataclass(frozen=True)
class Checkpoint:
    """Everything needed to resume a run from a step.

    Attributes:
        step: number of completed optimizer steps.
        model: the weights by name.
        optimizer: the optimizer's tensors by name.
        state: the remaining state of the trainer and the run's identity, as plain data.
        history: facts that do not affect the next step: the seals of metrics.jsonl and of environment.json.
        manifest: the SHA-256 that its manifest ends with, in hexadecimal; empty until it is written.
    """

    step: int
    model: "Mapping[str, Tensor]"
    optimizer: "Mapping[str, Tensor]"
    state: Mapping[str, Any]
    history: Mapping[str, Any] = field(default_factory=dict)
    manifest: str = ""


def step_name(step: int) -> str:
    """The folder's name: `step-00000600`."""
    return f"step-{step:08d}"


def save_checkpoint(steps: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint as a folder under `steps`, in the place of another of the same step.

    Args:
        steps: the folder of checkpoints.
        checkpoint: the checkpoint.

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
    return _write(steps / step_name(checkpoint.step), content)


def reseal(folder: Path, history: Mapping[str, Any]) -> None:
    """Replace the history of an intact checkpoint; its other files stay equal to the byte.

    Raises:
        UsageError: the checkpoint is damaged.
        StorageError: the checkpoint cannot be written; the former one is intact.
    """
    _write(folder, contents(folder)[0] | {HISTORY: as_json(dict(history))})


def _write(folder: Path, content: Mapping[str, bytes]) -> Path:
    steps, there = folder.parent, folder.is_dir()
    beside, old = steps / f".tmp-{os.getpid()}-{folder.name}", steps / f".old-{folder.name}"
    with storage(folder):
        try:
            make(steps)
            remove_folder(beside)
            make(beside)
            manifest = sealed_json({"format": FORMAT, "files": listing(content)})
            for name, data in {**content, MANIFEST: manifest}.items():
                write_durably(beside / name, data)
            sync(beside)
            if there:
                remove_folder(old)
                insist(os.rename, folder, old)
            insist(os.rename, beside, folder)
            sync(steps)
            remove_folder(old)
        except BaseException:
            remove_folder(beside)
            raise
    return folder


def load_checkpoint(folder: Path, *, with_optimizer: bool = True, with_weights: bool = True) -> Checkpoint:
    """Read a checkpoint after verifying it against its manifest.

    Args:
        folder: the checkpoint's folder.
        with_optimizer: whether to load the optimizer's tensors; if not, only the size of their file is verified.
        with_weights: the same for the weights.

    Raises:
        UsageError: a file is missing, damaged or of another format; names it.
        StorageError: a file cannot be read.
    """
    is_read = {OPTIMIZER: with_optimizer, WEIGHTS: with_weights}
    content, manifest = contents(folder, [name for name in FILES if is_read.get(name, True)])
    with understood(folder):
        state, history = json.loads(content[STATE]), json.loads(content[HISTORY])
        if step_name(state["step"]) != folder.name:
            raise ValueError(N_("it is of step {step}").format(step=state["step"]))
        if not (type(history["metrics"]["bytes"]) is type(history["metrics"]["lines"]) is int):
            raise ValueError(N_("its seal of metrics.jsonl is not one"))
        weights, optimizer = (of_tensors(content.pop(name)) if name in content else {} for name in (WEIGHTS, OPTIMIZER))
        return Checkpoint(state["step"], weights, optimizer, state, history, manifest)


def load_state(folder: Path) -> Checkpoint:
    """A checkpoint without its tensors: its state and history, verified; of tensor files only the size is.

    Raises:
        UsageError: a file is missing, damaged or of another format; names it.
        StorageError: a file cannot be read.
    """
    return load_checkpoint(folder, with_optimizer=False, with_weights=False)


def of_tensors(raw: bytes) -> "dict[str, Tensor]":
    """The tensors of a file of tensors, all of them floating-point; float16, which saves room, becomes float32."""
    import safetensors.torch  # loads PyTorch, which takes seconds and which a list of runs does not need
    import torch

    tensors = safetensors.torch.load(raw)
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            sentence = N_("{name!a:.60} has type {dtype!a:.20}, not floating-point")
            raise ValueError(sentence.format(name=name, dtype=tensor.dtype))
    return {name: tensor.float() if tensor.dtype == torch.float16 else tensor for name, tensor in tensors.items()}


def count_weights(folder: Path) -> int:
    """The numbers in the weights of a checkpoint, by the header of their file; the weights themselves are not read.

    Raises:
        UsageError: the header is malformed.
        StorageError: the file cannot be read.
    """
    with understood(folder), safe_open(folder / WEIGHTS, "numpy") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def list_checkpoints(steps: Path) -> list[Path]:
    """Everything that has the name of a checkpoint, oldest first; a link or a file is refused when it is read.

    Raises:
        UsageError: `steps` is a link.
    """
    return [steps / name for name in names(steps) if STEP.fullmatch(name)]


def set_aside(folder: Path) -> None:
    """Rename a damaged checkpoint, so that it is no longer listed and can be replaced.

    Raises:
        StorageError: the folder cannot be renamed.
    """
    aside = folder.with_name(DAMAGED + folder.name)
    with storage(folder):
        remove_folder(aside)
        insist(os.rename, folder, aside)


def sweep(steps: Path) -> None:
    """Remove what interrupted saves and ended processes left, and restore a checkpoint that was not yet replaced."""
    for name in names(steps):
        target = steps / name.removeprefix(".old-")
        if name.startswith(".old-") and not os.path.lexists(target):
            with storage(target):
                insist(os.rename, steps / name, target)
        elif name.startswith(LEFTOVERS):
            remove_folder(steps / name)


def prune(steps: Path, *, keep: int, also: set[str]) -> None:
    """Remove all but the newest `keep` checkpoints and those in `also`, provided that the newest is intact."""
    folders = list_checkpoints(steps)
    if len(folders) <= keep:
        return
    with suppress(UsageError, OSError):
        contents(folders[-1])
        for folder in folders[:-keep]:
            if folder.name not in also:
                # Rename first: a partly removed folder must not look like a damaged checkpoint.
                gone = steps / f".gone-{folder.name}"
                insist(os.rename, folder, gone)
                remove_folder(gone)


def as_tensors(tensors: "Mapping[str, Tensor]") -> bytes:
    """The content of a file of tensors."""
    import safetensors.torch

    return safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


FORMAT = 2
FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "history.json")
WEIGHTS, OPTIMIZER, STATE, HISTORY = FILES
MANIFEST = "MANIFEST.json"
STEP = re.compile(r"step-\d{8,9}")

MOST_BYTES = 1 << 40
"""Maximum bytes of a file of tensors."""
MOST_PLAIN = 1 << 20
"""Maximum bytes of a JSON file, and of the header of a tensor file."""


def contents(folder: Path, wanted: Collection[str] = FILES) -> tuple[dict[str, bytes], str]:
    """The bytes of some of a checkpoint's files, compared with its manifest, and the hash that the manifest ends with.

    Of the other files, name and size are compared.

    Args:
        folder: the checkpoint's.
        wanted: the files to read.

    Raises:
        UsageError: a file is missing, damaged or of another format, names it; or the folder is a link.
        StorageError: a file cannot be read.
    """
    names(folder)  # refuses a link
    with understood(folder):
        manifest = unsealed_json(read(folder / MANIFEST, MOST_PLAIN))
        if manifest["format"] != FORMAT:
            raise UsageError(
                "{folder}: format {format!a:.40}, this Vitral reads {ours}; the last one that reads 1 and 3 is that of "
                "27 November 2026",
                folder=folder,
                format=manifest["format"],
                ours=FORMAT,
            )
        content = dict[str, bytes]()
        for name in FILES:
            entry, path = manifest["files"][name], folder / name
            is_whole = path.stat().st_size == entry["bytes"]
            if is_whole and name in wanted:
                content[name] = read(path, MOST_BYTES if name.endswith(".safetensors") else MOST_PLAIN)
                is_whole = sha256(content[name]) == entry["sha256"]
            if not is_whole:
                raise UsageError(
                    "{where}: {name} does not match {manifest}, the checkpoint is damaged",
                    where=folder,
                    name=name,
                    manifest=MANIFEST,
                )
        return content, sha256(as_json(manifest))


MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


@contextmanager
def understood(folder: Path) -> Generator[None]:
    """Convert what a malformed checkpoint, or a log, raises to one line."""
    try:
        yield
    except (UsageError, StorageError):
        raise
    except FileNotFoundError as error:
        raise UsageError(
            "{where}: {name} is missing, the checkpoint is incomplete",
            where=folder,
            name=Path(str(error.filename)).name,
        ) from None
    except OSError as error:
        raise StorageError("{where}: cannot be read ({reason})", where=folder, reason=reason(error)) from None
    except (*MALFORMED, safetensors.SafetensorError) as error:
        raise UsageError("{path}: something in it is malformed ({error})", path=folder, error=reason(error)) from None
