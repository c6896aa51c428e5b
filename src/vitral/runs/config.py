"""The configuration of a run: corpus, model and training, one frozen object; presets are whole ones by name."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from vitral.core.config import Config, nearest
from vitral.core.devices import DeviceName, DtypeName
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.core.process import MOST_THREADS
from vitral.data.alphabet import MASK
from vitral.data.config import CharConfig, CorpusConfig, FileConfig
from vitral.model.config import ModelConfig
from vitral.runs.objectives import objective_name, predicts_next
from vitral.runs.optimizers import AdamWConfig, OptimizerConfig

Steps = Annotated[int, Field(ge=1, le=10**9)]


class ScheduleConfig(Config):
    """The learning rate schedule.

    Attributes:
        name: "constant"; "cosine" (Loshchilov & Hutter 2017); "linear"; "trapezoidal": constant, then linear down
            (Zhai et al. 2022).
        warmup_steps: initial steps with a linearly increasing rate.
        final_fraction: final rate as a share of the peak rate (not for constant).
        decay_fraction: share of the steps after warm-up in which a trapezoidal rate decreases.
        begin: completed steps at which the schedule begins, in a run that continues another; default: 0.
    """

    name: Literal["constant", "cosine", "linear", "trapezoidal"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    final_fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    decay_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2
    begin: Steps | None = None


class Masked(Config):
    """Masked language modelling: predict the tokens at masked positions (Devlin et al. 2019, section 3.1).

    The mask token is `<PAD>` of the character tokenizer, that of a file, or the special token `<MASK>`, which is
    declared for bytes and byte pairs; see `vitral.evaluation.masking.Masking`.

    Attributes:
        name: "masked".
        rate: share of masked positions in a window; at least one position is masked.
        choice: "bert": while training, one in ten of these becomes any token and one in ten stays. Default: all become
            the mask token.
    """

    name: Literal["masked"] = "masked"
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    choice: Literal["bert"] | None = None


class Mixed(Config):
    """Next-token prediction and masked language modelling with one head (GPT-BERT; Charpentier & Samuel 2024).

    A masked step hides tokens and lets every position see every other; a hidden token is predicted at the position
    before it, as the next one is in the other steps. So one model continues texts and fills gaps.

    Attributes:
        name: "mixed".
        rate: share of masked positions in a window of a masked step.
        share: probability that a step is masked.
    """

    name: Literal["mixed"] = "mixed"
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5


def _objective(objective: Any) -> Any:
    """A bare name means the default rate."""
    return {"masked": Masked(), "mixed": Mixed()}.get(objective, objective) if isinstance(objective, str) else objective


Objective = Annotated[Literal["next-token", "label", "masked", "mixed"] | Masked | Mixed, AfterValidator(_objective)]


class TrainingConfig(Config):
    """Training options. A step is one optimizer step.

    Attributes:
        steps: number of optimizer steps.
        batch_size: windows per batch.
        accumulation: batches whose gradients are averaged into one step; several ranks share them.
        reduction: how the gradients of a step's batches are added: "canonical", in one order on any number of ranks, or
            "fast", in the engine's own order. Default: canonical where there are several batches.
        sharding: whether each of several ranks has all weights ("replicated"), or some rows of each ("sharded").
        windows: "random": any windows, all equally likely; "shuffled": consecutive ones in passes, each once in a pass.
        objective: "next-token"; {name = "masked", rate = 0.15} for masked language modelling; {name = "mixed", rate =
            0.15, share = 0.5} for both; or "label", for an encoder and labelled texts.
        optimizer: its kind and hyperparameters; or an own one, with its learning_rate and settings.
        schedule: the learning rate schedule.
        clip_norm: maximum gradient norm; default: no clipping.
        evaluate_every: steps between evaluations on validation and test, each with a checkpoint.
        evaluation_tokens: maximum number of tokens, evenly spaced, of each split in these evaluations; none: all.
        checkpoint_every: steps between additional checkpoints; default: none.
        keep_checkpoints: number of newest checkpoints to keep, besides the best.
        log_every: steps between lines of metrics.jsonl.
        sample_every: steps between generated samples; default: none.
        sample_tokens: length of those samples.
        watch: whether somebody watches: a sample at every evaluation, and an early evaluation on a few tokens, with a
            sample, after the first seconds. Default: no; `vitral train` sets it, studies do not.
        film: whether to keep the weights in float16 after the steps 0, 1, 2, 4, 8 … and the last, so that a page can
            show how the model learned; at most 14 of them. Default: no.
        allow_leak: train on the next token although the mask already shows it (to demonstrate the effect).
        device: "auto", "cpu", "cuda" or "mps".
        dtype: "float32", "bfloat16" (arithmetic only, weights stay float32) or "float64".
        compile: whether to compile the model (torch.compile), which takes about a minute and pays off in long runs.
        plan: "as-written", "auto" to choose dtype and compile by timing a few steps before training, or "fit" to choose
            the model's size too, for the time in minutes.
        regularisation: "fit" to choose dropout by the number of passes over the text in the time in minutes, and weight
            decay too where plan is "fit"; default: as configured.
        minutes: choose steps to fit this time, by timing a few steps before and while training; default: steps as
            configured.
        threads: threads of the processor, on which the last bits depend; default: OMP_NUM_THREADS, else 1 or the
            number of cores, whichever is faster in a few steps timed before training.
    """

    steps: Steps = 1200
    batch_size: Annotated[int, Field(ge=1, le=2**20)] = 64
    accumulation: Annotated[int, Field(ge=1, le=2**20)] = 1
    reduction: Literal["canonical", "fast"] | None = None
    sharding: Literal["replicated", "sharded"] = "replicated"
    windows: Literal["random", "shuffled"] = "random"
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
    watch: bool | None = None
    film: bool | None = None
    allow_leak: bool = False
    device: DeviceName = "auto"
    dtype: DtypeName = "float32"
    compile: bool = False
    plan: Literal["as-written", "auto", "fit"] = "as-written"
    regularisation: Literal["fit"] | None = None
    minutes: Annotated[float, Field(gt=0, le=10**6)] | None = None
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = None

    @property
    def is_canonical(self) -> bool:
        """Whether a step has several batches, added in the order that any number of ranks keeps."""
        return self.accumulation > 1 and self.reduction == "canonical"


class RunConfig(Config):
    """The complete configuration of a run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    corpus: CorpusConfig = CorpusConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()

    @property
    def tokens_per_step(self) -> int:
        """Tokens per optimizer step."""
        return self.training.accumulation * self.training.batch_size * self.model.context_length

    def watched(self) -> "RunConfig":
        """The configuration of a run that somebody watches, unless it says otherwise (`training.watch`)."""
        return self.with_training(watch=self.training.watch is not False)

    def with_training(self, **values: Any) -> "RunConfig":
        """The configuration with other values in `[training]`, which are not checked."""
        return self.model_copy(update={"training": self.training.model_copy(update=values)})

    @model_validator(mode="after")
    def _rates_are_known(self) -> "RunConfig":
        if self.model.parametrisation is not None and not isinstance(self.training.optimizer, AdamWConfig):
            raise ValueError(
                _(
                    "model.parametrisation: the learning rates of mup are those of AdamW, not of {optimizer}; set "
                    'training.optimizer.name = "adamw"',
                    optimizer=self.training.optimizer.name,
                )
            )
        return self

    @model_validator(mode="after")
    def _objective_fits(self) -> "RunConfig":
        """The data and the shape of the model suit the objective; its mask token is declared."""
        name, shape, corpus = objective_name(self.training.objective), self.model.shape, self.corpus
        if name == "label" and (corpus.records, shape, self.model.tie_head) != ("labels", "encoder", False):
            raise ValueError(
                _(
                    'training.objective: "label" needs corpus.records = "labels", model.shape = "encoder" and '
                    "model.tie_head = false"
                )
            )
        if shape == "encoder-decoder" and (name != "next-token" or corpus.records not in ("pairs", "labels")):
            raise ValueError(
                _(
                    "model.shape: an encoder-decoder reads a source and writes its target; it needs corpus.records = "
                    '"pairs" and training.objective = "next-token"'
                )
            )
        if name in ("masked", "mixed") and corpus.records is not None:
            raise ValueError(_('training.objective: "{name}" is for texts; leave corpus.records out', name=name))
        if name == "mixed" and (shape != "decoder" or self.model.attention == "none" or self.model.recurrence):
            raise ValueError(_('training.objective: "mixed" needs model.shape = "decoder", and attention alone'))
        knows = isinstance(corpus.tokenizer, CharConfig | FileConfig) or MASK in (corpus.specials or ())
        if name in ("masked", "mixed") and not knows:
            specials = (*(corpus.specials or ()), MASK)
            object.__setattr__(self, "corpus", corpus.model_copy(update={"specials": specials}))
        return self

    @model_validator(mode="after")
    def _answer_does_not_leak(self) -> "RunConfig":
        attention = self.model.attention
        if not predicts_next(self.training.objective):
            if self.training.sample_every is not None:
                raise ValueError(
                    _("training.sample_every: a masked language model cannot continue a text; leave it out")
                )
            return self  # masked tokens are hidden from every position, and a label is in no text
        if attention != "none" and attention.mask.first_target() is None and not self.training.allow_leak:
            raise ValueError(
                _(
                    "model.attention.mask: under a bidirectional mask each position already sees its next "
                    'token, so the loss means nothing; use mask = "causal", training.objective = "masked" '
                    '(masked language model) or "label", or training.allow_leak = true to see the effect'
                )
            )
        first = 0 if attention == "none" else attention.mask.first_target() or 0
        if first >= self.model.context_length:
            raise ValueError(
                _(
                    "model.attention.mask: a prefix of {length} leaves no target in a context of {context_length}",
                    length=first + 1,
                    context_length=self.model.context_length,
                )
            )
        return self


def comparable(config: RunConfig) -> dict[str, Any]:
    """The configuration without the place of the text and the keys that may change on a resume, as plain data."""
    plain = config.plain()
    del plain["corpus"]["source"]
    for key in FREE:
        plain["training"].pop(key, None)
    if plain["training"]["objective"] == "next-token":  # as in runs made before other objectives existed
        del plain["training"]["objective"]
    return plain


def with_free_keys(config: RunConfig, written: RunConfig) -> RunConfig:
    """A sealed configuration with the keys that may change as they are written."""
    corpus = config.corpus.model_copy(update={"source": written.corpus.source})
    free = {key: getattr(written.training, key) for key in FREE}
    return config.model_copy(update={"corpus": corpus}).with_training(**free)


FREE = (
    "log_every",
    "sample_every",
    "sample_tokens",
    "watch",
    "film",
    "checkpoint_every",
    "keep_checkpoints",
    "sharding",
)
"""Keys of [training] that do not affect the results, so that they may change when a run is resumed."""


class Preset(NamedTuple):
    """A configuration by name.

    Attributes:
        name: what users type.
        description: one line.
        vocabulary: nominal number of tokens, to count parameters without a text.
        run: the configuration as plain data.
    """

    name: str
    description: str
    vocabulary: int
    run: Mapping[str, Any]


def presets() -> dict[str, Preset]:
    """Every preset by name."""
    files = sorted((Path(__file__).parent / "_presets").glob("*.toml"))
    return {file.stem: Preset(file.stem, **tomllib.loads(file.read_text(encoding="utf-8"))) for file in files}


def preset_model(name: str) -> ModelConfig:
    """The model of a preset.

    Raises:
        UsageError: there is no such preset.
    """
    known = presets()
    if name not in known:
        raise UsageError("preset {name!r}: {hint}", name=name, hint=nearest(name, known))
    return RunConfig.parse(dict(known[name].run), name).model
