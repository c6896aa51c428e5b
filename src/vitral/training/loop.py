"""The training loop: batches to losses to gradients to steps, and what is measured, written and kept on the way."""

import math
import time
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
from vitral.evaluation import NgramLines, evaluate_part, ngram_lines
from vitral.model import Transformer, next_token_loss
from vitral.runs import Checkpoint, RunFolder
from vitral.training.config import RunConfig
from vitral.training.events import Event, Reporter
from vitral.training.optimizers import Optimizers, optimizer_tensors
from vitral.training.plans import compiled
from vitral.training.schedules import learning_rate
from vitral.training.stopping import StopRequest

SAMPLE_TEMPERATURE = 0.8


@dataclass
class Progress:
    """What a run has come to: all that a resume must put back, besides weights and optimizer.

    Attributes:
        step: optimizer steps done.
        loss_sum: sum of the training losses since the last evaluation.
        loss_count: how many those are.
        best_loss: lowest validation loss so far.
        best_step: the step it was measured at.
    """

    step: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    best_loss: float | None = None
    best_step: int | None = None

    def plain(self) -> dict[str, Any]:
        """As plain data, for state.json."""
        return {
            "loss_sum": self.loss_sum,
            "loss_count": self.loss_count,
            "best_loss": self.best_loss,
            "best_step": self.best_step,
        }


@dataclass
class Session:
    """One process's work on a run."""

    config: RunConfig
    dataset: Dataset
    model: Transformer
    optimizer: Optimizers
    folder: RunFolder
    reporter: Reporter
    progress: Progress = field(default_factory=Progress)
    lines: NgramLines | None = None

    def __post_init__(self) -> None:
        """Make the batches, which refuse a text that is too short."""
        self.batches = Batches(
            self.dataset.parts["train"],
            context_length=self.config.model.context_length,
            batch_size=self.config.training.batch_size,
            seed=self.config.seed,
        )
        self.device = self.model.token_embedding.weight.device
        self.forward = compiled(self.model, self.complain) if self.config.training.compile else self.model

    def tell(self, event: Event) -> None:
        """Write an event to metrics.jsonl and show it."""
        self.folder.append_metric(event)
        self.reporter(event)

    def complain(self, line: str) -> None:
        """Say in one line that something is not as it should be."""
        self.reporter({"event": "note", "text": line})

    def tell_lines(self) -> None:
        """Count the text's n-gram lines, unless they are known, and show them.

        Training does not need them: they are counted when there is a first loss to compare with them.
        """
        if self.lines is None:
            parts = self.dataset.parts
            self.lines = ngram_lines(parts["train"], parts["test"], self.dataset.tokenizer.vocab_size)
            self.folder.write_document("corpus", describe_corpus(self.dataset, self.lines))
            self.reporter({"event": "lines", "ngrams": self.lines.plain()})


def describe_corpus(dataset: Dataset, lines: NgramLines | None) -> dict[str, Any]:
    """The text, and what counting achieves on it where that is known, as plain data for corpus.json."""
    return dataset.describe() if lines is None else {**dataset.describe(), "ngrams": lines.plain()}


def run_steps(session: Session, request: StopRequest) -> bool:
    """Train from where the run is to its last step; gives whether it got there.

    Raises:
        TrainingStopped: a loss or gradient is not finite; nothing of that step was applied.
    """
    training, progress = session.config.training, session.progress
    began = last_log = time.perf_counter()
    tokens_per_step = training.accumulation * training.batch_size * session.config.model.context_length
    steps_since_log, stepped = 0, time.time()
    while progress.step < training.steps and not request.asked:
        loss, norm, rate = one_step(session)
        progress.step += 1
        progress.loss_sum, progress.loss_count = progress.loss_sum + loss, progress.loss_count + 1
        steps_since_log += 1
        if progress.step % training.log_every == 0 or progress.step == training.steps:
            now = time.perf_counter()
            speed = steps_since_log * tokens_per_step / max(now - last_log, 1e-9)
            last_log, steps_since_log = now, 0
            session.tell(
                {
                    "event": "step",
                    "step": progress.step,
                    "loss": loss,
                    "learning_rate": rate,
                    "gradient_norm": norm,
                    "tokens_per_second": round(speed, 1),
                }
            )
        paused, stepped = time.perf_counter(), time.time()
        after_step(session)
        last_log += time.perf_counter() - paused  # evaluating and writing are not training
    finished = progress.step >= training.steps
    if not finished:
        save(session, best=False)
    seconds = round(time.perf_counter() - began, 3)
    end = {"event": "end", "step": progress.step, "finished": finished, "seconds": seconds}
    session.tell({**end, "stepped": round(stepped, 3)})
    return finished


def one_step(session: Session) -> tuple[float, float, float]:
    """Gradients of one step's batches, checked, clipped and applied; gives loss, gradient norm, learning rate.

    Raises:
        TrainingStopped: the loss or a gradient is not finite; nothing was applied.
    """
    training, step = session.config.training, session.progress.step
    session.optimizer.zero_grad()
    loss = sum((backward(session, step, micro) for micro in range(training.accumulation)), start=torch.zeros(()))
    gradients = [p.grad for p in session.model.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    loss_value, norm_value = float(loss), float(norm)
    if not math.isfinite(loss_value) or not math.isfinite(norm_value):
        raise TrainingStopped(_what_is_not_finite(session, loss_value, norm_value))
    if training.clip_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(session.model.parameters(), training.clip_norm, norm)
    for group in session.optimizer.param_groups:
        group["lr"] = learning_rate(training.schedule, group["peak"], step, training.steps)
    session.optimizer.step()
    return loss_value, norm_value, session.optimizer.param_groups[0]["lr"]


def backward(session: Session, step: int, micro: int) -> Tensor:
    """Loss of one batch, divided by the batches of a step, and its gradients added to those before."""
    training = session.config.training
    inputs, targets = (part.to(session.device) for part in session.batches.batch(step, micro))
    with ambient_stream(session.config.seed, "dropout", step, micro):
        with precision(session.device, training.dtype):
            loss = next_token_loss(session.forward(inputs), targets, session.model.mask) / training.accumulation
        loss.backward()
    return loss.detach().cpu()


def after_step(session: Session) -> None:
    """What is due after this step: evaluation with a checkpoint, a sample, a further checkpoint."""
    training, progress = session.config.training, session.progress
    last = progress.step == training.steps
    if training.sample_every is not None and (progress.step % training.sample_every == 0 or last):
        write_sample(session)
    if progress.step % training.evaluate_every == 0 or last:
        evaluate(session)
    elif training.checkpoint_every is not None and progress.step % training.checkpoint_every == 0:
        save(session, best=False)


def evaluate(session: Session) -> None:
    """Full passes over validation and test, in the weights' precision; a checkpoint, the best if validation says so."""
    progress, parts, most = session.progress, session.dataset.parts, session.config.training.evaluation_tokens
    session.tell_lines()
    losses = {
        f"{name}_loss": evaluate_part(session.model, thinned(parts[name], most), session.dataset.tokenizer).loss
        for name in ("validation", "test")
    }
    for name, loss in losses.items():
        if not math.isfinite(loss):
            raise TrainingStopped(
                f"stopped at step {progress.step}: the {name.replace('_', ' ')} is {loss}; the last checkpoint in "
                f"{session.folder.path} is intact; try a lower learning rate or training.clip_norm = 1.0"
            )
    train_loss = progress.loss_sum / progress.loss_count if progress.loss_count else None
    progress.loss_sum, progress.loss_count = 0.0, 0
    best = progress.best_loss is None or losses["validation_loss"] < progress.best_loss
    if best:
        progress.best_loss, progress.best_step = losses["validation_loss"], progress.step
    session.tell({"event": "evaluation", "step": progress.step, "train_loss": train_loss, **losses})
    save(session, best=best)


def save(session: Session, *, best: bool) -> None:
    """Write a checkpoint of this step."""
    progress = session.progress
    state = {
        **progress.plain(),
        "seed": session.config.seed,
        "corpus": session.dataset.fingerprint,
    }
    tensors = optimizer_tensors(session.model, session.optimizer)
    checkpoint = Checkpoint(progress.step, session.model.state_dict(), tensors, state)
    session.folder.save(checkpoint, best=best, keep=session.config.training.keep_checkpoints)


def write_sample(session: Session) -> None:
    """Keep a text of the model as it is now; it draws from a stream of its own."""
    sample = generate(
        session.model,
        session.dataset.tokenizer,
        [""],
        max_tokens=session.config.training.sample_tokens,
        sampling=Sampling(temperature=SAMPLE_TEMPERATURE),
        seed=session.config.seed,
    )[0]
    session.folder.write_sample(session.progress.step, sample.text)
    session.tell({"event": "sample", "step": session.progress.step, "text": sample.text})


def _what_is_not_finite(session: Session, loss: float, norm: float) -> str:
    """One line that names the step, its batch, and what to do."""
    step = session.progress.step
    if not math.isfinite(loss):
        culprit = f"the loss is {loss}"
    else:
        names = [n for n, p in session.model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
        culprit = f"the gradient of {names[0]} is not finite" if names else f"the gradients' norm is {norm}"
    return (
        f"stopped before step {step + 1}: {culprit} (batch {step} of seed {session.config.seed}); what was saved is "
        f"intact in {session.folder.path}; try a lower learning rate or training.clip_norm = 1.0"
    )
