"""Starting a run, and going on with one."""

from pathlib import Path
from typing import Any

import torch

from vitral.core.devices import resolve_device, weight_dtype
from vitral.core.errors import UsageError
from vitral.data import Dataset, prepare
from vitral.data.tokenizers import tokenizer_from_plain
from vitral.evaluation import NgramLines
from vitral.model import Transformer, count_parameters
from vitral.model.selfcheck import check_device
from vitral.runs import RunFolder, load_run, refuse_existing
from vitral.runs.checkpoint import sweep
from vitral.runs.environment import describe_environment
from vitral.runs.loading import load_weights
from vitral.training.config import RunConfig
from vitral.training.events import Reporter, silent
from vitral.training.loop import Progress, Session, describe_corpus, run_steps
from vitral.training.optimizers import build_optimizer, load_optimizer_tensors
from vitral.training.plans import settle
from vitral.training.stopping import stop_on_signals


def train(
    config: RunConfig,
    out: Path,
    *,
    reporter: Reporter = silent,
    dataset: Dataset | None = None,
    lines: NgramLines | None = None,
    init_from: Path | None = None,
) -> RunFolder:
    """Train a model as `config` says, in a new run folder.

    Args:
        config: the whole run.
        out: the folder to make.
        reporter: is told every event (`vitral.training.events`).
        dataset: the prepared corpus, if it is at hand; else it is prepared from `config.corpus`.
        lines: its n-gram lines, if they are at hand; else they are counted before the first evaluation.
        init_from: a run whose best weights and whose tokenizer training starts from (fine-tuning).

    Raises:
        UsageError: something in `config` cannot be, or `out` exists.
        TrainingStopped: a number was not finite.
        StorageError: the disk did not take what was written.
    """
    refuse_existing(out)
    source = None if init_from is None else load_run(init_from)
    if dataset is None:
        dataset = prepare(config.corpus, tokenizer=None if source is None else source.tokenizer)
    elif source is not None and dataset.tokenizer.plain() != source.tokenizer.plain():
        raise UsageError(f"--init-from {init_from}: the text was tokenized otherwise; tokens must mean the same")
    vocab_size = dataset.tokenizer.vocab_size
    settled = settle(config, lambda config: build_model(config, vocab_size), len(dataset.parts["train"].tokens))
    config = settled.config
    for line in settled.notes:
        reporter({"event": "note", "text": line})
    model = build_model(config, vocab_size)
    if source is not None:
        load_weights(model, source.model.state_dict(), f"--init-from {init_from}")
    optimizer = build_optimizer(model, config.training.optimizer)
    session = Session(config, dataset, model, optimizer, RunFolder(out), reporter, lines=lines)
    documents = {
        "environment": {**describe_environment(), "plan": list(settled.notes)},
        "corpus": describe_corpus(dataset, lines),
        "tokenizer": dataset.tokenizer.plain(),
    }
    session.folder = RunFolder.create(out, complete(config), documents)
    return _go(session)


def resume(path: Path, *, reporter: Reporter = silent) -> RunFolder:
    """Go on with a run from its last checkpoint, bit for bit as if it had never stopped.

    Raises:
        UsageError: not a run, already finished, or its text has changed.
        TrainingStopped: a number was not finite.
        StorageError: the disk did not take what was written.
    """
    folder = RunFolder.open(path)
    config = RunConfig.parse(folder.config, f"{path}/config.toml")
    sweep(folder.steps)
    checkpoint = folder.load("last", warn=lambda line: reporter({"event": "note", "text": line}))
    if checkpoint.step >= config.training.steps:
        raise UsageError(f"{path}: finished at step {checkpoint.step}; for more, vitral train --init-from {path}")
    tokenizer = tokenizer_from_plain(folder.document("tokenizer"))
    dataset = prepare(config.corpus, tokenizer=tokenizer)
    if dataset.fingerprint != checkpoint.state["corpus"]:
        raise UsageError(f"{path}: the text {config.corpus.source!r} is not the one this run began with")
    model = build_model(config, tokenizer.vocab_size)
    load_weights(model, dict(checkpoint.model), str(path))
    optimizer = build_optimizer(model, config.training.optimizer)
    load_optimizer_tensors(model, optimizer, checkpoint.optimizer, str(path))
    remembered = {key: checkpoint.state[key] for key in Progress().plain()}
    folder.rewind(checkpoint.step, remembered["best_step"])
    known = folder.document("corpus").get("ngrams")
    lines = None if known is None else NgramLines.from_plain(known)
    progress = Progress(step=checkpoint.step, **remembered)
    return _go(Session(config, dataset, model, optimizer, folder, reporter, progress, lines))


def build_model(config: RunConfig, vocab_size: int) -> Transformer:
    """The model of a run with its initial numbers, on the run's device and in its precision.

    Raises:
        UsageError: the device is not there, or does not compute what the CPU computes.
    """
    device = resolve_device(config.training.device)
    model = Transformer(config.model, vocab_size, seed=config.seed)
    if device.type != "cpu":
        check_device(model, device)
    return model.to(device=device, dtype=weight_dtype(config.training.dtype))


def complete(config: RunConfig) -> dict[str, Any]:
    """The configuration with what was left to be found out: the device, the widths."""
    plain = config.plain()
    plain["training"]["device"] = resolve_device(config.training.device).type
    plain["model"] |= {"d_ff": config.model.hidden_width, "num_kv_heads": config.model.kv_heads}
    return plain


def _go(session: Session) -> RunFolder:
    """Announce, train, and give the folder."""
    config = session.config
    with stop_on_signals() as request:
        session.reporter(
            {
                "event": "start",
                "step": session.progress.step,
                "steps": config.training.steps,
                "parameters": count_parameters(config.model, session.dataset.tokenizer.vocab_size),
                "vocab_size": session.dataset.tokenizer.vocab_size,
                "tokens": {name: len(part.tokens) for name, part in session.dataset.parts.items()},
                "device": session.device.type,
                "dtype": config.training.dtype,
                "threads": torch.get_num_threads(),
                "out": str(session.folder.path),
            }
        )
        if session.lines is not None:
            session.reporter({"event": "lines", "ngrams": session.lines.plain()})
        run_steps(session, request)
    return session.folder
