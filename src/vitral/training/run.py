"""Start a run, and resume one."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from vitral.core.checked import checked
from vitral.core.devices import resolve_device, weight_dtype
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.core.machine import cores
from vitral.core.process import only_training, too_few_cores, using_threads
from vitral.data import Dataset, prepare, prepare_recorded
from vitral.evaluation import NgramBaselines
from vitral.model import Transformer, count_parameters
from vitral.model.selfcheck import check_device, fresh_excess
from vitral.runs import Checkpoint, Identity, LoadedRun, Parent, RunConfig, RunFolder, SealedRun, enter, load_run
from vitral.runs.checkpoint import FORMAT
from vitral.runs.environment import describe_environment, environment_differences
from vitral.runs.folder import refuse_existing
from vitral.runs.gate import identity_in
from vitral.runs.identity import document_hash, new_identity
from vitral.runs.loading import load_checkpoint_of, load_weights
from vitral.runs.lock import only_writer
from vitral.training.deadline import Deadline, TimeFrame
from vitral.training.events import Callback, Event, silent
from vitral.training.inherited import inherit_weights, inherited_config, require_inherited
from vitral.training.loop import run_steps, save
from vitral.training.memory import require_training_memory
from vitral.training.optimizers import build_optimizer, load_optimizer_tensors
from vitral.training.parts import accepted_changes, require_same_parts
from vitral.training.plans import ResolvedPlan, given_threads, resolve_plan
from vitral.training.stopping import stop_on_signals
from vitral.training.trainer import Planner, Trainer, TrainerState, chain_from_anchor

MOST_EXCESS = 0.5
"""A fresh model whose loss on random tokens is larger than ln V by more than this is noted."""


class FinishedRun(UsageError):
    """A run that is asked to go on, and has finished."""


@checked(first=True)
def train(
    config: RunConfig,
    out: Path,
    *,
    callback: Callback = silent,
    dataset: Dataset | None = None,
    baselines: NgramBaselines | None = None,
    init_from: Path | LoadedRun | None = None,
    planner: Planner | None = None,
    frame: TimeFrame | None = None,
) -> RunFolder:
    """Train a model in a new run folder.

    With `training.minutes` the run ends within this time, and its steps are planned again while it is trained
    (`vitral.training.deadline`), unless a planner is given.

    Args:
        config: the run's complete configuration.
        out: the run folder to create.
        callback: receives every event (`vitral.training.events`).
        dataset: the prepared corpus; None prepares it from `config.corpus`.
        baselines: its n-gram baselines; None counts them before the first evaluation.
        init_from: a run to fine-tune: training starts from its best weights, or from the checkpoint that is loaded, and
            uses its tokenizer, to which tokens for new characters are appended.
        planner: may change steps, schedule and threads while training (`vitral.training.trainer.Planner`).
        frame: the time that counts as `training.minutes` besides this call; None: no other.

    Raises:
        UsageError: the configuration cannot be used, or `out` exists.
        TrainingStopped: a number was not finite.
        StorageError: a file could not be written.
    """
    refuse_existing(out)
    _refuse_later_begin(config)
    minutes, frame = config.training.minutes, frame or TimeFrame()
    deadline = None if minutes is None else Deadline(minutes, frame)
    with only_training():
        source = load_run(init_from) if isinstance(init_from, Path) else init_from
        if dataset is None:
            dataset = prepare(config.corpus, tokenizer=None if source is None else source.tokenizer, grow=True)
        if source is not None:
            require_inherited(dataset, source)
            config = inherited_config(config, dataset.tokenizer)
        require_same_parts(config, "config")
        require_training_memory(config, dataset.tokenizer.vocab_size, "config")
        may_change_threads = config.training.threads is None and given_threads(config.training) is None
        resolved = resolved_plan(config, dataset, deadline)
        for line in (*dataset.remarks, *resolved.notes):
            callback({"event": "note", "text": line})
        config = complete(resolved.config)
        with using_threads(config.training.threads):
            trainer = _new_trainer(config, dataset, source, RunFolder(out), callback)
            trainer.began = frame.began
            trainer.baselines, trainer.planner = baselines, planner
            if deadline is not None:
                keep(deadline, trainer, resolved.seconds, may_change_threads=may_change_threads)
            return begin(trainer, resolved.notes, minutes, _parent(source))


def _new_trainer(
    config: RunConfig, dataset: Dataset, source: LoadedRun | None, folder: RunFolder, callback: Callback
) -> Trainer:
    """A trainer at step 0, with random weights or those of another run."""
    model = build_model(config, dataset.tokenizer.vocab_size)
    if source is not None:
        inherit_weights(model, source)
    optimizer = build_optimizer(model, config.training.optimizer)
    return Trainer(config, dataset, model, optimizer, folder, callback, initial_state(dataset))


def _refuse_later_begin(config: RunConfig) -> None:
    if config.training.schedule.begin is not None:
        raise UsageError("training.schedule.begin: only a run that continues another has it; leave it out")


def begin(
    trainer: Trainer,
    plan: Sequence[str],
    minutes: float | None,
    parent: Parent | None,
    opening: Sequence[Event] = (),
) -> RunFolder:
    """Create the run's folder and train.

    Args:
        trainer: at the first step; its folder does not exist yet.
        plan: the notes of its execution plan.
        minutes: its time, if it has one.
        parent: the checkpoint whose weights it starts from, if any.
        opening: events to begin the log with, if there is a parent.
    """
    documents = _documents(trainer, plan, minutes)
    to_seal = {name: document for name, document in documents.items() if name != "environment"}
    identity = new_identity(trainer.config, documents["corpus"], documents["tokenizer"], to_seal, parent)
    trainer.identity, trainer.environment = identity, document_hash(documents["environment"])
    documents = {**documents, "run": {"format": FORMAT, **identity.plain()}}
    out = trainer.folder.path

    def save_initial_weights(folder: RunFolder) -> None:
        trainer.folder = folder
        for event in opening:
            folder.append_metric(event)
        save(trainer)

    with stop_on_signals() as trainer.request:
        # Weights of another run cannot be drawn again from the configuration, so a run without them must not exist.
        first = None if parent is None else save_initial_weights
        trainer.folder = RunFolder.create(out, trainer.config.plain(), documents, first)
        with only_writer(out):
            if parent is None:
                _note_excess(trainer)
            return _start(trainer)


def _note_excess(trainer: Trainer) -> None:
    """Note that a fresh model begins with a loss far from ln V."""
    excess, vocab_size = fresh_excess(trainer.model), trainer.model.vocab_size
    if excess <= MOST_EXCESS:
        return
    sentence = N_(
        "before its first step, the model's loss on random tokens is {loss:,.2f} nats per token instead of about "
        "ln {vocab_size:,} = {usual:.2f}: its initial logits are too large, and the first steps are spent on making "
        "them smaller; see model.initialisation"
    )
    usual = math.log(vocab_size)
    trainer.note(sentence.format(loss=usual + excess, vocab_size=vocab_size, usual=usual))


def _documents(trainer: Trainer, plan: Sequence[str], minutes: float | None) -> dict[str, dict[str, Any]]:
    """The JSON files of a new run by name without suffix, except its identity."""
    time = {} if minutes is None else {"minutes": minutes}
    return {
        "environment": {**describe_environment(), "plan": list(plan), **time},
        "corpus": {"format": FORMAT, **trainer.dataset.describe()},
        "tokenizer": trainer.dataset.tokenizer.plain(),
        **({} if trainer.baselines is None else {"ngrams": trainer.baselines.plain()}),
    }


def resolved_plan(config: RunConfig, dataset: Dataset, deadline: Deadline | None) -> ResolvedPlan:
    """The configuration with its execution plan."""
    tokens = {name: len(split.tokens) for name, split in dataset.splits.items()}
    held_out = [tokens[name] for name in ("validation", "test")]
    vocab_size = dataset.tokenizer.vocab_size
    return resolve_plan(
        config,
        lambda config: build_model(config, vocab_size),
        tokens["train"],
        held_out,
        seconds_left=None if deadline is None else deadline.left(),
        judged=True,
    )


def _parent(source: LoadedRun | None) -> Parent | None:
    """The checkpoint that a new run starts from."""
    if source is None:
        return None
    checkpoint = source.checkpoint
    return Parent(run=source.sealed.identity.run, step=checkpoint.step, manifest=checkpoint.manifest)


@checked(first=True)
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

    def warn(line: str) -> None:
        callback({"event": "note", "text": line})

    frame = frame or TimeFrame()
    RunFolder.open(path)
    with only_writer(path), only_training():
        RunFolder.open(path).sweep()
        sealed = enter(path, warn)
        sealed.require_text()
        _refuse_changes(sealed)
        _compare_machines(sealed, warn, strict=strict)
        sources = accepted_changes(sealed.config, str(path), accept=changed_parts)
        checkpoint = None
        if sealed.newest is None:
            warn(N_("stopped before its first checkpoint: starting again at step 0, with the same random numbers"))
        else:
            checkpoint = last_checkpoint(sealed, warn)
        with using_threads(identity_of(sealed, checkpoint).current_threads):
            trainer = restored(sealed, checkpoint, callback, corpus)
            trainer.planner, trainer.began = planner, frame.began
            if (minutes := _minutes(sealed)) is not None:
                history = {} if checkpoint is None else checkpoint.history
                deadline = Deadline(minutes, frame, float(history.get("seconds", 0.0)))
                keep(deadline, trainer, None, may_change_threads=False)
            return _continue(trainer, sealed, checkpoint, warn, sources)


def _minutes(sealed: SealedRun) -> float | None:
    """The minutes of a run; None without."""
    try:
        minutes = sealed.document("environment").get("minutes")
    except UsageError:
        return None  # the gate has said that it is damaged
    return float(minutes) if isinstance(minutes, int | float) and not isinstance(minutes, bool) else None


def keep(deadline: Deadline, trainer: Trainer, expected: float | None, *, may_change_threads: bool) -> None:
    """Let a trainer keep a deadline, unless another planner decides; its checkpoints record the time."""
    trainer.spent = deadline.used
    if trainer.planner is None:
        deadline.begin(trainer, expected, may_change_threads=may_change_threads)
        trainer.planner = deadline


def _continue(
    trainer: Trainer,
    sealed: SealedRun,
    checkpoint: Checkpoint | None,
    warn: Callable[[str], object],
    sources: Mapping[str, str],
) -> RunFolder:
    """Rewind the folder to the checkpoint and train on, with other sources of own parts if there are any."""
    where = trainer.folder.path
    if checkpoint is not None:
        _refuse_finished(trainer, checkpoint)
    if chain_from_anchor(trainer) != trainer.state.chain:
        began = trainer.state.anchor_step
        raise UsageError(
            "{where}: the batches of steps {began} to {step} differ from those the run was trained "
            "on; its text or the version of Vitral has changed",
            where=where,
            began=began + 1,
            step=trainer.state.step,
        )
    with stop_on_signals() as trainer.request:
        torn = trainer.folder.rewind(checkpoint)
        if torn:
            warn(N_("metrics.jsonl: an incomplete last line of {bytes:,} bytes was removed").format(bytes=torn))
        _adopt(trainer, sealed)
        if sources:
            trainer.decide({"parts": dict(sources)})
        if checkpoint is None:
            _note_excess(trainer)
        return _start(trainer)


def _compare_machines(sealed: SealedRun, warn: Callable[[str], object], *, strict: bool) -> None:
    """Say in one line that other bits may result here than where the run began.

    Raises:
        UsageError: `strict`, and this machine differs.
    """
    threads = sealed.identity.current_threads
    if sealed.config.training.device == "cpu" and (slower := too_few_cores(threads, cores())):
        warn(slower)
    try:
        recorded = sealed.document("environment")
    except UsageError:
        return  # the gate has said that it is damaged
    found = environment_differences(recorded, describe_environment(), sealed.config.training.device)
    if found and strict:
        raise UsageError(
            "{path}: --strict: {found}; the bits may differ", path=sealed.folder.path, found="; ".join(found)
        )
    if found:
        differences = "; ".join(found)
        warn(_("this machine differs from the one the run began on ({found}): the bits may differ", found=differences))


def _refuse_changes(sealed: SealedRun) -> None:
    """Refuse a configuration that differs from the sealed one in a key that affects the numbers."""
    where = sealed.folder.path
    if sealed.changed:
        raise UsageError(
            "{where}/config.toml: changed since the run began ({changed}); vitral doctor --repair "
            "{where} restores it, vitral train --init-from {where} starts another run",
            where=where,
            changed="; ".join(sealed.changed),
        )


def last_checkpoint(sealed: SealedRun, warn: Callable[[str], object]) -> Checkpoint:
    """The newest intact checkpoint.

    Raises:
        UsageError: every checkpoint is damaged, or the log differs from the checkpoint's seal.
    """
    where = sealed.folder.path
    checkpoint = load_checkpoint_of(sealed, "last", with_optimizer=True, warn=warn)
    missing = sorted({*TrainerState().plain(), "corpus", "config"} - checkpoint.state.keys())
    if missing:
        raise UsageError(
            "{where}: {key} is missing in state.json of step {step}",
            where=where,
            key=missing[0],
            step=checkpoint.step,
        )
    seal = checkpoint.history.get("metrics")
    if seal is not None and (complaint := sealed.folder.log.complaint(seal)):
        raise UsageError(
            "{where}/metrics.jsonl: {complaint}; vitral doctor --repair {where} cuts it",
            where=where,
            complaint=complaint,
        )
    return checkpoint


def identity_of(sealed: SealedRun, checkpoint: Checkpoint | None) -> Identity:
    """The identity at a checkpoint: decisions later than it have not affected it, and are taken again."""
    if checkpoint is None or checkpoint.format == 1:
        return sealed.identity
    return Identity.parse(identity_in(checkpoint.state), f"{sealed.folder.path}: step {checkpoint.step}")


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
    folder, where = sealed.folder, str(sealed.folder.path)
    identity = identity_of(sealed, checkpoint)
    config = sealed.with_free_keys(identity.current)
    require_training_memory(config, sealed.tokenizer.vocab_size, where)
    dataset = prepare_recorded(
        config.corpus, sealed.document("corpus"), tokenizer=sealed.tokenizer, run_folder=folder.path, corpus=corpus
    )
    known = folder.ngrams(identity.plain() if sealed.format > 1 else {})
    model = build_model(config, dataset.tokenizer.vocab_size)
    optimizer = build_optimizer(model, config.training.optimizer)
    baselines = None if known is None else NgramBaselines.from_plain(known)
    trainer = Trainer(config, dataset, model, optimizer, folder, callback, initial_state(dataset), baselines)
    trainer.identity, trainer.environment = identity, _environment_hash(folder, checkpoint)
    if checkpoint is None:
        return trainer
    if checkpoint.state["corpus"] != dataset.fingerprint:
        raise UsageError(
            "{where}: the text {source!r} is not the one of step {step}",
            where=where,
            source=config.corpus.source,
            step=checkpoint.step,
        )
    load_weights(model, dict(checkpoint.model), where)
    load_optimizer_tensors(model, trainer.optimizer, checkpoint.optimizer, where)
    remembered = {key: checkpoint.state[key] for key in TrainerState().plain()}
    trainer.state = TrainerState(step=checkpoint.step, **remembered)
    trainer.saved = checkpoint.step
    return trainer


def _environment_hash(folder: RunFolder, checkpoint: Checkpoint | None) -> str:
    """The sealed hash of environment.json, so that damage to the file is not sealed again."""
    if checkpoint is not None and "environment" in checkpoint.history:
        return str(checkpoint.history["environment"])
    return document_hash(folder.document("environment", {}))


def _adopt(trainer: Trainer, sealed: SealedRun) -> None:
    """Give a run of format 1 the files of format 2; its next checkpoint seals them."""
    if sealed.format > 1:
        return
    if trainer.baselines is not None:
        trainer.folder.write_document("ngrams", trainer.baselines.plain())
        trainer.seal_document("ngrams", trainer.baselines.plain())
    trainer.folder.write_document("run", {"format": FORMAT, **trainer.identity.plain()})


def initial_state(dataset: Dataset) -> TrainerState:
    """The state at step 0; the batch chain starts from the text's fingerprint."""
    return TrainerState(chain=dataset.fingerprint, anchor=dataset.fingerprint)


def _refuse_finished(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Refuse a finished run; a run killed after its last checkpoint is resumed, to finish it properly."""
    done = checkpoint.step >= trainer.config.training.steps and not checkpoint.state["pending"]
    if done and any(event["finished"] for event in trainer.folder.metrics("end")):
        trainer.folder.tidy(checkpoint, keep=trainer.config.training.keep_checkpoints)
        where = trainer.folder.path
        raise FinishedRun(
            "{where}: finished at step {step}; to train it for longer: vitral continue {where} --minutes 10",
            where=where,
            step=checkpoint.step,
        )


def build_model(config: RunConfig, vocab_size: int) -> Transformer:
    """The model of a run with its initial weights, on the run's device and in its precision.

    Raises:
        UsageError: the device does not exist, or its results differ from the CPU's.
    """
    device = resolve_device(config.training.device)
    model = Transformer(config.model, vocab_size, seed=config.seed)
    if device.type != "cpu":
        check_device(model, device)
    return model.to(device=device, dtype=weight_dtype(config.training.dtype))


def complete(config: RunConfig) -> RunConfig:
    """The configuration with defaults filled in that depend on the machine or on other keys: device, widths."""
    widths = {"d_ff": config.model.hidden_width, "num_kv_heads": config.model.kv_heads}
    device = {"device": resolve_device(config.training.device).type}
    model, training = config.model.model_copy(update=widths), config.training.model_copy(update=device)
    return config.model_copy(update={"model": model, "training": training})


def _start(trainer: Trainer) -> RunFolder:
    config = trainer.config
    trainer.tell(
        {
            "event": "start",
            "step": trainer.state.step,
            "steps": config.training.steps,
            "objective": config.training.plain()["objective"],
            "parameters": count_parameters(config.model, trainer.dataset.tokenizer.vocab_size),
            "vocab_size": trainer.dataset.tokenizer.vocab_size,
            "tokens": {name: len(split.tokens) for name, split in trainer.dataset.splits.items()},
            "device": trainer.device.type,
            "dtype": config.training.dtype,
            "threads": torch.get_num_threads(),
            "out": str(trainer.folder.path),
        }
    )
    if trainer.baselines is not None:
        trainer.tell({"event": "lines", "ngrams": trainer.baselines.plain()})
    run_steps(trainer)
    return trainer.folder
