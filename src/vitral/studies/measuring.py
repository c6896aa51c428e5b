"""What a study's probes find, each measured once and kept beside the runs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from vitral.data import Dataset
from vitral.runs import load_run
from vitral.runs.files import as_json, replace_durably, storage
from vitral.studies.probes import probe_named
from vitral.studies.probes.protocol import Plain, RunProbe, Setting, StudyProbe, Trained
from vitral.studies.results import StudyResult
from vitral.training import Reporter, RunConfig

FOLDER = "measures"


def measure(result: StudyResult, base: RunConfig, datasets: Mapping[str, Dataset], reporter: Reporter) -> StudyResult:
    """The result with what all its probes find; what is kept in `measures/` is not measured again.

    Args:
        result: every run that there is.
        base: configuration of the base arm.
        datasets: by arm.
        reporter: is told {"event": "probe", "name", "subject"} before each measurement.

    Raises:
        UsageError: a run's last checkpoint cannot be loaded.
        StorageError: the disk did not take what was measured.
    """
    measured = {}
    for name in result.study.probes:
        probe = probe_named(name)
        if isinstance(probe, StudyProbe):
            setting = Setting(base, datasets[result.arms[0].arm.name], result.seeds, result.budget or "full")
            measured[name] = _of_study(probe, setting, result.folder / FOLDER, reporter)
        else:
            measured[name] = _of_runs(probe, result, datasets, reporter)
    return replace(result, measured=measured)


def _of_study(probe: StudyProbe, setting: Setting, folder: Path, reporter: Reporter) -> Plain:
    # A probe may look at every seed, so another set of seeds is another measurement.
    seeds = "-".join(map(str, setting.seeds))
    return _once(
        folder / probe.name / f"seeds-{seeds}.json",
        lambda: probe.measure(setting),
        lambda: reporter({"event": "probe", "name": probe.name, "subject": "the study"}),
    )


def _of_runs(
    probe: RunProbe, result: StudyResult, datasets: Mapping[str, Dataset], reporter: Reporter
) -> dict[str, dict[int, Plain]]:
    found: dict[str, dict[int, Plain]] = {arm.arm.name: {} for arm in result.arms}
    for arm in result.arms:
        for run in arm.runs:
            if run.seed not in arm.losses:
                continue
            name, path = arm.arm.name, run.path

            def look(name: str = name, seed: int = run.seed, path: Path = path) -> Plain:
                loaded = load_run(path, "last")
                return probe.measure(Trained(name, seed, loaded, datasets[name], result.budget or "full"))

            found[name][run.seed] = _once(
                result.folder / FOLDER / probe.name / f"{name}-seed-{run.seed}.json",
                look,
                lambda name=name, seed=run.seed: reporter(
                    {"event": "probe", "name": probe.name, "subject": f"{name}, seed {seed}"}
                ),
            )
    return found


def _once(path: Path, look: Callable[[], Plain], announce: Callable[[], None]) -> Plain:
    """What this file holds, or what is found now and kept there; read back, so that both are the same numbers."""
    kept = _kept(path)
    if kept is None:
        announce()
        content = as_json(look())
        with storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(path, content)
        kept = json.loads(content)
    return kept


def _kept(path: Path) -> Plain | None:
    """The measurement in this file; None if there is none, or it is damaged, and so made again."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
