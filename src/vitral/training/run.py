"""Start a run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vitral.core.config import shown
from vitral.core.devices import resolve_device, weight_dtype
from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.core.machine import keep_all_freed_memory
from vitral.core.parts import changed_parts
from vitral.core.process import launch_name, only_training, using_threads
from vitral.data import SPLITS, Dataset, corpus_report, prepare, prepare_recorded
from vitral.data.tokenizers import Tokenizer, extends
from vitral.evaluation import NgramBaselines
from vitral.evaluation.losses import reading_of_config
from vitral.model import Transformer, count_parameters
from vitral.model.transformer import check_device
from vitral.runs import LoadedRun, Parent, RunConfig, RunFolder, is_run, load_run
from vitral.runs.checkpoint import FORMAT
from vitral.runs.config import comparable
from vitral.runs.environment import describe_environment
from vitral.runs.folder import refuse_existing
from vitral.runs.identity import document_hash, new_identity
from vitral.runs.loading import load_weights
from vitral.runs.lock import only_writer
from vitral.training import ranks
from vitral.training.costs import require_training_memory
from vitral.training.deadline import Deadline, TimeFrame, TimeLimit
from vitral.training.events import Callback, Event, noting, silent
from vitral.training.loop import run_steps, save
from vitral.training.optimizers import load_optimizer_tensors, optimizer_tensors
from vitral.training.plans import FIT, ResolvedPlan, resolve_plan
from vitral.training.stopping import stop_on_signals
from vitral.training.trainer import Planner, Trainer, TrainerState
from vitral.training.views import film_note

MOST_REPORTED = 1 << 23
"""Characters of a text whose problems are said before training; those of a longer one would keep it waiting."""


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
    if ranks.leads():
        refuse_existing(out)
    if config.training.schedule.begin is not None:
        raise UsageError("training.schedule.begin: only a run that continues another has it; leave it out")
    ranks.require_same(N_("what is asked for"), repr([comparable(config), str(init_from)]))
    if not ranks.leads():
        return follow()
    config = with_reduction(config)
    ranks.require_share(config, "config")
    minutes, frame = config.training.minutes, frame or TimeFrame()
    with only_training():
        source = load_run(init_from) if isinstance(init_from, Path) else init_from
        if dataset is None:
            dataset = prepare(config.corpus, tokenizer=None if source is None else source.tokenizer, grow=True)
        if source is not None:
            config = inherited_config(config, dataset, source)
        require_same_parts(config, "config")
        if config.training.objective == "label":
            config = _labelled(config, dataset, source)
        dataset = _judged(dataset, config, SPLITS if source is None else SPLITS[:1])  # a tuned model keeps its context
        resolved = resolved_plan(config, dataset, frame)
        problems = [N_("problem: {text}").format(text=each) for each in dataset.problems]
        about_text = [*problems, *dataset.remarks, *dataset.notes] if config.training.watch else []
        for line in (*about_text, *resolved.decisions):
            noting(callback)(line)
        config = complete(resolved.config)
        with using_threads(config.training.threads):
            model = build_model(config, dataset.tokenizer.vocab_size)
            if source is not None:
                inherit_weights(model, source)
            trainer = Trainer(config, dataset, model, RunFolder(out), callback, baselines=baselines, planner=planner)
            keep(trainer, frame, minutes)
            return begin(trainer, resolved.notes, minutes, source and source.sealed.as_parent(source.checkpoint))


def _labelled(config: RunConfig, dataset: Dataset, source: LoadedRun | None) -> RunConfig:
    """The configuration with the number of labels.

    Raises:
        UsageError: the run whose weights are the initial ones has other labels.
    """
    if source is not None and (known := source.sealed.document("corpus").get("labels")) != dataset.labels:
        raise UsageError(
            "--init-from {where}: its labels are {known}, and those of the text {found}; they must be the same",
            where=source.folder.path,
            known=shown(known),
            found=shown(dataset.labels),
        )
    return config.model_copy(update={"model": config.model.model_copy(update={"num_labels": len(dataset.labels)})})


def _judged(dataset: Dataset, config: RunConfig, splits: Sequence[str]) -> Dataset:
    """The dataset with its problems for a loss; refused if one of the splits has no window of the context's length.

    Records that are longer than the model reads are named.
    """
    reading = reading_of_config(config.model)
    for name in splits:
        split = dataset.splits[name]
        if not reading.counts(split).any():
            raise UsageError(reading.refusal(split))
    if dataset.answers is not None:
        lost = sum(int((~reading.fits(split)).sum()) for split in dataset.splits.values())
        note = N_("Records that are longer than the model reads, and left out: {number:,}.").format(number=lost)
        dataset = replace(dataset, notes=(*dataset.notes, *([note] if lost else [])))
    if dataset.text.characters > MOST_REPORTED:
        return dataset
    text = dataset.load_text().text
    report = corpus_report(dataset, text, context_length=reading, batch_size=config.training.batch_size)
    return replace(dataset, problems=report.loss_problems, notes=(*dataset.notes, *report.loss_notes))


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
    corpus, tokenizer = {"format": FORMAT, **trainer.dataset.describe()}, trainer.dataset.tokenizer.plain()
    counted = {} if trainer.baselines is None else {"ngrams": trainer.baselines.plain()}
    documents = {"corpus": corpus, "tokenizer": tokenizer, **counted}
    time = {} if minutes is None else {"minutes": minutes}
    launch = {"launch": name} if (name := launch_name()) else {}
    environment = {**describe_environment(), "plan": list(plan), **time, **launch}
    share(trainer, corpus)
    identity = new_identity(trainer.config, documents, parent)
    trainer.identity, trainer.environment = identity, document_hash(environment)
    documents |= {"environment": environment, "run": {"format": FORMAT, **identity.plain()}}
    out = trainer.folder.path

    def save_initial_weights(folder: RunFolder) -> None:
        trainer.folder = folder
        for event in opening:
            folder.append_metric(event)
        save(trainer, together=False)

    with stop_on_signals() as trainer.request:
        # Weights of another run cannot be drawn again from the configuration, so a run without them must not exist.
        first = None if parent is None else save_initial_weights
        trainer.folder = RunFolder.create(out, trainer.config.plain(), documents, first)
        with only_writer(out):
            return run_to_the_end(trainer)


def share(trainer: Trainer, corpus: Mapping[str, Any]) -> None:
    """Give the run to the other ranks, before anything is written.

    Args:
        trainer: at the next step.
        corpus: the text's record, `corpus.json`.

    Raises:
        UsageError: the ranks cannot share the batches of a step.
    """
    ranks.require_share(trainer.config, str(trainer.folder.path))
    if ranks.size() == 1:
        return
    tensors = optimizer_tensors(trainer.model, trainer.optimizer)
    ranks.broadcast(
        {
            "config": trainer.config.plain(),
            "corpus": dict(corpus),
            "tokenizer": trainer.dataset.tokenizer.plain(),
            "folder": str(trainer.folder.path.absolute()),
            "threads": torch.get_num_threads(),
            "state": {"step": trainer.state.step, **trainer.state.plain()},
            "optimizer": [[name, [*one.shape], str(one.dtype).split(".")[1]] for name, one in tensors.items()],
        }
    )
    ranks.require_same(N_("the text"), trainer.dataset.fingerprint)
    ranks.broadcast_tensors({**trainer.model.state_dict(), **tensors})


def follow(corpus: str | None = None) -> RunFolder:
    """Train as any rank but 0: what rank 0 tells (`share`), on this machine's text.

    Args:
        corpus: the text, if this machine has it elsewhere.

    Raises:
        UsageError: the text or a part of the user's own is not that of rank 0.
    """
    with only_training(), using_threads(None), stop_on_signals() as request:
        about = ranks.broadcast()
        config, where = RunConfig.parse(about["config"]), Path(about["folder"])
        torch.set_num_threads(about["threads"])
        require_same_parts(config, str(where))
        tokenizer = Tokenizer(about["tokenizer"])
        dataset = prepare_recorded(config.corpus, about["corpus"], tokenizer=tokenizer, run_folder=where, corpus=corpus)
        model = build_model(config, tokenizer.vocab_size, str(where))
        state, folder = TrainerState(**about["state"]), ranks.SilentFolder(where)
        trainer = Trainer(config, dataset, model, folder, silent, state, request=request)
        trainer.identity = new_identity(config, {name: about[name] for name in ("corpus", "tokenizer")})
        ranks.require_same(N_("the text"), dataset.fingerprint)
        tensors = {name: torch.empty(shape, dtype=getattr(torch, kind)) for name, shape, kind in about["optimizer"]}
        ranks.broadcast_tensors({**model.state_dict(), **tensors})
        load_optimizer_tensors(model, trainer.optimizer, tensors, str(where))
        return run_to_the_end(trainer)


def how_far_begun(folder: Path) -> str | None:
    """How far the ranks of this launcher have come with a run before it started them anew; None if they have not."""
    name = launch_name()
    if not name or not is_run(folder) or RunFolder.open(folder).document("environment").get("launch") != name:
        return None
    ends = RunFolder.open(folder).metrics("end")
    return "finished" if ends and ends[-1]["finished"] else "stopped"


def resolved_plan(config: RunConfig, dataset: Dataset, frame: TimeFrame) -> ResolvedPlan:
    """The configuration with its execution plan."""
    minutes = config.training.minutes
    tokens = {name: len(split.tokens) for name, split in dataset.splits.items()}
    if dataset.answers is not None:  # a step is whole records, filled up to the context
        tokens = {name: len(split.segments) * config.model.context_length for name, split in dataset.splits.items()}
    return resolve_plan(
        config,
        partial(build_model, vocab_size=dataset.tokenizer.vocab_size),
        tokens["train"],
        [tokens[name] for name in SPLITS[1:]],
        seconds_left=None if minutes is None else TimeLimit(minutes, frame).left(),
    )


def keep(trainer: Trainer, frame: TimeFrame, minutes: float | None, spent: float = 0.0) -> None:
    """Let a trainer keep its minutes, if any, unless another planner decides; its checkpoints record the time."""
    trainer.began = frame.began
    if minutes is not None:
        limit = TimeLimit(minutes, frame, spent)
        trainer.spent = limit.used
        trainer.planner = trainer.planner or Deadline(trainer, limit)


def build_model(config: RunConfig, vocab_size: int, where: str = "config") -> Transformer:
    """The model of a run with its initial weights, on the run's device and in its precision.

    Args:
        config: of the run.
        vocab_size: number of tokens in the vocabulary.
        where: the file or option that asks for its training, whose memory is asked for first.

    Raises:
        UsageError: training needs more memory than there is; the device does not exist, or its results differ from the
            CPU's.
    """
    require_training_memory(config, vocab_size, where)
    device = resolve_device(config.training.device)
    model = Transformer(config.model, vocab_size, seed=config.seed)
    if device.type == "cpu":
        keep_all_freed_memory()
    else:
        check_device(model, device)
    return model.to(device=device, dtype=weight_dtype(config.training.dtype))


def complete(config: RunConfig) -> RunConfig:
    """The configuration with defaults filled in that depend on the machine or on other keys."""
    widths = {"d_ff": config.model.hidden_width, "num_kv_heads": config.model.kv_heads}
    config = config.model_copy(update={"model": config.model.model_copy(update=widths)})
    return with_reduction(config).with_training(device=resolve_device(config.training.device).type)


def with_reduction(config: RunConfig) -> RunConfig:
    """The configuration with the order in which gradients are added, where there are several batches in a step."""
    if config.training.accumulation == 1 or config.training.reduction is not None:
        return config
    return config.with_training(reduction="canonical")


def run_to_the_end(trainer: Trainer) -> RunFolder:
    """Train from the trainer's step to the last one, after an event with the sizes of the run."""
    config = trainer.config
    trainer.notify(
        {
            "event": "start",
            "step": trainer.state.step,
            "steps": config.training.steps,
            "objective": config.training.plain()["objective"],
            "parameters": count_parameters(config.model, trainer.model.vocab_size),
            "vocab_size": trainer.model.vocab_size,
            "tokens": {name: len(split.tokens) for name, split in trainer.dataset.splits.items()},
            "device": trainer.device.type,
            "dtype": config.training.dtype,
            "threads": torch.get_num_threads(),
            "ranks": ranks.size(),
            "out": str(trainer.folder.path),
        }
    )
    trainer.notify_baselines()
    if config.training.film:
        noting(trainer.notify)(film_note(trainer))
    if trainer.is_sharded:
        trainer.shard()
    run_steps(trainer)
    return trainer.folder


BY_TOKEN = {"token_embedding.weight", "head.weight", "head.bias"}
"""Tensors with one row for each token of the vocabulary."""


def inherited_config(config: RunConfig, dataset: Dataset, source: LoadedRun) -> RunConfig:
    """The configuration with every special token of the tokenizer, those of the other run included.

    Raises:
        UsageError: the text was tokenized by other means than the run's tokenizer or one that has grown from it, or the
            configuration asks for another size of the model.
    """
    if not extends(dataset.tokenizer, source.tokenizer):
        where = source.folder.path
        raise UsageError(
            "--init-from {where}: the text was tokenized with another tokenizer; use the one of that run", where=where
        )
    if config.training.plan == FIT:
        raise UsageError('training.plan: "fit" chooses the size of a new model; with --init-from use "auto"')
    corpus = config.corpus.model_copy(update={"specials": tuple(dataset.tokenizer.declared) or None})
    return config.model_copy(update={"corpus": corpus})


def inherit_weights(model: Transformer, source: LoadedRun) -> None:
    """Load the weights of another run; rows of tokens that it does not have keep their initial values.

    Raises:
        UsageError: the models differ in more than the size of the vocabulary.
    """
    weights = dict(source.model.state_dict())
    if model.vocab_size > source.model.vocab_size:
        own = model.state_dict()
        for name in own.keys() & weights.keys() & BY_TOKEN:
            former = weights[name]
            if former.shape[1:] == own[name].shape[1:]:  # other widths are refused below
                own[name][: len(former)] = former
                weights[name] = own[name]
    load_weights(model, weights, f"--init-from {source.folder.path}")


def require_same_parts(config: RunConfig, where: str, *, accept: bool = False) -> dict[str, str]:
    """The own parts of a run whose source is another than the recorded one: the new hash by kind and name.

    Raises:
        UsageError: a part is not registered, or is another and that is not accepted.
    """
    changed = changed_parts(config, where)
    if changed and not accept:
        raise UsageError(
            "{where}: the source of {key} is another than the recorded one, so that the next steps may be others; "
            "register that one, or leave its file and sha256 out of a new configuration; vitral resume "
            "--changed-parts goes on with a stopped run, and records the source",
            where=where,
            key=min(changed),
        )
    return changed
