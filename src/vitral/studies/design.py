"""What a study compares: arms as differences from one configuration, as plain data.

The first arm is the base. Each other arm names what it changes and nothing else, so a reader sees at once what is
compared; whatever an arm does not change is the base's, the batches included.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from vitral.core.config import Config, differences, merge
from vitral.core.errors import UsageError
from vitral.model import ModelConfig, count_parameters
from vitral.training import RunConfig

SHARED = ("seed", "corpus")
"""What arms may not change: they are paired by the seed, and losses of different tokens cannot be compared."""
WIDEST = 2**24

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]


class Arm(Config):
    """One variant.

    Attributes:
        name: short, for folders and tables: small letters, digits, hyphens.
        title: what a reader should call it.
        changes: nested configuration values that differ from the base's; empty for the base alone.
        match: "parameters": choose model.d_ff so that the arm has as many parameters as the base, as nearly as can be.
    """

    name: Name
    title: str
    changes: dict[str, Any] = Field(default_factory=dict)
    match: Literal["parameters"] | None = None

    @field_validator("changes")
    @classmethod
    def _leave_what_is_shared(cls, changes: dict[str, Any]) -> dict[str, Any]:
        for key in SHARED:
            if key in changes:
                raise ValueError(f"an arm cannot change {key!r}: all arms of a study share it")
        return changes


class Study(Config):
    """A question, and the arms that answer it.

    Attributes:
        name: of the study, as typed after `vitral study`.
        title: of the report.
        question: what is asked.
        claim: what theory says must happen; the verdict says whether the numbers agree.
        arms: the base first, then at least one other.
        seeds: the runs' seeds; three or more allow an interval worth having.
    """

    name: Name
    title: str
    question: str
    claim: str = ""
    arms: Annotated[tuple[Arm, ...], Field(strict=False)]
    seeds: Annotated[tuple[int, ...], Field(strict=False)] = (1, 2, 3)

    @model_validator(mode="after")
    def _can_be_compared(self) -> "Study":
        names = [arm.name for arm in self.arms]
        if len(names) < 2:
            raise ValueError("arms: a study compares at least two arms, the first being the base")
        if len(set(names)) < len(names):
            raise ValueError(f"arms: two arms are called {_repeated(names)!r}")
        base, *others = self.arms
        if base.changes or base.match:
            raise ValueError(f"arms: the first arm, {base.name!r}, is the base and changes nothing")
        for arm in others:
            if not arm.changes:
                raise ValueError(f"arms: {arm.name!r} changes nothing, so there is nothing to compare")
        check_seeds(self.seeds)
        return self


def check_seeds(seeds: Sequence[int]) -> None:
    """Refuse seeds that are none, negative, or twice the same.

    Raises:
        UsageError: says which.
    """
    if not seeds:
        raise UsageError("seeds: at least one is needed, three or more for an interval worth having")
    if min(seeds) < 0:
        raise UsageError(f"seeds: {min(seeds)} is negative")
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"seeds: {_repeated(seeds)} is there twice; the same run twice is not two runs")


@dataclass(frozen=True)
class ResolvedArm:
    """An arm with everything decided.

    Attributes:
        arm: as designed.
        config: its whole configuration; the seed is the base's and replaced for each run.
        num_parameters: learned numbers.
    """

    arm: Arm
    config: RunConfig
    num_parameters: int


def resolve(study: Study, base: RunConfig, vocab_size: int) -> tuple[ResolvedArm, ...]:
    """Every arm's whole configuration, widths chosen where an arm asks to be matched.

    Raises:
        UsageError: an arm's changes do not make a configuration, do not differ from the base, or make two arms the
            same.
    """
    target = count_parameters(base.model, vocab_size)
    resolved: list[ResolvedArm] = []
    for arm in study.arms:
        config = RunConfig.parse(merge(base.plain(), arm.changes), f"study {study.name}, arm {arm.name}")
        if config.training.plan != "as-written" or config.training.minutes is not None:
            raise UsageError(
                f"study {study.name}, arm {arm.name}: training.plan and minutes are the base's, for all arms"
            )
        if arm.match:
            width = matched_width(config.model, target, vocab_size)
            config = RunConfig.parse(merge(config.plain(), {"model": {"d_ff": width}}), f"arm {arm.name}")
        for other in resolved:
            if config == other.config:
                raise UsageError(
                    f"study {study.name}: arms {other.arm.name!r} and {arm.name!r} have the same configuration"
                )
        resolved.append(ResolvedArm(arm, config, count_parameters(config.model, vocab_size)))
    return tuple(resolved)


def matched_width(model: ModelConfig, target: int, vocab_size: int) -> int:
    """The d_ff with which such a model has the number of parameters nearest to `target`; the smaller of two as near.

    The count grows with d_ff, so the width is found by halving.

    Raises:
        UsageError: the model has no feed-forward whose width could make up the difference.
    """

    def count(width: int) -> int:
        return count_parameters(ModelConfig.parse(model.plain() | {"d_ff": width}), vocab_size)

    if count(1) == count(2):
        raise UsageError("an arm without a feed-forward has no width by which to match the base's parameters")
    low, high = 1, 2
    while count(high) < target:
        if high >= WIDEST:
            raise UsageError(f"no feed-forward is wide enough to match {target} parameters")
        low, high = high, min(2 * high, WIDEST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < target else (low, middle)
    return min((low, high), key=lambda width: (abs(count(width) - target), width))


def first_difference(recorded: Mapping[str, Any], given: Mapping[str, Any], path: str = "") -> str:
    """Where two nested plain structures differ first, in words; empty if nowhere.

    >>> first_difference({"model": {"d_ff": 5}}, {"model": {"d_ff": 7}})
    'model.d_ff is 5 there and 7 here'
    """
    for where, one, other in differences(recorded, given, path):
        return f"{where} is {_shown(one)} there and {_shown(other)} here"
    return ""


def _shown(value: Any) -> str:
    """A value in few enough characters for one line."""
    text = "not set" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _repeated(items: Sequence) -> Any:
    return next(item for item in items if items.count(item) > 1)
