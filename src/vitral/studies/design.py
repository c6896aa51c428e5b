"""The design of a study as plain data: arms as differences from one configuration.

The first arm is the base. Every other arm lists its changes and nothing else; the rest is the base's, batches included.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from vitral.core.config import NAME, Config
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.runs.zoo import located

FIXED = ("seed", "corpus")
"""Keys that no arm may change: arms are paired by seed, and losses of different tokens cannot be compared."""
BudgetName = Literal["quick", "standard", "full"]
BUDGETS: tuple[BudgetName, ...] = ("quick", "standard", "full")
Unit = Literal["nats per token", "bits per character"]

TUNING_SEEDS = 0, 1_000_000
"""Seeds of the runs in which values are tried; no seeds of a study that tunes."""

KNOBS = ("training.optimizer.", "training.schedule.", "training.clip_norm", "model.dropout")
"""Keys, or how they begin, that may be tuned. Sizes and amounts are not among them: more mostly has the lower loss."""

Name = Annotated[str, Field(pattern=NAME)]
Factors = Annotated[tuple[Annotated[float, Field(gt=0, le=1e6)], ...], Field(strict=False, min_length=2)]


def _tune(tune: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
    """Refuse keys that are no knobs of the training, and factors that cannot be tried in order."""
    for key, factors in tune.items():
        if not key.startswith(KNOBS):
            knobs = ", ".join(f"{knob}*" if knob.endswith(".") else knob for knob in KNOBS)
            raise UsageError("{key} cannot be tuned; these can: {knobs}", key=key, knobs=knobs)
        if list(factors) != sorted(set(factors)):
            raise UsageError("the factors of {key} must increase", key=key)
    if len({len(factors) for factors in tune.values()}) > 1:
        raise UsageError("values that move together need as many factors each")
    return tune


Tune = Annotated[dict[str, Factors], AfterValidator(_tune)]


def _seeds(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if not seeds:
        raise UsageError("at least one is needed, three or more for a verdict")
    if len({*seeds}) < len(seeds):
        raise UsageError("{seeds} is there twice; a repeated run is no further run", seeds=_repeated(seeds))
    return seeds


Seed = Annotated[int, Field(ge=0, lt=2**63)]
Seeds = Annotated[tuple[Seed, ...], Field(strict=False), AfterValidator(_seeds)]


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
        run: folder of a run outside the study, such as an imported model, or `zoo:NAME`; each run of the arm begins
            from its last weights, with its model and its tokenizer. The operations of that training are not counted.
        contrast: whether its difference to its baseline arm is one of the study's claims.
        tune: factors of configuration values that are tried on validation before the arm is run, for example
            {"training.optimizer.learning_rate": [0.5, 1, 2]}; several values move together. The study's if None, none
            if empty. Only values of the training and of the dropout can be tuned (`KNOBS`).
    """

    name: Name
    title: str
    changes: dict[str, Any] = Field(default_factory=dict)
    match: Literal["parameters", "flops"] | None = None
    budget: BudgetName = "quick"
    compared: bool = True
    against: Name | None = None
    init_from: Name | None = None
    run: Annotated[str, Field(min_length=1)] | None = None
    contrast: bool = True
    tune: Tune | None = None

    @property
    def begun(self) -> Path | None:
        """The folder of the run outside the study; None without one."""
        return None if self.run is None else located(self.run)


class Budget(Config):
    """The size of a study.

    Attributes:
        seeds: of the runs; the study's if None.
        changes: nested configuration values laid over the study's base, such as its steps.
        tuned: whether arms are tuned.
    """

    seeds: Seeds | None = None
    tuned: bool = True
    changes: dict[str, Any] = Field(default_factory=dict)


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
        tune: of every arm whose loss is in a contrast, unless the arm has its own; see `Arm`. An arm that only probes
            measure is not tuned by it.
    """

    name: Name
    title: str
    question: str
    source: str = ""
    claim: str = ""
    design: str = ""
    base: str = "study"
    arms: Annotated[tuple[Arm, ...], Field(strict=False)]
    seeds: Seeds = (1, 2, 3, 4, 5, 6)
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
        least = 1 if self.probes else 2
        if len(names) < least:
            raise UsageError("arms: a study compares at least two arms, the first being the base")
        if len(set(names)) < len(names):
            raise UsageError("arms: two arms are called {names!r}", names=_repeated(names))
        self._check_base()
        for arm in self.arms[1:]:
            self._check_changes(arm)
            self._check_earlier(arm)
        for budget in self.budgets:
            if len(self.at(budget).arms) < least:
                raise UsageError(
                    "budgets: {budget!r} leaves only the base, so there is nothing to compare", budget=budget
                )
        self.check_not_of_tuning(
            [*self.seeds, *(one for budget in self.budgets.values() for one in budget.seeds or ())]
        )
        return self

    def check_not_of_tuning(self, seeds: Sequence[int]) -> None:
        """Refuse seeds of the runs in which values are tried, where some arm is tuned.

        Raises:
            UsageError: names the seed.
        """
        for seed in TUNING_SEEDS if any(map(self.tuned, self.arms)) else ():
            if seed in seeds:
                raise UsageError(
                    "seeds: {seed} is a seed with which the arms of {study} are tuned", seed=seed, study=self.name
                )

    def _check_base(self) -> None:
        base = self.arms[0]
        if base.changes or base.match or base.against or base.init_from or base.run or base.budget != BUDGETS[0]:
            raise UsageError(
                "arms: the first arm, {name!r}, is the base: it changes nothing, takes part at every "
                "budget, and is compared with nothing",
                name=base.name,
            )

    def _check_changes(self, arm: Arm) -> None:
        if not arm.changes and arm.init_from is None and arm.run is None:
            raise UsageError("arms: {name!r} changes nothing, so there is nothing to compare", name=arm.name)
        for key in FIXED if not self.varies_text else ("seed",):
            if key in arm.changes:
                raise UsageError(
                    "arms: {name!r} cannot change {key!r}: all arms of a study share it", name=arm.name, key=key
                )

    def tuned(self, arm: Arm) -> Tune:
        """The factors that are tried for this arm; empty for none."""
        if arm.tune is not None:
            return arm.tune
        named = {other.against or self.arms[0].name for other in self.arms[1:] if other.compared and other.contrast}
        is_contrasted = arm.compared and (arm.name in named or (arm.contrast and arm is not self.arms[0]))
        return self.tune if is_contrasted else {}

    def _check_earlier(self, arm: Arm) -> None:
        """Refuse a baseline arm, or one to begin from, that is not there before this arm whenever it is."""
        if arm.init_from is not None and arm.run is not None:
            raise UsageError(
                "arms: {name!r} begins from an arm and from a run; leave out init_from or run", name=arm.name
            )
        before = {other.name: other for other in self.arms[: self.arms.index(arm)]}
        for other in filter(None, (arm.against, arm.init_from)):
            named = {"name": arm.name, "other": other}
            if other not in before:
                raise UsageError("arms: {name!r} names {other!r}, which is no arm before it", **named)
            if BUDGETS.index(before[other].budget) > BUDGETS.index(arm.budget):
                raise UsageError("arms: {name!r} names {other!r}, which needs a larger budget", **named)
        if arm.against is not None and not before[arm.against].compared:
            raise UsageError(
                "arms: {name!r} is compared with {against!r}, whose loss is not compared",
                name=arm.name,
                against=arm.against,
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
        size = self.budgets[budget]
        arms = [arm for arm in self.arms if BUDGETS.index(arm.budget) <= BUDGETS.index(budget)]
        update: dict[str, Any] = {} if size.seeds is None else {"seeds": size.seeds}
        if not size.tuned:
            arms, update["tune"] = [arm.model_copy(update={"tune": None}) for arm in arms], {}
        return self.model_copy(update=update | {"arms": tuple(arms)})


def _repeated(items: Sequence) -> Any:
    return next(item for item in items if items.count(item) > 1)
