"""Execution of a study: every arm from every seed, on the same batches, each run once however often it is called.

Arms are tuned first (`vitral.studies.tuning`). Then every arm is trained from every seed, with seeds as the outer loop
in one process, so a study that is interrupted has whole sets of arms to compare. Trainings are jobs
(`vitral.studies.jobs`), in waves of which each needs the results of those before it, done by any executor
(`vitral.studies.executors`). A finished run is found again, an unfinished one is resumed, and a run that met a number
that is not finite is a result like any other. This process measures at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.files import names, storage, sweep
from vitral.core.language import _
from vitral.core.process import using_threads
from vitral.data import Dataset
from vitral.evaluation import NgramBaselines
from vitral.evaluation.losses import bits_per_nat, final_split, reading_of_config
from vitral.runs import enter
from vitral.runs.lock import only_writer
from vitral.studies.design import TUNING_SEEDS, Budget, BudgetName, Study
from vitral.studies.executors import Work, opened
from vitral.studies.jobs import Job, has_ended, jobs_of
from vitral.studies.measures import measure
from vitral.studies.probes import probe_named
from vitral.studies.record import (
    ARMS,
    FORMAT,
    MEASURES,
    RECORD,
    REPORT,
    read_record,
    seeds_of,
    write_record,
)
from vitral.studies.resolution import ResolvedArm, resolve, tokenizers_of
from vitral.studies.results import ArmResult, RunResult, StudyResult, require_config
from vitral.studies.texts import Texts, baselines_of, require_fit
from vitral.studies.tuning import trials_of, tune_arms
from vitral.training import Callback, RunConfig, silent
from vitral.training.costs import require_training_memory
from vitral.training.events import noting
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
    note, recorded = noting(callback), read_record(out)
    seeds = seeds_of(study, seeds, recorded)
    Budget.parse({"seeds": [*seeds]}, "study")  # refuses seeds that no study may have
    study.check_not_of_tuning(seeds)
    for probe in study.probes:
        probe_named(probe)
    texts = Texts(dataset, tokenizers_of(study))
    require_training_memory(base, texts.vocab_size(base.corpus), _("study {study}", study=study.name))
    base = _with_plan(base, recorded, out, texts.of(base.corpus))
    arms, threads = resolve(study, base, texts.vocab_size), base.training.threads
    trials = trials_of(study, arms, out)
    jobs = [*(job for _arm, job in trials), *jobs_of(out, arms, seeds)]
    require_fit(study, arms, seeds, texts, arms)
    require_fit(study, [arm for arm, _job in trials], TUNING_SEEDS, texts, arms)
    record = {"format": FORMAT, "study": study.plain(), "base": without_seed(base), "seeds": list(seeds)}
    record["texts"] = {arm.arm.name: texts.of(arm.config.corpus).fingerprint for arm in arms}
    record |= {} if budget is None else {"budget": budget}
    with opened(executor, out, threads or 1) as engine:
        with storage(out):
            out.mkdir(parents=True, exist_ok=True)
        with only_writer(out):
            _sweep(out)
            record = write_record(out, record, recorded)
            _require_runs(jobs, study, note)
            work = Work(study, out, texts, callback, engine, jobs)
            arms, tuning = tune_arms(arms, work)
            runs = work.train(jobs_of(out, arms, seeds))
            with using_threads(threads):
                datasets = {(arm.arm.name, seed): texts.of(arm.seeded(seed).corpus) for arm in arms for seed in seeds}
                first = enter(runs[0].path, note)
                result = StudyResult(
                    study=study,
                    base=record["base"],
                    seeds=seeds,
                    first_seeds=tuple(record["first_seeds"]),
                    arms=tuple(_arm_result(arm, runs[at :: len(arms)], work) for at, arm in enumerate(arms)),
                    baselines=baselines_of(arms[0], seeds, texts),
                    curve_baselines=NgramBaselines.from_plain(first.ngrams() or {}),
                    corpus=first.document("corpus"),
                    environment=first.document("environment"),
                    folder=out,
                    budget=budget,
                    tuning=tuning,
                )
                return measure(result, base, datasets, callback)


def without_seed(config: RunConfig) -> dict[str, Any]:
    """A configuration as plain data, for runs of several seeds."""
    return {key: value for key, value in config.plain().items() if key != "seed"}


def _arm_result(resolved: ResolvedArm, runs: Sequence[RunResult], work: Work) -> ArmResult:
    config, factor = resolved.config, 1.0
    if work.study.unit == "bits per character":
        dataset = work.texts.of(config.corpus)
        factor = bits_per_nat(final_split(dataset), reading_of_config(config.model), dataset.tokenizer)
    return ArmResult(
        arm=resolved.arm,
        config=without_seed(config),
        num_parameters=resolved.num_parameters,
        flops_per_token=resolved.flops_per_token,
        flops=resolved.all_flops,
        runs=tuple(runs),
        factor=factor,
    )


def _sweep(out: Path) -> None:
    """Remove what ended processes have left.

    Raises:
        UsageError: a link or a device stands where a folder is expected.
    """
    inside = [out / MEASURES / name for name in names(out / MEASURES)]
    for path in filter(Path.is_dir, (out, out / ARMS, out / MEASURES, out / REPORT, out / REPORT / "figures", *inside)):
        sweep(path)


def _require_runs(jobs: Sequence[Job], study: Study, note: Callable[[str], object]) -> None:
    """Refuse, before anything more is trained, a run that is not its job's, or is not finished.

    The keys of an arm whose values are not known yet may differ.

    Raises:
        UsageError: a run is of another configuration, damaged or unfinished; names the first.
    """
    free = {arm.name: study.tuned(arm) for arm in study.arms}
    for job in jobs:
        if job.is_there:
            require_config(enter(job.out, note), job.run_config, () if job.seed in TUNING_SEEDS else free[job.arm])
            if not has_ended(job.out):  # a run that the study trains comes here when it is finished
                raise UsageError("{path}: is not finished; vitral resume {path} goes on with it", path=job.out)


def _with_plan(base: RunConfig, recorded: Mapping[str, Any] | None, out: Path, dataset: Dataset) -> RunConfig:
    """The configuration with its execution plan, which all arms and seeds share: the recorded one once there is one."""
    if base.training.plan == FIT:
        raise UsageError('training.plan: "fit" chooses the size of one run; a study needs "auto" or "as-written"')
    if recorded is None:
        vocab_size, num_tokens = dataset.tokenizer.vocab_size, len(dataset.splits["train"].tokens)
        return resolve_plan(base, lambda config: build_model(config, vocab_size), num_tokens).config
    record, training = RunConfig.parse(recorded["base"], f"{out}/{RECORD}"), base.training
    free = {
        ("threads",): training.threads is None,
        ("dtype", "compile", "plan"): training.plan != "as-written" or training.minutes is not None,
        ("minutes", "steps", "evaluate_every", "log_every", "schedule"): training.minutes is not None,
        ("regularisation",): training.regularisation is not None,
    }
    changes = {key: getattr(record.training, key) for keys, chosen in free.items() if chosen for key in keys}
    dropout = base.model.dropout if training.regularisation is None else record.model.dropout
    model = base.model.model_copy(update={"dropout": dropout})
    return base.model_copy(update={"model": model}).with_training(**changes)
