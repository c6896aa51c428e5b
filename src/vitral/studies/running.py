"""Running a study: every arm from every seed, on the same batches, each run once however often one asks.

Seeds are the outer loop, so a study that is cut short has whole sets of arms to compare. What is finished is found
again, what was begun is resumed, and a run that met a number that is not finite is a result like any other.
"""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitral.core.errors import TrainingStopped, UsageError
from vitral.data import Dataset, prepare
from vitral.evaluation import NgramLines, ngram_lines
from vitral.model import cost
from vitral.runs import RunFolder
from vitral.runs.checkpoint import list_checkpoints
from vitral.runs.files import as_json, replace_durably, storage
from vitral.studies.design import ResolvedArm, Study, check_seeds, first_difference, resolve
from vitral.studies.results import ArmResult, RunResult, StudyResult, read_run, run_path
from vitral.training import Event, Reporter, RunConfig, resume, silent, train
from vitral.training.plans import settle
from vitral.training.train import build_model

RECORD = "study.json"
FORMAT = 1


def run_study(
    study: Study,
    base: RunConfig,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    reporter: Reporter = silent,
    dataset: Dataset | None = None,
) -> StudyResult:
    """Train whatever of the study is not trained yet, and gather what all of it measured.

    Args:
        study: the design.
        base: the configuration of the base arm; its seed is not used.
        out: the study's folder, new or of the same study. Each run is a run folder at `arms/ARM/seed-N`.
        seeds: instead of the study's; a later call may add some, never leave some out.
        reporter: is told every training event with "arm", "seed", "run" and "runs" (this one's number, and of how
            many), and {"event": "run", "state": "train" | "resume" | "found"} before each.
        dataset: the prepared corpus, if it is at hand; all runs share it.

    Raises:
        UsageError: the design does not fit the configuration, or `out` holds something else; it says what.
        StorageError: the disk did not take a run.
        KeyboardInterrupt: somebody asked to stop; the same call goes on from there.
    """
    seeds = tuple(study.seeds if seeds is None else seeds)
    check_seeds(seeds)
    if dataset is None:
        dataset = prepare(base.corpus)
    base = _settled(base, out, dataset)
    arms = resolve(study, base, dataset.tokenizer.vocab_size)
    shared = _without_seed(base.plain())
    first_seeds = _record(out, study, shared, seeds, dataset)
    lines = ngram_lines(dataset.parts["train"], dataset.parts["test"], dataset.tokenizer.vocab_size)
    jobs = [(arm, seed) for seed in seeds for arm in arms]
    runs: dict[str, list[RunResult]] = {arm.arm.name: [] for arm in arms}
    for number, (arm, seed) in enumerate(jobs, start=1):
        tell = _labelled(reporter, {"arm": arm.arm.name, "seed": seed, "run": number, "runs": len(jobs)})
        runs[arm.arm.name].append(_run(arm, seed, run_path(out, arm.arm.name, seed), dataset, lines, tell))
    any_run = RunFolder.open(run_path(out, arms[0].arm.name, seeds[0]))
    corpus = any_run.document("corpus")
    return StudyResult(
        study=study,
        base=shared,
        seeds=seeds,
        first_seeds=first_seeds,
        arms=tuple(_arm_result(arm, runs[arm.arm.name], dataset) for arm in arms),
        lines=NgramLines.from_plain(corpus["ngrams"]),
        corpus=corpus,
        environment=any_run.document("environment"),
        folder=out,
    )


def _run(
    resolved: ResolvedArm, seed: int, path: Path, dataset: Dataset, lines: NgramLines, reporter: Reporter
) -> RunResult:
    """One arm from one seed: found finished, resumed, or trained."""
    if (path / "config.toml").is_file():
        found = read_run(path, seed, resolved)
        if found.test_loss is not None or found.stopped is not None:
            reporter({"event": "run", "state": "found"})
            return found
    begun = _has_checkpoint(path)
    reporter({"event": "run", "state": "resume" if begun else "train"})
    with suppress(TrainingStopped):  # the run says why in its metrics
        if begun:
            resume(path, reporter=reporter)
        else:
            _clear(path)
            train(_seeded(resolved.config, seed), path, reporter=reporter, dataset=dataset, lines=lines)
    result = read_run(path, seed, resolved)
    if result.test_loss is None and result.stopped is None:
        raise KeyboardInterrupt(f"{path}: stopped before its last step; the same command goes on from there")
    return result


def _has_checkpoint(path: Path) -> bool:
    return bool(list_checkpoints(RunFolder(path).steps))


def _clear(path: Path) -> None:
    """Take away what was begun and has no checkpoint, so nothing that was trained."""
    if path.exists():
        with storage(path):
            shutil.rmtree(path)


def _seeded(config: RunConfig, seed: int) -> RunConfig:
    return RunConfig.parse(config.plain() | {"seed": seed})


def _without_seed(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plain.items() if key != "seed"}


def _labelled(reporter: Reporter, label: Event) -> Reporter:
    """A reporter that says which run an event belongs to."""
    return lambda event: reporter({**event, **label})


def _arm_result(resolved: ResolvedArm, runs: Iterable[RunResult], dataset: Dataset) -> ArmResult:
    costs = cost(resolved.config.model, dataset.tokenizer.vocab_size)
    return ArmResult(
        arm=resolved.arm,
        config=_without_seed(resolved.config.plain()),
        num_parameters=resolved.num_parameters,
        flops_per_token=costs.forward_flops + costs.backward_flops,
        runs=tuple(runs),
    )


def _settled(base: RunConfig, out: Path, dataset: Dataset) -> RunConfig:
    """The configuration with its execution plan, that of the study where it has begun: all arms and seeds share it."""
    found = _read_record(out)
    if found is None:
        vocab_size, num_tokens = dataset.tokenizer.vocab_size, len(dataset.parts["train"].tokens)
        return settle(base, lambda config: build_model(config, vocab_size), num_tokens).config
    if base.training.plan == "as-written" and base.training.minutes is None:
        return base
    begun, keys = RunConfig.parse(found["base"], f"{out}/{RECORD}").training, ["dtype", "compile", "plan"]
    keys += [] if base.training.minutes is None else ["minutes", "steps", "evaluate_every", "schedule"]
    changes = {key: getattr(begun, key) for key in keys}
    return base.model_copy(update={"training": base.training.model_copy(update=changes)})


def _record(
    out: Path, study: Study, base: Mapping[str, Any], seeds: tuple[int, ...], dataset: Dataset
) -> tuple[int, ...]:
    """Write study.json, or hold a new call against the one that is there; gives the seeds the study began with.

    Raises:
        UsageError: the folder is another study's, or not a study's, or has seeds that are not asked for now.
    """
    given = {"format": FORMAT, "study": study.plain(), "base": dict(base), "corpus": dataset.fingerprint}
    found = _read_record(out)
    if found is not None:
        difference = first_difference(_essence(found), _essence(given))
        if difference:
            raise UsageError(f"{out}: holds another study: {difference}; choose another --out")
        left_out = [seed for seed in found["seeds"] if seed not in seeds]
        if left_out:
            kept = ", ".join(map(str, left_out))
            raise UsageError(f"{out}: has runs of seeds not asked for here ({kept}); results cannot be left out")
    first_seeds = tuple(found["first_seeds"]) if found is not None else seeds
    record = {**given, "seeds": list(seeds), "first_seeds": list(first_seeds)}
    if found != record:
        with storage(out):
            out.mkdir(parents=True, exist_ok=True)
        replace_durably(out / RECORD, as_json(record))
    return first_seeds


def _essence(record: Mapping[str, Any]) -> dict[str, Any]:
    """What two calls must agree on to be the same study: not its wording, not its seeds."""
    arms = {arm["name"]: {key: arm.get(key) for key in ("changes", "match")} for arm in record["study"]["arms"]}
    design = {"name": record["study"]["name"], "base": next(iter(arms)), "arms": arms}
    return {"study": design, **{key: record.get(key) for key in ("format", "base", "corpus")}}


def _read_record(out: Path) -> dict[str, Any] | None:
    """The study.json of a folder; None if nothing is there yet."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    try:
        found = json.loads((out / RECORD).read_text(encoding="utf-8"))
        Study.parse(found["study"])
        check_seeds([*found["seeds"]])
        check_seeds([*found["first_seeds"]])
    except (OSError, ValueError, TypeError, KeyError):
        complaint = f"exists and is not a study's folder ({RECORD} is missing or damaged); choose another --out"
        raise UsageError(f"{out}: {complaint}") from None
    return found
