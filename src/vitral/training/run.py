"""Start a run, and resume one."""

from pathlib import Path
from typing import Any

import torch

from vitral.core.config import differences
from vitral.core.devices import resolve_device, weight_dtype
from vitral.core.errors import UsageError
from vitral.data import Dataset, prepare
from vitral.data.tokenizers import tokenizer_from_plain
from vitral.evaluation import NgramBaselines
from vitral.model import Transformer, count_parameters
from vitral.model.selfcheck import check_device
from vitral.runs import Checkpoint, RunFolder, load_run, refuse_existing
from vitral.runs.checkpoint import sweep
from vitral.runs.config import RunConfig, comparable
from vitral.runs.environment import describe_environment
from vitral.runs.loading import load_weights, needed_shapes
from vitral.runs.lock import only_writer
from vitral.training.events import Callback, silent
from vitral.training.loop import run_steps, save
from vitral.training.optimizers import build_optimizer, load_optimizer_tensors
from vitral.training.plans import resolve_plan
from vitral.training.stopping import stop_on_signals
from vitral.training.trainer import Trainer, TrainerState, chain_from_anchor, describe_corpus


def train(
    config: RunConfig,
    out: Path,
    *,
    callback: Callback = silent,
    dataset: Dataset | None = None,
    baselines: NgramBaselines | None = None,
    init_from: Path | None = None,
) -> RunFolder:
    """Train a model in a new run folder.

    Args:
        config: the run's complete configuration.
        out: the run folder to create.
        callback: receives every event (`vitral.training.events`).
        dataset: the prepared corpus; None prepares it from `config.corpus`.
        baselines: its n-gram baselines; None counts them before the first evaluation.
        init_from: a run to fine-tune: training starts from its best weights and uses its tokenizer.

    Raises:
        UsageError: the configuration cannot be used, or `out` exists.
        TrainingStopped: a number was not finite.
        StorageError: a file could not be written.
    """
    refuse_existing(out)
    source = None if init_from is None else load_run(init_from)
    if dataset is None:
        dataset = prepare(config.corpus, tokenizer=None if source is None else source.tokenizer)
    elif source is not None and dataset.tokenizer.plain() != source.tokenizer.plain():
        raise UsageError(
            f"--init-from {init_from}: the text was tokenized with another tokenizer; use the one of that run"
        )
    vocab_size = dataset.tokenizer.vocab_size
    tokens = {name: len(split.tokens) for name, split in dataset.splits.items()}
    most = config.training.evaluation_tokens
    held_out = sum(tokens[name] if most is None else min(tokens[name], most) for name in ("validation", "test"))
    resolved = resolve_plan(config, lambda config: build_model(config, vocab_size), tokens["train"], held_out)
    config = complete(resolved.config)
    for line in resolved.notes:
        callback({"event": "note", "text": line})
    model = build_model(config, vocab_size)
    if source is not None:
        load_weights(model, source.model.state_dict(), f"--init-from {init_from}")
    optimizer = build_optimizer(model, config.training.optimizer)
    trainer = Trainer(
        config, dataset, model, optimizer, RunFolder(out), callback, initial_state(dataset), baselines=baselines
    )
    documents = {
        "environment": {**describe_environment(), "plan": list(resolved.notes)},
        "corpus": describe_corpus(dataset, baselines),
        "tokenizer": dataset.tokenizer.plain(),
    }

    def save_initial_weights(folder: RunFolder) -> None:
        trainer.folder = folder
        save(trainer, best=False)

    with stop_on_signals() as trainer.request:
        # Weights of another run cannot be drawn again from the configuration, so a run without them must not exist.
        begin = None if source is None else save_initial_weights
        trainer.folder = RunFolder.create(out, config.plain(), documents, begin)
        with only_writer(out):
            return _start(trainer)


def resume(path: Path, *, callback: Callback = silent) -> RunFolder:
    """Resume a run from its last checkpoint, bit for bit as if it had never stopped.

    Raises:
        UsageError: not a run, already finished, in use by another process, or its text, configuration or batches have
            changed.
        TrainingStopped: a number was not finite.
        StorageError: a file could not be written.
    """
    folder = RunFolder.open(path)
    with only_writer(path):
        sweep(folder.steps)
        config = RunConfig.parse(folder.config, f"{path}/config.toml")
        tokenizer = tokenizer_from_plain(folder.document("tokenizer"))
        checkpoint = _last_checkpoint(folder, config, tokenizer.vocab_size, callback)
        if checkpoint is not None:
            _refuse_finished(folder, config, checkpoint)
            _refuse_changes(path, config, checkpoint)
        dataset = prepare(config.corpus, tokenizer=tokenizer)
        trainer = restored(folder, config, dataset, checkpoint, callback)
        if chain_from_anchor(trainer) != trainer.state.chain:
            began = trainer.state.anchor_step
            raise UsageError(
                f"{path}: the batches of steps {began + 1} to {trainer.state.step} differ from those the run was "
                "trained on; its text or the version of Vitral has changed"
            )
        with stop_on_signals() as trainer.request:
            state = trainer.state
            folder.rewind(state.step, state.best_step, redo=state.pending)
            return _start(trainer)


def _or_unset(value: Any) -> Any:
    return "unset" if value is None else value


def restored(
    folder: RunFolder, config: RunConfig, dataset: Dataset, checkpoint: Checkpoint | None, callback: Callback
) -> Trainer:
    """A trainer restored from the checkpoint, or at step 0 without one.

    Raises:
        UsageError: the checkpoint belongs to another text or model.
    """
    where = str(folder.path)
    model = build_model(config, dataset.tokenizer.vocab_size)
    optimizer = build_optimizer(model, config.training.optimizer)
    known = folder.document("corpus").get("ngrams")
    baselines = None if known is None else NgramBaselines.from_plain(known)
    if checkpoint is None:
        return Trainer(config, dataset, model, optimizer, folder, callback, initial_state(dataset), baselines)
    if dataset.fingerprint != checkpoint.state["corpus"]:
        raise UsageError(f"{where}: the text {config.corpus.source!r} is not the one this run was started with")
    load_weights(model, dict(checkpoint.model), where)
    load_optimizer_tensors(model, optimizer, checkpoint.optimizer, where)
    remembered = {key: checkpoint.state[key] for key in TrainerState().plain()}
    state = TrainerState(step=checkpoint.step, **remembered)
    return Trainer(config, dataset, model, optimizer, folder, callback, state, baselines, saved=checkpoint.step)


def initial_state(dataset: Dataset) -> TrainerState:
    """The state at step 0; the batch chain starts from the text's fingerprint."""
    return TrainerState(chain=dataset.fingerprint, anchor=dataset.fingerprint)


def _last_checkpoint(folder: RunFolder, config: RunConfig, vocab_size: int, callback: Callback) -> Checkpoint | None:
    """The newest intact checkpoint; None if the run was stopped before it wrote one.

    Raises:
        UsageError: every checkpoint is damaged.
    """

    def warn(line: str) -> None:
        callback({"event": "note", "text": line})

    if not any(folder.steps.iterdir()):
        warn("stopped before its first checkpoint: starting again at step 0, with the same random numbers")
        return None
    checkpoint = folder.load("last", shapes=needed_shapes(config.model, vocab_size, str(folder.path)), warn=warn)
    missing = sorted({*TrainerState().plain(), "corpus", "config"} - checkpoint.state.keys())
    if missing:
        raise UsageError(f"{folder.path}: {missing[0]} is missing in state.json of step {checkpoint.step}")
    return checkpoint


def _refuse_finished(folder: RunFolder, config: RunConfig, checkpoint: Checkpoint) -> None:
    """Refuse a finished run; a run killed after its last checkpoint is resumed, to finish it properly."""
    done = checkpoint.step >= config.training.steps and not checkpoint.state["pending"]
    if done and any(event["finished"] for event in folder.metrics("end")):
        where = folder.path
        raise UsageError(
            f"{where}: finished at step {checkpoint.step}; to train further, use vitral train --init-from {where}"
        )


def _refuse_changes(path: Path, config: RunConfig, checkpoint: Checkpoint) -> None:
    """Refuse a configuration that differs from the checkpoint's in a key that affects the numbers."""
    found = differences(checkpoint.state["config"], comparable(config))
    changes = [f"{key}: {_or_unset(before)} → {_or_unset(now)}" for key, before, now in found]
    if changes:
        raise UsageError(
            f"{path}/config.toml: changed since step {checkpoint.step} ({'; '.join(changes)}); restore it, or start "
            f"another run with vitral train --init-from {path}"
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
    trainer.callback(
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
        trainer.callback({"event": "lines", "ngrams": trainer.baselines.plain()})
    run_steps(trainer)
    return trainer.folder
