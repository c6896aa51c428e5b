"""A study from the names that a user types: design, base, seeds and folder."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.core.config import assignment, merge
from vitral.core.parts import imported_files
from vitral.studies import Study, StudyResult, read_study, run_study, study_named
from vitral.studies.design import BUDGETS, BudgetName
from vitral.training import RunConfig
from vitral.training.configuration import configure


@dataclass(frozen=True)
class StudyPlan:
    """A study with its base configuration, seeds and folder."""

    study: Study
    base: RunConfig
    seeds: Sequence[int] | None
    out: Path
    command: str
    budget: BudgetName | None = None

    def run(self, **how: Any) -> StudyResult:
        """Train and measure whatever is missing in the folder.

        Args:
            how: callback and executor of `vitral.studies.run_study`.

        Raises:
            UsageError: the design does not fit the base, or the folder contains another study.
            StorageError: writing to disk failed.
        """
        return run_study(self.study, self.base, self.out, seeds=self.seeds, budget=self.budget, **how)


def plan_study(
    name: str,
    start: str | None = None,
    *,
    budget: BudgetName | None = None,
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
        seeds: if None, the study's own, or those of the folder's record where the study leaves them to the default.
        overrides: plain nested data laid over the base, later over earlier.
        out: the folder; if None, `studies/NAME-BUDGET`, or `studies/NAME` for a study without budgets.

    Raises:
        UsageError: something of this is unknown or malformed.
    """
    whole = read_study(Path(name)) if name.endswith(".toml") else study_named(name)
    chosen: BudgetName | None = budget or next((one for one in BUDGETS if one in whole.budgets), None)
    study = whole if chosen is None else whole.at(chosen)
    changes = [whole.budgets[chosen].changes] if chosen is not None and start is None else []
    base = configure(start or whole.base, corpus=corpus, overrides=[*changes, *overrides])
    listed = None if seeds is None else ",".join(map(str, seeds))
    options = [("--base", start), ("--budget", budget), ("--corpus", corpus), ("--seeds", listed)]
    options += [("--set", setting) for setting in settings_of(merge(*overrides))]
    options += [("--parts", path) for path in imported_files().values()]
    words = ["vitral", "study", name, *(word for pair in options if pair[1] is not None for word in pair)]
    folder = out or Path("studies") / (study.name if chosen is None else f"{study.name}-{chosen}")
    return StudyPlan(study, base, seeds, folder, shlex.join(map(str, words)), chosen)


def settings_of(table: Mapping[str, Any]) -> Iterator[str]:
    """A nested table as the `KEY=VALUE` that `--set` reads.

    >>> list(settings_of({"model": {"norm": "post", "d_model": 64}}))
    ['model.norm=post', 'model.d_model=64']
    """
    for path, value in leaves(table):
        is_bare = isinstance(value, str) and assignment(f"x={value}") == {"x": value}
        yield f"{path}={value if is_bare else json.dumps(value)}"


def leaves(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a nested table with their dotted keys, in order."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
