"""Continue a finished run in a new folder: weights and optimizer carried over, a schedule of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.core.process import only_training, using_threads
from vitral.runs import Checkpoint, RunConfig, RunFolder, SealedRun, enter, refuse_existing
from vitral.runs.folder import DUE
from vitral.runs.optimizers import MuonConfig, OptimizerConfig
from vitral.training import ranks
from vitral.training.deadline import TimeFrame
from vitral.training.events import Callback, noting, silent
from vitral.training.optimizers import load_optimizer_tensors
from vitral.training.resumption import identity_of, last_checkpoint, require_same_batches, restored
from vitral.training.run import begin, complete, follow, keep, require_same_parts, resolved_plan
from vitral.training.trainer import Trainer

WARMUP = 0.05
"""Share of the new steps in which a rate that had decayed rises again."""
PEAK = 0.5
"""Their highest rate as a share of the parent's, where that had decayed (measured: docs/internals/experiments.md)."""


def continue_run(
    path: Path,
    out: Path,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    threads: int | None = None,
    callback: Callback = silent,
    corpus: str | None = None,
    frame: TimeFrame | None = None,
) -> RunFolder:
    """Train a finished run for longer, in a new run folder that records it as its parent.

    Weights, optimizer and step numbers go on from the parent's last checkpoint, with the same text, tokenizer, seed
    and batches. A constant learning rate stays as it is, so that the result equals a single longer run. Any other has
    decayed: it rises again in the first 5 % of the new steps to half its former peak, then follows the same schedule
    down; a second continuation keeps that peak. The first checkpoint and the first evaluation are the parent's last, so
    that the best checkpoint of the new folder is never worse than them.

    Args:
        path: the parent's folder, which does not change.
        out: the run folder to create.
        minutes: time for the new steps; give this or `steps`.
        steps: number of new steps.
        threads: threads of the processor; the parent's if None.
        callback: receives every event (`vitral.training.events`).
        corpus: the parent's text, if it is no longer where it was: a file, a folder or a name.
        frame: as for `train`.

    Raises:
        UsageError: not a run, not finished, its text is not found or has changed, or `out` exists.
        TrainingStopped: a number was not finite.
        StorageError: a file could not be written.
    """
    ranks.require_same(N_("what is asked for"), repr(["continue", minutes, steps, threads]))
    if not ranks.leads():
        return follow(corpus)
    if (minutes is None) == (steps is None):
        enter(path, lambda _line: None).require_text()  # of an imported model, no number of minutes would help
        raise UsageError("continue: give either minutes or a number of steps, as in --minutes 10")
    refuse_existing(out)
    frame, note = frame or TimeFrame(), noting(callback)
    with only_training():
        sealed = enter(path, note)
        sealed.require_text()
        checkpoint = _finished(sealed, note)
        require_same_parts(sealed.config, str(path))
        threads = threads or identity_of(sealed, checkpoint).current_threads
        with using_threads(threads):
            parent = restored(sealed, checkpoint, silent, corpus)
            require_same_batches(parent)
            schedule = parent.config.training.schedule.model_copy(update={"begin": None})  # counted from 0 again
            new = {"threads": threads, "minutes": minutes, "steps": 1 if steps is None else steps, "schedule": schedule}
            plan = resolved_plan(_with(parent.config, **new), parent.dataset, frame)
            config = complete(continued(plan.config, parent.config, parent.state.step)).watched()
            training = config.training
            sentence = N_(
                "continue: steps {first:,} to {last:,}; the learning rate is at most {highest:g} ({schedule})"
            ).format(
                first=parent.state.step + 1,
                last=training.steps,
                schedule=training.schedule.name,
                highest=training.optimizer.learning_rate,
            )
            for line in (*plan.decisions, sentence):
                note(line)
            state = replace(parent.state, loss_sum=0.0, loss_count=0, best_loss=None, best_step=None)
            trainer = Trainer(config, parent.dataset, parent.model, RunFolder(out), callback, state, parent.baselines)
            load_optimizer_tensors(trainer.model, trainer.optimizer, checkpoint.optimizer, str(path))
            keep(trainer, frame, minutes)
            return begin(trainer, plan.notes, minutes, sealed.as_parent(checkpoint), _opening(sealed, trainer))


def continued(config: RunConfig, former: RunConfig, step: int) -> RunConfig:
    """The configuration of a run that goes on where another ended.

    Args:
        config: that of the new steps alone, with its plan.
        former: that of the parent.
        step: completed steps of the parent.
    """
    new, training = config.training.steps, former.training
    is_constant = training.schedule.name == "constant"
    warmup = 0 if is_constant else round(WARMUP * new)
    factor = 1.0 if is_constant or training.schedule.begin is not None else PEAK
    return _with(
        config,
        steps=step + new,
        schedule=training.schedule.model_copy(update={"begin": step, "warmup_steps": warmup}),
        optimizer=_scaled(training.optimizer, factor),
        evaluation_tokens=training.evaluation_tokens,  # so that losses can be compared with the parent's last
    )


def _finished(sealed: SealedRun, note: Callable[[str], object]) -> Checkpoint:
    """The last checkpoint of a finished run, with its optimizer.

    Raises:
        UsageError: the run is not finished.
    """
    checkpoint = sealed.newest and last_checkpoint(sealed, note)
    steps = identity_of(sealed, checkpoint).current.training.steps
    if checkpoint is None or checkpoint.step < steps or checkpoint.state.get("pending"):
        raise UsageError(
            "{where}: stopped at step {step:,} of {steps:,}; finish it first: vitral resume {where}",
            where=sealed.path,
            step=checkpoint.step if checkpoint else 0,
            steps=steps,
        )
    return checkpoint


def _with(config: RunConfig, **training: Any) -> RunConfig:
    """A configuration with other values in `[training]`, checked as if they were written there."""
    return RunConfig.parse(config.with_training(**training).plain(), "continue")


def _scaled(optimizer: OptimizerConfig, factor: float) -> OptimizerConfig:
    """An optimizer with all its learning rates multiplied."""
    changes: dict[str, Any] = {"learning_rate": factor * optimizer.learning_rate}
    if isinstance(optimizer, MuonConfig):
        changes["rest"] = _scaled(optimizer.rest, factor)
    return optimizer.model_copy(update=changes)


def _opening(sealed: SealedRun, trainer: Trainer) -> Sequence[Mapping[str, Any]]:
    """The parent's measurements at its last step, which becomes the best one of the new run."""
    events = [event for event in sealed.metrics() if event.get("step") == trainer.state.step]
    measured = [event for event in events if event["event"] in DUE]
    for event in measured:
        if event["event"] == "evaluation":
            trainer.state.note_validation_loss(event["validation_loss"])
    return measured
