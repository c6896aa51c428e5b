"""The health of this machine, of a run or of a study, from Python: `doctor`, as the command of this name."""

from dataclasses import replace
from pathlib import Path

from vitral.core.checked import checked
from vitral.core.errors import UsageError
from vitral.lab.health import Diagnosis, examine_machine
from vitral.lab.opened import path_of
from vitral.lab.run import Run
from vitral.lab.run_health import examine_run, repair_run
from vitral.lab.study_health import examine_study, is_study


def examine(folder: Path) -> Diagnosis:
    """The health of a run or a study."""
    return examine_study(folder) if is_study(folder) else examine_run(folder)


@checked
def doctor(run: str | Path | Run | None = None, *, repair: bool = False) -> Diagnosis:
    """Check this machine, or a run or a study for damage.

    Args:
        run: a run or a study; this machine if None.
        repair: restore the run's configuration and cut its log; damaged files are kept.

    Raises:
        UsageError: none of them.
    """
    if run is None:
        if repair:
            raise UsageError("doctor: repair needs a run")
        return examine_machine()
    folder = path_of(run)
    repaired = tuple(repair_run(folder)) if repair else ()
    found = examine(folder)
    return replace(found, repaired=repaired)
