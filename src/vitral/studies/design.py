"""The design of a study as plain data: arms as differences from one configuration.

The first arm is the base. Every other arm lists its changes and nothing else; the rest is the base's, batches included.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from vitral.core.checked import checked
from vitral.core.config import Config, differences, merge
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data.config import BPEConfig, CorpusConfig
from vitral.model import ModelConfig, cost, count_parameters
from vitral.training import RunConfig
from vitral.training.optimizer_cost import optimizer_flops, step_flops

FIXED = ("seed", "corpus")
"""Keys that no arm may change: arms are paired by seed, and losses of different tokens cannot be compared."""
SAME_TEST_TEXT = ("source", "task", "split", "works", "newlines", "separator", "encoding", "field", "glob")
"""Keys of the corpus that decide the test split; compared arms share them even where arms vary the text."""
WIDEST = 2**24
BudgetName = Literal["quick", "standard", "full"]
BUDGETS: tuple[BudgetName, ...] = ("quick", "standard", "full")
Unit = Literal["nats per token", "bits per character"]

TUNING_SEED = 0
"""Seed of the runs in which values are tried; no seed of a study that tunes."""

LONGER_STEPS, LONGER_SEEDS = 2, 2
"""The second budget of an arm that fails: times the steps, and from how many seeds."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
Factors = Annotated[tuple[Annotated[float, Field(gt=0, le=1e6)], ...], Field(strict=False, min_length=2)]
Tune = dict[str, Factors]


class Arm(Config):
    """One variant.

    Attributes:
        name: short, for folders and tables: small letters, digits, hyphens.
        title: for readers.
        changes: nested configuration values that differ from the base's; empty for the base alone.
        match: "parameters" chooses model.d_ff for the number of parameters nearest to the base's, or model.d_model of
            an arm without a feed-forward, in multiples of its heads; "flops" chooses
            training.steps for the number of floating-point operations nearest to the base's.
        budget: the smallest budget with this arm.
        compared: whether its loss is of the same task as the base's, so that their difference has a meaning.
        against: name of its baseline arm, an earlier one; the base if None.
        init_from: name of an earlier arm; a run begins from the last weights of that arm's run from the same seed
            (fine-tuning), and its operations are counted on top of those.
        contrast: whether its difference to its baseline arm is one of the study's claims.
        tune: factors of configuration values that are tried on validation before the arm is run, for example
            {"training.optimizer.learning_rate": [0.5, 1, 2]}; several values move together. The study's if None, none
            if empty.
    """

    name: Name
    title: str
    changes: dict[str, Any] = Field(default_factory=dict)
    match: Literal["parameters", "flops"] | None = None
    budget: BudgetName = "quick"
    compared: bool = True
    against: Name | None = None
    init_from: Name | None = None
    contrast: bool = True
    tune: Tune | None = None

    @field_validator("tune")
    @classmethod
    def _can_be_tried(cls, tune: Tune | None) -> Tune | None:
        check_tune(tune or {})
        return tune


class Budget(Config):
    """The size of a study.

    Attributes:
        seeds: of the runs; the study's if None.
        changes: nested configuration values laid over the study's base, such as its steps.
        tuned: whether arms are tuned.
    """

    seeds: Annotated[tuple[int, ...], Field(strict=False)] | None = None
    tuned: bool = True
    changes: dict[str, Any] = Field(default_factory=dict)

    @field_validator("seeds")
    @classmethod
    def _can_be_drawn(cls, seeds: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if seeds is not None:
            check_seeds(seeds)
        return seeds


@checked(first=True)
class Study(Config):
    """A question, and the arms that answer it.

    Attributes:
        name: of the study, as typed after `vitral study`.
        title: of the report.
        question: that the study answers.
        source: passages of the course notes about it.
        claim: prediction of theory, for the report.
        design: reasons for the arms and the measurements, for the report.
        base: preset, `.toml` file or text of the base arm's configuration, unless the command names one.
        arms: the base first, then at least one other, unless there are probes.
        seeds: of the runs, unless a budget has its own; a verdict needs three.
        budgets: sizes of the study by name; a smaller one has fewer arms rather than fewer steps.
        probes: names of further measurements.
        unit: of the compared losses; bits per character where arms differ in their tokens.
        varies_text: whether arms may change the text or its tokens.
        draws_text: whether `corpus.draw` of a run is its seed: what `share`, `num_works` and `one-work` leave of a text
            is then drawn anew from each seed, and differences between seeds contain it.
        margin: differences of up to this share of the loss count as equivalent.
        tune: of every arm whose loss is in a contrast, unless the arm has its own; see `Arm`.
    """

    name: Name
    title: str
    question: str
    source: str = ""
    claim: str = ""
    design: str = ""
    base: str = "study"
    arms: Annotated[tuple[Arm, ...], Field(strict=False)]
    seeds: Annotated[tuple[int, ...], Field(strict=False)] = (1, 2, 3, 4, 5, 6)
    budgets: dict[BudgetName, Budget] = Field(default_factory=dict)
    probes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    unit: Unit = "nats per token"
    varies_text: bool = False
    draws_text: bool = False
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.01
    tune: Tune = Field(default_factory=dict)

    @model_validator(mode="after")
    def _can_be_compared(self) -> "Study":
        names = [arm.name for arm in self.arms]
        if len(names) < (1 if self.probes else 2):
            raise ValueError(_("arms: a study compares at least two arms, the first being the base"))
        if len(set(names)) < len(names):
            raise ValueError(_("arms: two arms are called {names!r}", names=_repeated(names)))
        self._check_base()
        for arm in self.arms[1:]:
            self._check_changes(arm)
            self._check_baseline(arm)
            self._check_parent(arm)
        for budget in self.budgets:
            if len(self.at(budget).arms) < (1 if self.probes else 2):
                raise ValueError(
                    _("budgets: {budget!r} leaves only the base, so there is nothing to compare", budget=budget)
                )
        check_seeds(self.seeds)
        check_tune(self.tune)
        if self.tunes and any(TUNING_SEED in seeds for seeds in (self.seeds, *self._budget_seeds())):
            raise ValueError(_("seeds: {seed} is the seed with which arms are tuned", seed=TUNING_SEED))
        return self

    def _check_base(self) -> None:
        base = self.arms[0]
        if base.changes or base.match or base.against or base.init_from or base.budget != BUDGETS[0]:
            raise ValueError(
                _(
                    "arms: the first arm, {name!r}, is the base: it changes nothing, takes part at every "
                    "budget, and is compared with nothing",
                    name=base.name,
                )
            )

    def _check_changes(self, arm: Arm) -> None:
        if not arm.changes and arm.init_from is None:
            raise ValueError(_("arms: {name!r} changes nothing, so there is nothing to compare", name=arm.name))
        for key in FIXED if not self.varies_text else ("seed",):
            if key in arm.changes:
                raise ValueError(
                    _("arms: {name!r} cannot change {key!r}: all arms of a study share it", name=arm.name, key=key)
                )

    def _budget_seeds(self) -> list[tuple[int, ...]]:
        return [budget.seeds for budget in self.budgets.values() if budget.seeds is not None]

    @property
    def tunes(self) -> bool:
        """Whether some arm is tuned."""
        return any(self.tuned(arm) for arm in self.arms)

    def tuned(self, arm: Arm) -> Tune:
        """The factors that are tried for this arm; empty for none."""
        if arm.tune is not None:
            return arm.tune
        named = {other.against or self.arms[0].name for other in self.arms[1:] if other.compared and other.contrast}
        is_contrasted = arm.compared and (arm.name in named or (arm.contrast and arm is not self.arms[0]))
        return self.tune if is_contrasted else {}

    def _check_baseline(self, arm: Arm) -> None:
        if arm.against is None:
            return
        before = {other.name: other for other in self.arms[: self.arms.index(arm)]}
        baseline = before.get(arm.against)
        if baseline is None:
            raise ValueError(
                _(
                    "arms: {name!r} is compared with {against!r}, which is no arm before it",
                    name=arm.name,
                    against=arm.against,
                )
            )
        if BUDGETS.index(baseline.budget) > BUDGETS.index(arm.budget):
            raise ValueError(
                _(
                    "arms: {name!r} is compared with {against!r}, which needs a larger budget",
                    name=arm.name,
                    against=arm.against,
                )
            )
        if not baseline.compared:
            raise ValueError(
                _(
                    "arms: {name!r} is compared with {against!r}, whose loss is not compared",
                    name=arm.name,
                    against=arm.against,
                )
            )

    def _check_parent(self, arm: Arm) -> None:
        if arm.init_from is None:
            return
        before = {other.name: other for other in self.arms[: self.arms.index(arm)]}
        parent = before.get(arm.init_from)
        if parent is None:
            raise ValueError(
                _(
                    "arms: {name!r} begins from {parent!r}, which is no arm before it",
                    name=arm.name,
                    parent=arm.init_from,
                )
            )
        if BUDGETS.index(parent.budget) > BUDGETS.index(arm.budget):
            raise ValueError(
                _(
                    "arms: {name!r} begins from {parent!r}, which needs a larger budget",
                    name=arm.name,
                    parent=arm.init_from,
                )
            )

    def at(self, budget: BudgetName) -> "Study":
        """The study at one budget: its arms and seeds.

        Raises:
            UsageError: the study has no such budget.
        """
        if budget not in self.budgets:
            known = ", ".join(self.budgets) or _("it has one size only")
            raise UsageError(
                "study {name}: no budget is called {budget!r}; known: {known}",
                name=self.name,
                budget=budget,
                known=known,
            )
        reached = BUDGETS.index(budget)
        arms = tuple(arm for arm in self.arms if BUDGETS.index(arm.budget) <= reached)
        update: dict[str, Any] = {"arms": arms, "seeds": self.budgets[budget].seeds or self.seeds}
        if not self.budgets[budget].tuned:
            update |= {"tune": {}, "arms": tuple(arm.model_copy(update={"tune": None}) for arm in arms)}
        return self.model_copy(update=update)


def check_tune(tune: Tune) -> None:
    """Refuse factors that cannot be tried in order: lists of unequal length, or not increasing.

    Raises:
        ValueError: says which.
    """
    lengths = {len(factors) for factors in tune.values()}
    if len(lengths) > 1:
        raise ValueError(_("tune: values that move together need as many factors each"))
    for key, factors in tune.items():
        if list(factors) != sorted(set(factors)):
            raise ValueError(_("tune: the factors of {key} must increase", key=key))


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse no seeds, a negative or too large seed, and a repeated one.

    Raises:
        UsageError: names the seed.
    """
    if not seeds:
        raise UsageError("seeds: at least one is needed, three or more for a verdict")
    if min(seeds) < 0:
        raise UsageError("seeds: {seeds} is negative", seeds=min(seeds))
    if max(seeds) >= 2**63:
        raise UsageError("seeds: {seeds} is too large; seeds are below 2^63", seeds=max(seeds))
    if len(set(seeds)) < len(seeds):
        raise UsageError("seeds: {seeds} is there twice; a repeated run is no further run", seeds=_repeated(seeds))


@dataclass(frozen=True)
class ResolvedArm:
    """An arm with its whole configuration.

    Attributes:
        arm: as designed.
        config: its whole configuration; each run replaces the seed (`seeded`).
        num_parameters: learned numbers.
        flops_per_token: floating-point operations of one training step, per token, forward and backward.
        optimizer_flops: floating-point operations of the optimizer in one training step.
        draws_text: whether the seed draws the text too.
        inherited_flops: floating-point operations of the trainings whose weights a run begins from.
    """

    arm: Arm
    config: RunConfig
    num_parameters: int
    flops_per_token: int
    optimizer_flops: int
    draws_text: bool = False
    inherited_flops: int = 0

    def seeded(self, seed: int) -> RunConfig:
        """The whole configuration of its run from a seed."""
        drawn = {"corpus": {"draw": seed}} if self.draws_text and self.config.corpus.is_drawn else {}
        return RunConfig.parse(merge(self.config.plain(), {"seed": seed, **drawn}))

    @property
    def num_tokens(self) -> int:
        """Tokens a run of this arm is trained on."""
        return self.config.training.steps * self.config.tokens_per_step

    @property
    def flops(self) -> int:
        """Floating-point operations of a run's own training, the optimizer's included."""
        return self.num_tokens * self.flops_per_token + self.config.training.steps * self.optimizer_flops

    @property
    def all_flops(self) -> int:
        """Floating-point operations of a run's training and of those whose weights it begins from."""
        return self.inherited_flops + self.flops


def tokens_trained(config: Mapping[str, Any]) -> int:
    """Tokens that a run of this configuration, as plain data, is trained on."""
    training, time = config["training"], config["model"]["context_length"]
    return training["steps"] * training["batch_size"] * training["accumulation"] * time


VocabOf = Callable[[CorpusConfig], int]


def resolve(study: Study, base: RunConfig, vocab_size: int | VocabOf) -> tuple[ResolvedArm, ...]:
    """Every arm's whole configuration, widths or steps chosen where an arm asks to be matched.

    Args:
        study: the design.
        base: configuration of the base arm.
        vocab_size: of the tokenizer, or a function of the text's configuration that returns it.

    Raises:
        UsageError: an arm's changes do not make a configuration, do not differ from the base, or make two arms the
            same.
    """
    vocab_of = vocab_size if callable(vocab_size) else lambda _: vocab_size
    target = count_parameters(base.model, vocab_of(base.corpus))
    resolved: list[ResolvedArm] = []
    for arm in study.arms:
        where = _("study {study}, arm {arm}", study=study.name, arm=arm.name)
        config = RunConfig.parse(merge(base.plain(), arm.changes), where)
        _require_same_test(study, arm, base, config)
        _require_same_tokens(study, arm, config)
        vocab = vocab_of(config.corpus)
        if config.training.plan != "as-written" or config.training.minutes is not None:
            raise UsageError(
                "study {study}, arm {arm}: training.plan and minutes are the base's, for all arms",
                study=study.name,
                arm=arm.name,
            )
        if arm.match == "parameters":
            model = config.model
            mixes = model.attention != "none" or model.recurrence is not None
            key = "d_model" if model.feed_forward == "none" and mixes else "d_ff"
            width = matched_width(model, target, vocab, key)
            config = RunConfig.parse(merge(config.plain(), {"model": {key: width}}), where)
        parent = next((other for other in resolved if other.arm.name == arm.init_from), None)
        inherited = _inherited_flops(study, arm, config, parent)
        if arm.match == "flops":
            config = matched_steps(config, resolved[0].flops - inherited, vocab)
        for other in resolved:
            if config == other.config and arm.init_from == other.arm.init_from:
                raise UsageError(
                    "study {study}: arms {one!r} and {other!r} have the same configuration",
                    study=study.name,
                    one=other.arm.name,
                    other=arm.name,
                )
        size = count_parameters(config.model, vocab), _flops(config, vocab), optimizer_flops(config, vocab)
        resolved.append(ResolvedArm(arm, config, *size, study.draws_text, inherited))
    return tuple(resolved)


def _require_same_test(study: Study, arm: Arm, base: RunConfig, config: RunConfig) -> None:
    """Refuse a compared arm with another test text than the base's or, per token, another tokenizer.

    Raises:
        UsageError: names the key that differs.
    """
    if not arm.compared:
        return
    one, other = base.corpus.plain(), config.corpus.plain()
    for key in (*SAME_TEST_TEXT, *(("tokenizer",) if study.unit == "nats per token" else ())):
        if one.get(key) != other.get(key):
            advice = 'unit = "bits per character"' if key == "tokenizer" else "compared = false"
            raise UsageError(
                "study {study}, arm {arm}: corpus.{key} is not the base's, so losses cannot be compared "
                "in {unit}; set {advice}",
                study=study.name,
                arm=arm.name,
                key=key,
                unit=_(study.unit),
                advice=advice,
            )


def _require_same_tokens(study: Study, arm: Arm, config: RunConfig) -> None:
    """Refuse tokens that would depend on the draw of the text.

    Raises:
        UsageError: the tokens are byte pairs, learned from the training text.
    """
    if study.draws_text and isinstance(config.corpus.tokenizer, BPEConfig):
        raise UsageError(
            "study {study}, arm {arm}: draws_text gives each seed its own training text, from which byte pairs would "
            'learn other tokens; set corpus.tokenizer = "byte"',
            study=study.name,
            arm=arm.name,
        )


def _inherited_flops(study: Study, arm: Arm, config: RunConfig, parent: ResolvedArm | None) -> int:
    """Operations of the trainings whose weights an arm begins from.

    Raises:
        UsageError: its model is not that of the arm it begins from.
    """
    if parent is None:
        return 0
    free = ("dropout", "initialisation")
    own, other = ({**each.model.plain(), **dict.fromkeys(free)} for each in (config, parent.config))
    if difference := first_difference(other, own, "model."):
        raise UsageError(
            "study {study}, arm {arm}: begins from the weights of {parent}, which is another model: {difference}",
            study=study.name,
            arm=arm.name,
            parent=parent.arm.name,
            difference=difference,
        )
    return parent.all_flops


def _flops(config: RunConfig, vocab_size: int) -> int:
    costs = cost(config.model, vocab_size)
    return costs.forward_flops + costs.backward_flops


def with_more_steps(arm: ResolvedArm, times: int) -> ResolvedArm:
    """The arm trained for so many times its steps, evaluated as often."""
    training = arm.config.training
    changes = {"steps": times * training.steps, "evaluate_every": times * training.evaluate_every}
    where = _("arm {arm}, longer", arm=arm.arm.name)
    return replace(arm, config=RunConfig.parse(merge(arm.config.plain(), {"training": changes}), where))


def matched_steps(config: RunConfig, flops: int, vocab_size: int) -> RunConfig:
    """The configuration with the number of steps, at least one, whose operations are nearest to `flops`.

    The interval between evaluations stays the same share of the steps.
    """
    before = config.training.steps
    steps = max(1, round(flops / step_flops(config, vocab_size)))
    every = max(1, round(config.training.evaluate_every * steps / before))
    return RunConfig.parse(
        merge(config.plain(), {"training": {"steps": steps, "evaluate_every": every}}), _("matched steps")
    )


def matched_width(model: ModelConfig, target: int, vocab_size: int, key: Literal["d_ff", "d_model"] = "d_ff") -> int:
    """The width with which the model's number of parameters is nearest to `target`; the smaller of two as near.

    The number of parameters increases with the width, so bisection finds it. A d_model is a multiple of what the heads
    allow.

    Raises:
        UsageError: the width changes nothing, or none of WIDEST units or less reaches the target.
    """
    pairs = 1 if model.rotary is None else math.ceil(2 / model.rotary.fraction)
    unit = 1 if key == "d_ff" or "d_head" in model.plain() else model.num_heads * pairs

    def count(width: int) -> int:
        return count_parameters(ModelConfig.parse(model.plain() | {key: unit * width}), vocab_size)

    if count(1) == count(2):
        raise UsageError("an arm without a feed-forward has no width to match the base's parameters with")
    low, high = 1, 2
    while count(high) < target:
        if high >= WIDEST:
            raise UsageError("no feed-forward is wide enough to match {target} parameters", target=target)
        low, high = high, min(2 * high, WIDEST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < target else (low, middle)
    return unit * min((low, high), key=lambda width: (abs(count(width) - target), width))


def first_difference(recorded: Mapping[str, Any], given: Mapping[str, Any], path: str = "") -> str:
    """The first difference of two nested plain structures, in words; empty if there is none.

    >>> first_difference({"model": {"d_ff": 5}}, {"model": {"d_ff": 7}})
    'model.d_ff is 5 there and 7 here'
    """
    for where, one, other in differences(recorded, given, path):
        return _("{key} is {one} there and {other} here", key=where, one=_shown(one), other=_shown(other))
    return ""


def _shown(value: Any) -> str:
    text = _("not set") if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _repeated(items: Sequence) -> Any:
    return next(item for item in items if items.count(item) > 1)
