"""The trainer: one process's work on a run, and the state that a checkpoint saves and a resume restores."""

import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from vitral.data import Dataset
from vitral.data.batches import Batches, ShuffledBatches, thinned
from vitral.evaluation import NgramBaselines, SplitLoss, evaluate_split, training_text
from vitral.evaluation.copying import MOST_SEARCHED
from vitral.evaluation.losses import reading_of_config
from vitral.evaluation.masking import Masking, filling_of, masking_of
from vitral.model import Transformer
from vitral.runs import RunFolder
from vitral.runs.config import RunConfig
from vitral.runs.identity import Decision, Identity, decided, document_hash
from vitral.training import ranks
from vitral.training.baselines import Counting, counted_beside
from vitral.training.events import Callback, Event, noting
from vitral.training.objectives import compiled, loss_function
from vitral.training.optimizers import optimizer_of
from vitral.training.stopping import StopAsked, StopRequest

ANCHOR_EVERY = 1000
"""Steps between anchors of the batch chain: checking the chain redraws at most this many steps' batches."""


Planner = Callable[[int], Mapping[str, Any] | None]
"""A function of completed steps; returns changes of the configuration from the next step on, fields of
`vitral.runs.identity.Decision`, or None."""


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
        return {name: value for name, value in vars(self).items() if name != "step"}

    def note_validation_loss(self, loss: float) -> None:
        """Keep the loss if it is the lowest so far."""
        if self.best_loss is None or loss < self.best_loss:
            self.best_loss, self.best_step = loss, self.step


class Clock:
    """Seconds since the start, and tokens per second without the pauses.

    Attributes:
        pause: seconds of the last pause.
        stepped: Unix time after the last step, before any evaluation that follows it.
    """

    def __init__(self, tokens_per_step: int, step: int) -> None:
        """Start now, after a step; each has so many tokens."""
        self._tokens, self._told, self._began = tokens_per_step, (step, 0.0), time.perf_counter()
        self.stepped, self.pause, self._pauses = time.time(), 0.0, 0.0

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began

    def stepping(self) -> float:
        """Seconds since the start without the pauses."""
        return self.seconds() - self._pauses

    def tokens_per_second(self, step: int) -> float:
        """The speed from the step of the last call to this one."""
        (before, since), self._told = self._told, (step, self.stepping())
        return (step - before) * self._tokens / max(self._told[1] - since, 1e-9)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time inside the block (evaluating, writing) from the speed."""
        began, self.stepped = time.perf_counter(), time.time()
        yield
        self.pause = time.perf_counter() - began
        self._pauses += self.pause


@dataclass
class Trainer:
    """One process's work on a run.

    Attributes:
        config: the run's configuration, with every decision taken so far.
        dataset: the prepared text.
        model: the model being trained.
        folder: the run on disk.
        callback: receives every event (`vitral.training.events`).
        state: the state that checkpoints save; by default that of step 0, whose batch chain is the text's fingerprint.
        baselines: the text's n-gram baselines; None until they are counted.
        request: a pending request to stop.
        saved: the step of the newest checkpoint, None without one.
        identity: the run's identity, which checkpoints seal; set before the first step.
        environment: SHA-256 of environment.json.
        planner: asked before every step for a change of the configuration; None: there is none.
        looked: whether this session has had its early evaluation, or needs none any more.
        counting: the n-gram baselines that are being counted; None: they are not.
        clock: of this session; set when its first step begins.
        began: `time.perf_counter()` when the user began to wait for this session.
        waited: seconds that the last evaluation waited for the n-gram baselines.
        parameters: of the model, by name.
        optimizer: of these parameters, as configured.
        spent: seconds of the run's minutes that are over, in all sessions; None: the run has no minutes.
        counted: a step, and the number of targets of each of its batches.
        failure: an exception of the callback; training stops as if asked to, and raises it at the end.
    """

    config: RunConfig
    dataset: Dataset
    model: Transformer
    folder: RunFolder
    callback: Callback
    state: TrainerState = None  # pyright: ignore[reportAssignmentType]
    baselines: NgramBaselines | None = None
    request: StopRequest = field(default_factory=StopRequest)
    saved: int | None = None
    identity: Identity = None  # pyright: ignore[reportAssignmentType]
    environment: str = ""
    planner: Planner | None = None
    failure: Exception | None = None
    looked: bool = False
    counting: Counting | None = None
    clock: Clock = None  # pyright: ignore[reportAssignmentType]
    began: float = field(default_factory=time.perf_counter)
    waited: float = 0.0
    spent: Callable[[], float] | None = None
    counted: tuple[int, list[int]] = (-1, [])

    def __post_init__(self) -> None:
        """Build the batches and, for the masked objective, the masking; both may refuse the text or tokenizer."""
        training, tokenizer = self.config.training, self.dataset.tokenizer
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = optimizer_of(self.model, training)
        self.state = self.state or TrainerState(chain=self.dataset.fingerprint, anchor=self.dataset.fingerprint)
        self.batches = (ShuffledBatches if training.windows == "shuffled" else Batches)(
            self.dataset.splits["train"],
            context_length=reading_of_config(self.config.model),
            batch_size=training.batch_size,
            seed=self.config.seed,
            accumulation=training.accumulation,
        )
        self.masking = masking_of(training.objective, tokenizer)
        self.filling = filling_of(training.objective, tokenizer)
        self.device = self.model.token_embedding.weight.device
        loss = loss_function(self.model, self.masking)
        self.loss = compiled(loss, noting(self.notify)) if training.compile else loss

    @property
    def is_finished(self) -> bool:
        """Whether the last step is done and measured."""
        return self.state.step >= self.config.training.steps and not self.state.pending

    @property
    def is_sharded(self) -> bool:
        """Whether several ranks share the weights out."""
        return ranks.size() > 1 and self.config.training.sharding == "sharded"

    def shard(self) -> None:
        """Keep this rank's part of weights and optimizer only; all ranks come here."""
        from vitral.training.sharding import shard  # loads `fully_shard`

        self.optimizer = shard(self.model, self.optimizer, self.config.training)
        self.parameters = dict(self.model.named_parameters())

    @contextmanager
    def unsharded(self) -> Generator[bool]:
        """Let rank 0 have all weights inside the block; all ranks come here; the value: whether it is this one."""
        if not self.is_sharded:
            yield ranks.leads()
            return
        from vitral.training.sharding import unsharded

        with unsharded(self.model):
            yield ranks.leads()

    def emit(self, event: Event) -> None:
        """Write an event to metrics.jsonl and pass it to the callback."""
        self.folder.append_metric(event)
        self.notify(event)

    def notify(self, event: Event) -> None:
        """Pass an event to the callback; a line that it returns becomes a note in metrics.jsonl.

        An exception of the callback stops training at the next step, so that nothing trained is lost.
        """
        if self.failure is not None:
            return
        try:
            line = self.callback(event)
        except Exception as error:
            self.failure, self.request.asked = error, True
            return
        if isinstance(line, str):
            self.folder.append_metric({"event": "note", "step": self.state.step, "text": line})

    def tick(self) -> None:
        """End a long work if a stop was requested; several ranks finish it, so that all stop at one place.

        Raises:
            StopAsked: a stop was requested.
        """
        if ranks.size() == 1 and self.request.asked:
            raise StopAsked

    def note(self, line: str) -> None:
        """Emit a note that metrics.jsonl keeps."""
        self.emit({"event": "note", "step": self.state.step, "text": line})

    def decision(self, changes: Mapping[str, Any]) -> Decision:
        """A change of the configuration from the next step on.

        Args:
            changes: fields of `vitral.runs.identity.Decision` except `step`.

        Raises:
            UsageError: an unknown or invalid change.
        """
        return Decision.parse({**changes, "step": self.state.step}, "decision")

    def decide(self, changes: Mapping[str, Any]) -> None:
        """Change the configuration from the next step on (`decision`); the next checkpoint seals the decision."""
        decision = self.decision(changes)
        self.identity = self.identity.model_copy(update={"decisions": (*self.identity.decisions, decision)})
        self.config = decided(self.config, decision)
        if decision.threads is not None:
            torch.set_num_threads(decision.threads)
        self.emit({"event": "decision", **decision.plain()})

    @cached_property
    def searched(self) -> str | None:
        """The text of the training split, to search it for copied passages of samples.

        None if it is too long, or of records, whose right answers stand in it.
        """
        tokens = len(self.dataset.splits["train"].tokens)
        return training_text(self.dataset) if tokens <= MOST_SEARCHED and self.dataset.answers is None else None

    def measured(self, split: str, most: int | None, masking: Masking | None = None) -> SplitLoss:
        """What the model reaches on at most so many tokens of a split, evenly spaced.

        Args:
            split: its name.
            most: number of tokens.
            masking: how tokens are hidden; None: as the run's loss is measured.

        Raises:
            StopAsked: a stop was requested meanwhile.
        """
        few, tokenizer = thinned(self.dataset.splits[split], most), self.dataset.tokenizer
        return evaluate_split(self.model, few, tokenizer, masking=masking or self.masking, tick=self.tick)

    def begin_baselines(self) -> None:
        """Begin to count the text's n-gram baselines, unless they are known, beside the first steps."""
        if self.baselines is None and self.counting is None and ranks.leads():
            self.counting = counted_beside(self.dataset, self.tick)

    def notify_baselines(self) -> None:
        """Pass the baselines to the callback, if they are counted."""
        if self.baselines is not None:
            self.notify({"event": "lines", "ngrams": self.baselines.plain(), "problems": [*self.dataset.problems]})

    def show_baselines(self) -> None:
        """Tell the baselines once counted; the run itself has them from its first evaluation."""
        counting = self.counting
        if self.baselines is None and counting is not None and counting.done() and counting.exception() is None:
            self.baselines = counting.result()
            self.notify_baselines()

    def count_baselines(self) -> None:
        """Wait for the text's n-gram baselines unless they are sealed, and write and seal them.

        Equal runs have equal checkpoints, so the first evaluation seals them, however early they are counted.

        Raises:
            StopAsked: a stop was requested meanwhile.
        """
        self.waited = 0.0
        self.begin_baselines()
        if self.counting is None:
            return
        began = time.perf_counter()
        self.counting.is_needed.set()
        plain = self.counting.result().plain()
        self.waited = time.perf_counter() - began
        self.show_baselines()
        self.counting = None
        self.folder.write_document("ngrams", plain)
        documents = {**self.identity.documents, "ngrams.json": document_hash(plain)}
        self.identity = self.identity.model_copy(update={"documents": documents})


def link(chain: str, inputs: Tensor, targets: Tensor) -> str:
    """The batch chain extended by one batch: SHA-256 of the previous chain and the batch, in hexadecimal."""
    digest = hashlib.sha256(chain.encode("ascii"))
    for tensor in (inputs, targets):
        digest.update(tensor.numpy().data)
    return digest.hexdigest()
