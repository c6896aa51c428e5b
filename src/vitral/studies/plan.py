"""The plan of a study: its jobs as plain data in its folder, for every worker that sees the folder.

    jobs/plan.json            the version that planned, the command, the record's hash, and the hash of every job's file
    jobs/ARMS/NAME/job.json   one training: arm and seed, its configuration's hash, and the jobs that it needs first

What depends on results is planned once they are there: the trial beyond the best one, and runs with a second budget.
`Plan.known` computes the jobs from the record and from the finished runs, so that all workers find the same ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.files import as_json, sha256
from vitral.core.guarded import GuardedFolder, NotOurs
from vitral.core.language import N_, _
from vitral.core.seals import sealed_json, unsealed_json
from vitral.runs.leases import DONE, Room, require_nobody
from vitral.studies.design import TUNING_SEED, BudgetName, Study
from vitral.studies.jobs import Job, jobs_of, longer_of, tuned_from
from vitral.studies.record import ARMS, JOBS, LONGER, MOST_RECORD, RECORD, TUNING
from vitral.studies.resolution import ResolvedArm
from vitral.studies.results import RunResult, Tuned, read_run, require_parent, run_name
from vitral.studies.texts import Texts, require_memory, require_text
from vitral.studies.tuning import AS_IT_IS, Row, Trial, has_trial, rows, scaled, trial_name, trial_of, tuned
from vitral.training import RunConfig

PLAN, JOB = "plan.json", "job.json"
PAGE = f"{JOBS}/page"
"""The room of the last job: measurements and the page."""
FORMAT = 1


@dataclass(frozen=True)
class Known:
    """The jobs of a plan, as far as results tell them.

    Attributes:
        jobs: all of them, in order.
        runs: the jobs of arms and seeds.
        arms: tuned, where their trials are finished.
        tuning: the trials of each arm whose trials are finished.
    """

    jobs: tuple[Job, ...]
    runs: tuple[Job, ...]
    arms: tuple[ResolvedArm, ...]
    tuning: tuple[Tuned, ...]


@dataclass
class Plan:
    """A study that is planned in its folder.

    Attributes:
        study: the design.
        base: the configuration of the base arm, with its execution plan.
        arms: as designed, not tuned.
        seeds: in order.
        first_seeds: those the study began with.
        read: the hash of the record when this plan was written or read.
        folder: the study's.
        texts: of the arms.
        record: study.json, as this call has it.
        budget: for probes and the record.
        command: of the study, for its page.
    """

    study: Study
    base: RunConfig
    arms: tuple[ResolvedArm, ...]
    seeds: tuple[int, ...]
    folder: GuardedFolder
    texts: Texts
    record: Mapping[str, Any]
    budget: BudgetName | None = None
    command: str = ""
    first_seeds: tuple[int, ...] = ()
    read: str = ""
    _results: dict[str, RunResult] = field(default_factory=dict)
    _tuned: dict[str, tuple[ResolvedArm, Tuned, tuple[Job, ...]]] = field(default_factory=dict)
    _scaled: dict[tuple[str, str], ResolvedArm] = field(default_factory=dict)

    def known(self) -> Known:
        """The jobs of today: trials by arm, runs by seed and arm, and runs with a second budget."""
        arms, tuning = dict[str, ResolvedArm](), list[Tuned]()
        trials, unsettled = dict[str, tuple[Job, ...]](), set[str]()
        parents, chosen = tuned_from(self.study, self.arms), dict[str, Job]()
        for untuned in self.arms:
            name, begins = untuned.arm.name, untuned.arm.init_from
            before = None if begins is None else arms[begins]
            arm = untuned if before is None else replace(untuned, inherited_flops=before.all_flops)
            trials[name] = self._trials(arm, begins in parents, chosen.get(begins or ""), trials.get(begins or "", ()))
            tried = self._tuned.get(name)
            arms[name] = arm if tried is None else tried[0]
            tuning += [] if tried is None else [tried[1]]
            if tried is None and self.study.tuned(arm.arm):
                unsettled.add(name)
            elif name in parents:
                factor = AS_IT_IS if tried is None else {"": tried[1].chosen}
                chosen[name] = next(job for job in trials[name] if job.name == trial_name(name, factor))
        known = {name: tuple(job.name for job in jobs) for name, jobs in trials.items()}
        in_order = tuple(arms.values())
        runs = tuple(jobs_of(self.folder, in_order, self.seeds, known, unsettled))
        jobs = [*(job for one in trials.values() for job in one), *runs]
        if not unsettled:
            there = [job for job in longer_of(self.folder, in_order, self.seeds) if job.room.folder.kind(JOB)]
            jobs += there
        return Known(tuple(jobs), runs, in_order, tuple(tuning))

    def first(self) -> tuple[Job, ...]:
        """The jobs that no result asks for."""
        return tuple(job for job in self.known().jobs if job.name in self._foreseen)

    def _trials(self, arm: ResolvedArm, inherits: bool, parent: Job | None, before: Sequence[Job]) -> tuple[Job, ...]:
        """The trials of an arm that are known: the planned ones, and the one beyond, once they are finished.

        Args:
            arm: untuned.
            inherits: whether its trials begin from the chosen trial of another arm.
            parent: that trial, once it is known.
            before: the trials that it is chosen from.
        """
        tune, name = self.study.tuned(arm.arm), arm.arm.name
        if name in self._tuned:
            return self._tuned[name][2]
        needs = tuple(job.name for job in ([parent] if parent else before))
        settled = parent is not None or not inherits
        found = dict[str, Job]()

        def add(row: Row) -> Job:
            made = Job(self._with(arm, row), TUNING_SEED, self.folder, trial_name(name, row), parent, needs, settled)
            return found.setdefault(made.name, made)

        if not tune:
            parents = tuned_from(self.study, self.arms)
            return (add(AS_IT_IS),) if name in parents else ()
        for row in rows(tune, arm.config):
            add(row)

        def trial(row: Row) -> Trial | None:
            job = add(row)
            result = self.result(job)
            return None if result is None else trial_of(arm, row, result)

        may = lambda row: has_trial(arm, row, self.folder) or can_be_tried(self.study, arm, row, self.arms, self.texts)  # noqa: E731
        tried = tuned(arm, tune, trial, may) if settled else None
        if tried is not None:
            self._tuned[name] = *tried, tuple(found.values())
        return tuple(found.values())

    def _with(self, arm: ResolvedArm, row: Row) -> ResolvedArm:
        """The arm with its values times the factors; as it is for the row that changes nothing."""
        if row is AS_IT_IS:
            return arm
        key = arm.arm.name, trial_name(arm.arm.name, row)
        if key not in self._scaled:
            self._scaled[key] = scaled(arm, row)
        return self._scaled[key]

    def result(self, job: Job) -> RunResult | None:
        """The result of a job; None if it is not finished, or its configuration is not known yet.

        Raises:
            UsageError: its run is damaged, of another arm, or stands half trained in its place.
        """
        if not job.is_settled or job.name in self._results:
            return self._results.get(job.name)
        found = self._without_parent(job)
        if found is None and job.begun:
            require_parent(job.path, job.source, lambda line: None)
            found = read_run(job.path, job.seed, job.arm)
            if not found.ended:
                raise UsageError(
                    "{path}: is half trained; vitral study plan, with the study and this folder, takes it over",
                    path=job.path,
                )
        if found is not None:
            self._results[job.name] = found
        return found

    def _without_parent(self, job: Job) -> RunResult | None:
        """The result of a job whose parent has none; None if it has one, or is not finished."""
        before = None if job.parent is None else self.result(job.parent)
        if job.parent is None or before is None or before.test_loss is not None:
            return None
        why = N_("it begins from arm {arm}, which has no result").format(arm=job.parent.arm.arm.name)
        return RunResult(job.seed, job.path, (), None, None, None, 0.0, stopped=why)

    def write(self) -> None:
        """Write the files of all jobs that are known, and the plan; files that are the same already stay.

        Raises:
            UsageError: it would change while a worker of this machine is at a job.
            StorageError: they cannot be written.
        """
        jobs = self.known().jobs
        files = {job.name: self.describe(job) for job in jobs}
        content = sealed_json(self._about(files))
        there = self.folder.within(JOBS)
        try:
            old = unsealed_json(there.read(PLAN, MOST_RECORD))
        except (OSError, ValueError):
            old = {}
        if old and {**old, "command": ""} != {**unsealed_json(content), "command": ""}:
            for room in (job.room for job in jobs if not job.begun):
                require_nobody(room, self.folder.path)
        for job in jobs:
            there.make(job.name)
            write_new(there, f"{job.name}/{JOB}", files[job.name])
        write_new(there, PLAN, content)
        self.read = self.seal

    @property
    def is_current(self) -> bool:
        """Whether the study has not been planned again, with more seeds, since this plan was written or read."""
        return self.read == self.seal

    def require_current(self) -> None:
        """Refuse to measure by a plan that is no longer the study's.

        Raises:
            UsageError: it has been planned again.
        """
        if not self.is_current:
            raise UsageError(
                "{path}: was planned again meanwhile; the same command goes on with the new plan", path=self.folder.path
            )

    def require_written(self, written: Mapping[str, Any]) -> None:
        """Refuse a plan that is not the one this Vitral would write.

        Raises:
            UsageError: names the first job that is different.
        """
        ours = {job.name: sha256(self.describe(job)) for job in self.first()}
        theirs = dict(written["jobs"])
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                raise _damaged(self.folder.path / JOBS / name / JOB, ValueError(_("this Vitral plans another job")))

    @property
    def seal(self) -> str:
        """The hash of the record, which tells one page from that of a study with more seeds."""
        return sha256(self.folder.read(RECORD, MOST_RECORD))

    @property
    def is_done(self) -> bool:
        """Whether the page of the study has been made, with the seeds that it has now."""
        room = Room(self.folder.within(PAGE))
        newest = room.newest()
        end = None if newest is None else room.end(newest.number)
        return end is not None and end.get("state") == DONE and end.get("reason") == self.seal

    def foresee(self, jobs: Iterable[Job]) -> None:
        """Write the files of jobs that results ask for."""
        for job in jobs:
            self.folder.within(JOBS).make(job.name)
            write_new(job.room.folder, JOB, self.describe(job))

    def describe(self, job: Job) -> bytes:
        """The file of a job."""
        designed = next(arm for arm in self.arms if arm.arm.name == job.arm.arm.name)
        is_run = job.name.startswith(f"{ARMS}/")
        arm = designed if is_run else job.arm
        about = {
            "format": FORMAT,
            "job": job.name,
            "arm": job.arm.arm.name,
            "seed": job.seed,
            "steps": arm.config.training.steps,
            "flops": arm.flops,
            "config": sha256(as_json(arm.seeded(job.seed).plain())),
            "tuned": sorted(self.study.tuned(arm.arm)) if is_run else [],
            "needs": [name for name in job.needs if name in self._foreseen],
        }
        return sealed_json(about)

    @cached_property
    def _foreseen(self) -> set[str]:
        """The names of the jobs that no result asks for: not the trial beyond the best one, no second budget."""
        runs = {run_name(arm.arm.name, seed) for arm in self.arms for seed in self.seeds}
        tunes = [(arm, self.study.tuned(arm.arm)) for arm in self.arms]
        planned = [(arm, rows(tune, arm.config) if tune else (AS_IT_IS,)) for arm, tune in tunes]
        return runs | {trial_name(arm.arm.name, row) for arm, tried in planned for row in tried}

    def _about(self, files: Mapping[str, bytes]) -> dict[str, Any]:
        about = {"format": FORMAT, "vitral": version("vitral"), "study": self.study.name, "command": self.command}
        about |= {"threads": self.base.training.threads, "record": self.seal}
        return {**about, "jobs": {name: sha256(files[name]) for name in files if name in self._foreseen}}


def can_be_tried(study: Study, arm: ResolvedArm, row: Row, arms: Sequence[ResolvedArm], texts: Texts) -> bool:
    """Whether a row makes a configuration that fits into memory and to its text.

    Args:
        study: the design.
        arm: untuned.
        row: of factors.
        arms: all of the study, as designed.
        texts: of the arms.
    """
    try:
        made = scaled(arm, row)
        require_memory(study, [made], texts)
        require_text(study, [made], [TUNING_SEED], texts, arms)
    except UsageError:
        return False
    return True


def write_new(folder: GuardedFolder, name: str, content: bytes) -> None:
    """Write a file, unless it has this content."""
    try:
        if folder.read(name, MOST_RECORD) == content:
            return
    except (FileNotFoundError, ValueError):
        pass
    folder.write(name, content)


def read_plan(folder: Path) -> dict[str, Any]:
    """The plan in a study's folder, compared with the files it lists.

    Raises:
        UsageError: there is none, it is of another version, or a file was changed; names it.
    """
    files, path = GuardedFolder(folder), folder / JOBS / PLAN
    try:
        found = unsealed_json(files.read(f"{JOBS}/{PLAN}", MOST_RECORD))
    except NotOurs:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            "{folder}: has no plan of a study ({path} is missing); make one: vitral study plan NAME --out {folder}",
            folder=folder,
            path=path,
        ) from None
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from None
    ours = {"format": FORMAT, "vitral": version("vitral")}
    theirs = {key: found.get(key) for key in ours}
    if theirs != ours:
        raise UsageError(
            "{path}: is a plan of Vitral {theirs!a:.40}, this is {ours}; use that version, or plan it again with "
            "vitral study plan",
            path=path,
            theirs=theirs["vitral"],
            ours=ours["vitral"],
        )
    listed = {f"{JOBS}/{name}/{JOB}": seal for name, seal in dict(found["jobs"]).items()}
    for name, seal in {RECORD: found["record"], **listed}.items():
        try:
            content = files.read(name, MOST_RECORD)
        except NotOurs:
            raise
        except (OSError, ValueError) as error:
            raise _damaged(folder / name, error) from None
        if sha256(content) != seal:
            raise _damaged(folder / name, ValueError(_("it was changed after it was planned")))
    return found


def _damaged(path: Path, error: Exception) -> UsageError:
    why = getattr(error, "strerror", None) or str(error)
    return UsageError(
        "{path}: {why}; vitral study plan, with the study and this folder, writes it again", path=path, why=why
    )


def planned_jobs(folder: Path) -> list[dict[str, Any]]:
    """The jobs of a plan as their files say, those that results asked for included; in the order of the plan."""
    plan, files = read_plan(folder), GuardedFolder(folder).within(JOBS)
    names = [*plan["jobs"]]
    kinds = {name.split("/")[0] for name in names} | {LONGER, TUNING}
    for kind in sorted(kinds):
        for arm in files.names(kind):
            for last in files.names(f"{kind}/{arm}"):
                name = f"{kind}/{arm}/{last}"
                if name not in names and files.kind(f"{name}/{JOB}") == "file":
                    names.append(name)
    found = []
    for name in names:
        try:
            found.append(unsealed_json(files.read(f"{name}/{JOB}", MOST_RECORD)))
        except (OSError, ValueError) as error:
            raise _damaged(folder / JOBS / name / JOB, error) from None
    return found
