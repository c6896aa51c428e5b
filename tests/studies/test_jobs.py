"""Jobs and executors: each run is published once and finished, whoever does the job and whatever is left of it."""

import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.studies.conftest import PAIR, Log
from vitral.core.errors import UsageError
from vitral.runs import RunFolder
from vitral.runs.lock import only_writer
from vitral.studies import Study, StudyResult, executors, jobs, run_study
from vitral.studies.executors import JobFailed, opened
from vitral.studies.jobs import Job, JobStopped, attempt, do, jobs_of, left_of
from vitral.studies.resolution import resolve
from vitral.studies.texts import Texts
from vitral.training import RunConfig

RATE = "training.optimizer.learning_rate"
BEGUN = Study.parse(
    {
        "name": "begun",
        "title": "Begun",
        "question": "Which?",
        "tune": {RATE: [0.5, 1]},
        "arms": [
            {"name": "base", "title": "base"},
            {"name": "then", "title": "then", "init_from": "base", "changes": {"training": {"steps": 4}}},
        ],
    }
)
"""Waves: trials, those beyond an edge, trials from the chosen one; runs, and runs that begin from them."""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "PAUSE", 0.001)


@pytest.fixture
def job(tiny: RunConfig, tmp_path: Path) -> Job:
    return jobs_of(tmp_path / "s", resolve(PAIR, tiny, 31), [2])[0]


@pytest.fixture(scope="module")
def straight(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """In this process."""
    return run_study(BEGUN, tiny, tmp_path_factory.mktemp("straight") / "s", seeds=[2])


def bits(out: Path) -> dict[str, bytes]:
    """Weights and optimizer of every run in its place; states have the times of runs that theirs begin from."""
    files = (path for folder in ("arms", "tuning") for path in (out / folder).glob("*/[!.]*/steps/*/*"))
    return {str(path.relative_to(out)): path.read_bytes() for path in files if path.suffix == ".safetensors"}


def asked_to_stop(event: Any) -> None:
    if event["event"] == "step" and event["step"] == 4:
        signal.raise_signal(signal.SIGINT)


class Unlucky:
    """An executor that loses some of its jobs, the first ones."""

    def __init__(self, losses: int) -> None:
        self.losses = losses

    def submit(self, call: Callable[..., Any], /, *given: Any) -> Future[Any]:
        future = Future[Any]()
        self.losses -= 1
        if self.losses >= 0:
            future.set_exception(OSError("lost"))
        else:
            future.set_result(call(*given))
        return future


@pytest.fixture(params=["threads", "unlucky"])
def executor(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Any object with `submit`."""
    with ThreadPoolExecutor(1) as threads:
        yield threads if request.param == "threads" else Unlucky(2)


def test_any_executor_gives_the_same_bits(
    executor: Any, tiny: RunConfig, straight: StudyResult, tmp_path: Path
) -> None:
    log = Log()
    measured = run_study(BEGUN, tiny, tmp_path / "s", seeds=[2], executor=executor, callback=log)
    assert bits(tmp_path / "s") == bits(straight.folder)
    assert [arm.losses for arm in measured.arms] == [arm.losses for arm in straight.arms]
    assert measured.tuning == straight.tuning
    assert "arms/then/seed-2: finished (1 of 1)" in log.events["note"]
    log = Log()
    run_study(BEGUN, tiny, tmp_path / "s", seeds=[2], executor=Unlucky(99), callback=log)
    assert log.states == {"found"}


def test_what_crashes_every_time_is_named_when_the_others_are_done(tiny: RunConfig, tmp_path: Path) -> None:
    class First(Unlucky):
        def submit(self, call: Callable[..., Any], /, *given: Any) -> Future[Any]:
            self.losses = int(given[0].arm == "pre")
            return super().submit(call, *given)

    with pytest.raises(JobFailed, match=r"seed-2: crashed 4 times \(OSError: lost\)") as refused:
        run_study(PAIR, tiny, tmp_path, seeds=[2], executor=First(0))
    assert refused.value.exit_code == 70
    assert not (tmp_path / "arms/pre/seed-2").exists()
    assert RunFolder.open(tmp_path / "arms/post/seed-2").metrics("end")


def test_an_unfinished_run_is_never_published(job: Job, tiny: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(JobStopped, match="the same command goes on"):
        do(job, Texts(), asked_to_stop)
    assert not job.out.exists()
    assert len(left_of(job.out)) == 1
    log = Log()
    do(job, Texts(), lambda event: log({**event, "arm": job.arm, "seed": job.seed}))
    assert (log.states, log.events["step"]) == ({"resume"}, [5, 6])
    assert left_of(job.out) == []
    other = job._replace(study=tmp_path / "straight")
    do(other, Texts(), lambda event: None)
    last = other.name + "/steps/step-00000006/model.safetensors"
    assert bits(job.study)[last] == bits(other.study)[last]


def test_a_worker_that_is_asked_to_stop_says_so(
    job: Job, tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def twice(*given: Any, **named: Any) -> None:  # Ctrl-C
        raise KeyboardInterrupt

    monkeypatch.setattr("vitral.studies.jobs.train", twice)
    assert isinstance(attempt(job, False, (), (), "en"), JobStopped)
    with ThreadPoolExecutor(1) as threads, pytest.raises(KeyboardInterrupt, match="the same command goes on"):
        run_study(PAIR, tiny, tmp_path / "study", seeds=[2], executor=threads)


def test_a_job_that_nobody_leads_any_more_is_stopped(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(attempt(job, True, (), (), "en"), JobStopped)
    assert left_of(job.out) == []  # not even begun
    monkeypatch.setattr(jobs, "PATIENCE", -1)
    led = chain([True, True, True], repeat(False))  # the leader dies in the middle
    monkeypatch.setattr(jobs, "is_held", lambda path: path == job.study and next(led))
    assert isinstance(attempt(job, True, (), (), "en"), JobStopped)
    assert (len(left_of(job.out)), job.out.exists()) == (1, False)


def test_a_training_of_another_process_is_left_to_it(job: Job, tmp_path: Path) -> None:
    with pytest.raises(JobStopped):
        do(job, Texts(), asked_to_stop)
    (left,) = left_of(job.out)
    near = job.out.with_name(".seed-2.5." + "a" * 32)  # of a trial, x2.5
    near.mkdir()
    with only_writer(left):
        do(job, Texts(), lambda event: None)
        assert left_of(job.out) == [left]
    assert near.exists()
    do(job, Texts(), lambda event: pytest.fail("it is there"))


def test_who_is_second_leaves_the_run_of_the_first(job: Job) -> None:
    def meanwhile(event: Any) -> None:
        if event["event"] == "step" and event["step"] == 6:
            (job.out / "steps").mkdir(parents=True)
            (job.out / "config.toml").touch()

    do(job, Texts(), meanwhile)
    assert [path.name for path in job.out.parent.iterdir()] == [job.out.name]
    assert (job.out / "config.toml").read_bytes() == b""


@pytest.mark.parametrize("asked", ["elsewhere", 0, -2, 2.5, object(), "dask"])
def test_what_is_no_executor_is_refused_before_anything_is_written(
    asked: Any, tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError):
        run_study(PAIR, tiny, tmp_path / "s", seeds=[2], executor=asked)
    assert not (tmp_path / "s").exists()


def test_processes_have_cores_for_their_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "cores", lambda: 4)
    with pytest.raises(UsageError, match=r"--workers 3: .* at most 2 can work"), opened(3, tmp_path, 2):
        pass
    for alone in (None, 1):
        with opened(alone, tmp_path, 9) as none:
            assert none is None


def test_submitit_is_asked_for_what_a_training_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mock()
    monkeypatch.setitem(sys.modules, "submitit", made)
    with opened("slurm:slurm_partition=cpu,timeout_min=7", tmp_path, 3) as measured:
        assert measured is made.AutoExecutor.return_value
    asked = {"name": "vitral", "cpus_per_task": 3, "timeout_min": 7, "slurm_partition": "cpu"}
    measured.update_parameters.assert_called_with(**asked)
    made.AutoExecutor.assert_called_with(tmp_path / "slurm", None)
    with opened("slurm:cluster=debug", tmp_path, 1):
        made.AutoExecutor.assert_called_with(tmp_path / "slurm", "debug")
