"""Execution of a study: every arm from every seed, on the same batches, each run once however often it is called.

`plan_in` writes the jobs (`vitral.studies.plan`), `complete` trains what others leave (`vitral.studies.work`), measures
and hands the result on. Arms are tuned first (`vitral.studies.tuning`). Then seeds are the outer loop, so a study that
is interrupted has whole sets of arms to compare. A finished run is found again, an unfinished one is resumed, and a run
that met a number that is not finite is a result like any other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from vitral.core.errors import UsageError
from vitral.core.files import storage
from vitral.core.guarded import GuardedFolder
from vitral.core.language import _
from vitral.core.process import using_threads
from vitral.data import Dataset
from vitral.evaluation import NgramBaselines
from vitral.evaluation.losses import bits_per_nat
from vitral.runs import RunFolder, enter
from vitral.runs.leases import DONE, RELEASED, RUN
from vitral.runs.lock import LOCK, only_writer
from vitral.studies.design import LONGER_SEEDS, TUNING_SEED, BudgetName, Study, check_seeds
from vitral.studies.jobs import Job, longer_of, require_own, require_room
from vitral.studies.losses import baseline_arm, failed_seeds
from vitral.studies.measures import Datasets, beside_ngrams, final_losses, final_split, measure
from vitral.studies.outside import tokenizers_of
from vitral.studies.plan import PAGE, Known, Plan, read_plan
from vitral.studies.probes import probe_named
from vitral.studies.record import (
    ARMS,
    FORMAT,
    JOBS,
    MEASURES,
    RECORD,
    REPORT,
    read_record,
    require_same,
    seeds_of,
    write_record,
)
from vitral.studies.resolution import ResolvedArm, resolve
from vitral.studies.results import ArmResult, RunResult, StudyResult, read_run
from vitral.studies.texts import Texts, baselines_of, require_memory, require_text
from vitral.studies.work import Worker, tidy
from vitral.training import Callback, RunConfig, silent
from vitral.training.memory import require_training_memory
from vitral.training.plans import FIT, resolve_plan
from vitral.training.run import build_model

RUN_FOLDERS = ("", "steps", "samples", "report")
Made = TypeVar("Made")


def run_study(
    study: Study,
    base: RunConfig,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    budget: BudgetName | None = None,
    callback: Callback = silent,
    dataset: Dataset | None = None,
    command: str = "",
) -> StudyResult:
    """Train the runs that are not trained yet, make the missing measurements, and gather everything.

    Where others work on the same study, this call takes what they leave, and waits for them.

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
        command: that runs the study, for the plan in its folder.

    Raises:
        UsageError: the design does not fit the configuration, the text is too short, the disk has too little room,
            `out` contains something else, or a run in it is of another configuration; the message says which.
        StorageError: the disk did not take a run.
        JobFailed: a training crashed every time it was tried.
        KeyboardInterrupt: the user asked to stop; the same call resumes from there.
    """
    planned = plan_in(study, base, out, seeds=seeds, budget=budget, callback=callback, dataset=dataset, command=command)
    result = complete(Worker(planned, callback), lambda result: result, waits=True)
    assert result is not None  # it has waited for the page
    return result


def plan_in(
    study: Study,
    base: RunConfig,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    budget: BudgetName | None = None,
    callback: Callback = silent,
    dataset: Dataset | None = None,
    command: str = "",
) -> Plan:
    """Write the record and the jobs of a study into its folder; runs of it that are there are its own.

    The arguments and the errors are those of `run_study`.
    """
    folder, note = GuardedFolder(out), _noting(callback)
    if seeds is not None:
        _check_design(study, seeds)
    found = read_record(folder, note)
    seeds = seeds_of(study, seeds, found)
    _check_design(study, seeds)
    texts = Texts(dataset, tokenizers_of(study))
    require_training_memory(base, texts.vocab_size(base.corpus), _("study {study}", study=study.name))
    base = _with_plan(base, found or _lost_record(folder, study), out, texts.of(base.corpus))
    arms = resolve(study, base, texts.vocab_size)
    record = _record(study, base, arms, seeds, texts) | ({} if budget is None else {"budget": budget})
    plan = Plan(study, base, arms, tuple(seeds), folder, texts, record, budget, command)
    jobs = plan.first()
    trials, runs = ([job for job in jobs if (job.seed == TUNING_SEED) is wanted] for wanted in (True, False))
    require_memory(study, [*arms, *(job.arm for job in trials)], texts)
    require_text(study, arms, seeds, texts)
    require_text(study, [job.arm for job in trials], [TUNING_SEED], texts, arms)
    require_room(out, jobs)
    folder.make()
    with only_writer(out):
        first_seeds = _begin(folder, trials, runs, record, found)
        require_own(trials, note)
        require_own([*runs, *longer_of(folder, arms, seeds)], note, study.tuned)
        plan.first_seeds = first_seeds
        for job in [*jobs, *longer_of(folder, arms, seeds)]:
            _take_back(job)
        plan.write()
    return plan


def planned_in(out: Path, *, callback: Callback = silent) -> Plan:
    """The plan in a study's folder, for a worker: nothing is written.

    Raises:
        UsageError: there is no plan, it is of another version, a file of it was changed, or this machine has another
            text.
    """
    written, folder, note = read_plan(out), GuardedFolder(out), _noting(callback)
    found = read_record(folder, note)
    assert found is not None  # the plan has its hash
    study, base = Study.parse(found["study"]), RunConfig.parse(found["base"], f"{out}/{RECORD}")
    texts = Texts(None, tokenizers_of(study))
    require_training_memory(base, texts.vocab_size(base.corpus), _("study {study}", study=study.name))
    arms, seeds = resolve(study, base, texts.vocab_size), tuple(found["seeds"])
    require_same(
        out, found, _record(study, base, arms, seeds, texts) | {key: found[key] for key in ("budget",) if key in found}
    )
    plan = Plan(study, base, arms, seeds, folder, texts, found, found.get("budget"), str(written["command"]))
    plan.first_seeds, plan.read = tuple(found["first_seeds"]), str(written["record"])
    plan.require_written(written)
    return plan


def complete(worker: Worker, then: Callable[[StudyResult], Made], *, waits: bool) -> Made | None:
    """Train what is left, then measure, and hand the result on; None where another worker does that.

    Args:
        worker: of the plan.
        then: what is made of the result. Two workers that do it at the same time, since one has slept past its lease,
            must write the same bytes.
        waits: whether to wait for another worker that measures, and to measure what it leaves.

    Raises:
        UsageError: the study was planned again meanwhile.
    """
    plan, folder = worker.plan, worker.plan.folder
    while True:
        worker.train()
        lease = worker.claim_page(waits=waits)
        if lease is None:
            return None
        with lease.kept(lambda error: False), only_writer(folder.path), using_threads(plan.base.training.threads):
            lease.outcome = RELEASED
            result, known, datasets = _losses(plan, worker)
            wanted = _wanted_longer(result, known.arms, folder)
            longer = {job.name: plan.result(job) for job in wanted}
            if None in longer.values():
                plan.foresee(job for job in wanted if longer[job.name] is None)
                continue
            result = replace(result, longer=_by_arm(wanted, longer))
            result = measure(result, plan.base, datasets, worker.tell)
            worker.tidy()
            lease.require()
            plan.require_current()
            made = then(result)
            if not plan.is_current:  # a page of fewer seeds may lie over the new one
                lease.void()
                plan.require_current()
            lease.outcome, lease.about = DONE, plan.read
        return made


def _losses(plan: Plan, worker: Worker) -> tuple[StudyResult, Known, Datasets]:
    """The result with the loss of every run on the whole test split, before anything else is measured."""
    known = plan.known()
    runs = [(job, plan.result(job)) for job in known.runs]
    there = [(job, run) for job, run in runs if run is not None]
    result = _gathered(plan.study, plan.record, plan.first_seeds, known.arms, there, plan.texts, worker.note)
    result = replace(result, folder=plan.folder.path, budget=plan.budget, tuning=known.tuning)
    datasets = {(job.arm.arm.name, job.seed): plan.texts.of(job.config.corpus) for job in known.runs}
    return beside_ngrams(final_losses(result, datasets, worker.tell), datasets, worker.tell), known, datasets


def _noting(callback: Callback) -> Callable[[str], None]:
    def note(line: str) -> None:
        callback({"event": "note", "text": line})

    return note


def _record(
    study: Study, base: RunConfig, arms: Sequence[ResolvedArm], seeds: Sequence[int], texts: Texts
) -> dict[str, Any]:
    record = {"format": FORMAT, "study": study.plain(), "base": _without_seed(base.plain()), "seeds": list(seeds)}
    return record | {"texts": {arm.arm.name: texts.of(arm.config.corpus).fingerprint for arm in arms}}


def _take_back(job: Job) -> None:
    """Put a half-trained run of a job where its next claim takes it over; tidy a finished one; forgive crashes.

    An earlier Vitral trained runs in their places, and `vitral doctor` may find that the end of one is damaged.
    """
    job.room.forgive()
    if not job.begun:
        return
    if read_run(job.path, job.seed, job.arm).ended:
        tidy(job.path, job)
        return
    with only_writer(job.path):
        room, newest = job.room, job.room.newest()
        number = 1 if newest is None else newest.number + 1
        room.folder.make()
        if room.create(number):
            with storage(job.path):
                job.study.rename(job.name, f"{JOBS}/{job.name}/{RUN}-{number:06}")
            room.say_end(number, RELEASED)


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


def _wanted_longer(result: StudyResult, arms: Sequence[ResolvedArm], folder: GuardedFolder) -> list[Job]:
    """Longer runs of arms that fail and of their baseline arms, in a study that tunes.

    They tell whether the gap closes: `LONGER_STEPS` times the steps, from `LONGER_SEEDS` seeds: the smallest of those
    that the study began with, so that neither the order of the seeds nor a seed added later changes them.
    """
    base_fails = bool(failed_seeds(result, result.arms[0]))
    if not result.study.tunes or base_fails:
        return []
    failing = [arm for arm in result.arms[1:] if arm.arm.compared and failed_seeds(result, arm)]
    wanted = {name for arm in failing for name in (arm.arm.name, baseline_arm(result, arm).arm.name)}
    added = set(result.seeds) - set(result.first_seeds)
    seeds = [*sorted(result.first_seeds), *sorted(added)][:LONGER_SEEDS]
    return [job for job in longer_of(folder, arms, seeds) if job.arm.arm.name in wanted]


def _by_arm(jobs: Sequence[Job], results: Mapping[str, RunResult | None]) -> dict[str, tuple[RunResult, ...]]:
    """Results by arm, in the order of the jobs."""
    found: dict[str, tuple[RunResult, ...]] = {}
    for job in jobs:
        run = results[job.name]
        found[job.arm.arm.name] = (*found.get(job.arm.arm.name, ()), *([] if run is None else [run]))
    return found


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
    begun = [job for job in jobs if _has_begun(job)]
    _sweep(folder, [job for job in [*trials, *jobs] if job.begun])
    there = [seed for seed in record["seeds"] if any(job.seed == seed for job in begun)]
    first_seeds = there or record["seeds"]
    if found is not None and there:
        first_seeds = [seed for seed in found["first_seeds"] if seed in record["seeds"]] or there
    write_record(folder, {**record, "first_seeds": list(first_seeds)}, found)
    return tuple(first_seeds)


def _has_begun(job: Job) -> bool:
    """Whether a job has a run, in its place or under a claim."""
    return job.begun or bool(job.room.numbers(RUN))


def _sweep(folder: GuardedFolder, jobs: Sequence[Job]) -> None:
    """Remove what ended processes left, and restore checkpoints that were being replaced.

    Raises:
        UsageError: a link or a device stands where a folder of the study is expected; or somebody trains one of its
            runs.
    """
    for name in ("", ARMS, MEASURES, REPORT, f"{REPORT}/figures", PAGE):
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
    record, keys = RunConfig.parse(found["base"], f"{out}/{RECORD}"), list[str]()
    if base.training.threads is None:
        keys += ["threads"]
    if base.training.plan != "as-written" or base.training.minutes is not None:
        keys += ["dtype", "compile", "plan"]
    if base.training.minutes is not None:
        keys += ["minutes", "steps", "evaluate_every", "log_every", "schedule"]
    if base.training.regularisation is not None:
        keys += ["regularisation"]
        base = base.model_copy(update={"model": base.model.model_copy(update={"dropout": record.model.dropout})})
    changes = {key: getattr(record.training, key) for key in keys}
    return base.model_copy(update={"training": base.training.model_copy(update=changes)})
