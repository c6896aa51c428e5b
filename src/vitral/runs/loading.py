"""Load a model from a run folder."""

import math
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
from vitral.runs.checkpoint import MOST_BYTES, Checkpoint, list_checkpoints, load_checkpoint, of_tensors, understood
from vitral.runs.folder import RunFolder, frame_name
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
    for key in changed_parts(sealed.config.model, str(path)):
        warn(_("{path}: the source of {key} has changed since the run was trained", path=path, key=key))
    model = unloaded(sealed)
    checkpoint = sealed.load(which, with_optimizer=False, warn=warn)
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
    model = like(run.model)
    for folder in list_checkpoints(run.sealed.steps):
        checkpoint = load_checkpoint(folder, with_optimizer=False)
        run.sealed.require(checkpoint)
        load_weights(model, checkpoint.model, where)
        yield checkpoint.step, model


def like(model: Transformer) -> Transformer:
    """A model of the same configuration, on the same device, in the same precision, in evaluation mode."""
    return Transformer(model.config, model.vocab_size).to(model.token_embedding.weight).eval()


def unloaded(sealed: SealedRun) -> Transformer:
    """The model of a run with initial weights.

    Raises:
        UsageError: it would not fit into this machine's memory; it is not built then.
    """
    require_model_memory(sealed.config.model, sealed.tokenizer.vocab_size, str(sealed.path))
    return Transformer(sealed.config.model, sealed.tokenizer.vocab_size)


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
        values = {"where": where, "name": ascii(name)[1:-1][:80]}
        if name not in weights:
            raise UsageError("{where}: {name} is missing from the weights", **values)
        if name not in shapes:
            raise UsageError("{where}: {name} does not belong to this model", **values)
        if (shape := tuple(weights[name].shape)) != shapes[name]:
            sentence = N_("{where}: {name} has shape {found!s:.60}, this model needs {needed}")
            raise UsageError(sentence.format(**values, found=shape, needed=shapes[name]))
        if not weights[name].isfinite().all():
            raise UsageError("{where}: {name} contains numbers that are not finite", **values)


def warn_on_stderr(line: str) -> None:
    """Print one line to standard error."""
    print(f"vitral: {printable(_(line))}", file=sys.stderr)


# ---------------------------------------------------------------- the film

APART = 1.05
"""A curve has losses of steps that are at least so many times the step before."""


def load_frame(sealed: SealedRun, shape: Transformer, step: int, film: Mapping[int, str]) -> Transformer:
    """A frame of a run's film in evaluation mode: numbers of float16, in the precision and on the device of its model.

    Args:
        sealed: the run.
        shape: its model.
        step: of the frame.
        film: `sealed.film()`.

    Raises:
        UsageError: there is no such frame, or it is damaged.
    """
    name, hashed = frame_name(step), film.get(step)
    path = sealed.path / name
    if hashed is None:
        raise UsageError("{path}: the run's film has no such frame", path=path)
    model = like(shape)
    with understood(path):
        load_weights(model, of_tensors(sealed.as_sealed(name, hashed, MOST_BYTES)), str(path))
    return model


def curve(run: RunFolder, event: str, key: str) -> list[list[float]]:
    """The [step, loss] of a run's events of a kind, as close as a logarithmic axis shows them.

    The last event and those at frames of the film always have a point. The loss of an event "step" is that of the
    weights before the update, so its point is at the step before.

    Raises:
        UsageError: the log is damaged.
    """
    points, events, frames = list[list[float]](), run.metrics(event), run.film()
    with understood(run.log.path):
        for each in events:
            step, loss = each["step"] - (event == "step"), round(each[key], 4)
            is_wanted = not points or each is events[-1] or each["step"] in frames or step >= APART * points[-1][0]
            if is_wanted and math.isfinite(step + loss):
                points.append([step, loss])
    return points
