"""Tuning: values of an arm that are tried on the validation part, from one seed, before the arm is run.

A design names factors of configuration values, such as `{"training.optimizer.learning_rate": [0.5, 1, 2]}`. Each row of
factors is one trial: a run of the arm with its values times the factors, from `TUNING_SEED`, which no tested run has.
The trial with the lowest validation loss gives the arm its values. If it is the first or the last, one more trial
follows beyond it, at the same ratio; if that one is best, the arm is flagged: its best value may lie further out. If no
trial has a finite loss, one more follows below the first. A trial beyond that would be no configuration, or would not
fit into memory, is left out, and the flag stays. The test part plays no role.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitral.core.config import merge
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.runs import is_run
from vitral.studies.design import TUNING_SEED, Study, Tune, factor_name
from vitral.studies.jobs import Job
from vitral.studies.record import TUNING
from vitral.studies.resolution import ResolvedArm
from vitral.studies.results import Trial, Tuned
from vitral.studies.texts import Texts, require_fit
from vitral.studies.waves import Work
from vitral.training import RunConfig

Row = Mapping[str, float]
"""A factor by configuration key."""
AS_IT_IS: Row = {"": 1.0}
"""The row of an arm that is not tuned and runs from the tuning seed for the arms that begin from it."""


def rows(tune: Tune, config: RunConfig) -> tuple[Row, ...]:
    """The factors of each trial; keys that the configuration lacks, such as those of another optimizer, are left out.

    Of rows that make the same values, as those of whole numbers may, the first stays.

    Raises:
        UsageError: the configuration has none of the keys, or a value is not a number.
    """
    found = {key: factors for key, factors in tune.items() if _value(config, key) is not None}
    if tune and not found:
        raise UsageError(
            "tune: the configuration has no {keys}; give the arm its own tune, or tune = {{}}", keys=", ".join(tune)
        )
    made = dict[tuple[float, ...], Row]()
    for factors in zip(*found.values(), strict=True):
        row = dict(zip(found, factors, strict=True))
        made.setdefault(tuple(_values(config, row).values()), row)
    return tuple(made.values())


def scaled(arm: ResolvedArm, row: Row) -> ResolvedArm:
    """The arm with its values times the factors, its operations counted again.

    Raises:
        UsageError: the values make no configuration.
    """
    plain = arm.config.plain()
    for key, value in _values(arm.config, row).items():
        nested: Any = value
        for part in reversed(key.split(".")):
            nested = {part: nested}
        plain = merge(plain, nested)
    return replace(arm, config=RunConfig.parse(plain, _("arm {arm}, tuned", arm=arm.arm.name)))


def trial_name(arm: str, row: Row) -> str:
    """The run folder of a trial, relative to the study's folder."""
    return f"{TUNING}/{arm}/x{factor_name(_factor(row))}"


def _factor(row: Row) -> float:
    """That of the first key, which names the trial."""
    return next(iter(row.values()))


def chosen(arm: ResolvedArm, tried: Sequence[Trial]) -> Tuned:
    """The best of an arm's trials; where none is finite, the one whose factor is nearest to 1, flagged."""
    order = tuple(sorted(tried, key=lambda trial: trial.factor))
    finite = [trial for trial in order if trial.loss is not None]
    best = min(finite or order, key=lambda trial: trial.loss or abs(math.log(trial.factor)))
    return Tuned(arm.arm.name, order, best.factor, not finite or best in (order[0], order[-1]))


def trials_of(study: Study, arms: Sequence[ResolvedArm], out: Path) -> list[tuple[ResolvedArm, Job]]:
    """The trials that no result asks for, before it is known which of them others begin from."""
    return [_trial(arm, row, out) for arm in arms for row in _planned(study, arms, arm)]


def _planned(study: Study, arms: Sequence[ResolvedArm], arm: ResolvedArm) -> tuple[Row, ...]:
    """The rows of an arm; as it is, where it is not tuned and a tuned arm begins from it, directly or not."""
    begun_from = set[str]()
    for one in reversed(arms):
        if one.arm.init_from is not None and (study.tuned(one.arm) or one.arm.name in begun_from):
            begun_from.add(one.arm.init_from)
    tune = study.tuned(arm.arm)
    return rows(tune, arm.config) if tune else (AS_IT_IS,) * (arm.arm.name in begun_from)


def _trial(arm: ResolvedArm, row: Row, out: Path, parent: Path | None = None) -> tuple[ResolvedArm, Job]:
    tried = arm if row is AS_IT_IS else scaled(arm, row)
    return tried, Job.of(tried, TUNING_SEED, out, trial_name(arm.arm.name, row), parent)


def tune_arms(arms: Sequence[ResolvedArm], work: Work) -> tuple[tuple[ResolvedArm, ...], tuple[Tuned, ...]]:
    """Every arm with the values that its trials have chosen, and the trials.

    The trials of an arm that begins from another begin from the chosen trial of that one.

    Args:
        arms: untuned.
        work: trains what is not there.
    """
    study, out = work.study, work.out
    made, best = {arm.arm.name: arm for arm in arms}, dict[str | None, Path]()
    found, tried = dict[str, Tuned](), dict[str, list[Row]]()

    def trials(names: Sequence[str]) -> dict[str, list[Trial]]:
        """The trials of these arms with their results."""
        rows = [(made[name], row) for name in names for row in tried[name]]
        work.train([_trial(arm, row, out, best.get(arm.arm.init_from))[1] for arm, row in rows])
        return {name: [_read(made[name], row, work) for row in tried[name]] for name in names}

    for wave in work.waves({arm.arm.name: arm.arm.init_from for arm in arms}):
        for name in wave:
            if (before := made[name].arm.init_from) is not None:  # trained with the values chosen for that one
                made[name] = replace(made[name], inherited_flops=made[before].all_flops)
            tried[name] = [*_planned(study, arms, made[name])]
        for name, results in trials(wave).items():
            beyond = edge(made[name], tried[name], results)
            there = beyond is not None and is_run(out / trial_name(name, beyond))
            if beyond is not None and (there or can_be_tried(study, made[name], beyond, arms, work.texts)):
                tried[name].append(beyond)
        for name, results in trials(wave).items():
            if results:
                found[name] = chosen(made[name], results)
                row = next(row for row in tried[name] if _factor(row) == found[name].chosen)
                made[name], best[name] = scaled(made[name], row), out / trial_name(name, row)
    tuned_arms = [arm.arm.name for arm in arms if study.tuned(arm.arm)]
    return tuple(made.values()), tuple(found[name] for name in tuned_arms)


def can_be_tried(study: Study, arm: ResolvedArm, row: Row, arms: Sequence[ResolvedArm], texts: Texts) -> bool:
    """Whether a row of an untuned arm makes a configuration that fits into memory and to its text."""
    try:
        require_fit(study, [scaled(arm, row)], [TUNING_SEED], texts, arms)
    except UsageError:
        return False
    return True


def edge(arm: ResolvedArm, tried: Sequence[Row], trials: Sequence[Trial]) -> Row | None:
    """The row beyond the best one at the same ratio, where that is the first or the last; None where there is none.

    There is none either where it makes the same values as another row, as those of whole numbers may. Where no trial is
    finite, it is the one below the first.
    """
    if len(tried) < 2:
        return None
    losses = [math.inf if trial.loss is None else trial.loss for trial in trials]
    best = losses.index(min(losses))
    if 0 < best < len(tried) - 1:
        return None
    last, before = (tried[0], tried[1]) if best == 0 else (tried[-1], tried[-2])
    row = {key: last[key] ** 2 / before[key] for key in last}
    return None if _values(arm.config, row) in [_values(arm.config, one) for one in tried] else row


def _read(arm: ResolvedArm, row: Row, work: Work) -> Trial:
    """A trial that is there."""
    run = work.results[work.out / trial_name(arm.arm.name, row)]
    loss = run.validation_loss if run.stopped is None and math.isfinite(run.validation_loss or 0) else None
    return Trial(_factor(row), _values(arm.config, row), loss)


def _values(config: RunConfig, row: Row) -> dict[str, float]:
    """The configuration's values times the factors; a whole number stays whole, and at least 1 unless it is 0."""
    found = {key: (_value(config, key), factor) for key, factor in row.items()}
    return {
        key: max(min(value, 1), round(value * factor)) if isinstance(value, int) else value * factor
        for key, (value, factor) in found.items()
        if value is not None
    }


def _value(config: RunConfig, key: str) -> float | int | None:
    """The number at a key of the configuration; None where there is none."""
    value: Any = config.plain()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return None if isinstance(value, bool) or not isinstance(value, float | int) else value
