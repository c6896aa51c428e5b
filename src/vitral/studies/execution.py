"""Execution of a study: every arm from every seed, on the same batches, each run once however often it is called.

Arms are tuned first (`vitral.studies.tuning`). Then seeds are the outer loop, so a study that is interrupted has whole
sets of arms to compare. A finished run is found again, an unfinished one is resumed, and a run that met a number that
is not finite is a result like any other.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from vitral.core.checked import checked
from vitral.core.errors import TrainingStopped, UsageError
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_, _
from vitral.data import Dataset, prepare
from vitral.data.batches import Batches, Split, thinned
from vitral.data.config import CorpusConfig
from vitral.evaluation import NgramBaselines, ngram_baselines
from vitral.evaluation.losses import bits_per_nat
from vitral.runs import RunFolder, enter, load_run
from vitral.runs.checkpoint import list_checkpoints
from vitral.runs.lock import LOCK, only_writer
from vitral.studies.design import (
    LONGER_SEEDS,
    LONGER_STEPS,
    TUNING_SEED,
    BudgetName,
    ResolvedArm,
    Study,
    check_seeds,
    resolve,
    with_more_steps,
)
from vitral.studies.losses import baseline_arm, failed_seeds
from vitral.studies.measures import final_losses, final_split, measure
from vitral.studies.probes import probe_named
from vitral.studies.record import ARMS, FORMAT, LONGER, MEASURES, RECORD, REPORT, read_record, write_record
from vitral.studies.results import (
    ArmResult,
    RunResult,
    StudyResult,
    read_run,
    require_config,
    require_parent,
    run_name,
)
from vitral.studies.tuning import AS_IT_IS, Row, Trial, Tuned, rows, scaled, trial_name, trial_of, tuned
from vitral.training import Callback, RunConfig, resume, silent, train
from vitral.training.memory import require_training_memory
from vitral.training.objectives import masking_of
from vitral.training.plans import FIT, resolve_plan
from vitral.training.run import build_model

BYTES_PER_PARAMETER = 12
"""In a float32 checkpoint: the weight and the optimizer's two averages."""
RUN_FOLDERS = ("", "steps", "samples", "report")
MOST_CHECKPOINTS = 3
SPARE_BYTES = 2**26
"""Beyond the checkpoints: metrics, figures, and space a disk must keep free."""


class Texts:
    """The texts of all arms, each prepared once, with its n-gram baselines counted once."""

    def __init__(self, given: Dataset | None = None) -> None:
        """Start with a prepared text, if there is one."""
        self._prepared: dict[str, Dataset] = {} if given is None else {given.config.model_dump_json(): given}
        self._baselines: dict[str, NgramBaselines] = {}

    def of(self, config: CorpusConfig) -> Dataset:
        """The text of a configuration."""
        key = config.model_dump_json()
        if key not in self._prepared:
            self._prepared[key] = prepare(config)
        return self._prepared[key]

    def vocab_size(self, config: CorpusConfig) -> int:
        """Tokens of its vocabulary."""
        return self.of(config).tokenizer.vocab_size

    def baselines(self, dataset: Dataset, test: Split) -> NgramBaselines:
        """N-gram baselines counted on the training split and scored on `test`."""
        key = f"{dataset.fingerprint} {len(test.segments)} {test.segments.tobytes().hex()[:64]}"
        if key not in self._baselines:
            self._baselines[key] = ngram_baselines(dataset.splits["train"], test, dataset.tokenizer.vocab_size)
        return self._baselines[key]

    def curve_baselines(self, config: RunConfig) -> NgramBaselines:
        """N-gram baselines on the test tokens that a run measures while it is trained."""
        dataset = self.of(config.corpus)
        return self.baselines(dataset, thinned(dataset.splits["test"], config.training.evaluation_tokens))


@dataclass(frozen=True)
class Job:
    """One arm to be trained from one seed.

    Attributes:
        arm: the arm.
        seed: the seed.
        folder: its run folder.
        parent: the job whose last weights it begins from; None for random weights.
    """

    arm: ResolvedArm
    seed: int
    folder: GuardedFolder
    parent: "Job | None" = None

    @property
    def path(self) -> Path:
        """Its run folder."""
        return self.folder.path

    @property
    def config(self) -> RunConfig:
        """Its whole configuration."""
        return self.arm.seeded(self.seed)

    @property
    def begun(self) -> bool:
        """Whether there is a run.

        Raises:
            UsageError: a link leads to it.
        """
        return self.folder.kind("config.toml") is not None


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
        seeds: instead of the study's; a later call may add some, never leave some out.
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
    seeds = tuple(study.seeds if seeds is None else seeds)
    check_seeds(seeds)
    if study.tunes and TUNING_SEED in seeds:
        raise UsageError(
            "seeds: {seed} is the seed with which the arms of {study} are tuned", seed=TUNING_SEED, study=study.name
        )
    for probe in study.probes:
        probe_named(probe)
    folder = GuardedFolder(out)

    def note(line: str) -> None:
        callback({"event": "note", "text": line})

    found = read_record(folder, note)
    texts = Texts(dataset)
    dataset = texts.of(base.corpus)
    require_training_memory(base, texts.vocab_size(base.corpus), _("study {study}", study=study.name))
    base = _with_plan(base, found or _lost_record(folder, study), out, dataset)
    arms = resolve(study, base, texts.vocab_size)
    _require_memory(study, arms, texts)
    _require_text(study, arms, (*seeds, TUNING_SEED) if study.tunes else seeds, texts)
    shared = _without_seed(base.plain())
    jobs = _jobs(folder, arms, seeds)
    trials = _trials(study, arms, folder)
    _require_room(out, [*trials, *jobs])
    fingerprints = {arm.arm.name: texts.of(arm.config.corpus).fingerprint for arm in arms}
    folder.make()
    with only_writer(out):
        record = {"format": FORMAT, "study": study.plain(), "base": shared, "texts": fingerprints}
        record |= {} if budget is None else {"budget": budget}
        first_seeds = _begin(folder, trials, jobs, {**record, "seeds": list(seeds)}, found)
        progress = _Progress([*trials, *jobs], callback)

        def run(job: Job) -> RunResult:
            _require_own([job], note)
            return _run(job, texts, progress.of(job))

        arms, tuning = _tune(study, arms, folder, run)
        jobs = _jobs(folder, arms, seeds)
        _require_own(jobs, note)
        runs: dict[str, list[RunResult]] = {arm.arm.name: [] for arm in arms}
        for job in jobs:
            runs[job.arm.arm.name].append(_run(job, texts, progress.of(job)))
        any_run = enter(jobs[0].path, note)
        result = StudyResult(
            study=study,
            base=shared,
            seeds=seeds,
            first_seeds=first_seeds,
            arms=tuple(_arm_result(arm, runs[arm.arm.name], study, texts) for arm in arms),
            baselines=_baselines(arms[0], seeds, texts),
            curve_baselines=NgramBaselines.from_plain(any_run.ngrams() or {}),
            corpus=any_run.document("corpus"),
            environment=any_run.document("environment"),
            folder=out,
            budget=budget,
            tuning=tuning,
        )
        datasets = {(job.arm.arm.name, job.seed): texts.of(job.config.corpus) for job in jobs}
        result = final_losses(result, datasets, callback)
        result = _with_second_budget(result, arms, folder, run)
        return measure(result, base, datasets, callback)


def _jobs(folder: GuardedFolder, arms: Sequence[ResolvedArm], seeds: Sequence[int]) -> list[Job]:
    """Every arm from every seed; an arm comes after the one that it begins from."""
    found: dict[tuple[str, int], Job] = {}
    for seed in seeds:
        for arm in arms:
            parent = None if arm.arm.init_from is None else found[arm.arm.init_from, seed]
            found[arm.arm.name, seed] = Job(arm, seed, folder.within(run_name(arm.arm.name, seed)), parent)
    return list(found.values())


def _baselines(base: ResolvedArm, seeds: Sequence[int], texts: Texts) -> NgramBaselines:
    """N-gram baselines of the base arm's text; where seeds draw it, their mean over the seeds."""
    datasets = [texts.of(base.seeded(seed).corpus) for seed in (seeds if base.draws_text else seeds[:1])]
    found = [texts.baselines(dataset, final_split(dataset)) for dataset in datasets]
    if len({id(one) for one in found}) == 1:
        return found[0]
    orders = {order: fmean(one.orders[order] for one in found) for order in found[0].orders}
    return NgramBaselines(orders, fmean(one.test_bigram_entropy for one in found))


def _trials(study: Study, arms: Sequence[ResolvedArm], folder: GuardedFolder) -> list[Job]:
    """The runs in which values are tried, as far as they are known before the first."""
    found, parents = list[Job](), _tuned_from(study, arms)
    for arm in arms:
        tune = study.tuned(arm.arm)
        usual: tuple[Row, ...] = (AS_IT_IS,) if arm.arm.name in parents else ()
        tried = [(scaled(arm, row), row) for row in rows(tune, arm.config)] if tune else [(arm, row) for row in usual]
        found += [Job(own, TUNING_SEED, folder.within(trial_name(arm.arm.name, row))) for own, row in tried]
    return found


def _tuned_from(study: Study, arms: Sequence[ResolvedArm]) -> set[str]:
    """The names of all arms that a tuned arm begins from, directly or not: they have a run from the tuning seed."""
    found = set[str]()
    for arm in reversed(arms):
        if arm.arm.init_from is not None and (study.tuned(arm.arm) or arm.arm.name in found):
            found.add(arm.arm.init_from)
    return found


def _require_own(jobs: Sequence[Job], note: Callable[[str], None]) -> None:
    """Refuse, before anything more is trained, a run in the folder that is not its arm's."""
    for job in jobs:
        if job.begun:
            require_config(job.path, job.config, note)


Run = Callable[[Job], RunResult]


def _tune(
    study: Study, arms: Sequence[ResolvedArm], folder: GuardedFolder, run: Run
) -> tuple[tuple[ResolvedArm, ...], tuple[Tuned, ...]]:
    """The arms with the values that their trials chose, and the trials; a trial begins from the chosen one."""
    found, told, parents = list[ResolvedArm](), list[Tuned](), _tuned_from(study, arms)
    chosen: dict[str | None, Job] = {}
    for arm in arms:
        name, parent = arm.arm.name, chosen.get(arm.arm.init_from)

        def trial(row: Row, arm: ResolvedArm = arm, parent: Job | None = parent) -> Trial:
            job = Job(scaled(arm, row), TUNING_SEED, folder.within(trial_name(arm.arm.name, row)), parent)
            return trial_of(arm, row, run(job))

        tried = tuned(arm, study.tuned(arm.arm), trial) if study.tuned(arm.arm) else None
        own, factor = (arm, 1.0) if tried is None else (tried[0], tried[1].chosen)
        found.append(own)
        told += [] if tried is None else [tried[1]]
        if name in parents:
            chosen[name] = Job(own, TUNING_SEED, folder.within(trial_name(name, {"": factor})), parent)
            run(chosen[name])
    return tuple(found), tuple(told)


def _with_second_budget(
    result: StudyResult, arms: Sequence[ResolvedArm], folder: GuardedFolder, run: Run
) -> StudyResult:
    """The result with longer runs of arms that fail and of their baseline arms, in a study that tunes.

    They tell whether the gap closes: `LONGER_STEPS` times the steps, from the first `LONGER_SEEDS` seeds.
    """
    base_fails = bool(failed_seeds(result, result.arms[0]))
    if not result.study.tunes or base_fails:
        return result
    failing = [arm for arm in result.arms[1:] if arm.arm.compared and failed_seeds(result, arm)]
    wanted = {name for arm in failing for name in (arm.arm.name, baseline_arm(result, arm).arm.name)}
    longer: dict[str, tuple[RunResult, ...]] = {}
    for arm in arms:
        if arm.arm.name in wanted:
            own = with_more_steps(arm, LONGER_STEPS)
            name = arm.arm.name
            usual = [job for job in _jobs(folder, arms, result.seeds) if job.arm.arm.name == name][:LONGER_SEEDS]
            jobs = [replace(job, arm=own, folder=folder.within(f"{LONGER}/{name}/seed-{job.seed}")) for job in usual]
            longer[name] = tuple(map(run, jobs))
    return replace(result, longer=longer)


class _Progress:
    """Adds to each event the run it belongs to, and the amount of work before it."""

    def __init__(self, jobs: Sequence[Job], callback: Callback) -> None:
        self._work = {job.path: _left(job) for job in jobs}
        self._callback = callback

    def of(self, job: Job) -> Callback:
        """The callback of a job; one that was not foreseen is added to the work."""
        self._work.setdefault(job.path, job.arm.flops)
        number = list(self._work).index(job.path) + 1
        work = list(self._work.values())
        label = {
            "arm": job.arm.arm.name,
            "seed": job.seed,
            "run": number,
            "runs": len(work),
            "before": sum(work[: number - 1]),
            "during": work[number - 1],
            "in_all": sum(work),
        }
        return lambda event: self._callback({**event, **label})


def _left(job: Job) -> int:
    """Floating-point operations still to be done for the job."""
    if not job.begun:
        return job.arm.flops
    found = read_run(job.path, job.seed, job.arm)
    if found.ended:
        return 0
    saved = list_checkpoints(RunFolder(job.path).steps)
    done = int(saved[-1].name.removeprefix("step-")) if saved else 0
    steps = job.arm.config.training.steps
    return job.arm.flops * (steps - done) // steps


def _require_memory(study: Study, arms: Sequence[ResolvedArm], texts: Texts) -> None:
    """Refuse, before anything is trained, an arm that does not fit into memory."""
    for arm in arms:
        where = _("study {study}, arm {arm}", study=study.name, arm=arm.arm.name)
        require_training_memory(arm.config, texts.vocab_size(arm.config.corpus), where)


def _require_text(study: Study, arms: Sequence[ResolvedArm], seeds: Sequence[int], texts: Texts) -> None:
    """Refuse, before anything is trained, a text that is too short for an arm.

    Raises:
        UsageError: names the arm and the reason.
    """
    for arm, config in ((arm, arm.seeded(seed)) for arm in arms for seed in seeds):
        data = texts.of(config.corpus)
        length = config.model.context_length
        try:
            Batches(data.splits["train"], context_length=length, batch_size=config.training.batch_size, seed=0)
            for part in ("validation", "test"):
                bits_per_nat(thinned(data.splits[part], config.training.evaluation_tokens), length, data.tokenizer)
            masking_of(config.training.objective, data.tokenizer)
        except UsageError as error:
            raise UsageError(
                "study {study}, arm {arm}: the text is too short for this budget: {error}",
                study=study.name,
                arm=arm.arm.name,
                error=error,
            ) from None
        _require_parents_tokens(study, arm, data, arms, texts)
        same = data.tokenizer.plain() == texts.of(arms[0].config.corpus).tokenizer.plain()
        if not same and arm.arm.compared and study.unit == "nats per token":
            raise UsageError(
                "study {study}, arm {arm}: its text makes other tokens than the base's, so losses per "
                'token cannot be compared; set unit = "bits per character", or tokenizer = "byte"',
                study=study.name,
                arm=arm.arm.name,
            )


def _require_parents_tokens(
    study: Study, arm: ResolvedArm, data: Dataset, arms: Sequence[ResolvedArm], texts: Texts
) -> None:
    """Refuse other tokens than those of the arm that an arm begins from.

    Raises:
        UsageError: a token has another number, or the numbers of tokens differ.
    """
    parent = next((other for other in arms if other.arm.name == arm.arm.init_from), None)
    if parent is not None and texts.of(parent.config.corpus).tokenizer.plain() != data.tokenizer.plain():
        raise UsageError(
            "study {study}, arm {arm}: begins from the weights of {parent}, whose text makes other tokens; set "
            'corpus.tokenizer = "byte"',
            study=study.name,
            arm=arm.arm.name,
            parent=parent.arm.name,
        )


def _require_room(out: Path, jobs: Sequence[Job]) -> None:
    """Refuse, before anything is trained, a study whose checkpoints do not fit on the disk.

    Raises:
        UsageError: says how much is needed.
    """
    needed = SPARE_BYTES
    for job in jobs:
        training = job.arm.config.training
        kept = min(MOST_CHECKPOINTS, -(-training.steps // training.evaluate_every))
        needed += 0 if job.begun else kept * BYTES_PER_PARAMETER * job.arm.num_parameters
    there = next((folder for folder in (out, *out.absolute().parents) if folder.is_dir()), Path.cwd())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise UsageError(
            "{out}: the study's runs need {needed:,.0f} MB, {free:,.0f} MB are free on this disk; "
            "make room, choose another --out, or a smaller --budget",
            out=out,
            needed=needed / 1e6,
            free=free / 1e6,
        )


def _run(job: Job, texts: Texts, callback: Callback) -> RunResult:
    """One arm from one seed: found finished, resumed, or trained from random weights or its parent's."""
    path, config, begun, parent = job.path, job.config, job.begun, job.parent
    if parent is not None:
        before = read_run(parent.path, parent.seed, parent.arm) if parent.begun else None
        if before is None or before.test_loss is None:
            why = N_("it begins from arm {arm}, which has no result").format(arm=parent.arm.arm.name)
            return RunResult(job.seed, path, (), None, None, None, 0.0, stopped=why)
    if begun:
        require_parent(path, None if parent is None else parent.path, lambda line: None)
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
            source = None if parent is None else load_run(parent.path, "last")
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


def _arm_result(resolved: ResolvedArm, runs: Iterable[RunResult], study: Study, texts: Texts) -> ArmResult:
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
        runs=tuple(runs),
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
    first_seeds = found["first_seeds"] if found is not None else there or record["seeds"]
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
