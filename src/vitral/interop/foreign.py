"""Reading a folder of transformers: configuration and weights. Nothing is executed and nothing unpickled."""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from vitral.core.config import shown
from vitral.core.errors import UsageError, reason
from vitral.core.files import read_capped, sha256
from vitral.core.language import _
from vitral.core.machine import require_memory
from vitral.interop.form import Form
from vitral.interop.registry import form_of_type
from vitral.interop.rules import imported
from vitral.interop.settings import Settings
from vitral.model import ModelConfig
from vitral.model.counts import parameter_table
from vitral.runs import loading
from vitral.runs.identity import SPECIAL_IDS

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
MOST_CONFIG, MOST_INDEX, MOST_WEIGHTS = 1 << 22, 1 << 26, 1 << 37
_SHARD = re.compile(r"[\w.-]{1,200}\.safetensors")
MOST_TENSORS = 1 << 16
"""In one file; each costs time and memory, however small."""
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")


@dataclass(frozen=True)
class Foreign:
    """Another library's model, as one of Vitral's.

    Attributes:
        form: its form.
        config: our configuration.
        weights: our tensors, in float32 unless they are float64.
        vocab_size: rows of the embedding.
        said: its own configuration.
        files: SHA-256 of each file that was read, by name.
    """

    form: Form
    config: ModelConfig
    weights: Mapping[str, Tensor]
    vocab_size: int
    said: Mapping[str, Any]
    files: Mapping[str, str]


def read_foreign(folder: Path) -> Foreign:
    """The model in a folder with `config.json` and safetensors.

    Raises:
        UsageError: a file is missing, damaged or may hold a program; the model is of no known form, or is more or less
            than it says.
    """
    where = str(folder)
    if not os.path.isdir(folder):
        raise UsageError("{where}: not a folder with config.json and model.safetensors, nor hf:OWNER/NAME", where=where)
    raw = read_file(folder / CONFIG, MOST_CONFIG)
    said = read_json(raw, folder / CONFIG)
    settings = Settings(said, f"{where}/{CONFIG}")
    form = form_of_type(said.get("model_type"), settings.where)
    if "quantization_config" in said:
        raise settings.refused("quantization_config", said["quantization_config"])
    vocab_size = settings.count("vocab_size")
    said |= {key: None for key in SPECIAL_IDS if said.get(key) == -1}  # as transformers reads it
    _require_ids(said, vocab_size, settings)
    tensors, files = tensors_in(folder)
    weights = form.named(tensors, tied=said.get("tie_word_embeddings", form.ties) is True, where=where)
    if form.prepare is not None:
        weights = form.prepare(weights, settings)
    config = form.config(settings)
    ours = imported(form.rules(config), weights, where)
    require_fit(config, vocab_size, ours, where)
    return Foreign(form, config, ours, vocab_size, said, {CONFIG: sha256(raw), **files})


def _require_ids(said: Mapping[str, Any], vocab_size: int, settings: Settings) -> None:
    for key in SPECIAL_IDS:
        value = said.get(key)
        listed = value if isinstance(value, list) and value else [] if value is None else [value]
        if not all(type(one) is int and 0 <= one < vocab_size for one in listed):
            raise UsageError(
                "{where}: {key} = {value} is no token of this model, whose vocabulary has {vocab_size:,}; correct it, "
                "or set it to null",
                where=settings.where,
                key=key,
                value=shown(value),
                vocab_size=vocab_size,
            )


def read_json(raw: bytes, path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        UsageError: it is none, or `require_writable` refuses it.
    """
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError("{path}: cannot be read ({error})", path=path, error=ascii(str(error))[1:-1]) from None
    if not isinstance(found, dict):
        raise UsageError("{path}: expected a JSON object", path=path)
    require_writable(found, path)
    return found


def require_writable(data: Mapping[str, Any], path: Path) -> None:
    """Refuse plain data that JSON cannot hold: the run's record is JSON.

    Raises:
        UsageError: a number is not finite, or a text is no valid Unicode; names its key, such as `a.b[3]`.
    """
    left: list[tuple[str, Any]] = [("", data)]
    while left:
        key, value = left.pop()
        if isinstance(value, Mapping):
            left += [(f"{key}.{name}".removeprefix("."), inner) for name, inner in value.items()]
            value = next((name for name in value if not is_unicode(name)), None)
        elif isinstance(value, list):
            left += [(f"{key}[{place}]", inner) for place, inner in enumerate(value)]
        if (isinstance(value, float) and not math.isfinite(value)) or not is_unicode(value):
            raise UsageError(
                "{path}: {key} = {value} cannot be kept: numbers must be finite, and texts valid Unicode; correct it, "
                "or leave it out",
                path=path,
                key=ascii(key)[1:-1],
                value=shown(value),
            )


def is_unicode(value: object) -> bool:
    """False for a text with half a surrogate pair, which has no UTF-8."""
    return not isinstance(value, str) or value.isascii() or not any("\ud800" <= one <= "\udfff" for one in value)


def read_file(path: Path, most: int) -> bytes:
    """The bytes of a file.

    Raises:
        UsageError: there is none, it cannot be read, or has more than `most` bytes.
    """
    try:
        return read_capped(path, most)
    except FileNotFoundError:
        raise UsageError("{path}: there is no such file", path=path) from None
    except (OSError, ValueError) as error:
        said = reason(error)
        raise UsageError("{path}: cannot be read ({reason})", path=path, reason=said) from None


def read_if_there(path: Path, most: int) -> bytes | None:
    """The bytes of a file; None if there is none.

    Raises:
        UsageError: it cannot be read.
    """
    return read_file(path, most) if path.exists() else None


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
