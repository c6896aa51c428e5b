"""A study from the names a user types: its plan, its run, and the cost of every named study on this machine."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.core.checked import checked
from vitral.core.config import assignment, merge
from vitral.core.errors import UsageError
from vitral.core.parts import imported_files
from vitral.data.config import BPEConfig, ByteConfig, CorpusConfig
from vitral.lab.configuration import configure
from vitral.model import Transformer, cost
from vitral.reports.study import StudyPage, write_report
from vitral.studies import Study, read_study, run_study, study_named, study_names
from vitral.studies.design import BUDGETS, BudgetName, ResolvedArm, resolve
from vitral.studies.probe import RunProbe
from vitral.studies.probes import probe_named
from vitral.training import Callback, RunConfig, silent
from vitral.training.optimizer_cost import step_flops
from vitral.training.run import build_model
from vitral.training.trials import ExecutionPlan, seconds_per_step

CHARACTERS = 102
"""Vocabulary of a character tokenizer whose text is not at hand."""
REFERENCE = 100e9
"""FLOPs per second of the machine on which the times of probes were measured."""


@checked(first=True)
@dataclass(frozen=True)
class StudyPlan:
    """A study with its base configuration, seeds and folder."""

    study: Study
    base: RunConfig
    seeds: tuple[int, ...]
    out: Path
    command: str
    budget: BudgetName | None = None

    def run(self, *, callback: Callback = silent) -> StudyPage:
        """Train and measure whatever is missing in the folder, then write the report.

        Raises:
            UsageError: the design does not fit the base, or the folder contains another study.
            StorageError: writing to disk failed.
        """
        result = run_study(self.study, self.base, self.out, seeds=self.seeds, budget=self.budget, callback=callback)
        return write_report(result, command=self.command)


@checked(first=True)
def plan_study(
    name: str,
    start: str | None = None,
    *,
    budget: str | None = None,
    corpus: str | None = None,
    seeds: Sequence[int] | None = None,
    overrides: Sequence[Mapping[str, Any]] = (),
    out: Path | None = None,
) -> StudyPlan:
    """Plan a study.

    Args:
        name: a study's name or a `.toml` file.
        start: preset or configuration of the base model, taken as it is; if None, the study's own base with the
            changes of its budget.
        budget: "quick", "standard" or "full"; the smallest that the study has if None.
        corpus: the text, instead of the configuration's.
        seeds: the study's own if None.
        overrides: plain nested data laid over the base, later over earlier.
        out: the folder; if None, `studies/NAME-BUDGET`, or `studies/NAME` for a study without budgets.

    Raises:
        UsageError: something of this is unknown or malformed.
    """
    whole = read_study(Path(name)) if name.endswith(".toml") else study_named(name)
    for probe in whole.probes:
        probe_named(probe)
    chosen = _budget(whole, budget)
    study = whole if chosen is None else whole.at(chosen)
    changes = [whole.budgets[chosen].changes] if chosen is not None and start is None else []
    base = configure(start or whole.base, corpus=corpus, overrides=[*changes, *overrides])
    numbers = tuple(study.seeds if seeds is None else seeds)
    listed = None if seeds is None else ",".join(map(str, seeds))
    options = [("--base", start), ("--budget", budget), ("--corpus", corpus), ("--seeds", listed)]
    options += [("--set", setting) for setting in settings_of(merge(*overrides))]
    options += [("--parts", path) for path in imported_files()]
    words = ["vitral", "study", name, *(word for pair in options if pair[1] is not None for word in pair)]
    folder = out or Path("studies") / (study.name if chosen is None else f"{study.name}-{chosen}")
    return StudyPlan(study, base, numbers, folder, shlex.join(map(str, words)), chosen)


def _budget(study: Study, name: str | None) -> BudgetName | None:
    if name is None:
        return next((budget for budget in BUDGETS if budget in study.budgets), None)
    known: dict[str, BudgetName] = {budget: budget for budget in BUDGETS}
    chosen = known.get(name)
    if chosen is None:
        raise UsageError("budget {name}: not one of {budgets}", name=name, budgets=", ".join(BUDGETS))
    study.at(chosen)
    return chosen


def settings_of(table: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """A nested table as the `KEY=VALUE` that `--set` reads.

    >>> list(settings_of({"model": {"norm": "post", "d_model": 64}}))
    ['model.norm=post', 'model.d_model=64']
    """
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from settings_of(value, f"{path}{key}.")
        else:
            bare = f"x={value}"
            is_bare = isinstance(value, str) and assignment(bare) == {"x": value}
            yield f"{path}{key}={value if is_bare else json.dumps(value)}"


@dataclass(frozen=True)
class StudyCost:
    """The cost of a named study at a budget.

    Attributes:
        name: of the study.
        question: the question it asks.
        budget: the budget.
        runs: number of models trained.
        flops: of all training and evaluation.
        minutes: estimate for this machine.
    """

    name: str
    question: str
    budget: BudgetName
    runs: int
    flops: int
    minutes: float


def study_costs() -> list[StudyCost]:
    """The cost of every named study at every budget it has.

    A few training steps of the studies' base are timed now. Training and evaluation are assumed to run at the same
    FLOPs per second, and probes to scale from the machine on which they were timed.
    """
    base = configure("study")
    speed = _flops_per_step(base) / seconds_per_step(base, _model, ExecutionPlan(base.training.dtype, compile=False))
    return [_cost(study_named(name), budget, speed) for name in study_names() for budget in study_named(name).budgets]


def _cost(study: Study, budget: BudgetName, speed: float) -> StudyCost:
    chosen = study.at(budget)
    arms = resolve(chosen, configure(study.base, overrides=[study.budgets[budget].changes]), _vocab_size)
    seeds, flops, measuring = len(chosen.seeds), sum(arm.flops + _evaluation_flops(arm) for arm in arms), 0.0
    for name in chosen.probes:
        probe = probe_named(name)
        times = len(arms) * seeds if isinstance(probe, RunProbe) else 1
        measuring += times * probe.seconds.get(budget, 0.0)
    minutes = (seeds * flops / speed + measuring * REFERENCE / speed) / 60
    return StudyCost(study.name, study.question, budget, len(arms) * seeds, seeds * flops, minutes)


def _evaluation_flops(arm: ResolvedArm) -> int:
    # An upper bound: a short text has fewer tokens to evaluate.
    training = arm.config.training
    forward = cost(arm.config.model, _vocab_size(arm.config.corpus)).forward_flops
    passes = 2 * -(-training.steps // training.evaluate_every)
    return passes * (training.evaluation_tokens or 0) * forward


def _flops_per_step(config: RunConfig) -> float:
    return step_flops(config, CHARACTERS)


def _model(config: RunConfig) -> Transformer:
    return build_model(config, CHARACTERS)


def _vocab_size(corpus: CorpusConfig) -> int:
    if isinstance(corpus.tokenizer, BPEConfig):
        return corpus.tokenizer.vocab_size
    return 256 if isinstance(corpus.tokenizer, ByteConfig) else CHARACTERS
