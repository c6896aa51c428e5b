"""The trainings of a call: which job after which, by whom, and what is told of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from vitral.core.language import N_, language
from vitral.core.parts import imported_files
from vitral.runs import enter
from vitral.runs.lock import is_held
from vitral.studies.design import Study
from vitral.studies.executors import run_all
from vitral.studies.jobs import Job, JobStopped, attempt, do
from vitral.studies.results import RunResult, read_run, require_config, require_parent
from vitral.studies.texts import Texts
from vitral.training import Callback
from vitral.training.events import noting

Name = TypeVar("Name")


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
        self.results = dict[Path | None, RunResult]()
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
        by_place = {job.out: job for job in jobs if job.out not in self.results}
        try:
            waves = [[out] for out in by_place]  # one by one in this process
            if self.executor is not None:
                waves = self.waves({job.out: job.parent for job in by_place.values()})
            for wave in waves:
                self._wave([by_place[out] for out in wave])
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
        outside = tuple(Path(arm.run).absolute() for arm in self.study.arms if arm.run is not None)
        led = is_held(self.out)  # not on a file system without locks
        given, number, note = (led, outside, tuple(imported_files()), language()), count(1), noting(self.callback)

        def done(job: Job) -> None:
            note(N_("{job}: finished ({done} of {all})").format(job=job.name, done=next(number), all=len(jobs)))

        placed = [replace(job, study=job.study.absolute(), parent=job.parent and job.parent.absolute()) for job in jobs]
        run_all(placed, lambda job: self.executor.submit(attempt, job, *given), done, note)

    def _labelled(self, job: Job) -> Callback:
        """A callback that adds to each event its job, and the work before it, in it and in all."""
        self._begun[job.out] = self._left.pop(job.out, job.flops)
        *before, during = self._begun.values()
        label = {"arm": job.arm, "seed": job.seed, "run": len(before) + 1, "runs": len(self._begun) + len(self._left)}
        label |= {"before": sum(before), "during": during, "in_all": sum((*before, during, *self._left.values()))}
        return lambda event: self.callback({**event, **label})
