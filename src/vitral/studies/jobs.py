"""The runs of a study: which arm from which seed in which folder, in which order, and how much work is left."""

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.core.guarded import GuardedFolder
from vitral.runs import RunFolder
from vitral.runs.checkpoint import list_checkpoints
from vitral.studies.design import LONGER_STEPS, TUNING_SEED, Arm, Study
from vitral.studies.record import LONGER
from vitral.studies.resolution import ResolvedArm, with_more_steps
from vitral.studies.results import (
    read_run,
    require_config,
    run_name,
)
from vitral.studies.tuning import AS_IT_IS, Row, rows, scaled, trial_name
from vitral.training import Callback, RunConfig

BYTES_PER_PARAMETER = 12
"""In a float32 checkpoint: the weight and the optimizer's two averages."""
MOST_CHECKPOINTS = 3
SPARE_BYTES = 2**26
"""Beyond the checkpoints: metrics, figures, and space a disk must keep free."""


TunedKeys = Callable[[Arm], Collection[str]]


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
    def source(self) -> Path | None:
        """The folder of the run whose last weights it begins from; None for random weights."""
        if self.parent is not None:
            return self.parent.path
        return None if self.arm.arm.run is None else Path(self.arm.arm.run)

    @property
    def begun(self) -> bool:
        """Whether there is a run.

        Raises:
            UsageError: a link leads to it.
        """
        return self.folder.kind("config.toml") is not None


def jobs_of(folder: GuardedFolder, arms: Sequence[ResolvedArm], seeds: Sequence[int]) -> list[Job]:
    """Every arm from every seed; an arm comes after the one that it begins from."""
    found: dict[tuple[str, int], Job] = {}
    for seed in seeds:
        for arm in arms:
            parent = None if arm.arm.init_from is None else found[arm.arm.init_from, seed]
            found[arm.arm.name, seed] = Job(arm, seed, folder.within(run_name(arm.arm.name, seed)), parent)
    return list(found.values())


def trials_of(study: Study, arms: Sequence[ResolvedArm], folder: GuardedFolder) -> list[Job]:
    """The runs in which values are tried, as far as they are known before the first."""
    found, parents = list[Job](), tuned_from(study, arms)
    for arm in arms:
        tune = study.tuned(arm.arm)
        usual: tuple[Row, ...] = (AS_IT_IS,) if arm.arm.name in parents else ()
        tried = [(scaled(arm, row), row) for row in rows(tune, arm.config)] if tune else [(arm, row) for row in usual]
        found += [Job(own, TUNING_SEED, folder.within(trial_name(arm.arm.name, row))) for own, row in tried]
    return found


def tuned_from(study: Study, arms: Sequence[ResolvedArm]) -> set[str]:
    """The names of all arms that a tuned arm begins from, directly or not: they have a run from the tuning seed."""
    found = set[str]()
    for arm in reversed(arms):
        if arm.arm.init_from is not None and (study.tuned(arm.arm) or arm.arm.name in found):
            found.add(arm.arm.init_from)
    return found


def longer_of(folder: GuardedFolder, arms: Sequence[ResolvedArm], seeds: Sequence[int]) -> list[Job]:
    """Every arm from every seed with the second budget: more steps."""
    longer = {arm.arm.name: with_more_steps(arm, LONGER_STEPS) for arm in arms}
    jobs = jobs_of(folder, arms, seeds)
    return [
        replace(
            job,
            arm=longer[job.arm.arm.name],
            folder=folder.within(f"{LONGER}/{job.arm.arm.name}/seed-{job.seed}"),
        )
        for job in jobs
    ]


def require_own(jobs: Sequence[Job], note: Callable[[str], None], tuned: TunedKeys = lambda arm: ()) -> None:
    """Refuse, before anything more is trained, a run in the folder that is not its arm's.

    Args:
        jobs: the runs.
        note: receives a line for each damage of a run that does not enter its results.
        tuned: the keys of an arm whose values are not known yet.

    Raises:
        UsageError: a run is of another configuration; names the first key.
    """
    for job in jobs:
        if job.begun:
            require_config(job.path, job.config, note, tuned(job.arm.arm))


def require_room(out: Path, jobs: Sequence[Job]) -> None:
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


class Progress:
    """Adds to each event the run it belongs to, and the amount of work before it."""

    def __init__(self, jobs: Sequence[Job], callback: Callback) -> None:
        """Start with the jobs that are foreseen."""
        self._work = [(job.path, _left(job)) for job in jobs]
        self._last = -1
        self._callback = callback

    def of(self, job: Job) -> Callback:
        """The callback of a job; one that was not foreseen comes right after the one before."""
        paths = [path for path, _flops in self._work]
        if job.path not in paths:
            self._work.insert(self._last + 1, (job.path, job.arm.flops))
        self._last = [path for path, _flops in self._work].index(job.path)
        work = [flops for _path, flops in self._work]
        label = {
            "arm": job.arm.arm.name,
            "seed": job.seed,
            "run": self._last + 1,
            "runs": len(work),
            "before": sum(work[: self._last]),
            "during": work[self._last],
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
