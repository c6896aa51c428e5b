"""A study from the names a user types to its report."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.api.configuring import configure
from vitral.core.config import assignment
from vitral.core.errors import UsageError
from vitral.studies import Report, Study, read_study, run_study, study_named, write_report
from vitral.training import Reporter, RunConfig, silent


@dataclass(frozen=True)
class PlannedStudy:
    """A study with its base, seeds and folder."""

    study: Study
    base: RunConfig
    seeds: tuple[int, ...]
    out: Path
    command: str

    def run(self, *, reporter: Reporter = silent) -> Report:
        """Train what is not trained yet and write the report.

        Raises:
            UsageError: the design does not fit the base, or the folder holds another study.
            StorageError: the disk did not take it.
        """
        result = run_study(self.study, self.base, self.out, seeds=self.seeds, reporter=reporter)
        return write_report(result, command=self.command)


def study_at(
    name: str,
    start: str,
    *,
    corpus: str | None = None,
    seeds: str | None = None,
    settings: Sequence[str] = (),
    out: Path | None = None,
) -> PlannedStudy:
    """Plan a study.

    Args:
        name: a study's name or a `.toml` file.
        start: preset or configuration of the base model.
        corpus: the text, instead of the configuration's.
        seeds: comma-separated; the study's own if None.
        settings: `KEY=VALUE` overrides of the base.
        out: the folder; `studies/NAME` if None.

    Raises:
        UsageError: something of this is unknown or malformed.
    """
    study = read_study(Path(name)) if name.endswith(".toml") else study_named(name)
    base = configure(start, corpus=corpus, overrides=[assignment(setting) for setting in settings])
    chosen = study.seeds if seeds is None else _seeds(seeds)
    given = [("--base", start), ("--corpus", corpus), ("--seeds", seeds), *(("--set", setting) for setting in settings)]
    words = [
        "vitral",
        "study",
        name,
        *(word for option, value in given if value is not None for word in (option, value)),
    ]
    return PlannedStudy(study, base, tuple(chosen), out or Path("studies") / study.name, shlex.join(words))


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--seeds {text}: expected whole numbers with commas between, as in 1,2,3") from None
