"""Execution of a study: every arm from every seed, on the same batches, each run once however often it is called.

Arms are tuned first (`vitral.studies.tuning`). Then every arm is trained from every seed, with seeds as the outer loop
in one process, so a study that is interrupted has whole sets of arms to compare; then arms that fail and their baseline
arms with a second budget. Trainings are jobs (`vitral.studies.jobs`), in waves of which each needs the results of those
before it, done by any executor (`vitral.studies.executors`). A finished run is found again, an unfinished one is
resumed, and a run that met a number that is not finite is a result like any other. This process measures at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.files import names, storage, sweep
from vitral.core.language import _
from vitral.core.process import using_threads
from vitral.data import Dataset
from vitral.evaluation import NgramBaselines
from vitral.evaluation.losses import bits_per_nat
from vitral.runs import enter
from vitral.runs.lock import only_writer
from vitral.studies.design import LONGER_SEEDS, LONGER_STEPS, TUNING_SEED, BudgetName, Study, check_seeds
from vitral.studies.executors import opened
from vitral.studies.jobs import Job, jobs_of, take_back
from vitral.studies.losses import baseline_arm, failed_seeds
from vitral.studies.measures import Datasets, beside_ngrams, final_losses, final_split, measure
from vitral.studies.outside import tokenizers_of
from vitral.studies.probes import probe_named
from vitral.studies.record import (
    ARMS,
    FORMAT,
    LONGER,
    MEASURES,
    RECORD,
    REPORT,
    read_record,
    seeds_of,
    write_record,
)
from vitral.studies.resolution import ResolvedArm, resolve, with_more_steps
from vitral.studies.results import ArmResult, RunResult, StudyResult, require_config
from vitral.studies.texts import Texts, baselines_of, require_fit
from vitral.studies.tuning import trials_of, tune_arms
from vitral.studies.waves import Work, noting
from vitral.training import Callback, RunConfig, silent
from vitral.training.memory import require_training_memory
from vitral.training.plans import FIT, resolve_plan
from vitral.training.run import build_model


def run_study(
    study: Study,
    base: RunConfig,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    budget: BudgetName | None = None,
    callback: Callback = silent,
    dataset: Dataset | None = None,
    executor: Any = None,
) -> StudyResult:
    """Train the runs that are not trained yet, make the missing measurements, and gather everything.

    Args:
        study: the design, as its budget allows it (`Study.at`).
        base: the configuration of the base arm; its seed is not used.
        out: the study's folder, new or of the same study. Each run is a run folder at `arms/ARM/seed-N`.
        seeds: instead of the study's, or of those in the record; a later call may add some, and leave out only those
            without a run.
        budget: for probes and the record.
        callback: receives every training event of this process with "arm", "seed", "run" and "runs" (this run's number
            and the number of runs), and "before", "during" and "in_all": floating-point operations of this call's
            trainings before this run, in it, and in total; {"event": "run", "state": "train" | "resume" | "found"}
            before each run; and {"event": "probe", "name", "subject"} before each measurement. Of a run that is trained
            elsewhere, a note that it is finished.
        dataset: the prepared corpus of the base, if it is prepared already.
        executor: trains: None for this process, a number of processes, `dask:ADDRESS`, `slurm:KEY=VALUE`, or any object
            with the `submit` of `concurrent.futures`; see `vitral.studies.executors`. The numbers do not depend on it.

    Raises:
        UsageError: the design does not fit the configuration, the text is too short,
            `out` contains something else, or a run in it is of another configuration; the message says which.
        StorageError: the disk did not take a run.
        JobFailed: a training of an executor crashed every time it was tried.
        KeyboardInterrupt: the user asked to stop; the same call resumes from there.
    """
    note = noting(callback)
    found = read_record(out)
    seeds = seeds_of(study, seeds, found)
    _check_design(study, seeds)
    texts = Texts(dataset, tokenizers_of(study))
    require_training_memory(base, texts.vocab_size(base.corpus), _("study {study}", study=study.name))
    base = _with_plan(base, found, out, texts.of(base.corpus))
    arms, threads = resolve(study, base, texts.vocab_size), base.training.threads
    trials, runs = trials_of(study, arms, out), jobs_of(out, arms, seeds)
    jobs = [*(job for _arm, job in trials), *runs]
    longer = jobs_of(out, [with_more_steps(arm, LONGER_STEPS) for arm in arms], seeds, LONGER)
    require_fit(study, arms, seeds, texts, arms)
    require_fit(study, [arm for arm, _job in trials], [TUNING_SEED], texts, arms)
    record = _record(study, base, arms, seeds, texts) | ({} if budget is None else {"budget": budget})
    with opened(executor, out, threads or 1) as engine:
        with storage(out):
            out.mkdir(parents=True, exist_ok=True)
        with only_writer(out):
            record = _begun(out, record, found)
            _take_back([*jobs, *longer], study, note)
            work = Work(study, out, texts, callback, engine, jobs)
            arms, tuning = tune_arms(arms, work)
            results = work.train(jobs_of(out, arms, seeds))
            with using_threads(threads):
                datasets = {(arm.arm.name, seed): texts.of(arm.seeded(seed).corpus) for arm in arms for seed in seeds}
                result = _with_losses(record, arms, results, datasets, work)
            longer = _wanted_longer(result, arms, out)
            ended = list(zip(longer, work.train(longer), strict=True))
            by_arm = {job.arm: tuple(run for other, run in ended if other.arm == job.arm) for job in longer}
            with using_threads(threads):
                result = replace(result, tuning=tuning, longer=by_arm)
                return measure(result, base, datasets, callback)


def _with_losses(
    record: Mapping[str, Any],
    arms: Sequence[ResolvedArm],
    runs: Sequence[RunResult],
    datasets: Datasets,
    work: Work,
) -> StudyResult:
    """The results of all runs, by seed and arm, with the first one's record of text and machine, and final losses."""
    first, seeds = enter(runs[0].path, noting(work.callback)), record["seeds"]
    number = len(arms)
    result = StudyResult(
        study=work.study,
        base=record["base"],
        seeds=tuple(seeds),
        first_seeds=tuple(record["first_seeds"]),
        arms=tuple(_arm_result(arm, runs[at::number], work) for at, arm in enumerate(arms)),
        baselines=baselines_of(arms[0], seeds, work.texts),
        curve_baselines=NgramBaselines.from_plain(first.ngrams() or {}),
        corpus=first.document("corpus"),
        environment=first.document("environment"),
        folder=work.out,
        budget=record.get("budget"),
    )
    return beside_ngrams(final_losses(result, datasets, work.callback), datasets, work.callback)


def _record(
    study: Study, base: RunConfig, arms: Sequence[ResolvedArm], seeds: Sequence[int], texts: Texts
) -> dict[str, Any]:
    record = {"format": FORMAT, "study": study.plain(), "base": _without_seed(base.plain()), "seeds": list(seeds)}
    return record | {"texts": {arm.arm.name: texts.of(arm.config.corpus).fingerprint for arm in arms}}


def _check_design(study: Study, seeds: Sequence[int]) -> None:
    """Refuse seeds that no run can have, and an unknown probe."""
    check_seeds(seeds)
    if study.tunes and TUNING_SEED in seeds:
        raise UsageError(
            "seeds: {seed} is the seed with which the arms of {study} are tuned", seed=TUNING_SEED, study=study.name
        )
    for probe in study.probes:
        probe_named(probe)


def _wanted_longer(result: StudyResult, arms: Sequence[ResolvedArm], out: Path) -> list[Job]:
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
    longer = [with_more_steps(arm, LONGER_STEPS) for arm in arms if arm.arm.name in wanted]
    return jobs_of(out, longer, seeds, LONGER)


def _without_seed(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plain.items() if key != "seed"}


def _arm_result(resolved: ResolvedArm, runs: Sequence[RunResult], work: Work) -> ArmResult:
    config, factor = resolved.config, 1.0
    if work.study.unit == "bits per character":
        dataset = work.texts.of(config.corpus)
        factor = bits_per_nat(final_split(dataset), config.model.context_length, dataset.tokenizer)
    return ArmResult(
        arm=resolved.arm,
        config=_without_seed(config.plain()),
        num_parameters=resolved.num_parameters,
        flops_per_token=resolved.flops_per_token,
        optimizer_flops=resolved.optimizer_flops,
        runs=tuple(runs),
        factor=factor,
        inherited_flops=resolved.inherited_flops,
    )


def _begun(out: Path, record: Mapping[str, Any], found: Mapping[str, Any] | None) -> dict[str, Any]:
    """Sweep the folder and write the record; returns it with the seeds that the study began with.

    Raises:
        UsageError: the folder is another study's, or a link or a device stands where a folder is expected.
    """
    inside = [out / MEASURES / name for name in names(out / MEASURES)]
    for path in filter(Path.is_dir, (out, out / ARMS, out / MEASURES, out / REPORT, out / REPORT / "figures", *inside)):
        sweep(path)
    before = record if found is None else {"seeds": found["first_seeds"]}
    first_seeds = [seed for seed in before["seeds"] if seed in record["seeds"]] or record["seeds"]
    record = {**record, "first_seeds": first_seeds}
    write_record(out, record, found)
    return record


def _take_back(jobs: Sequence[Job], study: Study, note: Callable[[str], object]) -> None:
    """Refuse, before anything more is trained, a run that is not its job's; make room where one is half trained.

    The keys of an arm whose values are not known yet may differ.

    Raises:
        UsageError: a run is of another configuration, damaged, or somebody trains it; names the first.
    """
    free = {arm.name: study.tuned(arm) for arm in study.arms}
    there = [job for job in jobs if job.is_there]
    for job in there:
        require_config(enter(job.out, note), job.run_config, () if job.seed == TUNING_SEED else free[job.arm])
    for job in there:
        take_back(job.out)


def _with_plan(base: RunConfig, found: Mapping[str, Any] | None, out: Path, dataset: Dataset) -> RunConfig:
    """The configuration with its execution plan, which all arms and seeds share: the recorded one once there is one."""
    if base.training.plan == FIT:
        raise UsageError('training.plan: "fit" chooses the size of one run; a study needs "auto" or "as-written"')
    if found is None:
        vocab_size, num_tokens = dataset.tokenizer.vocab_size, len(dataset.splits["train"].tokens)
        return resolve_plan(base, lambda config: build_model(config, vocab_size), num_tokens).config
    record, training = RunConfig.parse(found["base"], f"{out}/{RECORD}"), base.training
    free = {
        ("threads",): training.threads is None,
        ("dtype", "compile", "plan"): training.plan != "as-written" or training.minutes is not None,
        ("minutes", "steps", "evaluate_every", "log_every", "schedule"): training.minutes is not None,
        ("regularisation",): training.regularisation is not None,
    }
    changes = {key: getattr(record.training, key) for keys, chosen in free.items() if chosen for key in keys}
    dropout = base.model.dropout if training.regularisation is None else record.model.dropout
    model = base.model.model_copy(update={"dropout": dropout})
    return base.model_copy(update={"model": model, "training": training.model_copy(update=changes)})
