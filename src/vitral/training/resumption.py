"""Resume a run from its last checkpoint."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.core.machine import cores, processor
from vitral.core.process import only_training, using_threads
from vitral.evaluation import NgramBaselines
from vitral.runs import Checkpoint, Identity, RunFolder, SealedRun, enter
from vitral.runs.checkpoint import understood
from vitral.runs.config import with_free_keys
from vitral.runs.environment import describe_environment, environment_differences
from vitral.runs.identity import document_hash, identity_in
from vitral.runs.loading import load_weights, require_model_memory
from vitral.runs.lock import only_writer
from vitral.training import ranks
from vitral.training.deadline import TimeFrame
from vitral.training.events import Callback, noting, silent
from vitral.training.optimizers import load_optimizer_tensors
from vitral.training.run import (
    build_model,
    follow,
    keep,
    require_same_parts,
    run_to_the_end,
    share,
)
from vitral.training.stopping import stop_on_signals
from vitral.training.trainer import Planner, Trainer, TrainerState, link


class FinishedRun(UsageError):
    """A run that is asked to go on, and has finished."""


def resume(
    path: Path,
    *,
    callback: Callback = silent,
    corpus: str | None = None,
    strict: bool = False,
    changed_parts: bool = False,
    planner: Planner | None = None,
    frame: TimeFrame | None = None,
) -> RunFolder:
    """Resume a run from its last checkpoint, bit for bit as if it had never stopped.

    The arithmetic uses the recorded number of threads. Nothing is downloaded. A run with minutes gets the rest of them.

    Args:
        path: the run's folder.
        callback: receives every event (`vitral.training.events`).
        corpus: the run's text, if it is no longer where it was: a file, a folder or a name.
        strict: whether to refuse another processor or PyTorch than before, with which other bits may result.
        changed_parts: whether to go on although the source of an own part has changed; the new one is recorded.
        planner: as for `train`; decisions that the run has taken already are taken again without it.
        frame: as for `train`.

    Raises:
        UsageError: not a run, already finished, in use by another process, or its text, configuration or batches have
            changed.
        TrainingStopped: a number was not finite.
        StorageError: a file could not be written.
    """
    ranks.require_same(N_("what is asked for"), repr(["resume", changed_parts, strict]))
    if strict:
        ranks.require_same(N_("the processor"), str(processor()))
    if not ranks.leads():
        return follow(corpus)
    frame, warn = frame or TimeFrame(), noting(callback)
    folder = RunFolder.open(path)
    with only_writer(path), only_training():
        folder.sweep()
        sealed = enter(path, warn)
        sealed.require_text()
        _compare_machines(sealed, warn, strict=strict)
        sources = require_same_parts(sealed.config, str(path), accept=changed_parts)
        checkpoint = sealed.newest and last_checkpoint(sealed, warn)
        if checkpoint is None:
            warn(N_("stopped before its first checkpoint: starting again at step 0, with the same random numbers"))
        identity = identity_of(sealed, checkpoint)
        with using_threads(identity.current_threads):
            trainer = restored(sealed, checkpoint, callback, corpus)
            trainer.planner = planner
            history = {} if checkpoint is None else checkpoint.history
            keep(trainer, frame, _environment(sealed).get("minutes"), float(history.get("seconds", 0.0)))
            if checkpoint is not None and trainer.is_finished:
                trainer.folder.tidy(checkpoint, keep=trainer.config.training.keep_checkpoints)
                raise FinishedRun(
                    "{where}: finished at step {step}; to train it for longer: vitral continue {where} --minutes 10",
                    where=path,
                    step=checkpoint.step,
                )
            require_same_batches(trainer)
            share(trainer, sealed.document("corpus"))
            with stop_on_signals() as trainer.request:
                trainer.folder.rewind(checkpoint)
                if sources:
                    trainer.decide({"parts": dict(sources)})
                return run_to_the_end(trainer)


def _environment(sealed: SealedRun) -> Mapping[str, Any]:
    """What the run recorded when it began; nothing if that is damaged, as has been said."""
    try:
        return sealed.document("environment")
    except UsageError:
        return {}


def require_same_batches(trainer: Trainer) -> None:
    """Refuse to go on with other batches than those of the latest steps, which are drawn again.

    Raises:
        UsageError: they differ.
    """
    state = trainer.state
    chain = state.anchor
    for step in range(state.anchor_step, state.step):
        for micro in range(trainer.config.training.accumulation):
            chain = link(chain, *trainer.batches.batch(step, micro))
    if chain != state.chain:
        raise UsageError(
            "{where}: the batches of steps {began} to {step} differ from those the run was trained "
            "on; its text or the version of Vitral has changed",
            where=trainer.folder.path,
            began=state.anchor_step + 1,
            step=state.step,
        )


def _compare_machines(sealed: SealedRun, warn: Callable[[str], object], *, strict: bool) -> None:
    """Say in one line that other bits may result here than where the run began.

    Raises:
        UsageError: `strict`, and this machine or that of another rank differs.
    """
    threads = sealed.identity.current_threads
    if sealed.config.training.device == "cpu" and threads > cores():
        slower = N_("recorded with more threads ({threads}) than cores here ({cores}): slower, the same bits")
        warn(slower.format(threads=threads, cores=cores()))
    recorded = _environment(sealed)
    if recorded and (
        differences := environment_differences(recorded, describe_environment(), sealed.config.training.device)
    ):
        listed = "; ".join(differences)
        if strict:
            raise UsageError("{path}: --strict: {found}; the bits may differ", path=sealed.path, found=listed)
        warn(_("this machine differs from the one the run began on ({found}): the bits may differ", found=listed))


def last_checkpoint(sealed: SealedRun, warn: Callable[[str], object]) -> Checkpoint:
    """The newest intact checkpoint.

    Raises:
        UsageError: every checkpoint is damaged, or the log differs from the checkpoint's seal.
    """
    require_model_memory(sealed.config.model, sealed.tokenizer.vocab_size, str(sealed.path))
    checkpoint = sealed.load(warn=warn)
    sealed.log.require(checkpoint.history["metrics"])
    return checkpoint


def identity_of(sealed: SealedRun, checkpoint: Checkpoint | None) -> Identity:
    """The identity at a checkpoint: decisions later than it have not affected it, and are taken again."""
    if checkpoint is None:
        return sealed.identity
    return identity_in(checkpoint.state, f"{sealed.path}: step {checkpoint.step}")


def restored(
    sealed: SealedRun, checkpoint: Checkpoint | None, callback: Callback, corpus: str | None = None
) -> Trainer:
    """A trainer restored from the checkpoint, or at step 0 without one.

    Args:
        sealed: the run.
        checkpoint: with the optimizer's tensors.
        callback: receives every event.
        corpus: the run's text, if it is no longer where it was.

    Raises:
        UsageError: the text is not that of the run, or the checkpoint belongs to another model.
    """
    where, identity = str(sealed.path), identity_of(sealed, checkpoint)
    config = with_free_keys(identity.current, sealed.config)
    dataset = replace(sealed.dataset(corpus), problems=tuple(sealed.document("corpus").get("problems", ())))
    is_counted = "ngrams.json" in identity.documents
    model = build_model(config, dataset.tokenizer.vocab_size, where)
    baselines = NgramBaselines.from_plain(sealed.document("ngrams")) if is_counted else None
    trainer = Trainer(config, dataset, model, RunFolder(sealed.path), callback, baselines=baselines)
    history = {} if checkpoint is None else checkpoint.history  # its hash: damage to the file is not sealed again
    environment = history.get("environment") or document_hash(sealed.document("environment"))
    trainer.identity, trainer.environment = identity, environment
    if checkpoint is None:
        return trainer
    load_weights(model, checkpoint.model, where)
    load_optimizer_tensors(model, trainer.optimizer, checkpoint.optimizer, where)
    with understood(sealed.path):
        remembered = {key: checkpoint.state[key] for key in TrainerState().plain()}
    trainer.state = TrainerState(step=checkpoint.step, **remembered)
    trainer.saved = checkpoint.step
    return trainer
