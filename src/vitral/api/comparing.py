"""A study from the names a user types to its report."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.api.configuring import configure
from vitral.core.config import assignment
from vitral.core.errors import UsageError
from vitral.reports.study import StudyPage, write_report
from vitral.studies import Study, read_study, run_study, study_named
from vitral.studies.design import BUDGETS, BudgetName
from vitral.studies.probes import probe_named
from vitral.training import Callback, RunConfig, silent


@dataclass(frozen=True)
class PlannedStudy:
    """A study with its base, seeds and folder."""

    study: Study
    base: RunConfig
    seeds: tuple[int, ...]
    out: Path
    command: str
    budget: BudgetName | None = None

    def run(self, *, callback: Callback = silent) -> StudyPage:
        """Train and measure what is not there yet and write the report.

        Raises:
            UsageError: the design does not fit the base, or the folder holds another study.
            StorageError: the disk did not take it.
        """
        result = run_study(self.study, self.base, self.out, seeds=self.seeds, budget=self.budget, callback=callback)
        return write_report(result, command=self.command)


def study_at(
    name: str,
    start: str | None = None,
    *,
    budget: str | None = None,
    corpus: str | None = None,
    seeds: str | None = None,
    settings: Sequence[str] = (),
    out: Path | None = None,
) -> PlannedStudy:
    """Plan a study.

    Args:
        name: a study's name or a `.toml` file.
        start: preset or configuration of the base model, taken as it is; the study's own, with what its budget lays
            over it, if None.
        budget: "quick", "standard" or "full"; quick if None, for a study that has budgets.
        corpus: the text, instead of the configuration's.
        seeds: comma-separated; the study's own if None.
        settings: `KEY=VALUE` overrides of the base.
        out: the folder; `studies/NAME-BUDGET`, or `studies/NAME` for a study of one size, if None.

    Raises:
        UsageError: something of this is unknown or malformed.
    """
    whole = read_study(Path(name)) if name.endswith(".toml") else study_named(name)
    for probe in whole.probes:
        probe_named(probe)
    chosen = _budget(whole, budget)
    study = whole if chosen is None else whole.at(chosen)
    given = [assignment(setting) for setting in settings]
    laid = [whole.budgets[chosen].changes] if chosen is not None and start is None else []
    base = configure(start or whole.base, corpus=corpus, overrides=[*laid, *given])
    numbers = study.seeds if seeds is None else _seeds(seeds)
    options = [("--base", start), ("--budget", budget), ("--corpus", corpus), ("--seeds", seeds)]
    options += [("--set", setting) for setting in settings]
    words = ["vitral", "study", name, *(word for pair in options if pair[1] is not None for word in pair)]
    folder = out or Path("studies") / (study.name if chosen is None else f"{study.name}-{chosen}")
    return PlannedStudy(study, base, tuple(numbers), folder, shlex.join(map(str, words)), chosen)


def _budget(study: Study, name: str | None) -> BudgetName | None:
    """The budget of that name, or the smallest the study has; None for a study without.

    Raises:
        UsageError: the study has none of that name.
    """
    if name is None:
        return next((budget for budget in BUDGETS if budget in study.budgets), None)
    known: dict[str, BudgetName] = {budget: budget for budget in BUDGETS}
    chosen = known.get(name)
    if chosen is None:
        raise UsageError(f"--budget {name}: not one of {', '.join(BUDGETS)}")
    study.at(chosen)
    return chosen


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds {text}: expected whole numbers with commas between, as in 1,2,3") from None
