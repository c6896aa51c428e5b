"""What probes measure along a training: at the checkpoints that a run has kept, on sequences of its generated task."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from jaxtyping import Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data.tasks import Task
from vitral.inspection import untrained
from vitral.inspection.windows import read_windows, window_starts
from vitral.model import Transformer
from vitral.runs import load_run, trajectory
from vitral.studies.probe import Plain, Trained

TaskKind = TypeVar("TaskKind", bound=Task)


def task_rows(trained: Trained, kind: type[TaskKind], most: int) -> tuple[TaskKind, Int[Tensor, "rows span"]]:
    """The generated task of a run, and at most so many of its test sequences, evenly spread.

    Raises:
        UsageError: the run is of another task or a text, or its context is shorter than a sequence.
    """
    task, length = trained.dataset.config.task, trained.run.model.config.context_length
    if not isinstance(task, kind):
        name = kind.model_fields["name"].default
        raise UsageError("{arm} is not trained on the task {task!r}", arm=trained.arm, task=name)
    if length < task.span - 1:
        raise UsageError(
            "{arm} reads {length} tokens, and a sequence of its task has {span}",
            arm=trained.arm,
            length=length,
            span=task.span,
        )
    test = trained.dataset.splits["test"]
    return task, read_windows(test, window_starts(test, task.span, most, stride=task.span), task.span)


def along_training(trained: Trained, look: Callable[[Transformer], Plain]) -> list[Plain]:
    """What a function finds in the model before training and at every checkpoint that the run has kept.

    Each has the `step` besides. Before training, a run that began from another's weights has those.

    Raises:
        UsageError: a checkpoint, or the run with the first weights, cannot be loaded.
    """
    model = trained.run.model
    begun = untrained(model, trained.run.config["seed"]) if trained.parent is None else _last_of(trained.parent, model)
    first = {"step": 0, **look(begun)}
    return [first, *({"step": step, **look(model)} for step, model in trajectory(trained.run) if step)]


def _last_of(path: Path, like: Transformer) -> Transformer:
    """The model of a finished run, on the device and in the precision of another."""
    return load_run(path, "last").model.to(like.token_embedding.weight).eval()


def half_way(curve: Sequence[tuple[float, float | None]], least: float) -> float | None:
    """The first place at which a curve has gone half of its way from its first to its last value.

    It is found by a straight line between two points. None where a value is missing, or where the way is shorter than
    `least`.

    >>> half_way([(0, 4.0), (10, 3.0), (20, 1.0), (30, 0.0)], least=1.0)
    15.0
    """
    known = [(place, value) for place, value in curve if value is not None]
    if len(known) < max(2, len(curve)) or abs(known[-1][1] - known[0][1]) < least:
        return None
    way, half = known[-1][1] - known[0][1], (known[-1][1] + known[0][1]) / 2
    for (before, low), (after, high) in pairwise(known):
        if (high - half) * way >= 0:
            return before if high == low else before + (after - before) * (half - low) / (high - low)
    return None
