"""Execution of a study: every arm from every seed, on the same batches, each run once however often it is called.

Arms are tuned first (`vitral.studies.tuning`). Then seeds are the outer loop, so a study that is interrupted has whole
sets of arms to compare. A finished run is found again, an unfinished one is resumed, and a run that met a number that
is not finite is a result like any other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitral.core.checked import checked
from vitral.core.errors import TrainingStopped, UsageError
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_, _
from vitral.data import Dataset
from vitral.evaluation import NgramBaselines
from vitral.evaluation.losses import bits_per_nat
from vitral.runs import RunFolder, enter, load_run
from vitral.runs.lock import LOCK, only_writer
from vitral.studies.design import LONGER_SEEDS, TUNING_SEED, BudgetName, Study, check_seeds
from vitral.studies.jobs import Job, Progress, jobs_of, longer_of, require_own, require_room, trials_of, tuned_from
from vitral.studies.losses import baseline_arm, failed_seeds
from vitral.studies.measures import beside_ngrams, final_losses, final_split, measure
from vitral.studies.outside import tokenizers_of
from vitral.studies.probes import probe_named
from vitral.studies.record import ARMS, FORMAT, MEASURES, RECORD, REPORT, read_record, seeds_of, write_record
from vitral.studies.resolution import ResolvedArm, resolve
from vitral.studies.results import (
    ArmResult,
    RunResult,
    StudyResult,
    read_run,
    require_parent,
)
from vitral.studies.texts import Texts, baselines_of, require_memory, require_text
from vitral.studies.tuning import Row, Trial, Tuned, has_trial, scaled, trial_name, trial_of, tuned
from vitral.training import Callback, RunConfig, resume, silent, train
from vitral.training.memory import require_training_memory
from vitral.training.plans import FIT, resolve_plan
from vitral.training.run import build_model

RUN_FOLDERS = ("", "steps", "samples", "report")


@checked(first=True)
def run_study(
    study: Study,
    base: RunConfig,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    budget: BudgetName | None = None,
    callback: Callback = silent,
    dataset: Dataset | None = None,
) -> StudyResult:
    """Train the runs that are not trained yet, make the missing measurements, and gather everything.

    Args:
        study: the design, as its budget allows it (`Study.at`).
        base: the configuration of the base arm; its seed is not used.
        out: the study's folder, new or of the same study. Each run is a run folder at `arms/ARM/seed-N`.
        seeds: instead of the study's, or of those in the record; a later call may add some, and leave out only those
            without a run.
        budget: for probes and the record.
        callback: receives every training event with "arm", "seed", "run" and "runs" (this run's number and the
            number of runs), and "before", "during" and "in_all": floating-point operations of this call's trainings
            before this run, in it, and in total; {"event": "run", "state": "train" | "resume" | "found"} before each
            run; and {"event": "probe", "name", "subject"} before each measurement.
        dataset: the prepared corpus of the base, if it is prepared already.

    Raises:
        UsageError: the design does not fit the configuration, the text is too short, the disk has too little room,
            `out` contains something else, or a run in it is of another configuration; the message says which.
        StorageError: the disk did not take a run.
        KeyboardInterrupt: the user asked to stop; the same call resumes from there.
    """
    folder = GuardedFolder(out)

    def note(line: str) -> None:
        callback({"event": "note", "text": line})

    if seeds is not None:
        _check_design(study, seeds)
    found = read_record(folder, note)
    seeds = seeds_of(study, seeds, found)
    _check_design(study, seeds)
    texts = Texts(dataset, tokenizers_of(study))
    require_training_memory(base, texts.vocab_size(base.corpus), _("study {study}", study=study.name))
    base = _with_plan(base, found or _lost_record(folder, study), out, texts.of(base.corpus))
    arms = resolve(study, base, texts.vocab_size)
    trials, jobs = trials_of(study, arms, folder), jobs_of(folder, arms, seeds)
    tried = [job.arm for job in trials]
    require_memory(study, [*arms, *tried], texts)
    require_text(study, arms, seeds, texts)
    require_text(study, tried, [TUNING_SEED], texts, arms)
    require_room(out, [*trials, *jobs])
    record = {"format": FORMAT, "study": study.plain(), "base": _without_seed(base.plain()), "seeds": list(seeds)}
    record |= {"texts": {arm.arm.name: texts.of(arm.config.corpus).fingerprint for arm in arms}}
    record |= {} if budget is None else {"budget": budget}
    folder.make()
    with only_writer(out):
        first_seeds = _begin(folder, trials, jobs, record, found)
        require_own(trials, note)
        require_own([*jobs, *longer_of(folder, arms, seeds)], note, study.tuned)
        progress = Progress([*trials, *jobs], callback)

        def run(job: Job) -> RunResult:
            require_own([job], note)
            return _run(job, texts, progress.of(job))

        arms, tuning = _tune(study, arms, folder, run, texts)
        jobs = jobs_of(folder, arms, seeds)
        require_own(jobs, note)
        runs = [(job, _run(job, texts, progress.of(job))) for job in jobs]
        result = _gathered(study, record, first_seeds, arms, runs, texts, note)
        result = replace(result, folder=out, budget=budget, tuning=tuning)
        datasets = {(job.arm.arm.name, job.seed): texts.of(job.config.corpus) for job in jobs}
        result = beside_ngrams(final_losses(result, datasets, callback), datasets, callback)
        result = _with_second_budget(result, arms, folder, run)
        return measure(result, base, datasets, callback)


def _gathered(
    study: Study,
    record: Mapping[str, Any],
    first_seeds: tuple[int, ...],
    arms: Sequence[ResolvedArm],
    runs: Sequence[tuple[Job, RunResult]],
    texts: Texts,
    note: Callable[[str], None],
) -> StudyResult:
    """The results of all runs, with the n-gram baselines beside them and the first run's record of text and machine."""
    first, seeds = enter(runs[0][0].path, note), tuple(record["seeds"])
    return StudyResult(
        study=study,
        base=record["base"],
        seeds=seeds,
        first_seeds=first_seeds,
        arms=tuple(_arm_result(arm, runs, study, texts) for arm in arms),
        baselines=baselines_of(arms[0], seeds, texts),
        curve_baselines=NgramBaselines.from_plain(first.ngrams() or {}),
        corpus=first.document("corpus"),
        environment=first.document("environment"),
        folder=runs[0][1].path,
    )


def _check_design(study: Study, seeds: Sequence[int]) -> None:
    """Refuse seeds that no run can have, and an unknown probe."""
    check_seeds(seeds)
    if study.tunes and TUNING_SEED in seeds:
        raise UsageError(
            "seeds: {seed} is the seed with which the arms of {study} are tuned", seed=TUNING_SEED, study=study.name
        )
    for probe in study.probes:
        probe_named(probe)


Run = Callable[[Job], RunResult]


def _tune(
    study: Study, arms: Sequence[ResolvedArm], folder: GuardedFolder, run: Run, texts: Texts
) -> tuple[tuple[ResolvedArm, ...], tuple[Tuned, ...]]:
    """The arms with the values that their trials chose, and the trials; a trial begins from the chosen one."""
    found, told, parents = list[ResolvedArm](), list[Tuned](), tuned_from(study, arms)
    chosen: dict[str | None, Job] = {}
    for untuned in arms:
        before = next((other for other in found if other.arm.name == untuned.arm.init_from), None)
        arm = untuned if before is None else replace(untuned, inherited_flops=before.all_flops)
        name, parent = arm.arm.name, chosen.get(arm.arm.init_from)

        def may(row: Row, arm: ResolvedArm = arm) -> bool:
            return has_trial(arm, row, folder) or _can_be_tried(study, arm, row, arms, texts)

        def trial(row: Row, arm: ResolvedArm = arm, parent: Job | None = parent) -> Trial:
            job = Job(scaled(arm, row), TUNING_SEED, folder.within(trial_name(arm.arm.name, row)), parent)
            return trial_of(arm, row, run(job))

        tried = tuned(arm, study.tuned(arm.arm), trial, may) if study.tuned(arm.arm) else None
        own, factor = (arm, 1.0) if tried is None else (tried[0], tried[1].chosen)
        found.append(own)
        told += [] if tried is None else [tried[1]]
        if name in parents:
            chosen[name] = Job(own, TUNING_SEED, folder.within(trial_name(name, {"": factor})), parent)
            run(chosen[name])
    return tuple(found), tuple(told)


def _can_be_tried(study: Study, arm: ResolvedArm, row: Row, arms: Sequence[ResolvedArm], texts: Texts) -> bool:
    """Whether a row makes a configuration that fits into memory and to its text."""
    try:
        made = scaled(arm, row)
        require_memory(study, [made], texts)
        require_text(study, [made], [TUNING_SEED], texts, arms)
    except UsageError:
        return False
    return True


def _with_second_budget(
    result: StudyResult, arms: Sequence[ResolvedArm], folder: GuardedFolder, run: Run
) -> StudyResult:
    """The result with longer runs of arms that fail and of their baseline arms, in a study that tunes.

    They tell whether the gap closes: `LONGER_STEPS` times the steps, from `LONGER_SEEDS` seeds: the smallest of those
    that the study began with, so that neither the order of the seeds nor a seed added later changes them.
    """
    base_fails = bool(failed_seeds(result, result.arms[0]))
    if not result.study.tunes or base_fails:
        return result
    failing = [arm for arm in result.arms[1:] if arm.arm.compared and failed_seeds(result, arm)]
    wanted = {name for arm in failing for name in (arm.arm.name, baseline_arm(result, arm).arm.name)}
    longer: dict[str, tuple[RunResult, ...]] = {}
    added = set(result.seeds) - set(result.first_seeds)
    seeds = [*sorted(result.first_seeds), *sorted(added)][:LONGER_SEEDS]
    for job in longer_of(folder, arms, seeds):
        if job.arm.arm.name in wanted:
            longer[job.arm.arm.name] = (*longer.get(job.arm.arm.name, ()), run(job))
    return replace(result, longer=longer)


def _run(job: Job, texts: Texts, callback: Callback) -> RunResult:
    """One arm from one seed: found finished, resumed, or trained from random weights or its parent's."""
    path, config, begun, parent = job.path, job.config, job.begun, job.parent
    if parent is not None:
        before = read_run(parent.path, parent.seed, parent.arm) if parent.begun else None
        if before is None or before.test_loss is None:
            why = N_("it begins from arm {arm}, which has no result").format(arm=parent.arm.arm.name)
            return RunResult(job.seed, path, (), None, None, None, 0.0, stopped=why)
    if begun:
        require_parent(path, job.source, lambda line: None)
        found = read_run(path, job.seed, job.arm)
        if found.ended:
            callback({"event": "run", "state": "found"})
            _tidy(job)
            return found
    callback({"event": "run", "state": "resume" if begun else "train"})
    with suppress(TrainingStopped):  # the run says why in its metrics
        if begun:
            resume(path, callback=callback)
        else:
            dataset, baselines = texts.of(config.corpus), texts.curve_baselines(config)
            source = None if job.source is None else load_run(job.source, "last")
            train(config, path, callback=callback, dataset=dataset, baselines=baselines, init_from=source)
    result = read_run(path, job.seed, job.arm)
    if not result.ended:
        raise KeyboardInterrupt(
            _("{path}: stopped before its last step; the same command goes on from there", path=path)
        )
    return result


def _tidy(job: Job) -> None:
    """Finish the last save of a run, which a kill may have left after the checkpoint and before the rest."""
    run = RunFolder.open(job.path)
    newest = run.newest()
    if newest is not None:
        with only_writer(job.path):
            run.tidy(newest, keep=job.config.training.keep_checkpoints)


def _without_seed(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plain.items() if key != "seed"}


def _arm_result(resolved: ResolvedArm, runs: Iterable[tuple[Job, RunResult]], study: Study, texts: Texts) -> ArmResult:
    config, factor = resolved.config, 1.0
    if study.unit == "bits per character":
        dataset = texts.of(config.corpus)
        factor = bits_per_nat(final_split(dataset), config.model.context_length, dataset.tokenizer)
    return ArmResult(
        arm=resolved.arm,
        config=_without_seed(config.plain()),
        num_parameters=resolved.num_parameters,
        flops_per_token=resolved.flops_per_token,
        optimizer_flops=resolved.optimizer_flops,
        runs=tuple(run for job, run in runs if job.arm is resolved),
        factor=factor,
        inherited_flops=resolved.inherited_flops,
    )


def _lost_record(folder: GuardedFolder, study: Study) -> Mapping[str, Any] | None:
    """What the first run of the base arm tells of a record that is lost: its plan; None if nothing has begun."""
    arm = study.arms[0].name
    for name in folder.names(f"{ARMS}/{arm}"):
        run = folder.within(f"{ARMS}/{arm}/{name}")
        if folder.kind(f"{ARMS}/{arm}/{name}") == "folder" and run.kind("config.toml") == "file":
            return {"base": enter(run.path, lambda line: None).config.plain()}
    return None


def _begin(
    folder: GuardedFolder,
    trials: Sequence[Job],
    jobs: Sequence[Job],
    record: Mapping[str, Any],
    found: Mapping[str, Any] | None,
) -> tuple[int, ...]:
    """Sweep the folder and write the record; returns the seeds the study began with.

    Raises:
        UsageError: the folder is another study's.
    """
    begun = [job for job in jobs if job.begun]
    _sweep(folder, [*(job for job in trials if job.begun), *begun])
    there = [seed for seed in record["seeds"] if any(job.seed == seed for job in begun)]
    first_seeds = there or record["seeds"]
    if found is not None and there:
        first_seeds = [seed for seed in found["first_seeds"] if seed in record["seeds"]] or there
    write_record(folder, {**record, "first_seeds": list(first_seeds)}, found)
    return tuple(first_seeds)


def _sweep(folder: GuardedFolder, jobs: Sequence[Job]) -> None:
    """Remove what ended processes left, and restore checkpoints that were being replaced.

    Raises:
        UsageError: a link or a device stands where a folder of the study is expected; or somebody trains one of its
            runs.
    """
    for name in ("", ARMS, MEASURES, REPORT, f"{REPORT}/figures"):
        folder.sweep(name)
    for name in folder.names(MEASURES):
        if folder.kind(f"{MEASURES}/{name}") != "file":
            folder.sweep(f"{MEASURES}/{name}")
    for job in jobs:
        left = [name for inside in RUN_FOLDERS for name in job.folder.names(inside)]
        if any(name.startswith(".") and name != LOCK for name in left):
            with only_writer(job.path):
                RunFolder.open(job.path).sweep()


def _with_plan(base: RunConfig, found: Mapping[str, Any] | None, out: Path, dataset: Dataset) -> RunConfig:
    """The configuration with its execution plan, which all arms and seeds share: the recorded one once there is one."""
    if base.training.plan == FIT:
        raise UsageError('training.plan: "fit" chooses the size of one run; a study needs "auto" or "as-written"')
    if found is None:
        vocab_size, num_tokens = dataset.tokenizer.vocab_size, len(dataset.splits["train"].tokens)
        return resolve_plan(base, lambda config: build_model(config, vocab_size), num_tokens).config
    begun, keys = RunConfig.parse(found["base"], f"{out}/{RECORD}").training, list[str]()
    if base.training.threads is None:
        keys += ["threads"]
    if base.training.plan != "as-written" or base.training.minutes is not None:
        keys += ["dtype", "compile", "plan"]
    if base.training.minutes is not None:
        keys += ["minutes", "steps", "evaluate_every", "log_every", "schedule"]
    changes = {key: getattr(begun, key) for key in keys}
    return base.model_copy(update={"training": base.training.model_copy(update=changes)})
