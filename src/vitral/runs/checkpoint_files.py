"""The files of a checkpoint: their names by format, how large they may be, and how they are verified before use.

The checks are, in this order: file sizes within the model's needs, the manifest's own hash, the files' hashes, the
tensors' names, types and shapes; then tensors are parsed. Hashes detect accidents, not attackers; the later checks also
handle files changed together with their hashes.
"""

import contextlib
import json
import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.core.errors import StorageError, UsageError, reason
from vitral.core.files import as_json, sha256
from vitral.core.guarded import GuardedFolder
from vitral.core.language import _

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of a model's tensors by name."""

FORMAT = 2
FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "history.json")
WEIGHTS, OPTIMIZER, STATE, HISTORY = FILES
OF_FORMAT = {1: FILES[:3], 2: FILES}
"""Files of a checkpoint besides its manifest, by format."""
MANIFEST = "MANIFEST.json"

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


class OtherModel(UsageError):
    """An intact checkpoint of another model than the configured one; older checkpoints will not match either."""


@dataclass(frozen=True)
class Seal:
    """A verified manifest: its format, its own hash, and size and hash of every file."""

    format: int
    sha256: str
    files: Mapping[str, Any]

    @property
    def expected(self) -> tuple[str, ...]:
        """The checkpoint's files besides its manifest."""
        return OF_FORMAT[self.format]


def verified(folder: GuardedFolder, names: tuple[str, ...], shapes: Shapes | None) -> tuple[dict[str, bytes], Seal]:
    """The bytes of the named files, verified against the manifest; the others only have to be there."""
    sealed = sealed_in(folder)
    files = [name for name in names if name in sealed.expected]
    return {name: read_verified(folder, sealed, name, shapes) for name in files}, sealed


def sealed_in(folder: GuardedFolder) -> Seal:
    """The manifest of a checkpoint that has all of its files and no other."""
    where = folder.path
    with _read_from(where):
        sealed = _listed(where, folder.read(MANIFEST, MOST_PLAIN))
        expected, present = {*sealed.expected, MANIFEST}, set(folder.names())
        if expected - present:
            raise UsageError(
                "{where}: {name} is missing, the checkpoint is incomplete",
                where=where,
                name=min(expected - present),
            )
        if present - expected:
            raise UsageError(
                "{where}: {name!a:.80} does not belong to a checkpoint; remove it",
                where=where,
                name=min(present - expected),
            )
        return sealed


def read_verified(folder: GuardedFolder, sealed: Seal, name: str, shapes: Shapes | None) -> bytes:
    """The bytes of a file, verified against the manifest."""
    with _read_from(folder.path):
        data = folder.read(name, _most_bytes(name, shapes))
    if sealed.files.get(name) != {"bytes": len(data), "sha256": sha256(data)}:
        raise UsageError(
            "{where}: {name} does not match {manifest}, the checkpoint is damaged",
            where=folder.path,
            name=name,
            manifest=MANIFEST,
        )
    return data


@contextlib.contextmanager
def _read_from(where: Path) -> Generator[None]:
    """Convert what reading raises to one line."""
    try:
        yield
    except (UsageError, StorageError):
        raise
    except ValueError as error:
        raise UsageError("{where}: invalid file ({error})", where=where, error=error) from None
    except FileNotFoundError as error:
        raise UsageError(
            "{where}: {name} is missing, the checkpoint is incomplete", where=where, name=error.filename
        ) from None
    except OSError as error:
        raise StorageError("{where}: cannot be read ({reason})", where=where, reason=reason(error)) from None


def _listed(folder: Path, raw: bytes) -> Seal:
    """A manifest, after verifying it."""
    try:
        manifest = json.loads(raw)
        format_, files, hashed = manifest["format"], manifest["files"], manifest["sha256"]
        listed = {"format": format_, "files": files}
        intact = raw == as_json({**listed, "sha256": hashed}) and hashed == sha256(as_json(listed))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError("{folder}: {manifest} is damaged", folder=folder, manifest=MANIFEST) from None
    if format_ not in list(OF_FORMAT):
        raise UsageError(
            "{folder}: format {format!a:.40}, this Vitral reads {ours}", folder=folder, format=format_, ours=FORMAT
        )
    if not intact or not isinstance(files, dict):
        raise UsageError("{folder}: {manifest} is damaged", folder=folder, manifest=MANIFEST)
    return Seal(format_, hashed, files)


def _most_bytes(name: str, shapes: Shapes | None) -> int:
    """The maximum size of a file, checked before reading it."""
    if name in (STATE, HISTORY):
        return MOST_PLAIN
    if shapes is None:
        return MOST_BYTES
    weights = WIDEST * sum(math.prod(shape) for shape in shapes.values()) + DESCRIPTION * len(shapes)
    return MOST_PLAIN + weights * (SLOTS if name == OPTIMIZER else 1)


def described(data: bytes, expected: int) -> dict[str, tuple[int, ...]]:
    """The shapes in the header of a tensor file, checked before loading; `expected` is the plausible number of tensors.

    Raises:
        ValueError: the header is too long, or a tensor is not floating-point.
    """
    length = int.from_bytes(data[:8], "little")
    if length > min(MOST_PLAIN + DESCRIPTION * expected, len(data) - 8):
        raise ValueError(_("the header of its tensors is too long"))
    tensors = json.loads(data[8 : 8 + length])
    tensors.pop("__metadata__", None)
    if len(tensors) > max(MOST_TENSORS, expected):
        raise ValueError(_("{number:,} tensors", number=len(tensors)))
    for name, tensor in tensors.items():
        if tensor["dtype"] not in TYPES:
            raise ValueError(
                _("{name!a:.60} has type {dtype!a:.20}, not floating-point", name=name, dtype=tensor["dtype"])
            )
    return {name: tuple(tensor["shape"]) for name, tensor in tensors.items()}


def require_shapes(folder: Path, found: Shapes, needed: Shapes) -> None:
    """Check the tensors against those of the model.

    Raises:
        OtherModel: a tensor differs; names the first one.
    """
    for name in sorted(found.keys() | needed.keys()):
        shown = ascii(name)[1:-1][:80]
        if name not in found:
            raise OtherModel("{folder}: {name} is missing from the weights", folder=folder, name=shown)
        if name not in needed:
            raise OtherModel("{folder}: {name} does not belong to this model", folder=folder, name=shown)
        if found[name] != needed[name]:
            raise OtherModel(
                "{folder}: {name} has shape {found!s:.60}, this model needs {needed}",
                folder=folder,
                name=shown,
                found=found[name],
                needed=needed[name],
            )
