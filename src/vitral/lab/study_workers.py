"""Workers of a planned study: this process, a pool on this machine, or the tasks of a Slurm array."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vitral.core.checked import Count, checked
from vitral.core.errors import UsageError
from vitral.core.guarded import GuardedFolder
from vitral.core.language import N_, _
from vitral.core.machine import cores
from vitral.core.parts import imported_files
from vitral.reports.crew import StudyProgress
from vitral.reports.study import StudyPage, write_report
from vitral.studies.crew import FINISHED
from vitral.studies.execution import complete, planned_in
from vitral.studies.record import JOBS
from vitral.studies.work import Worker
from vitral.training import Callback, silent
from vitral.training.plans import THREAD_VARIABLES

BATCH = "work.sbatch"
OUTPUT = "slurm"
"""Folder of what the tasks of a batch system print."""
MOST_TASKS = 1000
PAUSE = 1.0
"""Seconds between two looks at the workers of a pool."""


@checked(first=True)
def study_progress(folder: str | Path) -> StudyProgress:
    """Who does what in a planned study.

    Args:
        folder: of the study, planned by `StudyPlan.write` or `vitral study plan`.

    Raises:
        UsageError: it has no plan, or a file of the plan was changed.
    """
    return StudyProgress.read(Path(folder))


@checked(first=True)
def work(
    folder: str | Path,
    *,
    workers: Count | None = None,
    page: bool = True,
    callback: Callback = silent,
) -> StudyPage | None:
    """Work on a planned study until nothing is left; measure, and write the page, if no other worker does.

    Args:
        folder: of the study.
        workers: trainings at a time on this machine, each in a process of its own; as many as it has cores for if
            None. The numbers do not depend on it.
        page: whether to measure and to write the page.
        callback: called with every event of training and measuring; in a pool, with a note for each finished training.

    Returns:
        The page; None if another worker makes it, or it is made.

    Raises:
        UsageError: there is no plan, it is of another version, or more workers are asked for than there are cores.
        StorageError: the folder cannot be written.
        JobFailed: a training crashed every time it was tried.
    """
    out = Path(folder)
    progress = study_progress(out)
    _require_writable(out)
    number = _workers(workers, progress)
    if progress.is_finished:
        return None
    if number > 1:
        _pool(out, number, progress, callback)
    planned = planned_in(out, callback=callback)
    worker = Worker(planned, callback)
    if not page:
        worker.train()
        return None
    return complete(worker, lambda result: write_report(result, command=planned.command), waits=False)


def _workers(asked: int | None, progress: StudyProgress) -> int:
    """The number of workers on this machine.

    Raises:
        UsageError: their threads are more than the cores.
    """
    threads, there = progress.threads or 1, cores()
    most = max(1, there // threads)
    if asked is not None and asked > most:
        raise UsageError(
            "--workers {asked}: each training has {threads} threads and this machine {cores} cores, so that at most "
            "{most} can work at a time",
            asked=asked,
            threads=threads,
            cores=there,
            most=most,
        )
    return min(asked or most, max(1, len(progress.jobs) - 1 - progress.finished))


def _require_writable(folder: Path) -> None:
    """Refuse a folder in which nothing can be claimed, before anything is loaded.

    Raises:
        StorageError: it cannot be written.
    """
    files = GuardedFolder(folder).within(JOBS)
    files.write(f"seen-{os.getpid()}", b"")
    files.remove(f"seen-{os.getpid()}")


def _pool(folder: Path, number: int, progress: StudyProgress, callback: Callback) -> None:
    """Train in processes of this machine until nothing is left for them; the rest is this process's."""
    command = [*work_command(folder), "--no-page", "--format", "json"]
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(progress.threads or 1))}
    told = {job.job for job in progress.jobs if job.state == FINISHED}
    with _processes(command, environment, number) as processes:
        while any(process.poll() is None for process in processes):
            with suppress(subprocess.TimeoutExpired):
                next(process for process in processes if process.returncode is None).wait(PAUSE)
            for job in study_progress(folder).jobs:
                if job.state == FINISHED and job.job not in told:
                    told.add(job.job)
                    said = N_("{job}: finished ({done} of {all})")
                    line = said.format(job=job.job, done=len(told), all=len(progress.jobs) - 1)
                    callback({"event": "note", "text": line})


@contextmanager
def _processes(command: Sequence[str], environment: Mapping[str, str], number: int) -> Any:
    """Processes that are asked to stop, and save, when the block is left before they end."""
    made = list[subprocess.Popen[bytes]]()
    before = signal.signal(signal.SIGTERM, _interrupt) if _is_main_thread() else None
    try:
        for _number in range(number):
            made.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
        yield made
    finally:
        for process in made:
            if process.poll() is None:
                process.terminate()
        for process in made:
            process.wait()
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _interrupt(signum: int, frame: Any) -> None:
    raise KeyboardInterrupt(_("stopped; the same command goes on from there"))


def _is_main_thread() -> bool:
    import threading

    return threading.current_thread() is threading.main_thread()


def work_command(folder: Path) -> list[str]:
    """The command of one worker in a process of its own."""
    parts = [word for path in imported_files() for word in ("--parts", str(path))]
    return [sys.executable, "-m", "vitral", "study", "work", str(folder.absolute()), "--workers", "1", *parts]


def write_batch(progress: StudyProgress) -> Path:
    """Write a batch file for Slurm, `jobs/work.sbatch`: an array of workers.

    Raises:
        StorageError: it cannot be written.
    """
    folder, threads = progress.folder.absolute(), progress.threads or 1
    tasks = min(MOST_TASKS, max(1, len(progress.jobs) - 1))
    output = folder / JOBS / OUTPUT
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={progress.study}",
        f"#SBATCH --array=1-{tasks}",
        f"#SBATCH --cpus-per-task={threads}",
        f"#SBATCH --output={shlex.quote(str(output / '%A-%a.txt'))}",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#SBATCH --signal=B:TERM@120",
        f"cd {shlex.quote(os.getcwd())}",
        *(f"export {name}={threads}" for name in THREAD_VARIABLES),
        f"exec {shlex.join(work_command(folder))}",
    ]
    files = GuardedFolder(progress.folder).within(JOBS)
    files.make(OUTPUT)
    files.write(BATCH, "".join(f"{line}\n" for line in lines).encode())
    return progress.folder / JOBS / BATCH


@checked(first=True)
def submit(folder: str | Path, tasks: Count, options: Mapping[str, Any] | None = None) -> list[str]:
    """Submit workers of a planned study to Slurm as an array, by submitit; without Slurm they are processes here.

    Args:
        folder: of the study.
        tasks: workers.
        options: parameters of submitit's executor, such as {"slurm_partition": "cpu", "timeout_min": 600}.

    Returns:
        The numbers of the batch system's jobs.

    Raises:
        UsageError: submitit is not installed or refuses an option, or there is no plan.
    """
    progress = study_progress(folder)
    _require_writable(progress.folder)
    executor, command = _executor(progress, dict(options or {})), work_command(progress.folder)
    from submitit.helpers import CommandFunction  # pyright: ignore[reportMissingImports]

    with executor.batch():
        jobs = [executor.submit(CommandFunction(command)) for _task in range(tasks)]
    return [str(job.job_id) for job in jobs]


def _executor(progress: StudyProgress, options: dict[str, Any]) -> Any:
    try:
        import submitit  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UsageError(
            "--slurm: submitit is not installed; pip install 'vitral[slurm]', or sbatch {path}",
            path=progress.folder / JOBS / BATCH,
        ) from None
    usual = {"name": progress.study, "cpus_per_task": progress.threads or 1, "timeout_min": 24 * 60}
    try:
        executor = submitit.AutoExecutor(progress.folder.absolute() / JOBS / OUTPUT, options.pop("cluster", None))
        executor.update_parameters(**{**usual, **options})
    except (TypeError, ValueError, NameError, RuntimeError, AssertionError) as error:
        raise UsageError("--slurm-option: {error}", error=str(error).splitlines()[0][:200]) from None
    return executor
