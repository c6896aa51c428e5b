"""Executors of jobs: processes of this machine, dask, Slurm, or any object of the protocol of `concurrent.futures`."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from vitral.core.config import assignment, merge
from vitral.core.errors import UsageError, VitralError
from vitral.core.language import N_, _
from vitral.core.machine import cores
from vitral.studies.jobs import Job, JobStopped
from vitral.studies.record import LOGS
from vitral.training.stopping import stop_on_signals

MOST_TRIES = 4
"""Times that a job may crash, or lose its process, before it is given up."""
PAUSE = 0.2
"""Seconds between two looks at the jobs."""


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
        with _processes(asked) as pool:
            yield pool
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


@contextmanager
def _processes(workers: int) -> Generator[_Processes]:
    """A pool, whose processes are asked to stop, and save, when an error ends the block."""
    others, pool = {*multiprocessing.active_children()}, _Processes(workers)
    try:
        yield pool
    except BaseException:
        for process in {*multiprocessing.active_children()} - others:
            process.terminate()
        raise
    finally:
        pool.pool.shutdown(cancel_futures=True)


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
