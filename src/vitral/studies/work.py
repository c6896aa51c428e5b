"""One worker of a planned study: it claims a job, trains it, gives the run its place, and takes the next.

A run is trained in a folder of the claim's own, `jobs/ARMS/NAME/run-NUMBER`, and is renamed to its place once it is
finished and the claim is still good. A job whose worker is lost goes on from that worker's last checkpoint.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitral.core.errors import StorageError, TrainingStopped, VitralError
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_, _, ngettext
from vitral.runs import RunFolder, load_run
from vitral.runs.folder import is_run
from vitral.runs.leases import RUN, Lease, LeaseLost, Room, Watcher
from vitral.runs.lock import only_writer
from vitral.runs.takeover import copy_run
from vitral.studies.jobs import Job, Progress, require_own
from vitral.studies.plan import JOB, PAGE, Plan
from vitral.studies.record import JOBS
from vitral.studies.results import read_run, require_config, require_parent
from vitral.training import Callback, resume, train

MOST_TRIES = 3
"""Times that a job may crash, with whatever worker, before it is given up."""
SHORTEST, LONGEST = 0.1, 5.0
"""Seconds between two looks for a job that has become free; each is twice as long as the one before."""


class JobFailed(VitralError, RuntimeError):
    """Jobs of a study crashed every time they were tried."""

    exit_code = 70


class Worker:
    """A worker of a plan.

    Attributes:
        plan: of the study.
        watcher: of the claims of others.
        wait: waits some seconds.
    """

    def __init__(
        self,
        plan: Plan,
        callback: Callback,
        *,
        watcher: Watcher | None = None,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Begin to work; `callback` receives every event, with the job it is of."""
        self.plan, self.watcher, self.wait = plan, watcher or Watcher(), wait
        self._progress = Progress(plan.known().jobs, self.tell)
        self._callback = callback
        self._mistake: BaseException | None = None
        self._seen, self._noted = set[str](), set[str]()
        self._crash: Exception | None = None

    def train(self) -> None:
        """Train until every job that is known is finished, by this worker or another.

        Raises:
            JobFailed: a job crashed every time it was tried; all others are finished.
            UsageError: a run is damaged, or of another configuration.
            StorageError: the disk did not take a run.
            KeyboardInterrupt: the user asked to stop.
        """
        pause = SHORTEST
        while True:
            claimed, is_left = self._next()
            if claimed is not None:
                pause = SHORTEST
                self._do(*claimed)
            elif not is_left:
                return
            else:
                self.wait(pause)
                pause = min(LONGEST, 2 * pause)

    def claim_page(self, *, waits: bool) -> Lease | None:
        """Claim the last job: measurements and the page.

        Returns:
            The claim; None if this worker does not wait, and the page is made, or another worker has claimed it.
        """
        if not waits and self.plan.is_done:
            return None
        room, pause = Room(self.plan.folder.within(PAGE)), SHORTEST
        while (lease := self.watcher.claim(room)) is None and waits:
            self.wait(pause)
            pause = min(LONGEST, 2 * pause)
        return lease

    def tidy(self) -> None:
        """Remove what lost workers left of jobs that are finished."""
        for job in self.plan.known().jobs:
            _clear(job.room)

    def note(self, line: str) -> None:
        """Tell a line."""
        self.tell({"event": "note", "text": line})

    def _next(self) -> tuple[tuple[Job, Lease] | None, bool]:
        """A claimed job; or None, and whether any is left that others do."""
        left, failed = self._left()
        for job in left:
            if not job.is_settled or any(need not in self._seen for need in job.needs):
                continue
            lease = self._claimed(job)
            if lease is not None:
                return (job, lease), True
        if failed and not left:
            raise self._given_up(failed) from self._crash
        return None, bool(left)

    def _left(self) -> tuple[list[Job], list[Job]]:
        """The jobs that can still be done, by this worker or others, and those that crashed too often."""
        left, failed, blocked = list[Job](), list[Job](), set[str]()
        for job in self.plan.known().jobs:
            if job.name in self._seen:
                continue
            if self._is_finished(job):
                self._find(job)
            elif len(job.room.failures()) >= MOST_TRIES:
                failed.append(job)
                blocked.add(job.name)
            elif blocked & {*job.needs}:
                blocked.add(job.name)
            else:
                left.append(job)
        return left, failed

    def _is_finished(self, job: Job) -> bool:
        """Whether a job has a result; a finished run that its worker could not give its place is given it."""
        if self.plan.result(job) is not None:
            return True
        newest = job.room.newest()
        if newest is not None and newest.publishes is not None and _placed(job, newest.publishes):
            return self.plan.result(job) is not None
        return False

    def _find(self, job: Job) -> None:
        """Tell of a finished job, once."""
        self._seen.add(job.name)
        require_own([job], self._note_once)
        if job.begun:
            self._progress.of(job)({"event": "run", "state": "found"})
            _clear(job.room)

    def _note_once(self, line: str) -> None:
        if line not in self._noted:
            self._noted.add(line)
            self.note(line)

    def _claimed(self, job: Job) -> Lease | None:
        """A claim of a job, and its file if results asked for it; None if another worker has it."""
        lease = self.watcher.claim(job.room)
        if lease is not None and job.room.folder.kind(JOB) is None:
            self.plan.foresee([job])
        return lease

    def _do(self, job: Job, lease: Lease) -> None:
        """Do a claimed job, unless another worker has finished it, or claims it meanwhile."""
        try:
            with lease.kept(lambda error: error is not self._mistake and not _is_lost(lease)):
                if not self._is_finished(job):
                    self._train(job, lease)
            return
        except LeaseLost as error:
            self._drop(job, lease, error)
        except VitralError:
            if not _is_lost(lease):
                raise
            self._drop(job, lease, lease.lost())
        except Exception as error:
            if error is self._mistake:
                raise
            if _is_lost(lease):
                self._drop(job, lease, lease.lost())
                return
            self._crash = error
            said = N_("{path}: crashed ({kind}: {error}); it is tried at most {most} times")
            kind, tries = type(error).__name__, MOST_TRIES
            self.note(said.format(path=job.path, kind=kind, error=str(error)[:200], most=tries))

    def _drop(self, job: Job, lease: Lease, error: VitralError) -> None:
        """Leave a job to the worker that has claimed it."""
        _remove(job.room.folder, lease.work)
        self.note(str(error))

    def _train(self, job: Job, lease: Lease) -> None:
        """Train a job under a claim and give the run its place."""
        begun = _taken_over(job, lease)
        path, config = job.room.folder.path / lease.work, job.config
        tell = self._heard(self._progress.of(job), lease, config.training.steps)
        if begun:
            require_config(path, config, self._note_once)
            require_parent(path, job.source, lambda line: None)
        if begun and read_run(path, job.seed, job.arm).ended:
            tidy(path, job)
        else:
            tell({"event": "run", "state": "resume" if begun else "train"})
            with suppress(TrainingStopped):  # the run says why in its metrics
                if begun:
                    resume(path, callback=tell)
                else:
                    texts = self.plan.texts
                    dataset, baselines = texts.of(config.corpus), texts.curve_baselines(config)
                    source = None if job.source is None else load_run(job.source, "last")
                    train(config, path, callback=tell, dataset=dataset, baselines=baselines, init_from=source)
        if not read_run(path, job.seed, job.arm).ended:
            raise KeyboardInterrupt(
                _("{path}: stopped before its last step; the same command goes on from there", path=job.path)
            )
        self._publish(job, lease)

    def _publish(self, job: Job, lease: Lease) -> None:
        lease.seal()
        if not _placed(job, lease.number):
            raise StorageError("{path}: cannot be given its place; check the folder", path=job.path)
        self._seen.add(job.name)
        self.plan.result(job)
        _clear(job.room)

    def _heard(self, tell: Callback, lease: Lease, steps: int) -> Callback:
        """The callback of a job, which stops a training whose claim is lost, and tells the step with each beat."""

        def heard(event: Any) -> Any:
            if lease.is_lost:
                raise lease.lost()
            if event["event"] in ("step", "evaluation"):
                lease.told |= {"step": event["step"], "steps": steps}
            return tell(event)

        return heard

    def tell(self, event: Any) -> Any:
        """Tell an event to the user's callback; its errors are not those of a job."""
        try:
            return self._callback(event)
        except BaseException as error:
            self._mistake = error
            raise

    def _given_up(self, failed: Sequence[Job]) -> JobFailed:
        job, more = failed[0], len(failed) - 1
        others = ngettext("{n} more job failed", "{n} more jobs failed", more, n=more) if more else ""
        return JobFailed(
            "{path}: crashed {times} times ({reason}); after the cause is removed, vitral study tries again{others}",
            path=job.path,
            times=MOST_TRIES,
            reason=job.room.failures()[-1],
            others=f"; {others}" if others else "",
        )


def _is_lost(lease: Lease) -> bool:
    try:
        lease.require()
    except LeaseLost:
        return True
    except (VitralError, OSError):
        return False
    return False


def _taken_over(job: Job, lease: Lease) -> bool:
    """Take the newest usable run of earlier claims of a job into this claim's folder; return whether there is one.

    The folder of a worker that has ended, or has given up, is renamed. That of one who is only silent may still be
    written to: it is copied.
    """
    room = job.room
    for number in reversed([number for number in room.numbers(RUN) if number < lease.number]):
        name = f"{RUN}-{number:06}"
        if not is_run(room.folder.path / name):
            continue
        claim = room.claim(number) if number in room.numbers("claim") else None
        owner = None if claim is None else claim.owner
        is_left = claim is None or room.end(number) is not None or (owner is not None and owner.has_ended())
        if not is_left:
            if copy_run(room.folder, name, lease.work):
                return True
            continue
        with suppress(OSError):
            room.folder.rename(name, lease.work)
            return True
    return False


def _placed(job: Job, number: int) -> bool:
    """Give the finished run of a claim its place, whoever made it; return whether it is there."""
    study = job.study
    study.make(job.name.rpartition("/")[0])
    try:
        study.rename(f"{JOBS}/{job.name}/{RUN}-{number:06}", job.name)
        study.sync(job.name.rpartition("/")[0])
    except OSError:  # another worker was faster, or it is gone
        return job.begun
    return True


def tidy(path: Path, job: Job) -> None:
    """Finish the last save of a run, which a kill may have left after the checkpoint and before the rest."""
    run = RunFolder.open(path)
    newest = run.newest()
    if newest is not None:
        with only_writer(path):
            run.sweep()
            run.tidy(newest, keep=job.config.training.keep_checkpoints)


def _clear(room: Room) -> None:
    """Remove the folders of claims that have lost their job, which is finished."""
    for name in room.folder.names():
        if name.startswith((f"{RUN}-", f".{RUN}-")):
            _remove(room.folder, name)
    room.folder.sweep()


def _remove(folder: GuardedFolder, name: str) -> None:
    with suppress(VitralError, OSError):
        folder.remove_folder(name, lambda path: True)
