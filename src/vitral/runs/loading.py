"""From a run folder to a model that can be used."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer, tokenizer_from_plain
from vitral.model import ModelConfig, Transformer, count_parameters
from vitral.model.counts import BYTES_FLOAT32, parameter_table
from vitral.runs.folder import RunFolder


@dataclass(frozen=True)
class LoadedRun:
    """A run's model with what belongs to it.

    Attributes:
        folder: the run on disk.
        model: in evaluation mode.
        tokenizer: the run's.
        config: the whole configuration as plain data.
        step: optimizer steps the weights have seen.
    """

    folder: RunFolder
    model: Transformer
    tokenizer: Tokenizer
    config: dict[str, Any]
    step: int


def load_run(path: Path, which: str = "best") -> LoadedRun:
    """Load the "best" or the "last" checkpoint of a run.

    Raises:
        UsageError: not a run, or nothing whole in it.
    """
    folder = RunFolder.open(path)
    config = folder.config
    tokenizer = tokenizer_from_plain(folder.document("tokenizer"))
    model_config = ModelConfig.parse(table_of(config, "model", path), f"{path}/config.toml")
    shapes = needed_shapes(model_config, tokenizer.vocab_size, str(path))
    checkpoint = folder.load(which, with_optimizer=False, shapes=shapes, warn=warn_on_stderr)
    model = Transformer(model_config, tokenizer.vocab_size)
    # Weights keep their precision, and the tables of positions get that which they had in training.
    model.to(next(iter(checkpoint.model.values())).dtype)
    load_weights(model, dict(checkpoint.model), str(path))
    return LoadedRun(folder, model.eval(), tokenizer, config, checkpoint.step)


def table_of(config: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    """A table of a run's configuration.

    Raises:
        UsageError: there is none.
    """
    table = config.get(name)
    if not isinstance(table, dict):
        raise UsageError(f"{path}/config.toml: the table [{name}] is missing")
    return table


def needed_shapes(config: ModelConfig, vocab_size: int, where: str) -> dict[str, tuple[int, ...]]:
    """The tensors such a model needs, without making one.

    Raises:
        UsageError: the model would not fit into this machine's memory.
    """
    needed, memory = BYTES_FLOAT32 * count_parameters(config, vocab_size), memory_bytes()
    if memory is not None and needed > memory:
        raise UsageError(
            f"{where}: a model of {needed / 1e9:,.1f} GB, this machine has {memory / 1e9:,.1f} GB of memory"
        )
    return {row.name: row.shape for row in parameter_table(config, vocab_size)}


def memory_bytes() -> int | None:
    """This machine's memory, where the system says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def load_weights(model: Transformer, weights: dict[str, Tensor], where: str) -> None:
    """Put weights into a model whose names and shapes they must match exactly.

    Raises:
        UsageError: naming the first tensor that differs.
    """
    own = model.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        if name not in weights:
            raise UsageError(f"{where}: {name} is missing from the weights")
        if name not in own:
            raise UsageError(f"{where}: {name} has no place in this model")
        if own[name].shape != weights[name].shape:
            shapes = f"{tuple(weights[name].shape)}, this model needs {tuple(own[name].shape)}"
            raise UsageError(f"{where}: {name} has shape {shapes}")
        if not torch.isfinite(weights[name]).all():
            raise UsageError(f"{where}: {name} holds numbers that are not finite")
    model.load_state_dict(weights)


def warn_on_stderr(line: str) -> None:
    """Say one line where warnings go."""
    print(f"vitral: {line}", file=sys.stderr)
