"""Tuning: values of an arm that are tried on the validation part, from seeds of their own, before the arm is run.

A design names factors of configuration values, such as `{"training.optimizer.learning_rate": [0.5, 1, 2]}`. Each row of
factors is one trial: runs of the arm with its values times the factors, one from each of `TUNING_SEEDS`, which no
tested run has. The base gets the values of the trial of least geometric mean of the validation loss. Of another arm
every trial within one standard error of its least is a tie (as Breiman et al. 1984 prune trees), and ties take the
base's values where they are among them, else those of the least: where the trials show no reason for another value,
arms are compared at the same one. The standard error is `results.trial_error` of all trials so far.

If the chosen trial is the first or the last, one more follows beyond it, at the same ratio, until it is none, up to
`MOST_FURTHER` times; then the arm is flagged as untuned: its best value may lie further out. Where no trial is finite,
further ones follow below the first. A trial beyond that would be no configuration, or would not fit into memory, is
left out, and the flag stays. The test part plays no role.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from vitral.core.config import assignment, merge
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.runs import is_run
from vitral.studies.design import TUNING_SEEDS, Study, Tune
from vitral.studies.executors import Work
from vitral.studies.jobs import Job
from vitral.studies.record import TUNING
from vitral.studies.resolution import ResolvedArm
from vitral.studies.results import Trial, Tuned, trial_error
from vitral.studies.texts import require_fit
from vitral.training import RunConfig

MOST_FURTHER = 3
"""Trials of an arm beyond an edge."""
Row = Mapping[str, float]
"""A factor by configuration key."""
AS_IT_IS: Row = {"": 1.0}
"""The row of an arm that is not tuned and runs from the tuning seeds for the arms that begin from it."""


def rows(tune: Tune, config: RunConfig) -> tuple[Row, ...]:
    """The factors of each trial; keys that the configuration lacks, such as those of another optimizer, are left out.

    Of rows that make the same values, as those of whole numbers may, the first stays.

    Raises:
        UsageError: the configuration has none of the keys, or a value is not a number.
    """
    factors_by_key = {key: factors for key, factors in tune.items() if _value(config, key) is not None}
    if tune and not factors_by_key:
        raise UsageError(
            "tune: the configuration has no {keys}; give the arm its own tune, or tune = {{}}", keys=", ".join(tune)
        )
    made = dict[tuple[float, ...], Row]()
    for factors in zip(*factors_by_key.values(), strict=True):
        row = dict(zip(factors_by_key, factors, strict=True))
        made.setdefault(tuple(_values(config, row).values()), row)
    return tuple(made.values())


def scaled(arm: ResolvedArm, row: Row) -> ResolvedArm:
    """The arm with its values times the factors, its operations counted again.

    Raises:
        UsageError: the values make no configuration.
    """
    changes = (assignment(f"{key}={value!r}") for key, value in _values(arm.config, row).items())
    where = _("arm {arm}, tuned", arm=arm.arm.name)
    return replace(arm, config=RunConfig.parse(merge(arm.config.plain(), *changes), where))


def trial_name(arm: str, row: Row, seed: int) -> str:
    """The run folder of a trial and a seed, relative to the study's folder.

    It has all digits of the factor but the last, which rounding may change.

    >>> trial_name("base", {"model.dropout": 0.2**2 / 0.5}, 0)
    'tuning/base/x0.08-seed-0'
    """
    return f"{TUNING}/{arm}/x{_factor(row):.15g}-seed-{seed}"


def _factor(row: Row) -> float:
    """That of the first key, which names the trial."""
    return next(iter(row.values()))


def chosen(arm: str, tried: Iterable[Trial], base: Mapping[str, float] | None, error: float) -> Tuned:
    """The choice among an arm's trials; where none is finite, the one whose factor is nearest to 1, flagged.

    Args:
        arm: its name.
        tried: its trials.
        base: the values of the base, which take ties; None for the base itself.
        error: standard error of the difference of two trials' mean log losses.
    """
    order = tuple(sorted(tried, key=lambda trial: trial.factor))
    finite = [trial for trial in order if trial.loss is not None]
    best = least = min(finite or order, key=lambda trial: trial.loss or abs(math.log(trial.factor)))
    if base is not None and finite:
        tied = [one for one in finite if math.log((one.loss or math.inf) / (best.loss or math.inf)) <= error]
        # The same values, but for rounding.
        equal = (one for one in tied if one.values.keys() == base.keys())
        best = next((one for one in equal if all(math.isclose(one.values[key], base[key]) for key in base)), best)
    return Tuned(arm, order, best.factor, not finite or best in (order[0], order[-1]), best is not least)


def trials_of(study: Study, arms: Sequence[ResolvedArm], out: Path) -> list[tuple[ResolvedArm, Job]]:
    """The trials that no result asks for, before it is known which of them others begin from."""
    return [trial for arm in arms for row in _planned(study, arms, arm) for trial in _trial(arm, row, out)]


def _planned(study: Study, arms: Sequence[ResolvedArm], arm: ResolvedArm) -> tuple[Row, ...]:
    """The rows of an arm; as it is, where it is not tuned and a tuned arm begins from it, directly or not."""
    begun_from = set[str]()
    for one in reversed(arms):
        if one.arm.init_from is not None and (study.tuned(one.arm) or one.arm.name in begun_from):
            begun_from.add(one.arm.init_from)
    tune = study.tuned(arm.arm)
    return rows(tune, arm.config) if tune else (AS_IT_IS,) * (arm.arm.name in begun_from)


def _trial(
    arm: ResolvedArm, row: Row, out: Path, parent: tuple[str, Row] | None = None
) -> Iterator[tuple[ResolvedArm, Job]]:
    """The jobs of a trial, each beginning from its parent's of the same seed."""
    tried = arm if row is AS_IT_IS else scaled(arm, row)
    for seed in TUNING_SEEDS:
        begins = None if parent is None else out / trial_name(*parent, seed)
        yield tried, Job.of(tried, seed, out, trial_name(arm.arm.name, row, seed), begins)


def tune_arms(arms: Sequence[ResolvedArm], work: Work) -> tuple[tuple[ResolvedArm, ...], tuple[Tuned, ...]]:
    """Every arm with the values that its trials have chosen, and the trials.

    The trials of an arm that begins from another begin from the chosen trial of that one.

    Args:
        arms: untuned.
        work: trains what is not there.
    """
    study, out, base = work.study, work.out, arms[0].arm.name
    untuned, tried, choices = {arm.arm.name: arm for arm in arms}, dict[str, list[Row]](), dict[str, Tuned]()
    done = dict[str, list[Trial]]()

    def row_of(name: str) -> Row:
        """That of the trial that is chosen so far."""
        return next((row for row in tried[name] if name in choices and _factor(row) == choices[name].chosen), AS_IT_IS)

    def train_and_choose(names: Sequence[str]) -> None:
        """Train the trials of these arms that are not there, and choose."""
        jobs = list[Job]()
        for name in names:
            before = untuned[name].arm.init_from
            parent = (before, row_of(before)) if before in choices else None
            jobs += [job for row in tried[name] for _arm, job in _trial(untuned[name], row, out, parent)]
        work.train(jobs)
        trials = {name: [_read(untuned[name], row, work) for row in tried[name]] for name in names if tried[name]}
        done.update(trials)
        error = trial_error(chain(*done.values()))
        for name, each in trials.items():
            config = scaled(untuned[base], row_of(base)).config
            values = {key: value for key in each[0].values if (value := _value(config, key)) is not None}
            choices[name] = chosen(name, each, None if name == base else values, error)

    for wave in work.waves({arm.arm.name: arm.arm.init_from for arm in arms}):
        for name in wave:
            if (before := untuned[name].arm.init_from) is not None:  # trained with the values chosen for that one
                flops = scaled(untuned[before], row_of(before)).all_flops
                untuned[name] = replace(untuned[name], inherited_flops=flops)
            tried[name] = [*_planned(study, arms, untuned[name])]
        train_and_choose(wave)
        for _time in range(MOST_FURTHER):
            for name in (one for one in wave if one in choices):
                tried[name] += _further(untuned[name], tried[name], choices[name], arms, work)
            train_and_choose(wave)
    tuned_arms = (arm.arm.name for arm in arms if study.tuned(arm.arm))
    return tuple(scaled(arm, row_of(name)) for name, arm in untuned.items()), tuple(
        choices[name] for name in tuned_arms
    )


def _further(
    arm: ResolvedArm, tried: Sequence[Row], choice: Tuned, arms: Sequence[ResolvedArm], work: Work
) -> list[Row]:
    """The row beyond an edge that is there or can be tried, if there is one."""
    row = edge(arm, tried, choice)
    if row is None:
        return []
    if not is_run(work.out / trial_name(arm.arm.name, row, TUNING_SEEDS[0])):
        try:
            require_fit(work.study, [scaled(arm, row)], TUNING_SEEDS, work.texts, arms)
        except UsageError:
            return []
    return [row]


def edge(arm: ResolvedArm, tried: Sequence[Row], choice: Tuned) -> Row | None:
    """The row beyond the chosen one at the same ratio, where that is the first or the last; None where there is none.

    There is none either where it makes the same values as another row, as those of whole numbers may. Where no trial is
    finite, it is the one below the first.
    """
    order = sorted(tried, key=_factor)
    if len(order) < 2 or not choice.at_edge:
        return None
    is_last = choice.chosen == _factor(order[-1]) and any(trial.loss is not None for trial in choice.trials)
    last, before = (order[-1], order[-2]) if is_last else (order[0], order[1])
    row = {key: last[key] ** 2 / before[key] for key in last}
    return None if _values(arm.config, row) in [_values(arm.config, one) for one in tried] else row


def _read(arm: ResolvedArm, row: Row, work: Work) -> Trial:
    """A trial that is there."""
    runs = [work.results[work.out / trial_name(arm.arm.name, row, seed)] for seed in TUNING_SEEDS]
    losses = [run.validation_loss if run.stopped is None else None for run in runs]
    finite = (loss if loss is not None and math.isfinite(loss) else None for loss in losses)
    return Trial(_factor(row), _values(arm.config, row), tuple(finite))


def _values(config: RunConfig, row: Row) -> dict[str, float]:
    """The configuration's values times the factors; a whole number stays whole, and at least 1 unless it is 0."""
    scaled_by = {key: (_value(config, key), factor) for key, factor in row.items()}
    return {
        key: max(min(value, 1), round(value * factor)) if isinstance(value, int) else value * factor
        for key, (value, factor) in scaled_by.items()
        if value is not None
    }


def _value(config: RunConfig, key: str) -> float | int | None:
    """The number at a key of the configuration; None where there is none."""
    value: Any = config.plain()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return None if isinstance(value, bool) or not isinstance(value, float | int) else value
