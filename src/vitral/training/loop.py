"""The training loop: batches to losses to gradients to steps, and what is measured, written and kept on the way."""

import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vitral.core.devices import precision
from vitral.core.errors import TrainingStopped
from vitral.core.streams import ambient_stream
from vitral.data import Dataset
from vitral.data.batches import Batches
from vitral.data.store import thinned
from vitral.decoding import Sampling, generate
from vitral.evaluation import NgramBaselines, evaluate_split, ngram_baselines
from vitral.model import Transformer, next_token_loss
from vitral.runs import Checkpoint, RunFolder
from vitral.training.config import RunConfig, comparable
from vitral.training.events import Callback, Event
from vitral.training.objectives import make_inputs, masking_of
from vitral.training.optimizers import Optimizers, optimizer_tensors
from vitral.training.plans import compiled
from vitral.training.schedules import learning_rate
from vitral.training.stopping import StopAsked, StopRequest

SAMPLE_TEMPERATURE = 0.8
ADVICE = "try a lower learning rate or training.clip_norm = 1.0"
ANCHOR_EVERY = 1000
"""Steps after which the chain of batches is remembered anew: so many are drawn again at most to check it."""


@dataclass
class TrainerState:
    """What a run has come to: all that a resume must put back, besides weights and optimizer.

    Attributes:
        step: optimizer steps done.
        loss_sum: sum of the training losses since the last evaluation.
        loss_count: how many those are.
        best_loss: lowest validation loss so far.
        best_step: the step it was measured at.
        pending: whether what is due at this step, evaluation and sample, is still to be done.
        chain: SHA-256 of the chain before it and the next batch, in hexadecimal: of every batch so far, in order.
        anchor_step: a step at most ANCHOR_EVERY back.
        anchor: the chain there.
    """

    step: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    best_loss: float | None = None
    best_step: int | None = None
    pending: bool = False
    chain: str = ""
    anchor_step: int = 0
    anchor: str = ""

    def plain(self) -> dict[str, Any]:
        """As plain data, for state.json."""
        return {
            "loss_sum": self.loss_sum,
            "loss_count": self.loss_count,
            "best_loss": self.best_loss,
            "best_step": self.best_step,
            "pending": self.pending,
            "chain": self.chain,
            "anchor_step": self.anchor_step,
            "anchor": self.anchor,
        }


@dataclass
class Trainer:
    """One process's work on a run."""

    config: RunConfig
    dataset: Dataset
    model: Transformer
    optimizer: Optimizers
    folder: RunFolder
    callback: Callback
    progress: TrainerState = field(default_factory=TrainerState)
    lines: NgramBaselines | None = None
    request: StopRequest = field(default_factory=StopRequest)
    saved: int | None = None

    def __post_init__(self) -> None:
        """Make the batches, which refuse a text that is too short; find the blank, if the objective needs one."""
        self.batches = Batches(
            self.dataset.splits["train"],
            context_length=self.config.model.context_length,
            batch_size=self.config.training.batch_size,
            seed=self.config.seed,
        )
        self.masking = masking_of(self.config.training.objective, self.dataset.tokenizer)
        self.device = self.model.token_embedding.weight.device
        self.forward = compiled(self.model, self.warn) if self.config.training.compile else self.model

    def emit(self, event: Event) -> None:
        """Write an event to metrics.jsonl and show it."""
        self.folder.append_metric(event)
        self.callback(event)

    def warn(self, line: str) -> None:
        """Say in one line that something is not as it should be."""
        self.callback({"event": "note", "text": line})

    def count_baselines(self) -> None:
        """Count the text's n-gram lines, unless they are known, and show them.

        Training does not need them: they are counted when there is a first loss to compare with them.
        """
        if self.lines is None:
            parts = self.dataset.splits
            vocab_size = self.dataset.tokenizer.vocab_size
            self.lines = ngram_baselines(parts["train"], parts["test"], vocab_size, tick=self.request.check)
            self.folder.write_document("corpus", describe_corpus(self.dataset, self.lines))
            self.callback({"event": "lines", "ngrams": self.lines.plain()})


def describe_corpus(dataset: Dataset, lines: NgramBaselines | None) -> dict[str, Any]:
    """The text, and what counting achieves on it where that is known, as plain data for corpus.json."""
    return dataset.describe() if lines is None else {**dataset.describe(), "ngrams": lines.plain()}


def run_steps(trainer: Trainer) -> bool:
    """Train from where the run is to its last step; gives whether it got there.

    Raises:
        TrainingStopped: a loss, a gradient, a weight or the optimizer's state is not finite; nothing of that step was
            applied, and what was trained before it is saved.
    """
    training, progress, began, stepped = trainer.config.training, trainer.progress, time.perf_counter(), time.time()
    meter = _Meter(trainer.config.tokens_per_step)
    try:
        if progress.pending:
            after_step(trainer)
        while progress.step < training.steps and not trainer.request.asked:
            loss, norm, rate = one_step(trainer)
            progress.step += 1
            progress.loss_sum, progress.loss_count = progress.loss_sum + loss, progress.loss_count + 1
            meter.count()
            first = progress.step - 1 == trainer.saved  # what vitral doctor computes again
            if progress.step % training.log_every == 0 or progress.step == training.steps or first:
                numbers = {"loss": loss, "learning_rate": rate, "gradient_norm": norm}
                speed = round(meter.speed(), 1)
                trainer.emit({"event": "step", "step": progress.step, **numbers, "tokens_per_second": speed})
            stepped = time.time()
            with meter.paused():
                after_step(trainer)
    except StopAsked:
        pass
    except TrainingStopped as stopped:
        _keep_what_was_trained(trainer, str(stopped))
        raise
    finished = progress.step >= training.steps and not progress.pending
    if not finished:
        save(trainer, best=False)
    seconds = round(time.perf_counter() - began, 3)
    end = {"event": "end", "step": progress.step, "finished": finished, "seconds": seconds}
    trainer.emit({**end, "stepped": round(stepped, 3)})
    return finished


class _Meter:
    """Tokens a second, pauses left out."""

    def __init__(self, tokens_per_step: int) -> None:
        self._tokens, self._steps, self._since = tokens_per_step, 0, time.perf_counter()

    def count(self) -> None:
        """One more step."""
        self._steps += 1

    def speed(self) -> float:
        """Since it was last asked."""
        now = time.perf_counter()
        speed = self._steps * self._tokens / max(now - self._since, 1e-9)
        self._steps, self._since = 0, now
        return speed

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What goes on inside is no training: evaluating, writing."""
        began = time.perf_counter()
        yield
        self._since += time.perf_counter() - began


def _keep_what_was_trained(trainer: Trainer, reason: str) -> None:
    """Save the step before the one that failed, if all its numbers are finite, and note why training stopped."""
    if trainer.saved != trainer.progress.step and not_finite_state(trainer) is None:
        save(trainer, best=False)
    trainer.emit({"event": "stopped", "step": trainer.progress.step, "reason": reason.split(";")[0]})


def one_step(trainer: Trainer) -> tuple[float, float, float]:
    """Gradients of one step's batches, checked, clipped and applied; gives loss, gradient norm, learning rate.

    Raises:
        TrainingStopped: the loss, a gradient, a weight or the optimizer's state is not finite; nothing was applied.
        StopAsked: somebody asked to stop between two of the step's batches; nothing was applied.
    """
    training, step = trainer.config.training, trainer.progress.step
    trainer.optimizer.zero_grad()
    losses, chain = [], trainer.progress.chain
    for micro in range(training.accumulation):
        if micro:
            trainer.request.check()
        loss, chain = backward(trainer, step, micro, chain)
        losses.append(loss)
    loss = sum(losses, start=torch.zeros(()))
    gradients = [p.grad for p in trainer.model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    loss_value, norm_value = float(loss), float(norm)
    state = not_finite_state(trainer)
    if state is not None or not math.isfinite(loss_value) or not math.isfinite(norm_value):
        raise TrainingStopped(_what_is_not_finite(trainer, loss_value, norm_value, state))
    if training.clip_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(trainer.model.parameters(), training.clip_norm, norm)
    for group in trainer.optimizer.param_groups:
        group["lr"] = learning_rate(training.schedule, group["peak"], step, training.steps)
    trainer.optimizer.step()
    trainer.progress.chain = chain
    if (step + 1) % ANCHOR_EVERY == 0:
        trainer.progress.anchor_step, trainer.progress.anchor = step + 1, chain
    return loss_value, norm_value, trainer.optimizer.param_groups[0]["lr"]


def link(chain: str, inputs: Tensor, targets: Tensor) -> str:
    """The chain of batches with one more: SHA-256 of the chain so far and the batch, in hexadecimal."""
    digest = hashlib.sha256(chain.encode("ascii"))
    for part in (inputs, targets):
        digest.update(part.numpy().data)
    return digest.hexdigest()


def chain_from_anchor(trainer: Trainer) -> str:
    """The chain of batches at the run's step, from the anchor on, its batches drawn again."""
    chain = trainer.progress.anchor
    for step in range(trainer.progress.anchor_step, trainer.progress.step):
        for micro in range(trainer.config.training.accumulation):
            chain = link(chain, *trainer.batches.batch(step, micro))
    return chain


def backward(trainer: Trainer, step: int, micro: int, chain: str = "") -> tuple[Tensor, str]:
    """Loss of one batch, divided by the batches of a step, and its gradients added to those before; and the chain."""
    loss, chain = loss_of(trainer, step, micro, chain)
    loss.backward()
    return loss.detach().cpu(), chain


def loss_of(trainer: Trainer, step: int, micro: int, chain: str = "") -> tuple[Tensor, str]:
    """Loss of one batch, divided by the batches of a step; and the chain of batches with this one."""
    training, batch = trainer.config.training, trainer.batches.batch(step, micro)
    seed, masking = trainer.config.seed, trainer.masking
    inputs, targets = (part.to(trainer.device) for part in make_inputs(batch, masking, seed, step, micro))
    shown_by = trainer.model.mask if masking is None else None  # no mask shows what a blank hides
    with ambient_stream(seed, "dropout", step, micro), precision(trainer.device, training.dtype):
        loss = next_token_loss(trainer.forward(inputs), targets, shown_by) / training.accumulation
    return loss, link(chain, *batch)


def after_step(trainer: Trainer) -> None:
    """What is due after this step: evaluation with a checkpoint, a sample, a further checkpoint.

    Raises:
        StopAsked: somebody asked to stop meanwhile; all of it is to be done again.
    """
    training, progress = trainer.config.training, trainer.progress
    again = progress.pending
    last = progress.step == training.steps
    evaluating = progress.step % training.evaluate_every == 0 or last
    progress.pending = evaluating
    if training.sample_every is not None and (progress.step % training.sample_every == 0 or last):
        write_sample(trainer)
    if evaluating:
        evaluate(trainer, again=again)
    elif training.checkpoint_every is not None and progress.step % training.checkpoint_every == 0:
        save(trainer, best=False)


def evaluate(trainer: Trainer, *, again: bool = False) -> None:
    """Full passes over validation and test, in the weights' precision; a checkpoint, the best if validation says so.

    Raises:
        TrainingStopped: a loss is not finite.
        StopAsked: somebody asked to stop meanwhile.
    """
    progress, parts, most = trainer.progress, trainer.dataset.splits, trainer.config.training.evaluation_tokens
    trainer.count_baselines()
    losses = {
        f"{name}_loss": evaluate_split(
            trainer.model,
            thinned(parts[name], most),
            trainer.dataset.tokenizer,
            masking=trainer.masking,
            tick=trainer.request.check,
        ).loss
        for name in ("validation", "test")
    }
    for name, loss in losses.items():
        if not math.isfinite(loss):
            raise TrainingStopped(
                f"stopped at step {progress.step}: the {name.replace('_', ' ')} is {loss}; the last checkpoint in "
                f"{trainer.folder.path} is intact; {ADVICE}"
            )
    train_loss = progress.loss_sum / progress.loss_count if progress.loss_count else None
    progress.loss_sum, progress.loss_count = 0.0, 0
    best = progress.best_loss is None or losses["validation_loss"] < progress.best_loss
    if best:
        progress.best_loss, progress.best_step = losses["validation_loss"], progress.step
    trainer.emit({"event": "evaluation", "step": progress.step, "train_loss": train_loss, **losses})
    progress.pending = False
    save(trainer, best=best, replace=again)


def save(trainer: Trainer, *, best: bool, replace: bool = False) -> None:
    """Write a checkpoint of this step.

    Raises:
        TrainingStopped: a weight or the optimizer's state is not finite; nothing was written.
        StorageError: the disk did not take it.
    """
    progress = trainer.progress
    culprit = not_finite_state(trainer)
    if culprit is not None:
        raise TrainingStopped(
            f"stopped after step {progress.step}: {culprit}; no checkpoint of it was written, the last one in "
            f"{trainer.folder.path} is intact; {ADVICE}"
        )
    state = {
        **progress.plain(),
        "config": comparable(trainer.config),
        "seed": trainer.config.seed,
        "corpus": trainer.dataset.fingerprint,
    }
    tensors = optimizer_tensors(trainer.model, trainer.optimizer)
    checkpoint = Checkpoint(progress.step, trainer.model.state_dict(), tensors, state)
    keep = trainer.config.training.keep_checkpoints
    trainer.folder.save(checkpoint, best=best, keep=keep, replace=replace)
    trainer.saved = progress.step


def write_sample(trainer: Trainer) -> None:
    """Keep a text of the model as it is now; it draws from a stream of its own."""
    sample = generate(
        trainer.model,
        trainer.dataset.tokenizer,
        [""],
        max_tokens=trainer.config.training.sample_tokens,
        sampling=Sampling(temperature=SAMPLE_TEMPERATURE),
        seed=trainer.config.seed,
    )[0]
    trainer.folder.write_sample(trainer.progress.step, sample.text)
    trainer.emit({"event": "sample", "step": trainer.progress.step, "text": sample.text})


def not_finite_state(trainer: Trainer) -> str | None:
    """The first weight or number of the optimizer that is not finite, in words, or None."""
    kept = [value for part in trainer.optimizer.parts for state in part.state.values() for value in state.values()]
    with torch.no_grad():
        if math.isfinite(float(torch.nn.utils.get_total_norm([*trainer.model.parameters(), *kept]))):
            return None
        weights = dict(trainer.model.named_parameters())
        optimizer = optimizer_tensors(trainer.model, trainer.optimizer)
        # The norm of large numbers may be infinite though they are not.
        bad = [f"the weight {name}" for name, weight in weights.items() if not weight.isfinite().all()]
        bad += [f"the optimizer's {name}" for name, value in optimizer.items() if not value.isfinite().all()]
    return f"{bad[0]} is not finite" if bad else None


def _what_is_not_finite(trainer: Trainer, loss: float, norm: float, state: str | None) -> str:
    """One line that names the step, its batch, and what to do."""
    step = trainer.progress.step
    if state is not None:
        culprit = state
    elif not math.isfinite(loss):
        culprit = f"the loss is {loss}"
    else:
        names = [n for n, p in trainer.model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
        culprit = f"the gradient of {names[0]} is not finite" if names else f"the gradients' norm is {norm}"
    return (
        f"stopped before step {step + 1}: {culprit} (batch {step} of seed {trainer.config.seed}); what was trained is "
        f"saved in {trainer.folder.path}; {ADVICE}"
    )
