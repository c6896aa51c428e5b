"""Files of other libraries, also of the hub: JSON and safetensors. Nothing is executed and nothing unpickled."""

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.files import json_object, read_capped, readable, sha256
from vitral.core.language import N_, _
from vitral.core.machine import require_memory
from vitral.model import ModelConfig
from vitral.model.counts import parameter_table
from vitral.runs import loading

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
MOST_CONFIG, MOST_INDEX, MOST_WEIGHTS = 1 << 22, 1 << 26, 1 << 37
_SHARD = re.compile(r"[\w.-]{1,200}\.safetensors")
MOST_TENSORS = 1 << 16
"""In one file; each costs time and memory, however small."""
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")


WITHOUT_PROOF = N_(", or --no-proof, since only the proof needs it")


def needed(package: str, instead: str = "") -> Any:
    """A package of the extra `interop`; `instead`, a message, says how to do without it.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        raise UsageError(
            "{package} is not installed: pip install 'vitral[interop]'{instead}", package=package, instead=_(instead)
        ) from None


def read_json(raw: bytes, path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        UsageError: it is none.
    """
    with readable(path):
        return json_object(raw)


def read_file(path: Path, most: int) -> bytes:
    """The bytes of a file.

    Raises:
        UsageError: there is none, it cannot be read, or has more than `most` bytes.
    """
    with readable(path):
        return read_capped(path, most)


def tensors_in(folder: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a folder by name, and the SHA-256 of their files.

    Raises:
        UsageError: there are none, a shard is missing or holds other tensors than the index says.
    """
    if (folder / WEIGHTS).exists():
        tensors, digest = tensors_of(folder / WEIGHTS)
        return tensors, {WEIGHTS: digest}
    if not (folder / INDEX).exists():
        there = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
        if there:
            raise UsageError(
                "{folder}: its weights are in {name}, which may hold a program; only safetensors are read; on the hub, "
                "another revision may have them (hf:OWNER/NAME@refs/pr/1)",
                folder=folder,
                name=there[0],
            )
        raise UsageError("{folder}: no model.safetensors", folder=folder)
    raw = read_file(folder / INDEX, MOST_INDEX)
    listed = read_json(raw, folder / INDEX).get("weight_map")
    if not isinstance(listed, dict) or not all(
        isinstance(name, str) and _SHARD.fullmatch(name) for name in listed.values()
    ):
        raise UsageError("{path}: weight_map must name a file of this folder for each tensor", path=folder / INDEX)
    tensors, files = dict[str, Tensor](), {INDEX: sha256(raw)}
    for name in sorted(set(listed.values())):
        held, files[name] = tensors_of(folder / name)
        expected = {tensor for tensor, file in listed.items() if file == name}
        if held.keys() != expected:
            raise UsageError(
                "{path}: its tensors are not those that {index} says: {name}",
                path=folder / name,
                index=INDEX,
                name=min(held.keys() ^ expected),
            )
        tensors |= held
    return tensors, files


def tensors_of(path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors of a safetensors file as float32 (float64 stays), and its SHA-256.

    Raises:
        UsageError: it is missing, no such file, or not a whole one.
    """
    if path.exists():
        require_memory(2 * path.stat().st_size, str(path), _("the model"))
    raw = read_file(path, MOST_WEIGHTS)
    if raw.count(b"{", 0, int.from_bytes(raw[:8], "little")) > MOST_TENSORS:  # one for each
        raise UsageError("{path}: has more than {most:,} tensors, which no model has", path=path, most=MOST_TENSORS)
    try:
        tensors = safetensors.torch.load(raw)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise UsageError(
            "{path}: not a safetensors file, or not a whole one ({error})", path=path, error=str(error)[:200]
        ) from None
    return {name: as_float(tensor) for name, tensor in tensors.items()}, sha256(raw)


def as_float(tensor: Tensor) -> Tensor:
    """Numbers of 16 bits as float32; others stay."""
    return tensor.float() if tensor.dtype in FLOATS[:2] else tensor


def require_fit(config: ModelConfig, vocab_size: int, weights: Mapping[str, Tensor], where: str) -> None:
    """Compare names, shapes, types and numbers with what the configuration needs.

    Raises:
        UsageError: a tensor differs; names the first one.
    """
    loading.require_model_memory(config, vocab_size, where)
    loading.require_fit(weights, {row.name: row.shape for row in parameter_table(config, vocab_size)}, where)
    for name, tensor in weights.items():
        if tensor.dtype not in FLOATS:
            raise UsageError("{where}: {name} has numbers of type {dtype}", where=where, name=name, dtype=tensor.dtype)
    if len({tensor.dtype for tensor in weights.values()}) > 1:
        raise UsageError("{where}: its tensors have different types", where=where)


# ---------------------------------------------------------------- the Hugging Face hub

PREFIX = "hf:"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
)
WANTED = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    *TOKENIZER_FILES,
)
"""Files that are downloaded; nothing that may hold a program is among them."""


def is_hub(source: str) -> bool:
    """Whether a source is a name on the hub."""
    return source.startswith(PREFIX)


def fetched(source: str, wanted: Sequence[str] = WANTED) -> tuple[Path, dict[str, str]]:
    """The files of a model on the hub, in the hub's own cache, and its name with the exact revision.

    Args:
        source: `hf:owner/name`, or `hf:owner/name@revision`.
        wanted: patterns of the files.

    Raises:
        UsageError: the package is missing, the name is none, or the hub cannot be reached or refuses.
    """
    name, _at, revision = source.removeprefix(PREFIX).partition("@")
    if not name or name.count("/") > 1 or not all(name.split("/")):
        raise UsageError(
            "{source}: not a name on the hub; write hf:OWNER/NAME or hf:OWNER/NAME@REVISION", source=source
        )
    hub = needed("huggingface_hub")
    try:
        exact = hub.model_info(name, revision=revision or None).sha
        folder = hub.snapshot_download(name, revision=exact, allow_patterns=list(wanted))
    except Exception as error:  # of the hub's client, of its HTTP library, of the system
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        kinds = " ".join(kind.__name__ for kind in type(error).__mro__)
        if "Connect" in kinds or "Timeout" in kinds:  # of each of them
            raise UsageError("{source}: the hub cannot be reached ({error})", source=source, error=first) from None
        raise UsageError("{source}: {error}", source=source, error=first) from None
    return Path(folder), {"hub": name, "revision": exact}
