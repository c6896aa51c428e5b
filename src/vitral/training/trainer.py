"""The trainer: one process's work on a run, and the state that a checkpoint saves and a resume restores."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from vitral.data import Dataset
from vitral.data.batches import Batches
from vitral.evaluation import NgramBaselines, ngram_baselines
from vitral.model import Transformer
from vitral.runs import RunFolder
from vitral.runs.config import RunConfig
from vitral.training.events import Callback, Event
from vitral.training.objectives import masking_of
from vitral.training.optimizers import Optimizers
from vitral.training.plans import compiled
from vitral.training.stopping import StopRequest

ANCHOR_EVERY = 1000
"""Steps between anchors of the batch chain: checking the chain redraws at most this many steps' batches."""


@dataclass
class TrainerState:
    """The state of a run besides weights and optimizer; a resume restores all of it.

    Attributes:
        step: completed optimizer steps.
        loss_sum: sum of the training losses since the last evaluation.
        loss_count: number of those losses.
        best_loss: lowest validation loss so far.
        best_step: the step of that loss.
        pending: whether the evaluation and sample due at this step are still to be done.
        chain: hash chain of all batches so far, in order: SHA-256 of the previous chain and the next batch, in
            hexadecimal.
        anchor_step: a step at most ANCHOR_EVERY back.
        anchor: the chain at that step.
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

    def complete_step(self, loss: float) -> None:
        """Count one optimizer step and its training loss."""
        self.step += 1
        self.loss_sum, self.loss_count = self.loss_sum + loss, self.loss_count + 1

    def take_mean_loss(self) -> float | None:
        """The mean training loss since the last evaluation, None without a step; starts a new mean."""
        mean = self.loss_sum / self.loss_count if self.loss_count else None
        self.loss_sum, self.loss_count = 0.0, 0
        return mean

    def note_validation_loss(self, loss: float) -> bool:
        """Keep the loss if it is the lowest so far, and return whether it is."""
        best = self.best_loss is None or loss < self.best_loss
        if best:
            self.best_loss, self.best_step = loss, self.step
        return best


@dataclass
class Trainer:
    """One process's work on a run.

    Attributes:
        config: the run's configuration.
        dataset: the prepared text.
        model: the model being trained.
        optimizer: the optimizer of its parameters.
        folder: the run on disk.
        callback: receives every event (`vitral.training.events`).
        state: the state that checkpoints save.
        baselines: the text's n-gram baselines; None until they are counted.
        request: a pending request to stop.
        saved: the step of the newest checkpoint, None without one.
    """

    config: RunConfig
    dataset: Dataset
    model: Transformer
    optimizer: Optimizers
    folder: RunFolder
    callback: Callback
    state: TrainerState = field(default_factory=TrainerState)
    baselines: NgramBaselines | None = None
    request: StopRequest = field(default_factory=StopRequest)
    saved: int | None = None

    def __post_init__(self) -> None:
        """Build the batches and, for the masked objective, the masking; both may refuse the text or tokenizer."""
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
        """Write an event to metrics.jsonl and pass it to the callback."""
        self.folder.append_metric(event)
        self.callback(event)

    def warn(self, line: str) -> None:
        """Emit a warning."""
        self.callback({"event": "note", "text": line})

    def count_baselines(self) -> None:
        """Count the text's n-gram baselines unless they are known, and emit them.

        Training does not need them, so they are counted just before the first loss that is compared with them.
        """
        if self.baselines is None:
            splits, vocab_size = self.dataset.splits, self.dataset.tokenizer.vocab_size
            self.baselines = ngram_baselines(splits["train"], splits["test"], vocab_size, tick=self.request.check)
            self.folder.write_document("corpus", describe_corpus(self.dataset, self.baselines))
            self.callback({"event": "lines", "ngrams": self.baselines.plain()})


def describe_corpus(dataset: Dataset, baselines: NgramBaselines | None) -> dict[str, Any]:
    """The content of corpus.json: the dataset's description and, if known, its n-gram baselines."""
    return dataset.describe() if baselines is None else {**dataset.describe(), "ngrams": baselines.plain()}


def link(chain: str, inputs: Tensor, targets: Tensor) -> str:
    """The batch chain extended by one batch: SHA-256 of the previous chain and the batch, in hexadecimal."""
    digest = hashlib.sha256(chain.encode("ascii"))
    for tensor in (inputs, targets):
        digest.update(tensor.numpy().data)
    return digest.hexdigest()


def chain_from_anchor(trainer: Trainer) -> str:
    """The batch chain at the run's step, recomputed from the anchor by drawing its batches again."""
    chain = trainer.state.anchor
    for step in range(trainer.state.anchor_step, trainer.state.step):
        for micro in range(trainer.config.training.accumulation):
            chain = link(chain, *trainer.batches.batch(step, micro))
    return chain
