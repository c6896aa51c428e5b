"""nanoGPT's `ckpt.pt`: read by torch's reader of tensors and plain data (`weights_only`), which runs nothing."""

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError, reason
from vitral.core.files import open_regular
from vitral.core.language import _
from vitral.core.machine import require_memory
from vitral.interop.foreign import FLOATS, as_float
from vitral.interop.foreign_settings import Settings
from vitral.interop.forms.gpt import gpt2_names
from vitral.interop.rules import by_names, imported
from vitral.interop.token_files import Imported, whole
from vitral.model import ModelConfig

CHECKPOINT = "ckpt.pt"
COMPILED = "_orig_mod."
"""The prefix that torch.compile puts before every name."""
HEAD, EMBEDDING = "lm_head.weight", "transformer.wte.weight"
SIZES = {"context_length": "block_size", "d_model": "n_embd", "num_layers": "n_layer", "num_heads": "n_head"}
MASK = ".attn.bias"
"""The mask of models without flash attention, which is no weight."""


def read_nanogpt(path: Path, *, tokenizer: str | Path | None = None) -> Imported:
    """The model in a checkpoint of nanoGPT.

    Args:
        path: `ckpt.pt`, or the folder with it.
        tokenizer: what `tokenizer_from` takes; the checkpoint has none.

    Raises:
        UsageError: it is no such checkpoint, holds more than tensors and plain data, or no tokenizer is given.
    """
    path = path / CHECKPOINT if path.is_dir() else path
    where = str(path)
    held = _loaded(path)
    said, weights = _said(held, where), _weights(held, path)
    settings = Settings(said, f"{where}: model_args")
    vocab_size = settings.count("vocab_size")
    tied = HEAD not in weights or (EMBEDDING in weights and weights[HEAD].equal(weights[EMBEDDING]))
    plain = {ours: settings.count(theirs) for ours, theirs in SIZES.items()} | {"bias": settings.truth("bias", True)}
    settings.end()
    config = ModelConfig.parse({**plain, "tie_head": tied}, settings.where)
    if tied:
        weights.pop(HEAD, None)
    ours = imported(by_names(gpt2_names(transpose=False))(config), weights, where)
    if tokenizer is None:
        raise UsageError(
            "{where}: a checkpoint of nanoGPT has no tokenizer: --tokenizer hf:openai-community/gpt2 for one that was "
            "trained on GPT-2's tokens, --tokenizer input.txt (the training text) for one that was trained on "
            "characters",
            where=where,
        )
    with open_regular(path) as file:
        files = {path.name: hashlib.file_digest(file, "sha256").hexdigest()}
    origin = {"form": "nanogpt", "source": where, "files": files, "config": said}
    return whole(config, ours, vocab_size, origin, tokenizer=tokenizer)


def _loaded(path: Path) -> Mapping[str, Any]:
    """What the file holds, its tensors not yet read."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise zipfile.BadZipFile("compressed")
        held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except OSError as error:
        raise UsageError("{path}: cannot be read ({reason})", path=path, reason=reason(error)) from None
    except Exception as error:  # whatever torch and zipfile raise of a damaged or a lying file
        raise _no_checkpoint(path, error) from None
    if not isinstance(held, Mapping):
        raise _no_checkpoint(path, type(held).__name__)
    return held


def _no_checkpoint(path: Path, error: object) -> UsageError:
    said = " ".join(str(error).split()).partition(". ")[0][:120] or type(error).__name__
    return UsageError(
        "{path}: not a checkpoint of nanoGPT with nothing but tensors and plain data, or not a whole one ({error})",
        path=path,
        error=said,
    )


def _said(held: Mapping[str, Any], where: str) -> dict[str, Any]:
    said = held.get("model_args")
    if not isinstance(said, Mapping) or not isinstance(held.get("model"), Mapping):
        raise UsageError("{where}: not a checkpoint of nanoGPT: model and model_args are not both in it", where=where)
    return {str(key): value if type(value) in (bool, int, float, str) else None for key, value in said.items()}


def _weights(held: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """The tensors by their names without what torch.compile adds, read into memory.

    Raises:
        UsageError: something is no tensor, of another kind than the weights of a model, or larger than the file.
    """
    weights: dict[str, Tensor] = {}
    size = path.stat().st_size
    for key, tensor in held["model"].items():
        name = str(key).removeprefix(COMPILED)
        plain = isinstance(tensor, Tensor) and tensor.layout == torch.strided and tensor.dtype in FLOATS
        if not plain or tensor.device.type != "cpu" or tensor.numel() * tensor.element_size() > size or name in weights:
            raise UsageError("{path}: {name} is no matrix of numbers of this file", path=path, name=name[:80])
        if not name.endswith(MASK):
            weights[name] = tensor
    require_memory(2 * sum(4 * tensor.numel() for tensor in weights.values()), str(path), _("the model"))
    return {name: as_float(tensor).clone() for name, tensor in weights.items()}
