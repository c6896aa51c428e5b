"""The configuration of a run: corpus, model and training, one frozen object."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vitral.core.config import Config
from vitral.core.devices import DeviceName, DtypeName
from vitral.data.config import CorpusConfig
from vitral.model.config import ModelConfig
from vitral.training.objectives import Objective
from vitral.training.optimizers import AdamWConfig, OptimizerConfig
from vitral.training.schedules import ScheduleConfig

Steps = Annotated[int, Field(ge=1, le=10**9)]


class TrainingConfig(Config):
    """How a model is trained. A step is one optimizer step.

    Attributes:
        steps: optimizer steps.
        batch_size: windows in a batch.
        accumulation: batches whose gradients are averaged into one step.
        objective: "next-token", or {name = "masked", rate = 0.15}: some tokens are hidden and to be told.
        optimizer: its kind and numbers.
        schedule: the learning rate's course.
        clip_norm: gradients are scaled down to this norm; left out: never.
        evaluate_every: steps between full passes over validation and test; a checkpoint is written each time.
        evaluation_tokens: of a longer validation or test part so many tokens, evenly spread, are measured while
            training; left out: all.
        checkpoint_every: steps between further checkpoints; left out: none.
        keep_checkpoints: the newest this many are kept, and the best.
        log_every: steps between lines of metrics.jsonl.
        sample_every: steps between texts written while training; left out: none.
        sample_tokens: length of those texts.
        allow_leak: train on the next token although the mask already shows it (for demonstrating what happens).
        device: "auto", "cpu", "cuda" or "mps".
        dtype: "float32", "bfloat16" (arithmetic only, weights stay float32) or "float64".
        compile: whether the model is compiled (torch.compile), which takes a minute and pays in long runs.
        plan: "as-written", or "auto": dtype and compile are chosen by timing a few steps before the first.
        minutes: steps is what fits this time, found by timing a few; left out: steps is as written.
    """

    steps: Steps = 1200
    batch_size: Annotated[int, Field(ge=1, le=2**20)] = 64
    accumulation: Annotated[int, Field(ge=1, le=2**20)] = 1
    objective: Objective = "next-token"
    optimizer: OptimizerConfig = AdamWConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    evaluate_every: Steps = 200
    evaluation_tokens: Steps | None = 5_000_000
    checkpoint_every: Steps | None = None
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    log_every: Steps = 10
    sample_every: Steps | None = None
    sample_tokens: Steps = 200
    allow_leak: bool = False
    device: DeviceName = "auto"
    dtype: DtypeName = "float32"
    compile: bool = False
    plan: Literal["as-written", "auto"] = "as-written"
    minutes: Annotated[float, Field(gt=0, le=10**6)] | None = None


FREE = ("log_every", "sample_every", "sample_tokens", "checkpoint_every", "keep_checkpoints")
"""Keys of [training] that change no number of a run, so that they may change between two of its sessions."""


class RunConfig(Config):
    """Everything a run depends on."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    corpus: CorpusConfig = CorpusConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step is made from."""
        return self.training.accumulation * self.training.batch_size * self.model.context_length

    @model_validator(mode="after")
    def _answer_does_not_leak(self) -> "RunConfig":
        attention = self.model.attention
        if self.training.objective != "next-token":
            if self.training.sample_every is not None:
                raise ValueError(
                    "training.sample_every: a model that is trained to fill blanks continues no text; leave it out"
                )
            return self  # what is asked for is hidden from every position
        if attention != "none" and attention.mask.first_target() is None and not self.training.allow_leak:
            raise ValueError(
                "model.attention.mask: under a bidirectional mask each position already sees its next token, so the "
                'loss means nothing; use mask = "causal", training.objective = "masked" (filling blanks), or '
                "training.allow_leak = true to see it happen"
            )
        first = 0 if attention == "none" else attention.mask.first_target() or 0
        if first >= self.model.context_length:
            raise ValueError(
                f"model.attention.mask: a prefix of {first + 1} leaves no target in a context of "
                f"{self.model.context_length}"
            )
        return self


def comparable(config: RunConfig) -> dict[str, Any]:
    """The configuration without what may change while a run goes on, as plain data."""
    plain = config.plain()
    for key in FREE:
        plain["training"].pop(key, None)
    if plain["training"]["objective"] == "next-token":  # as in runs from before there was another
        del plain["training"]["objective"]
    return plain
