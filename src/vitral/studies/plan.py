"""A study from the names that a user types: design, base, seeds and folder; and about how long each named one takes.

The time is estimated from a training step, on this machine, of the model that studies usually have.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vitral.core.config import assignment, merge
from vitral.core.parts import imported_files
from vitral.core.process import using_threads
from vitral.data.config import BPEConfig, ByteConfig, CorpusConfig
from vitral.evaluation.losses import FINAL_TOKENS
from vitral.model import Transformer
from vitral.runs import RunConfig
from vitral.studies import Study, StudyResult, read_study, run_study, study_named, study_names
from vitral.studies.design import BUDGETS, TUNING_SEEDS, BudgetName
from vitral.studies.probes import probe_named
from vitral.studies.resolution import resolve
from vitral.studies.tuning import rows
from vitral.training.configuration import configure
from vitral.training.costs import step_flops
from vitral.training.deadline import FORWARD
from vitral.training.plans import resolve_plan, time_steps
from vitral.training.run import build_model


class StudyPlan(NamedTuple):
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


CHARACTERS = 102
"""Vocabulary of a character tokenizer whose text is not at hand."""
HELD_OUT = 283_542, 555_000
"""Characters of the validation and the test part of the studies' text, the works of Shakespeare."""
PER_TOKEN = {"bpe": 2.2}
"""Characters in a token of that text, by tokenizer, where not 1."""
REFERENCE = 100e9
"""FLOPs per second of the machine on which the times of probes were measured."""
FURTHER = 0.3
"""Trials beyond the planned ones of an arm that is tuned, on the average over many arms."""
SECONDS_OF_A_RUN, SECONDS_OF_A_STUDY = 0.5, 10.0
"""Of a run besides its steps and evaluations, of a study besides its runs and probes: text, n-grams, report."""


def study_minutes() -> dict[str, dict[str, float]]:
    """About how many minutes every named study takes here at every budget it has, its runs one after the other.

    A training step of the configuration `study` is timed now, with the threads that it chooses; other models are taken
    to do as many operations per second, an evaluation to be a third of a step for each token.
    """
    usual = resolve_plan(configure("study"), _model, 10**9).config
    with using_threads(usual.training.threads):
        seconds = time_steps(usual.with_training(compile=False), _model)
    pace = seconds / step_flops(usual, CHARACTERS)
    studies = map(study_named, study_names())
    return {study.name: {one: _seconds(study, one, pace) / 60 for one in study.budgets} for study in studies}


def _seconds(study: Study, budget: BudgetName, pace: float) -> float:
    """The time at a pace of seconds for an operation: runs, trials, evaluations and measurements."""
    chosen, total = study.at(budget), SECONDS_OF_A_STUDY
    arms = resolve(chosen, configure(study.base, overrides=[study.budgets[budget].changes]), vocabulary)
    for arm in arms:
        training, planned = arm.config.training, len(rows(chosen.tuned(arm.arm), arm.config))
        held_out = [part / PER_TOKEN.get(arm.config.corpus.tokenizer.name, 1.0) for part in HELD_OUT]
        most = training.evaluation_tokens or FINAL_TOKENS
        read = -(-training.steps // training.evaluate_every) * sum(min(most, part) for part in held_out)
        last = 0.0 if most >= held_out[1] else min(held_out[1], FINAL_TOKENS)
        a_token, seeds = FORWARD * pace * arm.flops_per_token, len(chosen.seeds)
        once = SECONDS_OF_A_RUN + pace * arm.flops + a_token * read
        total += (seeds + len(TUNING_SEEDS) * (planned + FURTHER * (planned > 1))) * once + seeds * a_token * last
    for probe in map(probe_named, chosen.probes):
        times = len(arms) * len(chosen.seeds) if probe.of_runs else 1
        total += times * probe.seconds[BUDGETS.index(budget)] * REFERENCE * pace
    return total


def _model(config: RunConfig) -> Transformer:
    return build_model(config, vocabulary(config.corpus))


def vocabulary(corpus: CorpusConfig) -> int:
    """Tokens of a text that need not be at hand."""
    if isinstance(corpus.tokenizer, BPEConfig):
        return corpus.tokenizer.vocab_size
    return 256 if isinstance(corpus.tokenizer, ByteConfig) else CHARACTERS
