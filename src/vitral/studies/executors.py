"""The trainings of a call: which job after which, what is told of them, and who does them.

That is this process, processes of this machine, dask, Slurm, or any object of the protocol of `concurrent.futures`.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from vitral.core.config import assignment, merge
from vitral.core.errors import UsageError, VitralError
from vitral.core.language import N_, _, language
from vitral.core.machine import cores
from vitral.core.parts import imported_files
from vitral.runs import enter
from vitral.runs.lock import is_held
from vitral.studies.design import Study
from vitral.studies.jobs import Job, JobStopped, attempt, do
from vitral.studies.record import LOGS
from vitral.studies.results import RunResult, read_run, require_config, require_parent
from vitral.studies.texts import Texts
from vitral.training import Callback
from vitral.training.events import noting
from vitral.training.stopping import stop_on_signals

Name = TypeVar("Name")
MOST_TRIES = 4
"""Times that a job may crash, or lose its process, before it is given up."""
PAUSE = 0.2
"""Seconds between two looks at the jobs."""


@dataclass
class Work:
    """The trainings of one call.

    Attributes:
        study: the design.
        out: the study's folder.
        texts: of the arms.
        callback: that of `run_study`.
        executor: that does them; None: this process, one after another.
        jobs: that no result asks for.
        results: of all that are done, by their folders.
    """

    study: Study
    out: Path
    texts: Texts
    callback: Callback
    executor: Any
    jobs: InitVar[Sequence[Job]]
    results: dict[Path | None, RunResult] = field(default_factory=dict)

    def __post_init__(self, jobs: Sequence[Job]) -> None:
        """Begin with the jobs that no result asks for."""
        self._begun = dict[Path, int]()
        self._left = {job.out: 0 if job.is_there else job.flops for job in jobs}

    @staticmethod
    def waves(parents: Mapping[Name, Name | None]) -> list[list[Name]]:
        """Names in waves, of which each needs nothing but those before it.

        Args:
            parents: by name, a parent before its children.
        """
        level: dict[Name | None, int] = {}
        for name, parent in parents.items():
            level[name] = 1 + level.get(parent, -1)
        return [[name for name in parents if level[name] == number] for number in sorted({*level.values()})]

    def train(self, jobs: Sequence[Job]) -> list[RunResult]:
        """The result of every job; what is not there is trained.

        Raises:
            UsageError: a run is damaged, or of another arm.
            StorageError: the disk did not take a run.
            JobFailed: a training crashed every time it was tried.
            KeyboardInterrupt: somebody asked to stop.
        """
        by_folder = {job.out: job for job in jobs if job.out not in self.results}
        try:
            waves = [[out] for out in by_folder]  # one by one in this process
            if self.executor is not None:
                waves = self.waves({job.out: job.parent for job in by_folder.values()})
            for wave in waves:
                self._wave([by_folder[out] for out in wave])
        except JobStopped as error:
            raise KeyboardInterrupt(str(error)) from None
        return [self.results[job.out] for job in jobs]

    def _wave(self, wave: Sequence[Job]) -> None:
        elsewhere = list[Job]()
        for job in wave:
            before = self.results.get(job.parent)
            if before is not None and before.test_loss is None:
                why = N_("it begins from arm {arm}, which has no result").format(arm=before.path.parent.name)
                self.results[job.out] = RunResult(job.seed, job.out, (), None, None, None, 0.0, stopped=why)
            elif job.is_there:
                self._labelled(job)({"event": "run", "state": "found"})
            elif self.executor is None:
                do(job, self.texts, self._labelled(job))
            else:
                elsewhere.append(job)
        if elsewhere:
            self._elsewhere(elsewhere)
        for job in wave:
            if job.out not in self.results:
                run = enter(job.out, lambda line: None)
                require_config(run, job.run_config)
                require_parent(run, job.parent)
                self.results[job.out] = read_run(run)

    def _elsewhere(self, jobs: Sequence[Job]) -> None:
        """Have jobs done whose folders another process finds by their absolute paths."""
        outside = tuple(arm.begun.absolute() for arm in self.study.arms if arm.begun)
        led = is_held(self.out)  # not on a file system without locks
        given, number, note = (led, outside, tuple(imported_files()), language()), count(1), noting(self.callback)

        def done(job: Job) -> None:
            note(N_("{job}: finished ({done} of {all})").format(job=job.name, done=next(number), all=len(jobs)))

        absolute_jobs = [
            job._replace(study=job.study.absolute(), parent=job.parent and job.parent.absolute()) for job in jobs
        ]
        run_all(absolute_jobs, lambda job: self.executor.submit(attempt, job, *given), done, note)

    def _labelled(self, job: Job) -> Callback:
        """A callback that adds to each event its job, and the work before it, in it and in all."""
        self._begun[job.out] = self._left.pop(job.out, job.flops)
        *before, during = self._begun.values()
        label = {"arm": job.arm, "seed": job.seed, "run": len(before) + 1, "runs": len(self._begun) + len(self._left)}
        label |= {"before": sum(before), "during": during, "in_all": sum((*before, during, *self._left.values()))}
        return lambda event: self.callback({**event, **label})


class JobFailed(VitralError, RuntimeError):
    """Jobs crashed every time they were tried."""

    exit_code = 70


def run_all(
    jobs: Sequence[Job], begin: Callable[[Job], Any], done: Callable[[Job], None], note: Callable[[str], object]
) -> None:
    """Do independent jobs. One that fails ends no other; one that crashes, or whose process is lost, is tried again.

    Args:
        jobs: of which none needs another.
        begin: gives a job to an executor; the future's result is an error for users, or None.
        done: receives each that is done.
        note: receives a line where jobs are tried again.

    Raises:
        VitralError: the first error, once all others are done.
        JobFailed: a job crashed every time.
    """
    errors, left, why = list[VitralError](), [*jobs], ""
    for tries in range(MOST_TRIES):
        begun, left = [(job, begin(job)) for job in left], list[Job]()
        for job, future in _as_done(begun):
            try:
                error = future.result()
            except Exception as crash:
                left.append(job)
                why = f"{type(crash).__name__}: {str(crash)[:200]}"
                continue
            if error is None:
                done(job)
            else:
                errors.append(error)
        if left and tries < MOST_TRIES - 1:  # with a pool all that wait are lost with one
            note(N_("{path}: crashed ({reason}); it is tried again").format(path=left[0].out, reason=why))
    if errors:
        raise min(errors, key=lambda error: not isinstance(error, JobStopped))
    if left:
        raise JobFailed(
            "{path}: crashed {times} times ({reason}); after the cause is removed, the same command tries again",
            path=left[0].out,
            times=MOST_TRIES,
            reason=why,
        )


def _as_done(begun: list[tuple[Job, Any]]) -> Generator[tuple[Job, Any]]:
    """Jobs with the futures of any library, as they are done; at Ctrl-C or SIGTERM the others are cancelled.

    Raises:
        KeyboardInterrupt: somebody asked to stop.
    """
    try:
        with stop_on_signals() as request:
            while begun:
                done = [one for one in begun if one[1].done()]
                yield from done
                begun = [one for one in begun if one not in done]
                time.sleep(PAUSE if begun and not done else 0)
                if request.asked:
                    raise KeyboardInterrupt(_("stopped; the same command goes on from there"))
    finally:
        for _job, future in begun:
            getattr(future, "cancel", bool)()


@contextmanager
def opened(asked: Any, folder: Path, threads: int) -> Generator[Any]:
    """An executor inside the block; None for this process, one job after another.

    Args:
        asked: a number of processes, `dask:ADDRESS`, `slurm:KEY=VALUE,…` (submitit's parameters), an executor, or None.
        folder: of the study.
        threads: of each training.

    Raises:
        UsageError: it is none of these, its library is missing, or the processes are too many for the cores.
    """
    kind, _colon, where = str(asked).partition(":")
    if asked is None or asked == 1 or hasattr(asked, "submit"):
        yield None if asked == 1 else asked
    elif isinstance(asked, int) and asked > 1:
        most = max(1, cores() // threads)
        if asked > most:
            raise UsageError(
                "--workers {asked}: each training has {threads} threads and this machine {cores} cores, so that at "
                "most {most} can work at a time; a new study may have fewer --threads",
                asked=asked,
                threads=threads,
                cores=cores(),
                most=most,
            )
        others, pool = {*multiprocessing.active_children()}, _Processes(asked)
        try:
            yield pool
        except BaseException:  # they are asked to stop, and save
            for process in {*multiprocessing.active_children()} - others:
                process.terminate()
            raise
        finally:
            pool.pool.shutdown(cancel_futures=True)
    elif kind == "dask":
        distributed = _library("dask", "distributed")
        try:
            client = distributed.Client(where, set_as_default=False)
        except (OSError, ValueError) as error:
            raise _refused(f"dask:{where}", error) from None
        with client:
            yield client.get_executor(pure=False)  # a job that is tried again is not its former error
    elif kind == "slurm":
        yield _slurm(where, folder, threads)
    else:
        raise UsageError(
            "executor {asked!a:.60}: neither a number of processes, dask:ADDRESS, slurm:KEY=VALUE nor an object with a "
            "method submit",
            asked=asked,
        )


class _Processes:
    """A pool of processes, which is a new one after one of them was killed."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.renew()

    def renew(self) -> None:
        self.pool = ProcessPoolExecutor(self.workers, multiprocessing.get_context("spawn"), _be_a_worker)

    def submit(self, call: Callable[..., Any], /, *given: Any) -> Future[Any]:
        try:
            return self.pool.submit(call, *given)
        except BrokenExecutor:
            self.pool.shutdown()  # the others finish their step and save it
            self.renew()
            return self.pool.submit(call, *given)


def _be_a_worker() -> None:
    """Leave Ctrl-C to the training, which saves, and end with the process that began this one, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, name="parent", daemon=True).start()


def _slurm(options: str, folder: Path, threads: int) -> Any:
    submitit = _library("slurm", "submitit")
    given = merge(*(assignment(option) for option in options.split(",") if option))
    usual = {"name": "vitral", "cpus_per_task": threads, "timeout_min": 24 * 60}
    try:
        executor = submitit.AutoExecutor(folder.absolute() / LOGS, given.pop("cluster", None))
        executor.update_parameters(**{**usual, **given})
    except (TypeError, ValueError, NameError, RuntimeError, AssertionError) as error:
        raise _refused(f"slurm:{options}", error) from None
    return executor


def _library(extra: str, package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise UsageError(
            "--executor {extra}: {package} is not installed; pip install 'vitral[{extra}]'",
            extra=extra,
            package=package,
        ) from None


def _refused(asked: str, error: Exception) -> UsageError:
    return UsageError("--executor {asked}: {error}", asked=asked, error=str(error).splitlines()[0][:200])
