"""The health of a run, and the repair of a damaged one."""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from vitral.core.checked import checked
from vitral.core.errors import StorageError, UsageError, VitralError, reason
from vitral.core.files import insist, names, read, replace_durably, storage
from vitral.core.language import N_
from vitral.core.parts import own_parts
from vitral.decoding import way_of
from vitral.lab.health import Diagnosis, HealthCheck, Mark
from vitral.model import Transformer
from vitral.model.native import native
from vitral.reports.folder import MANIFEST, check_report
from vitral.runs import Checkpoint, Finding, RunConfig, RunFolder, SealedRun, verify
from vitral.runs.checkpoint import DAMAGED, list_checkpoints, load_checkpoint, load_state
from vitral.runs.checkpoint_files import FORMAT, MOST_BYTES
from vitral.runs.environment import UNRECORDED, describe_environment
from vitral.runs.folder import CONFIG, RUN, pointers
from vitral.runs.loading import load_weights, require_model_memory
from vitral.runs.lock import only_writer
from vitral.runs.metrics_log import NAME as LOG
from vitral.runs.sealed import identity_in, opened, with_free_keys
from vitral.training import silent
from vitral.training.loop import loss_of
from vitral.training.parts import require_same_parts
from vitral.training.resumption import restored
from vitral.training.summing import StepSum
from vitral.training.trainer import chain_from_anchor

POINTERS = {"best", "last"}


@checked
def examine_run(path: Path, *, replay: bool = True) -> Diagnosis:
    """Whether a run is complete: its files and checkpoints, and one logged step computed again. Nothing is written.

    Args:
        path: the run's folder.
        replay: whether to compute a logged step again.

    Raises:
        UsageError: not a run.
    """
    found = verify(path, deep=True)
    wrong = [_as_check(path, one) for one in found.findings]
    if any(one.is_refused for one in found.findings):
        return Diagnosis((*wrong, *_left_behind(found.folder)))
    try:
        sealed = opened(found)
        missing = [own.missing for own in own_parts(sealed.config) if own.registered is None]
        model = None
        if not missing:
            require_model_memory(sealed.config.model, sealed.tokenizer.vocab_size, str(path))
            model = Transformer(sealed.config.model, sealed.tokenizer.vocab_size).eval()
    except VitralError as error:
        return Diagnosis((*wrong, HealthCheck("wrong", N_("files"), reason(error)), *_left_behind(found.folder)))
    damaged = {one.file for one in found.findings}
    findings = list[HealthCheck]()
    events = [] if LOG in damaged else found.folder.metrics()
    checkpoints, whole = _checkpoints(sealed, model, damaged)
    if not any("/" not in file and file not in POINTERS for file in damaged):
        findings.append(HealthCheck("ok", N_("files"), N_("configuration, tokenizer, text record and log: as sealed")))
    findings += [HealthCheck("unknown", N_("own parts"), line) for line in missing]
    if LOG not in damaged:
        findings.append(HealthCheck("ok", LOG, N_("{n:,} events").format(n=len(events))))
    findings += [*checkpoints, *_left_behind(found.folder)]
    findings += [*_for_people(sealed, events, damaged), *_report(found.folder)]
    if not whole:
        findings.append(HealthCheck("wrong", N_("checkpoints"), N_("none is complete")))
        return Diagnosis((*wrong, *findings))
    if replay:
        findings.append(_replay(sealed, whole, events))
    if model is not None:
        findings.append(_generation(model))
    findings.append(_remaining(path, sealed, whole[-1]))
    return Diagnosis((*wrong, *findings))


def _as_check(path: Path, found: Finding) -> HealthCheck:
    top, _, last = found.file.rpartition("/")
    line = found.line.removeprefix(f"{path}/{found.file}: ").removeprefix(f"{path}: ")
    return HealthCheck("wrong", top if top == "samples" else last, line)


def _for_people(sealed: SealedRun, events: list[dict[str, Any]], damaged: Collection[str]) -> Iterator[HealthCheck]:
    """The pointers and samples that agree with the seal."""
    for pointer, name in pointers(sealed.newest).items() if sealed.newest else ():
        if pointer not in damaged and (sealed.folder.path / pointer).exists():
            yield HealthCheck("ok", pointer, N_("is step-{step:08d}").format(step=int(name[5:])))
    written = [event for event in events if event["event"] == "sample"]
    if written and not any(file.startswith("samples/") for file in damaged):
        yield HealthCheck("ok", N_("samples"), N_("{n} as in the log").format(n=len(written)))


def _checkpoints(
    sealed: SealedRun, model: Transformer | None, damaged: Collection[str]
) -> tuple[list[HealthCheck], list[Checkpoint]]:
    findings, whole = list[HealthCheck](), list[Checkpoint]()
    for one in list_checkpoints(sealed.folder.steps):
        if f"steps/{one.name}" in damaged:
            continue
        try:
            checkpoint = load_checkpoint(one)
            if model is not None:
                load_weights(model, dict(checkpoint.model), str(one))
            if checkpoint.state.get("run") != sealed.identity.run:
                raise UsageError("it is of another run; remove it")
            whole.append(checkpoint)
            findings.append(HealthCheck("ok", one.name, N_("files, hashes, shapes and numbers are correct")))
        except (UsageError, StorageError) as error:
            findings.append(HealthCheck("wrong", one.name, reason(error).removeprefix(f"{one}: ")))
    return findings, whole


def _left_behind(folder: RunFolder) -> Iterator[HealthCheck]:
    there = names(folder.steps)
    damaged, swept = ([name for name in there if name.startswith(start)] for start in (DAMAGED, "."))
    if damaged:
        deletable = N_("{names}: can be deleted").format(names=", ".join(damaged))
        yield HealthCheck("unknown", N_("set aside"), deletable)
    if swept:
        left = N_("{n} from an interrupted save; resume removes them").format(n=len(swept))
        yield HealthCheck("unknown", N_("leftovers"), left)


def _report(folder: RunFolder) -> list[HealthCheck]:
    """The pages and figures, compared with their manifest."""
    report = folder.path / "report"
    complaints, is_listed = check_report(report), MANIFEST in names(report)
    found = [HealthCheck("wrong" if is_listed else "unknown", N_("report"), complaint) for complaint in complaints]
    return found or ([HealthCheck("ok", "report", N_("agrees with its manifest"))] if is_listed else [])


def _replay(sealed: SealedRun, whole: list[Checkpoint], events: list[dict[str, Any]]) -> HealthCheck:
    what = N_("recomputed step")
    losses = {event["step"]: event["loss"] for event in events if event["event"] == "step"}
    start = next((one for one in reversed(whole) if one.step + 1 in losses), None)
    if start is None:
        return HealthCheck("unknown", what, N_("no step after a checkpoint was logged"))
    threads = torch.get_num_threads()
    try:
        recorded, here = sealed.document("environment"), describe_environment()
        compared = UNRECORDED | recorded
        keys = ("numerics", "packages", "machine", "cpu_capability")
        differing = [key for key in keys if compared.get(key) != here[key]]
        if sealed.config.training.compile or differing:
            compiled = N_("not compared: it was compiled")
            differs = N_("not compared: {part} differs here")
            return HealthCheck("unknown", what, differs.format(part=differing[0]) if differing else compiled)
        torch.set_num_threads(int(recorded["threads"]))
        require_same_parts(sealed.config, str(sealed.folder.path))
        trainer = restored(sealed, start, silent)
        if chain_from_anchor(trainer) != trainer.state.chain:
            others = N_("the batches up to step {step} differ from those of the training").format(step=start.step)
            return HealthCheck("wrong", what, others)
        summed = StepSum([], trainer.config.training)
        with torch.no_grad():
            for micro in range(trainer.config.training.accumulation):
                summed.add(loss_of(trainer, start.step, micro)[0].cpu())
        found = summed.total()
    except (VitralError, KeyError, ValueError, TypeError) as error:
        return HealthCheck("unknown", what, N_("not compared: {reason}").format(reason=error))
    finally:
        torch.set_num_threads(threads)
    compared = {"step": start.step + 1, "loss": float(found), "logged": losses[start.step + 1]}
    if compared["loss"] == compared["logged"]:
        return HealthCheck(
            "ok", what, N_("step {step}: loss {loss:.6f}, bit-equal to the logged loss").format(**compared)
        )
    return HealthCheck("wrong", what, N_("step {step}: loss {loss!r}, but {logged!r} was logged").format(**compared))


def _generation(model: Transformer) -> HealthCheck:
    """Whether `vitral generate` computes this model in C, or why not; the values of the weights do not matter."""
    way = way_of(model)
    mark: Mark = "ok" if way.is_in_c else "slower" if native().is_stale else "unknown"
    return HealthCheck(mark, N_("generation in C"), way.found)


def _remaining(path: Path, sealed: SealedRun, last: Checkpoint) -> HealthCheck:
    if sealed.imported is not None:
        found = N_("imported from {source}; there is no training to finish")
        return HealthCheck("ok", N_("progress"), found.format(source=sealed.imported.get("source")))
    left = sealed.config.training.steps - last.step
    if left <= 0:
        return HealthCheck("ok", N_("progress"), N_("finished at step {step:,}").format(step=last.step))
    found = N_("step {step:,}, {left:,} steps left; continue with: vitral resume {run}")
    return HealthCheck("ok", "progress", found.format(step=last.step, left=left, run=path))


def repair_run(path: Path) -> tuple[str, ...]:
    """Restore what the newest intact checkpoint seals: config.toml, run.json, log, pointers.

    The returned lines, one for each, are messages.

    What was there is kept beside it, under a name with "damaged".

    Raises:
        UsageError: not a run, or nothing seals it.
        StorageError: a file cannot be written.
    """
    RunFolder.open(path)
    done: list[str] = []
    with only_writer(path):
        RunFolder.open(path).sweep()
        found = verify(path, deep=True)
        folder, damaged = found.folder, {one.file for one in found.findings}
        for one in found.findings:
            if one.is_refused and one.file != CONFIG:
                raise UsageError(one.line)
        identity = identity_in(found.sealed, str(path))
        if CONFIG in damaged:
            config = identity.config
            with suppress(UsageError):
                config = with_free_keys(config, RunConfig.parse(folder.config))
            done.append(_set_aside(folder, CONFIG))
            folder.write_config(config.plain())
        if RUN in damaged:
            done.append(_set_aside(folder, RUN))
            folder.write_document("run", {"format": FORMAT, **identity.plain()})
        if LOG in damaged:
            done.append(_repair_log(folder))
        wrong = sorted(POINTERS & damaged)
        done += [_set_aside(folder, pointer) for pointer in wrong]
        if wrong and found.newest is not None:
            folder.point(found.newest)
    return tuple(done)


def _set_aside(folder: RunFolder, name: str) -> str:
    """Keep a damaged file under another name."""
    if not os.path.lexists(folder.path / name):
        return N_("{file} was missing and has been restored").format(file=name)
    kept = _free_name(folder, name)
    with storage(folder.path / name):
        insist(os.rename, folder.path / name, folder.path / kept)
    return N_("{file} has been restored; the damaged one is {kept}").format(file=name, kept=kept)


def _free_name(folder: RunFolder, name: str) -> str:
    number = 1
    while os.path.lexists(folder.path / (kept := f"{Path(name).stem}.damaged-{number}{Path(name).suffix}")):
        number += 1
    return kept


def _repair_log(folder: RunFolder) -> str:
    """Cut the log after the last line that some checkpoint still seals, say so in the log, and seal it again."""
    intact = 0
    for one in reversed(list_checkpoints(folder.steps)):
        with suppress(UsageError, StorageError, KeyError):
            folder.log.require(seal := load_state(one).history["metrics"])
            intact = int(seal["bytes"])
            break
    kept = ""
    if folder.log.path.is_file() and not folder.log.path.is_symlink():
        kept = _free_name(folder, LOG)
        replace_durably(folder.path / kept, read(folder.log.path, MOST_BYTES))
        folder.log.cut({"bytes": intact})
    else:
        _set_aside(folder, LOG)
    text = N_("the log was damaged and has been cut here")
    folder.append_metric({"event": "repaired", "text": text, "kept": kept})
    folder.reseal("metrics")
    found = {"file": LOG, "bytes": intact}
    if not kept:
        return N_("{file} has been cut after {bytes:,} bytes; the damaged one is lost").format(**found)
    return N_("{file} has been cut after {bytes:,} bytes; the damaged one is {kept}").format(**found, kept=kept)
