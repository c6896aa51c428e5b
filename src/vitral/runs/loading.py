"""Load a model from a run folder."""

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
    """A run's model and tokenizer.

    Attributes:
        folder: the run on disk.
        model: the model in evaluation mode.
        tokenizer: the run's tokenizer.
        config: the complete configuration as plain data.
        step: number of optimizer steps of the loaded checkpoint.
    """

    folder: RunFolder
    model: Transformer
    tokenizer: Tokenizer
    config: dict[str, Any]
    step: int


def load_run(path: Path, which: str = "best") -> LoadedRun:
    """Load the "best" or the "last" checkpoint of a run.

    Raises:
        UsageError: not a run, or it has no intact checkpoint.
    """
    folder = RunFolder.open(path)
    config = folder.config
    tokenizer = tokenizer_from_plain(folder.document("tokenizer"))
    model_config = ModelConfig.parse(table_of(config, "model", path), f"{path}/config.toml")
    shapes = needed_shapes(model_config, tokenizer.vocab_size, str(path))
    checkpoint = folder.load(which, with_optimizer=False, shapes=shapes, warn=warn_on_stderr)
    model = Transformer(model_config, tokenizer.vocab_size)
    # Weights keep their precision; position tables get the precision they had in training.
    model.to(next(iter(checkpoint.model.values())).dtype)
    load_weights(model, dict(checkpoint.model), str(path))
    return LoadedRun(folder, model.eval(), tokenizer, config, checkpoint.step)


def table_of(config: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    """A table of a run's configuration.

    Raises:
        UsageError: the table is missing.
    """
    table = config.get(name)
    if not isinstance(table, dict):
        raise UsageError(f"{path}/config.toml: the table [{name}] is missing")
    return table


def needed_shapes(config: ModelConfig, vocab_size: int, where: str) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a model's tensors, without building it.

    Raises:
        UsageError: the model would not fit into this machine's memory.
    """
    needed, memory = BYTES_FLOAT32 * count_parameters(config, vocab_size), memory_bytes()
    if memory is not None and needed > memory:
        raise UsageError(
            f"{where}: the model needs {needed / 1e9:,.1f} GB, this machine has {memory / 1e9:,.1f} GB of memory"
        )
    return {row.name: row.shape for row in parameter_table(config, vocab_size)}


def memory_bytes() -> int | None:
    """This machine's memory in bytes; None if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def load_weights(model: Transformer, weights: dict[str, Tensor], where: str) -> None:
    """Load weights whose names and shapes match the model's exactly.

    Raises:
        UsageError: a tensor differs; names the first one.
    """
    own = model.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        if name not in weights:
            raise UsageError(f"{where}: {name} is missing from the weights")
        if name not in own:
            raise UsageError(f"{where}: {name} does not belong to this model")
        if own[name].shape != weights[name].shape:
            shapes = f"{tuple(weights[name].shape)}, this model needs {tuple(own[name].shape)}"
            raise UsageError(f"{where}: {name} has shape {shapes}")
        if not torch.isfinite(weights[name]).all():
            raise UsageError(f"{where}: {name} contains numbers that are not finite")
    model.load_state_dict(weights)


def warn_on_stderr(line: str) -> None:
    """Print one line to standard error."""
    print(f"vitral: {line}", file=sys.stderr)
