"""Tuning: values of an arm that are tried on the validation part, from one seed, before the arm is run.

A design names factors of configuration values, such as `{"training.optimizer.learning_rate": [0.5, 1, 2]}`. Each row of
factors is one trial: a run of the arm with its values times the factors, from `TUNING_SEED`, which no tested run has.
The trial with the lowest validation loss gives the arm its values. If it is the first or the last, one more trial
follows beyond it, at the same ratio; if that one is best, the arm is flagged: its best value may lie further out. If no
trial has a finite loss, one more follows below the first. A trial beyond that would be no configuration, or would not
fit into memory, is left out, and the flag stays. The test part plays no role.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vitral.core.config import merge
from vitral.core.errors import UsageError
from vitral.core.guarded import GuardedFolder
from vitral.core.language import _
from vitral.studies.design import TUNING_SEED, Tune, factor_name
from vitral.studies.record import TUNING
from vitral.studies.resolution import ResolvedArm
from vitral.studies.results import RunResult, Trial, Tuned, read_run
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


def further(tried: Sequence[Row], best: int) -> Row | None:
    """The row beyond the best one at the same ratio, where the best is the first or the last; None elsewhere."""
    if len(tried) < 2 or 0 < best < len(tried) - 1:
        return None
    edge, neighbour = (tried[0], tried[1]) if best == 0 else (tried[-1], tried[-2])
    return {key: edge[key] ** 2 / neighbour[key] for key in edge}


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
    return arm.with_config(RunConfig.parse(plain, _("arm {arm}, tuned", arm=arm.arm.name)))


def trial_name(arm: str, row: Row) -> str:
    """The run folder of a trial, relative to the study's folder."""
    return f"{TUNING}/{arm}/x{factor_name(next(iter(row.values())))}"


def trial_of(arm: ResolvedArm, row: Row, run: RunResult) -> Trial:
    """The trial that this run is."""
    loss = run.validation_loss if run.stopped is None else None
    return Trial(
        next(iter(row.values())), _values(arm.config, row), loss if loss is not None and math.isfinite(loss) else None
    )


def chosen(arm: ResolvedArm, trials: Mapping[float, tuple[Row, Trial]]) -> tuple[Row, Tuned]:
    """The best of the trials by factor; where none is finite, the one whose factor is nearest to 1, flagged."""
    order = sorted(trials)
    finite = [factor for factor in order if trials[factor][1].loss is not None]
    best = min(finite or order, key=lambda factor: trials[factor][1].loss or abs(math.log(factor)))
    at_edge = not finite or best in (order[0], order[-1])
    return trials[best][0], Tuned(arm.arm.name, tuple(trials[one][1] for one in order), best, at_edge)


def tuned_as_recorded(arm: ResolvedArm, tune: Tune, folder: GuardedFolder) -> ResolvedArm | None:
    """The arm with the values that the trials in a study's folder chose; None where a trial is missing."""
    if not tune:
        return arm
    found = tuned(arm, tune, lambda row: read_trial(arm, row, folder), lambda row: has_trial(arm, row, folder))
    return None if found is None else found[0]


def tuned(
    arm: ResolvedArm, tune: Tune, run: Callable[[Row], Trial | None], may: Callable[[Row], bool] = lambda row: True
) -> tuple[ResolvedArm, Tuned] | None:
    """Try every row, and one beyond the best if it is at an edge; None as soon as a trial is missing.

    Args:
        arm: untuned.
        tune: the factors; not empty.
        run: makes the trial of a row, or reads it.
        may: whether the trial beyond the edge can be made; asked only where its row makes other values than the others.

    Raises:
        UsageError: a planned row makes no configuration.
    """
    planned, trials = rows(tune, arm.config), dict[float, tuple[Row, Trial]]()
    for row in planned:
        trial = run(row)
        if trial is None:
            return None
        trials[trial.factor] = (row, trial)
    best = chosen(arm, trials)[1].chosen if any(trial.loss is not None for _row, trial in trials.values()) else None
    beyond = further(planned, 0 if best is None else sorted(trials).index(best))
    known = [_values(arm.config, row) for row in planned]
    if beyond is not None and _values(arm.config, beyond) not in known and may(beyond):
        trial = run(beyond)
        if trial is None:
            return None
        trials[trial.factor] = (beyond, trial)
    row, found = chosen(arm, trials)
    return scaled(arm, row), found


def read_trial(arm: ResolvedArm, row: Row, folder: GuardedFolder) -> Trial | None:
    """The trial in a study's folder; None where it is missing or has not ended."""
    if not has_trial(arm, row, folder):
        return None
    run = read_run(folder.within(trial_name(arm.arm.name, row)).path, TUNING_SEED, scaled(arm, row))
    return trial_of(arm, row, run) if run.ended else None


def has_trial(arm: ResolvedArm, row: Row, folder: GuardedFolder) -> bool:
    """Whether the trial has begun in a study's folder."""
    name = trial_name(arm.arm.name, row)
    return folder.kind(name) == "folder" and folder.within(name).kind("config.toml") == "file"


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
