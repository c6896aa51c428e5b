"""The measurements of a study's probes: each is made once and kept as JSON beside the runs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.core.files import as_json, replace_durably, storage
from vitral.data import Dataset
from vitral.data.batches import Split, thinned
from vitral.evaluation import evaluate_split
from vitral.runs import load_run
from vitral.studies.design import BudgetName
from vitral.studies.probe import Plain, RunProbe, Setting, Trained
from vitral.studies.probes import probe_named
from vitral.studies.results import ArmResult, RunResult, StudyResult
from vitral.training import Callback, RunConfig, TrainingConfig
from vitral.training.objectives import masking_of

FOLDER = "measures"
WHY = "why"
USUAL: BudgetName = "standard"
"""The budget of probes in a study of one size."""
FINAL_TOKENS = 5_000_000
"""Most tokens of the test split on which final losses are measured."""


def measure(result: StudyResult, base: RunConfig, datasets: Mapping[str, Dataset], callback: Callback) -> StudyResult:
    """The result with the measurements of all its probes; one that is kept in `measures/` is not made again.

    Args:
        result: the runs.
        base: configuration of the base arm.
        datasets: by arm.
        callback: receives {"event": "probe", "name", "subject"} before each measurement.

    Raises:
        UsageError: a run's last checkpoint cannot be loaded.
        StorageError: the disk did not take a measurement.
    """
    measured, unmeasured = {}, {}
    for name in result.study.probes:
        probe = probe_named(name)
        if isinstance(probe, RunProbe):
            measured[name], unmeasured[name] = _of_runs(probe, result, datasets, callback)
            continue
        setting = Setting(base, datasets[result.arms[0].arm.name], result.first_seeds[0], result.budget or USUAL)
        path = result.folder / FOLDER / f"{name}.json"
        found = _once(path, partial(probe.measure, setting), callback, name, "the study")
        measured[name], unmeasured[name] = (None, (found[WHY],)) if WHY in found else (found, ())
    return replace(result, measured=measured, unmeasured=unmeasured)


def final_losses(result: StudyResult, datasets: Mapping[str, Dataset], callback: Callback) -> StudyResult:
    """The result with every run's loss on the whole test split, where only some of it was measured while training.

    Of a test split of more than FINAL_TOKENS, FINAL_TOKENS evenly spread tokens are measured.
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
    """The run with the loss of its last weights on the whole test split."""
    if run.test_loss is None:
        return run

    def look() -> Plain:
        loaded = load_run(run.path, "last")
        masking = masking_of(TrainingConfig.parse(arm.config["training"]).objective, dataset.tokenizer)
        return evaluate_split(loaded.model, final_split(dataset), dataset.tokenizer, masking=masking).plain()

    name = f"{arm.arm.name}-seed-{run.seed}"
    found = _once(folder / FOLDER / "test-loss" / f"{name}.json", look, callback, "test-loss", name)
    if WHY in found:
        return replace(run, test_loss=None, stopped=f"its loss on the whole test split: {found[WHY]}")
    return replace(run, test_loss=found["loss"])


def final_split(dataset: Dataset) -> Split:
    """The test split, thinned to FINAL_TOKENS where it is longer: for final losses and n-gram baselines."""
    return thinned(dataset.splits["test"], FINAL_TOKENS)


def _of_runs(
    probe: RunProbe, result: StudyResult, datasets: Mapping[str, Dataset], callback: Callback
) -> tuple[dict[str, dict[int, Plain]], tuple[str, ...]]:
    """The measurements of finished runs by arm and seed, and the reasons why others have none."""
    found: dict[str, dict[int, Plain]] = {arm.arm.name: {} for arm in result.arms}
    why: dict[str, None] = {}
    for arm in result.arms:
        for run in arm.runs:
            if run.seed not in arm.losses:
                continue
            name = arm.arm.name

            def look(name: str = name, run: RunResult = run) -> Plain:
                loaded, budget = load_run(run.path, "last"), result.budget or USUAL
                return probe.measure(Trained(name, run.seed, loaded, datasets[name], budget))

            path = result.folder / FOLDER / probe.name / f"{name}-seed-{run.seed}.json"
            one = _once(path, look, callback, probe.name, f"{name}, seed {run.seed}")
            if WHY in one:
                why[f"{arm.arm.title}: {one[WHY]}"] = None
            else:
                found[name][run.seed] = one
    return found, tuple(why)


def _once(path: Path, look: Callable[[], Plain], callback: Callback, name: str, subject: str) -> Plain:
    """The content of this file, or a measurement made now and kept there; read back, so that both are the same numbers.

    A failure is kept too, as {"why": the reason}, so that it is not tried again. A damaged file is measured again.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        kept = None
    if isinstance(kept, dict):
        return kept
    callback({"event": "probe", "name": name, "subject": subject})
    try:
        content = as_json(look())
    except UsageError as error:
        content = as_json({WHY: str(error)})
    except ValueError as error:  # JSON has no word for infinity
        content = as_json({WHY: f"it is not finite ({error})"})
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(path, content)
    return json.loads(content)
