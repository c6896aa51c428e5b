"""Load a model from a run folder."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError, printable
from vitral.core.language import N_, _
from vitral.core.machine import require_memory
from vitral.core.parts import changed_parts
from vitral.data.tokenizers import Tokenizer
from vitral.model import ModelConfig, Transformer, count_parameters
from vitral.model.counts import BYTES_FLOAT32
from vitral.runs.checkpoint import Checkpoint, list_checkpoints, load_checkpoint
from vitral.runs.folder import RunFolder
from vitral.runs.sealed import SealedRun, enter


@dataclass(frozen=True)
class LoadedRun:
    """A run's model and tokenizer.

    Attributes:
        sealed: the run, verified.
        model: the model in evaluation mode.
        checkpoint: step and manifest of the loaded checkpoint, without its tensors.
    """

    sealed: SealedRun
    model: Transformer
    checkpoint: Checkpoint

    @property
    def folder(self) -> RunFolder:
        """The run on disk."""
        return RunFolder(self.sealed.path)

    @property
    def tokenizer(self) -> Tokenizer:
        """The run's tokenizer."""
        return self.sealed.tokenizer

    @property
    def config(self) -> dict[str, Any]:
        """The complete configuration as plain data."""
        return self.sealed.config.plain()

    @property
    def step(self) -> int:
        """Number of optimizer steps of the loaded checkpoint."""
        return self.checkpoint.step


def load_run(path: Path, which: str = "best", warn: Callable[[str], object] | None = None) -> LoadedRun:
    """Load the "best" or the "last" checkpoint of a run.

    Args:
        path: the run's folder.
        which: "best" or "last".
        warn: called with one line for each damage that does not enter the result; None prints it on stderr.

    Raises:
        UsageError: not a run, it has no intact checkpoint, or an own part of its model is not registered.
    """
    warn = warn or warn_on_stderr
    sealed = enter(path, warn)
    if sealed.newest is None:
        raise UsageError(
            "{path}: no checkpoint yet (training stopped before the first); vitral resume {path}", path=path
        )
    for key in changed_parts(sealed.config.model, str(path)):
        warn(_("{path}: the source of {key} has changed since the run was trained", path=path, key=key))
    checkpoint = load_checkpoint_of(sealed, which, with_optimizer=False, warn=warn)
    model = Transformer(sealed.config.model, sealed.tokenizer.vocab_size)
    # Weights keep their precision; position tables get the precision they had in training.
    model.to(next((tensor.dtype for tensor in checkpoint.model.values()), torch.float32))
    load_weights(model, checkpoint.model, str(path))
    return LoadedRun(sealed, model.eval(), replace(checkpoint, model={}, optimizer={}))


def trajectory(run: LoadedRun) -> Iterator[tuple[int, Transformer]]:
    """The step and the model in evaluation mode of every checkpoint that the run has kept, in increasing order.

    How many it keeps is `training.keep_checkpoints`. The models share their tensors: use each before the next.

    Raises:
        UsageError: a checkpoint is damaged, or of another run.
    """
    where = str(run.sealed.path)
    model = Transformer(run.model.config, run.model.vocab_size).to(run.model.token_embedding.weight).eval()
    for folder in list_checkpoints(run.sealed.steps):
        checkpoint = load_checkpoint(folder, with_optimizer=False)
        require_of(run.sealed, checkpoint)
        load_weights(model, checkpoint.model, where)
        yield checkpoint.step, model


def load_checkpoint_of(
    sealed: SealedRun, which: str, *, with_optimizer: bool, warn: Callable[[str], object]
) -> Checkpoint:
    """The "best" or "last" intact checkpoint of a run (`RunFolder.load`), which must be of this run.

    Raises:
        UsageError: there is no intact checkpoint, or it is of another run.
    """
    require_model_memory(sealed.config.model, sealed.tokenizer.vocab_size, str(sealed.path))
    checkpoint = sealed.load(which, with_optimizer=with_optimizer, warn=warn)
    require_of(sealed, checkpoint)
    return checkpoint


def require_of(sealed: SealedRun, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint of another run.

    Raises:
        UsageError: it is of another run.
    """
    if checkpoint.state.get("run", sealed.identity.run) != sealed.identity.run:
        raise UsageError(
            "{where}: the checkpoint of step {step} is of another run; remove it",
            where=sealed.path,
            step=checkpoint.step,
        )


def require_model_memory(config: ModelConfig, vocab_size: int, where: str) -> None:
    """Refuse a model that would not fit into this machine's memory, before it is built.

    Raises:
        UsageError: it would not.
    """
    require_memory(BYTES_FLOAT32 * count_parameters(config, vocab_size), where, _("the model"))


def load_weights(model: Transformer, weights: Mapping[str, Tensor], where: str) -> None:
    """Load weights whose names and shapes match the model's exactly.

    Raises:
        UsageError: a tensor differs, or has numbers that are not finite; names the first one.
    """
    require_fit(weights, {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}, where)
    model.load_state_dict(weights)


def require_fit(weights: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Compare names, shapes and numbers of weights with what a model needs.

    Raises:
        UsageError: a tensor differs, or has numbers that are not finite; names the first one.
    """
    for name in sorted(weights.keys() | shapes.keys()):
        told = {"where": where, "name": ascii(name)[1:-1][:80]}
        if name not in weights:
            raise UsageError("{where}: {name} is missing from the weights", **told)
        if name not in shapes:
            raise UsageError("{where}: {name} does not belong to this model", **told)
        if (found := tuple(weights[name].shape)) != shapes[name]:
            sentence = N_("{where}: {name} has shape {found!s:.60}, this model needs {needed}")
            raise UsageError(sentence.format(**told, found=found, needed=shapes[name]))
        if not weights[name].isfinite().all():
            raise UsageError("{where}: {name} contains numbers that are not finite", **told)


def warn_on_stderr(line: str) -> None:
    """Print one line to standard error."""
    print(f"vitral: {printable(_(line))}", file=sys.stderr)
