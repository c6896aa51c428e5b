"""The runs of a study: which arm from which seed in which folder, in which order, and how much work is left."""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.core.guarded import GuardedFolder
from vitral.runs import RunFolder
from vitral.runs.checkpoint import list_checkpoints
from vitral.runs.leases import RUN, Room
from vitral.studies.design import LONGER_STEPS, Arm, Study
from vitral.studies.record import JOBS, LONGER
from vitral.studies.resolution import ResolvedArm, with_more_steps
from vitral.studies.results import (
    read_run,
    require_config,
    run_name,
)
from vitral.training import Callback, RunConfig

BYTES_PER_PARAMETER = 12
"""In a float32 checkpoint: the weight and the optimizer's two averages."""
MOST_CHECKPOINTS = 3
SPARE_BYTES = 2**26
"""Beyond the checkpoints: metrics, figures, and space a disk must keep free."""


TunedKeys = Callable[[Arm], Collection[str]]


@dataclass(frozen=True)
class Job:
    """One training: an arm from one seed.

    Attributes:
        arm: the arm.
        seed: the seed.
        study: the study's folder.
        name: its run folder, relative to the study's.
        parent: the job whose last weights it begins from; None for random weights, or while that is not known.
        needs: the names of the jobs that must be finished before it.
        is_settled: whether its configuration and its parent are known; they depend on the jobs that it needs.
    """

    arm: ResolvedArm
    seed: int
    study: GuardedFolder
    name: str
    parent: "Job | None" = None
    needs: tuple[str, ...] = ()
    is_settled: bool = True

    @property
    def folder(self) -> GuardedFolder:
        """Its run folder, which it has once it is finished."""
        return self.study.within(self.name)

    @property
    def room(self) -> Room:
        """The folder of its claims and of what is made under them."""
        return Room(self.study.within(f"{JOBS}/{self.name}"))

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
        """Whether there is a run in its place.

        Raises:
            UsageError: a link leads to it.
        """
        return self.folder.kind("config.toml") is not None


def jobs_of(
    folder: GuardedFolder,
    arms: Sequence[ResolvedArm],
    seeds: Sequence[int],
    trials: Mapping[str, tuple[str, ...]] | None = None,
    unsettled: Collection[str] = (),
) -> list[Job]:
    """Every arm from every seed; an arm comes after the one that it begins from.

    Args:
        folder: the study's.
        arms: tuned, where that is known.
        seeds: in order.
        trials: the names of the trials of each arm that is tuned.
        unsettled: the arms that are not tuned yet.
    """
    found: dict[tuple[str, int], Job] = {}
    for seed in seeds:
        for arm in arms:
            name, begins = arm.arm.name, arm.arm.init_from
            parent = None if begins is None else found[begins, seed]
            needs = (*(trials or {}).get(name, ()), *(() if parent is None else (parent.name,)))
            settled = name not in unsettled
            found[name, seed] = Job(arm, seed, folder, run_name(name, seed), parent, needs, settled)
    return list(found.values())


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
        replace(job, arm=longer[job.arm.arm.name], name=f"{LONGER}/{job.arm.arm.name}/seed-{job.seed}") for job in jobs
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
    if job.begun and read_run(job.path, job.seed, job.arm).ended:
        return 0
    there = [RunFolder(job.path)] if job.begun else []
    there += [RunFolder(job.room.folder.within(f"{RUN}-{number:06}").path) for number in job.room.numbers(RUN)]
    saved = [int(one.name.removeprefix("step-")) for run in there for one in list_checkpoints(run.steps)]
    steps = job.arm.config.training.steps
    return job.arm.flops * (steps - max(saved, default=0)) // steps
