"""Jobs of a study: independent trainings as plain data, each done once, whoever does it and after however many deaths.

What a job computes depends on the job alone. Its run is trained under a name of its own beside its place, and renamed
when it is finished; so a run that is there is finished. Whoever does a job first renames what a process that has ended
has left of it: of several only one can.
"""

import math
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from vitral.core.errors import TrainingStopped, VitralError
from vitral.core.files import is_left_behind, storage, sync
from vitral.core.language import in_language
from vitral.core.parts import import_parts
from vitral.data.batches import thinned
from vitral.runs import RunConfig, RunFolder, enter, is_run, load_run
from vitral.runs.lock import is_held
from vitral.studies.resolution import ResolvedArm, tokens_key
from vitral.studies.results import run_name
from vitral.studies.texts import Texts
from vitral.training import Callback, resume, train

PATIENCE = 2.0
"""Seconds between two looks of a worker at whether the process that leads the study still lives."""


class JobStopped(VitralError):
    """Somebody asked a training to stop: a person, a batch system. No KeyboardInterrupt: that ends a worker as well."""

    exit_code = 130


class Job(NamedTuple):
    """One training: an arm from a seed, as plain data.

    Attributes:
        study: the study's folder.
        name: the run's folder, relative to it.
        arm: its name.
        seed: of the run.
        config: the run's whole configuration.
        parent: the finished run whose last weights it begins from; None for random weights.
        flops: floating-point operations.
    """

    study: Path
    name: str
    arm: str
    seed: int
    config: Mapping[str, Any]
    parent: Path | None
    flops: int

    @classmethod
    def of(cls, arm: ResolvedArm, seed: int, study: Path, name: str, parent: Path | None = None) -> "Job":
        """The job of an arm and a seed; its parent is the finished run of the arm's parent, if none is given."""
        begins = arm.arm.init_from
        parent = parent or arm.arm.begun or (None if begins is None else study / run_name(begins, seed))
        return cls(study, name, arm.arm.name, seed, arm.seeded(seed).plain(), parent, arm.flops)

    @property
    def out(self) -> Path:
        """The place of the finished run."""
        return self.study / self.name

    @property
    def run_config(self) -> RunConfig:
        """The run's whole configuration."""
        return RunConfig.parse(self.config, str(self.out))

    @property
    def is_there(self) -> bool:
        """Whether there is a run in its place."""
        return (self.out / "config.toml").exists()


def jobs_of(study: Path, arms: Sequence[ResolvedArm], seeds: Sequence[int]) -> list[Job]:
    """Every arm from every seed; an arm comes after the one that it begins from."""
    return [Job.of(arm, seed, study, run_name(arm.arm.name, seed)) for seed in seeds for arm in arms]


def do(job: Job, texts: Texts, callback: Callback) -> None:
    """Train a job's run, or go on with what is left of it, and give it its place; a finished one is found.

    Args:
        job: the job.
        texts: prepares its text.
        callback: receives {"event": "run", "state": "train" | "resume"}, and every event of the training.

    Raises:
        JobStopped: it was asked to stop; what it has trained is saved.
        VitralError: it cannot be trained.
    """
    if job.is_there:
        return
    config, work = job.run_config, _taken_over(job.out)
    begun = is_run(work)
    if not (begun and has_ended(work)):
        callback({"event": "run", "state": "resume" if begun else "train"})
        with suppress(TrainingStopped):  # a result: the run says in its log why
            if begun:
                resume(work, callback=callback)
            else:
                dataset = texts.of(config.corpus)
                baselines = texts.baselines(dataset, thinned(dataset.splits["test"], config.training.evaluation_tokens))
                source = None if job.parent is None else load_run(job.parent, "last")
                train(config, work, callback=callback, dataset=dataset, baselines=baselines, init_from=source)
    if not has_ended(work):
        raise _stopped(job)
    _publish(work, job.out, config.training.keep_checkpoints)


def attempt(
    job: Job, led: bool, outside: tuple[Path, ...], parts: tuple[Path, ...], language: str
) -> VitralError | None:
    """Do a job in another process; an error for users is returned, because not every engine carries it back whole.

    Args:
        job: the job.
        led: whether who leads its study holds the lock of the study's folder; without it nothing is trained then.
        outside: runs outside the study, whose tokenizers are used for texts of such tokens.
        parts: files that register own parts.
        language: of messages.
    """
    try:
        with in_language(language):
            for path in parts:
                import_parts(path)
            look = _while_led(job) if led else lambda event: None
            look({})
            do(job, _texts(outside), look)
    except VitralError as error:
        return error
    except KeyboardInterrupt:
        return _stopped(job)
    return None


def _while_led(job: Job) -> Callback:
    """A callback that stops a training whose study is led by nobody any more: the leader's lock ends with it."""
    asked = -math.inf

    def look(event: Mapping[str, Any]) -> None:
        nonlocal asked
        if time.monotonic() - asked > PATIENCE:
            asked = time.monotonic()
            if not is_held(job.study):
                raise _stopped(job)

    return look


def left_of(out: Path) -> list[Path]:
    """What is left of a job whose run is not finished, or is being trained."""
    return [*out.parent.glob(f".{out.name}.{'?' * 32}")]


def has_ended(path: Path) -> bool:
    """Whether a run has trained its last step, or has met a number that is not finite.

    Raises:
        UsageError: its log is damaged.
    """
    events = RunFolder(path).metrics()
    return any(event["event"] == "stopped" or (event["event"] == "end" and event["finished"]) for event in events)


def _taken_over(out: Path) -> Path:
    """A new name for a run, where now is what an ended process has left of it, if there is anything."""
    mine = out.with_name(f".{out.name}.{uuid.uuid4().hex}")
    for left in left_of(out):
        if is_run(left) and not is_held(left):
            with suppress(OSError):  # another process was faster
                left.rename(mine)
                break
    return mine


def _publish(work: Path, out: Path, keep: int) -> None:
    """Give a finished run its place, and remove what ended processes have left of it."""
    run = RunFolder.open(work)
    run.sweep()
    if (newest := run.latest()) is not None:
        run.tidy(newest, keep=keep)  # the end of a save, which a kill may skip
    with storage(out):
        try:
            work.rename(out)
        except OSError:
            if not is_run(out):  # another process was faster, with the same bits
                raise
        sync(out.parent)
    begun = [path for path in out.parent.glob(f"..{out.name}.*") if is_left_behind(path.name)]
    for left in [*left_of(out), *begun]:
        if not is_held(left):
            shutil.rmtree(left, ignore_errors=True)


def _stopped(job: Job) -> JobStopped:
    return JobStopped("{path}: stopped before its last step; the same command goes on from there", path=job.out)


@lru_cache(maxsize=1)
def _texts(outside: tuple[Path, ...]) -> Texts:
    """The texts of a worker, prepared once for all jobs of a study."""
    runs = [enter(path, lambda line: None) for path in outside]
    return Texts(None, {tokens_key(run.config.corpus): run.tokenizer for run in runs})
