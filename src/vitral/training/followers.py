"""What a rank other than 0 does: it follows the orders of rank 0, and computes its batches of each step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vitral.core.errors import TrainingStopped, UsageError
from vitral.core.guarded import GuardedFolder
from vitral.core.process import only_training, using_threads
from vitral.data import prepare_recorded
from vitral.data.tokenizers import tokenizer_from_plain
from vitral.runs import RunFolder
from vitral.runs.config import RunConfig
from vitral.runs.identity import Decision, decided
from vitral.training.events import silent
from vitral.training.loop import not_finite_state, one_step
from vitral.training.memory import require_training_memory
from vitral.training.optimizers import load_optimizer_tensors, optimizer_of, optimizer_tensors
from vitral.training.parts import require_same_parts
from vitral.training.ranks import Ranks
from vitral.training.run import build_model
from vitral.training.stopping import stop_on_signals
from vitral.training.trainer import Trainer, TrainerState


def follow(team: Ranks, corpus: str | None = None) -> RunFolder:
    """Follow rank 0 until its training is over; return the run's folder, which only rank 0 writes to.

    Args:
        team: the ranks.
        corpus: the run's text, if this machine has it elsewhere.

    Raises:
        UsageError: the text or a part of the user's own is not that of rank 0.
        RankLost: another rank failed or no longer answers.
    """
    with only_training(), using_threads(None), stop_on_signals() as request:
        about = team.told()
        with team.answering():
            trainer = _trainer(about, corpus)
        trainer.request = request
        team.receive_tensors(trainer.model.state_dict())
        found = team.receive_named()
        load_optimizer_tensors(trainer.model, trainer.optimizer, found, str(trainer.folder.path))
        del found
        trainer.share_out()
        for order in team.orders():
            _obey(trainer, team, order)
        return trainer.folder


def _obey(trainer: Trainer, team: Ranks, order: Mapping[str, Any]) -> None:
    match order["order"]:
        case "step":
            _step(trainer)
        case "decide":
            _decide(trainer, order["decision"])
        case "verify":
            team.compare(everything(trainer), trainer.held.distinct)
        case "finite":
            not_finite_state(trainer)
        case "write":
            writer = trainer.held.writer
            assert writer is not None
            writer.write(GuardedFolder(order["folder"]), optimizer_tensors(trainer.held, trainer.optimizer))
        case "try":
            trainer.held.try_folder(GuardedFolder(order["folder"]), order["shown"])
        case _:
            trainer.held.complete()


def everything(trainer: Trainer) -> dict[str, torch.Tensor]:
    """What this rank holds of weights and the optimizer's state, by name."""
    held = trainer.held
    return {**held.parameters, **held.weights(), **optimizer_tensors(held, trainer.optimizer)}


def _trainer(about: Mapping[str, Any], corpus: str | None) -> Trainer:
    """A trainer of the run that rank 0 leads, with this machine's text."""
    config, where = RunConfig.parse(about["config"]), Path(about["folder"])
    torch.set_num_threads(about["threads"])
    require_same_parts(config, str(where))
    tokenizer = tokenizer_from_plain(about["tokenizer"])
    require_training_memory(config, tokenizer.vocab_size, str(where))
    dataset = prepare_recorded(config.corpus, about["corpus"], tokenizer=tokenizer, run_folder=where, corpus=corpus)
    if dataset.fingerprint != about["fingerprint"]:
        raise UsageError("{source!r}: not the text that rank 0 has", source=config.corpus.source)
    model = build_model(config, tokenizer.vocab_size)
    optimizer = optimizer_of(model, config.training)
    state = TrainerState(step=about["step"], chain=about["chain"])
    return Trainer(config, dataset, model, optimizer, RunFolder(where), silent, state)


def _step(trainer: Trainer) -> None:
    try:
        loss, _, _ = one_step(trainer)
    except TrainingStopped:
        return  # rank 0 has the same numbers, saves the step before, and says so
    trainer.state.complete_step(loss)


def _decide(trainer: Trainer, plain: Mapping[str, Any]) -> None:
    decision = Decision.parse(plain, "decision")
    trainer.config = decided(trainer.config, decision)
    if decision.threads is not None:
        torch.set_num_threads(decision.threads)
