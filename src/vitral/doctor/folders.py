"""The health of a run, and its repair by what its newest intact checkpoint seals; the health of a study."""

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from vitral.core.errors import StorageError, UsageError, VitralError
from vitral.core.files import insist, names, replace_durably, storage
from vitral.core.language import N_, in_language
from vitral.core.parts import own_parts
from vitral.core.process import using_threads
from vitral.doctor import Diagnosis, HealthCheck, collected, examine_report, finding, ok, unknown, wrong
from vitral.runs import Checkpoint, RunConfig, RunFolder, SealedRun, enter, verify
from vitral.runs.checkpoint import DAMAGED, FORMAT, list_checkpoints, load_checkpoint, load_state
from vitral.runs.config import with_free_keys
from vitral.runs.environment import describe_environment, environment_differences
from vitral.runs.folder import CONFIG, RUN
from vitral.runs.loading import load_weights, unloaded
from vitral.runs.lock import only_writer
from vitral.runs.metrics_log import NAME as LOG
from vitral.studies.design import Study
from vitral.studies.jobs import jobs_of
from vitral.studies.measures import check_measures
from vitral.studies.record import ARMS, MEASURES, RECORD, REPORT, TUNING, Record, read_record
from vitral.studies.resolution import resolve
from vitral.studies.results import require_config, require_parent, run_name
from vitral.training import silent
from vitral.training.loop import loss_of
from vitral.training.resumption import require_same_batches, restored
from vitral.training.run import require_same_parts
from vitral.training.summing import StepSum

RECOMPUTED = N_("recomputed step")


def examine_run(path: Path, *, replay: bool = True) -> Diagnosis:
    """Whether a run is complete: its files and checkpoints, and one logged step computed again. Nothing is written.

    Args:
        path: the run's folder.
        replay: whether to compute a logged step again.

    Raises:
        UsageError: not a run.
    """
    return Diagnosis(tuple(checks_of(path, replay=replay)))


def checks_of(path: Path, *, replay: bool) -> Iterator[HealthCheck]:
    """The checks of `examine_run`."""
    sealed = verify(path, deep=True)
    for one in sealed.findings:
        top, _, last = one.file.rpartition("/")
        said = one.line.removeprefix(f"{path}/{one.file}: ").removeprefix(f"{path}: ")
        yield wrong(top if top == "samples" else last, said)
    if not any(one.is_refused for one in sealed.findings):
        yield from collected(N_("files"), _whole(sealed, replay=replay))
    if damaged := [name for name in names(sealed.steps) if name.startswith(DAMAGED)]:
        yield unknown("set aside", "{names}: can be deleted", names=", ".join(damaged))


def _whole(sealed: SealedRun, *, replay: bool) -> Iterator[HealthCheck]:
    """The checks of a run whose seal can be read."""
    damaged = {one.file for one in sealed.findings}
    missing = [own.missing for own in own_parts(sealed.config) if own.registered is None]
    model, whole = None if missing else unloaded(sealed), list[Checkpoint]()

    def loaded(folder: Path) -> Iterator[HealthCheck]:
        checkpoint = load_checkpoint(folder)
        sealed.require(checkpoint)
        if model is not None:
            load_weights(model, checkpoint.model, str(folder))
        whole.append(checkpoint)
        yield ok(folder.name, "files, hashes, shapes and numbers are correct")

    if all("/" in file for file in damaged):
        yield ok("files", "configuration, tokenizer, text record and log: as sealed")
    yield from (unknown("own parts", line) for line in missing)
    for folder in list_checkpoints(sealed.steps):
        if f"steps/{folder.name}" not in damaged:
            yield from collected(folder.name, loaded(folder))
    yield from examine_report(sealed.path / "report")
    if not whole:
        yield wrong("checkpoints", "none is complete")
        return
    if replay:
        events = [] if LOG in damaged else sealed.metrics("step")
        losses = {event["step"]: event["loss"] for event in events}
        yield from collected(RECOMPUTED, _recomputed(sealed, whole, losses))
    yield _remaining(sealed, whole[-1])


def _recomputed(sealed: SealedRun, whole: list[Checkpoint], losses: dict[int, Any]) -> Iterator[HealthCheck]:
    """A logged step, computed again from the checkpoint before it."""
    start = next((one for one in reversed(whole) if one.step + 1 in losses), None)
    if start is None:
        yield unknown(RECOMPUTED, "no step after a checkpoint was logged")
        return
    training = sealed.config.training
    try:
        recorded = sealed.document("environment")
        with in_language("en"):
            differences = environment_differences(recorded, describe_environment(), training.device)
        if differences:
            raise UsageError("{found} since then", found="; ".join(differences))
        if training.compile:
            raise UsageError("it was compiled")
        require_same_parts(sealed.config, str(sealed.path))
        with using_threads(int(recorded["threads"])), torch.no_grad():
            trainer, summed = restored(sealed, start, silent), StepSum([], training)
            for micro in range(training.accumulation):
                summed.add(loss_of(trainer, start.step, micro)[0].cpu())
    except (VitralError, KeyError, ValueError, TypeError) as error:
        yield unknown(RECOMPUTED, "not compared: {reason}", reason=error)
        return
    require_same_batches(trainer)
    compared = {"step": start.step + 1, "loss": float(summed.total()), "logged": losses[start.step + 1]}
    if compared["loss"] == compared["logged"]:
        yield ok(RECOMPUTED, "step {step}: loss {loss:.6f}, bit-equal to the logged loss", **compared)
    else:
        yield wrong(RECOMPUTED, "step {step}: loss {loss!r}, but {logged!r} was logged", **compared)


def _remaining(sealed: SealedRun, last: Checkpoint) -> HealthCheck:
    values = {"step": last.step, "left": sealed.config.training.steps - last.step, "run": sealed.path}
    if sealed.imported is not None:
        source = sealed.imported.get("source")
        return ok("progress", "imported from {source}; there is no training to finish", source=source)
    if values["left"] <= 0:
        return ok("progress", "finished at step {step:,}", **values)
    return ok("progress", "step {step:,}, {left:,} steps left; continue with: vitral resume {run}", **values)


def repair_run(path: Path) -> tuple[str, ...]:
    """Restore what the newest intact checkpoint seals: config.toml, run.json, log.

    The returned lines, one for each, are messages.

    What was there is kept beside it, under a name with "damaged".

    Raises:
        UsageError: not a run, or nothing seals it.
        StorageError: a file cannot be written.
    """
    folder, done = RunFolder.open(path), list[str]()
    with only_writer(path):
        folder.sweep()
        sealed = verify(path, deep=True)
        damaged = {one.file for one in sealed.findings}
        for one in sealed.findings:
            if one.is_refused and one.file != CONFIG:
                raise UsageError(one.line)
        identity = sealed.identity
        if CONFIG in damaged:
            config = identity.config
            with suppress(UsageError):
                config = with_free_keys(config, RunConfig.parse(sealed.written))
            done.append(_set_aside(sealed, CONFIG))
            sealed.write_config(config.plain())
        if RUN in damaged:
            done.append(_set_aside(sealed, RUN))
            sealed.write_document("run", {"format": FORMAT, **identity.plain()})
        if LOG in damaged:
            done.append(_repair_log(sealed))
    return tuple(done)


def _set_aside(folder: RunFolder, name: str) -> str:
    """Keep a damaged file under another name."""
    file = folder.path / name
    if not os.path.lexists(file):
        return N_("{file} was missing and has been restored").format(file=name)
    others = (file.with_stem(f"{file.stem}.damaged-{number}") for number in itertools.count(1))
    kept = next(one for one in others if not os.path.lexists(one))
    with storage(file):
        insist(os.rename, file, kept)
    return N_("{file} has been restored; the damaged one is {kept}").format(file=name, kept=kept.name)


def _repair_log(folder: RunFolder) -> str:
    """Cut the log after the last line that some checkpoint still seals, say so in the log, and seal it again."""
    intact = b""
    for one in reversed(list_checkpoints(folder.steps)):
        with suppress(UsageError, StorageError, KeyError):
            intact = folder.log.require(load_state(one).history["metrics"])
            break
    done = _set_aside(folder, LOG)
    replace_durably(folder.log.path, intact)
    folder.reseal({"event": "repaired", "text": N_("the log was damaged and has been cut here")})
    return done


AGAIN = N_("{complaint}; the same vitral study command makes it again")


def is_study(path: Path) -> bool:
    """Whether a folder is, or was, that of a study."""
    is_run = os.path.exists(path / "config.toml")  # unlike Path.exists, for any text
    return os.path.exists(path / RECORD) or (not is_run and os.path.isdir(path / ARMS))


def examine_study(path: Path) -> Diagnosis:
    """Whether a study is whole: its record, every run, the hashes of its measurements and of its report.

    The first run has one logged step computed again; the others only have their files verified.
    """
    record = Record()

    def agrees() -> Iterator[HealthCheck]:
        record.update(read_record(path) or {})
        yield ok(RECORD, "{study}: agrees with its hash", study=record["study"]["name"])

    findings = [*collected(RECORD, agrees())]
    for made in (_runs(path, record), _agreement(path, record), _files(path)):
        findings += collected(N_("folder"), made)
    return Diagnosis(tuple(findings))


def _runs(folder: Path, record: Record) -> Iterator[HealthCheck]:
    there = [
        f"{kind}/{arm}/{run}"
        for kind in (ARMS, TUNING)
        for arm in names(folder / kind)
        for run in names(folder / kind / arm)
        if run[0] != "."
    ]
    for number, name in enumerate(there):
        names(folder / name)  # refuses a link
        checks = [*collected(N_("run"), checks_of(folder / name, replay=number == 0))]
        bad = [one for one in checks if one.mark == "wrong" or one.what == RECOMPUTED]
        for one in bad:
            yield finding(one.mark, name, N_("{what}: {found}"), what=one.what, found=one.found)
        if not any(one.mark == "wrong" for one in bad):
            yield ok(name, "{n} checks, nothing wrong", n=len(checks))
    missing = sorted(_designed(record) - set(there))
    if missing:
        yield unknown(
            "runs",
            "{n} not begun, the first {run}; the same vitral study command trains them",
            n=len(missing),
            run=missing[0],
        )


def _designed(record: Record) -> set[str]:
    """The runs the record asks for; none if it is damaged."""
    if not record:
        return set()
    return {run_name(arm["name"], seed) for arm in record["study"]["arms"] for seed in record["seeds"]}


def _agreement(folder: Path, record: Record) -> Iterator[HealthCheck]:
    """Whether every run is one of the record: the record of another study has a hash of its own too."""
    study, runs = Study.parse(record["study"]) if record else None, {}
    for name in _designed(record):
        with suppress(VitralError):  # reported by _runs
            runs[name] = enter(folder / name, lambda line: None)
    sizes = {run.tokenizer.vocab_size for run in runs.values()}
    if study is None or len(sizes) != 1 or any(arm.run and not Path(arm.run).is_dir() for arm in study.arms):
        return  # no run, texts with different tokenizers, which only the command prepares, or no run to begin from
    arms = resolve(study, RunConfig.parse(record["base"], RECORD), sizes.pop())
    free = {arm.name: study.tuned(arm) for arm in study.arms}
    for job in jobs_of(folder, arms, record["seeds"]):
        if (run := runs.get(job.name)) is not None:
            require_config(run, job.run_config, free[job.arm])
            require_parent(run, job.parent)
    yield ok(ARMS, "{n} runs are those of {file}", n=len(runs), file=RECORD)


def _files(folder: Path) -> Iterator[HealthCheck]:
    """The measurements and the report."""
    intact, complaints = check_measures(folder)
    yield from (wrong(MEASURES, AGAIN, complaint=complaint) for complaint in complaints)
    if intact:
        yield ok(MEASURES, "{n} agree with their hashes", n=intact)
    for one in examine_report(folder / REPORT):
        yield one if one.mark == "ok" else finding(one.mark, one.what, AGAIN, complaint=one.found)
    if not names(folder / REPORT):
        yield unknown(REPORT, "not written yet")
