"""The trainings of a call: which job after which, by whom, and what is told of them."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from vitral.core.language import N_, language
from vitral.core.parts import imported_files
from vitral.studies.design import Study
from vitral.studies.executors import run_all
from vitral.studies.jobs import Job, JobStopped, attempt, do
from vitral.studies.results import RunResult, read_run, require_config, require_parent
from vitral.studies.texts import Texts
from vitral.training import Callback

Name = TypeVar("Name", bound=Hashable)


def noting(callback: Callback) -> Callable[[str], object]:
    """A function that tells a line."""
    return lambda line: callback({"event": "note", "text": line})


class Work:
    """The trainings of one call.

    Attributes:
        study: the design.
        out: the study's folder.
        texts: of the arms.
        callback: that of `run_study`.
        executor: that does them; None: this process, one after another.
        results: of all that are done, by their folders.
    """

    def __init__(
        self, study: Study, out: Path, texts: Texts, callback: Callback, executor: Any, jobs: Sequence[Job]
    ) -> None:
        """Begin with the jobs that no result asks for."""
        self.study, self.out, self.texts, self.callback, self.executor = study, out, texts, callback, executor
        self.results = dict[Path, RunResult]()
        self._flops = {job.out: 0 if job.is_there else job.flops for job in jobs}
        self._last: Path | None = None

    def waves(self, parents: Mapping[Name, Name | None]) -> list[list[Name]]:
        """Names in waves, of which each needs nothing but those before it; one by one in this process.

        Args:
            parents: by name, a parent before its children.
        """
        if self.executor is None:
            return [[name] for name in parents]
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
        by_place = {job.out: job for job in jobs}
        try:
            for wave in self.waves({job.out: job.parent for job in jobs}):
                self._wave([by_place[out] for out in wave if out not in self.results])
        except JobStopped as error:
            raise KeyboardInterrupt(str(error)) from None
        return [self.results[job.out] for job in jobs]

    def _wave(self, wave: Sequence[Job]) -> None:
        left = list[Job]()
        for job in wave:
            before = None if job.parent is None else self.results.get(job.parent)
            if before is not None and before.test_loss is None:
                why = N_("it begins from arm {arm}, which has no result").format(arm=before.path.parent.name)
                self.results[job.out] = RunResult(job.seed, job.out, (), None, None, None, 0.0, stopped=why)
            elif job.is_there:
                self._labelled(job)({"event": "run", "state": "found"})
            elif self.executor is None:
                do(job, self.texts, self._labelled(job))
            else:
                left.append(job)
        if self.executor is not None and left:
            self._elsewhere(left, self.executor)
        for job in wave:
            if job.out not in self.results:
                require_config(job.out, job.run_config, lambda line: None)
                require_parent(job.out, job.parent, lambda line: None)
                self.results[job.out] = read_run(job.out)

    def _elsewhere(self, jobs: Sequence[Job], executor: Any) -> None:
        """Have jobs done whose folders another process finds by their absolute paths."""
        outside = tuple(Path(arm.run).absolute() for arm in self.study.arms if arm.run is not None)
        given, number = (outside, tuple(imported_files()), language()), 0
        note = noting(self.callback)

        def done(job: Job) -> None:
            nonlocal number
            number += 1
            note(N_("{job}: finished ({done} of {all})").format(job=job.name, done=number, all=len(jobs)))

        placed = [replace(job, study=job.study.absolute(), parent=job.parent and job.parent.absolute()) for job in jobs]
        run_all(placed, lambda job: executor.submit(attempt, job, *given), done, note)

    def _labelled(self, job: Job) -> Callback:
        """A callback that adds to each event its job, and the work before it.

        A job that was not foreseen comes right after the one before.
        """
        places = [*self._flops]
        if job.out not in self._flops:
            places.insert(0 if self._last is None else places.index(self._last) + 1, job.out)
            self._flops = {place: self._flops.get(place, job.flops) for place in places}
        self._last, before = job.out, places.index(job.out)
        work = [*self._flops.values()]
        label = {"arm": job.arm, "seed": job.seed, "run": before + 1, "runs": len(work)}
        label |= {"before": sum(work[:before]), "during": work[before], "in_all": sum(work)}
        return lambda event: self.callback({**event, **label})
