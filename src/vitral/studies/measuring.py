"""What a study's probes find, each measured once and kept beside the runs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.data import Dataset
from vitral.data.batches import Split, thinned
from vitral.evaluation import evaluate_split
from vitral.runs import load_run
from vitral.runs.files import as_json, replace_durably, storage
from vitral.studies.design import BudgetName
from vitral.studies.probes import probe_named
from vitral.studies.probes.protocol import Plain, RunProbe, Setting, StudyProbe, Trained
from vitral.studies.results import ArmResult, RunResult, StudyResult
from vitral.training import Callback, RunConfig, TrainingConfig
from vitral.training.objectives import masking_of

FOLDER = "measures"
WHY = "why"
USUAL: BudgetName = "standard"
"""The budget at which probes look at a study of one size."""
FINAL_TOKENS = 5_000_000
"""Of a longer test part so many tokens are measured at the end."""


def measure(result: StudyResult, base: RunConfig, datasets: Mapping[str, Dataset], callback: Callback) -> StudyResult:
    """The result with what all its probes find; what is kept in `measures/` is not measured again.

    Args:
        result: every run that there is.
        base: configuration of the base arm.
        datasets: by arm.
        callback: is told {"event": "probe", "name", "subject"} before each measurement.

    Raises:
        UsageError: a run's last checkpoint cannot be loaded.
        StorageError: the disk did not take what was measured.
    """
    measured, unmeasured = {}, {}
    for name in result.study.probes:
        probe = probe_named(name)
        if isinstance(probe, StudyProbe):
            measured[name], unmeasured[name] = _of_study(probe, result, base, datasets, callback)
        else:
            measured[name], unmeasured[name] = _of_runs(probe, result, datasets, callback)
    return replace(result, measured=measured, unmeasured=unmeasured)


def final_losses(result: StudyResult, datasets: Mapping[str, Dataset], callback: Callback) -> StudyResult:
    """The result with every run's loss on all of the test part, where only some of it was measured while training.

    Of a test part of more than FINAL_TOKENS so many are measured, evenly spread.
    """
    arms = []
    for arm in result.arms:
        dataset = datasets[arm.arm.name]
        most = arm.config["training"].get("evaluation_tokens")
        whole = thinned(dataset.splits["test"], most) is dataset.splits["test"]
        runs = arm.runs if whole else tuple(_final(arm, run, dataset, result.folder, callback) for run in arm.runs)
        arms.append(replace(arm, runs=runs))
    return replace(result, arms=tuple(arms))


def _final(arm: ArmResult, run: RunResult, dataset: Dataset, folder: Path, callback: Callback) -> RunResult:
    """The run with the loss of its last weights on all of the test part."""
    if run.test_loss is None:
        return run

    def look() -> Plain:
        loaded = load_run(run.path, "last")
        masking = masking_of(TrainingConfig.parse(arm.config["training"]).objective, dataset.tokenizer)
        return evaluate_split(loaded.model, final_split(dataset), dataset.tokenizer, masking=masking).plain()

    name = f"{arm.arm.name}-seed-{run.seed}"
    found = _once(folder / FOLDER / "test-loss" / f"{name}.json", look, _announcing(callback, "test-loss", name))
    if WHY in found:
        return replace(run, test_loss=None, stopped=f"its loss on the whole test part: {found[WHY]}")
    return replace(run, test_loss=found["loss"])


def final_split(dataset: Dataset) -> Split:
    """So much of the test part as final losses and n-gram lines are of: all, unless it is very long."""
    return thinned(dataset.splits["test"], FINAL_TOKENS)


Found = tuple[Plain | None, tuple[str, ...]]
FoundInRuns = tuple[dict[str, dict[int, Plain]], tuple[str, ...]]


def _of_study(
    probe: StudyProbe, result: StudyResult, base: RunConfig, datasets: Mapping[str, Dataset], callback: Callback
) -> Found:
    """What the probe finds, and why not if it does not."""
    setting = Setting(base, datasets[result.arms[0].arm.name], result.first_seeds[0], result.budget or USUAL)
    path = result.folder / FOLDER / f"{probe.name}.json"
    found = _once(path, lambda: probe.measure(setting), _announcing(callback, probe.name, "the study"))
    return (None, (found[WHY],)) if WHY in found else (found, ())


def _of_runs(probe: RunProbe, result: StudyResult, datasets: Mapping[str, Dataset], callback: Callback) -> FoundInRuns:
    """What the probe finds in every finished run, and of the others why not."""
    found: dict[str, dict[int, Plain]] = {arm.arm.name: {} for arm in result.arms}
    why: list[str] = []
    for arm in result.arms:
        for run in arm.runs:
            if run.seed not in arm.losses:
                continue
            name, path = arm.arm.name, run.path

            def look(name: str = name, seed: int = run.seed, path: Path = path) -> Plain:
                loaded = load_run(path, "last")
                return probe.measure(Trained(name, seed, loaded, datasets[name], result.budget or USUAL))

            kept = result.folder / FOLDER / probe.name / f"{name}-seed-{run.seed}.json"
            one = _once(kept, look, _announcing(callback, probe.name, f"{name}, seed {run.seed}"))
            if WHY in one:
                why += [f"{arm.arm.title}: {one[WHY]}"]
            else:
                found[name][run.seed] = one
    return found, tuple(dict.fromkeys(why))


def _announcing(callback: Callback, name: str, subject: str) -> Callable[[], None]:
    return lambda: callback({"event": "probe", "name": name, "subject": subject})


def _once(path: Path, look: Callable[[], Plain], announce: Callable[[], None]) -> Plain:
    """What this file holds, or what is found now and kept there; read back, so that both are the same numbers.

    What cannot be measured is kept too, as {"why": the reason}, so that it is not tried again and again.
    """
    kept = _kept(path)
    if kept is None:
        announce()
        try:
            content = as_json(look())
        except UsageError as error:
            content = as_json({WHY: str(error)})
        except ValueError as error:  # JSON has no word for infinity
            content = as_json({WHY: f"it is not finite ({error})"})
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
