"""The health of a run, and its repair: what its newest intact checkpoint seals is restored."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from vitral.core.errors import StorageError, UsageError, VitralError, reason
from vitral.core.files import insist, names, read, replace_durably, storage
from vitral.core.language import N_
from vitral.core.parts import own_parts
from vitral.core.process import using_threads
from vitral.doctor.health import Diagnosis, HealthCheck, Unchecked, check, examine_report
from vitral.model import Transformer
from vitral.runs import Checkpoint, RunConfig, RunFolder, SealedRun, verify
from vitral.runs.checkpoint import DAMAGED, FORMAT, MOST_BYTES, list_checkpoints, load_checkpoint, load_state
from vitral.runs.config import with_free_keys
from vitral.runs.environment import UNRECORDED, describe_environment
from vitral.runs.folder import CONFIG, RUN
from vitral.runs.loading import load_weights, require_model_memory
from vitral.runs.lock import only_writer
from vitral.runs.metrics_log import NAME as LOG
from vitral.training import silent
from vitral.training.loop import loss_of
from vitral.training.resumption import restored
from vitral.training.run import require_same_parts
from vitral.training.summing import StepSum
from vitral.training.trainer import chain_from_anchor


def examine_run(path: Path, *, replay: bool = True) -> Diagnosis:
    """Whether a run is complete: its files and checkpoints, and one logged step computed again. Nothing is written.

    Args:
        path: the run's folder.
        replay: whether to compute a logged step again.

    Raises:
        UsageError: not a run.
    """
    found, checks = verify(path, deep=True), list[HealthCheck]()
    for one in found.findings:
        top, _, last = one.file.rpartition("/")
        said = one.line.removeprefix(f"{path}/{one.file}: ").removeprefix(f"{path}: ")
        checks.append(HealthCheck("wrong", top if top == "samples" else last, said))
    if not any(one.is_refused for one in found.findings):
        try:
            checks += _whole(found, replay=replay)
        except VitralError as error:
            checks.append(HealthCheck("wrong", N_("files"), reason(error)))
    there = names(found.folder.steps)
    if damaged := [name for name in there if name.startswith(DAMAGED)]:
        deletable = N_("{names}: can be deleted").format(names=", ".join(damaged))
        checks.append(HealthCheck("unknown", N_("set aside"), deletable))
    if swept := [name for name in there if name.startswith(".")]:
        left = N_("{n} from an interrupted save; resume removes them").format(n=len(swept))
        checks.append(HealthCheck("unknown", N_("leftovers"), left))
    return Diagnosis(tuple(checks))


def _whole(sealed: SealedRun, *, replay: bool) -> Iterator[HealthCheck]:
    """The checks of a run whose seal can be read."""
    damaged = {one.file for one in sealed.findings}
    missing = [own.missing for own in own_parts(sealed.config) if own.registered is None]
    model, whole = None, list[Checkpoint]()
    if not missing:
        require_model_memory(sealed.config.model, sealed.tokenizer.vocab_size, str(sealed.folder.path))
        model = Transformer(sealed.config.model, sealed.tokenizer.vocab_size).eval()

    def loaded(folder: Path) -> str:
        try:
            checkpoint = load_checkpoint(folder)
            if model is not None:
                load_weights(model, dict(checkpoint.model), str(folder))
        except (UsageError, StorageError) as error:
            raise UsageError(reason(error).removeprefix(f"{folder}: ")) from None
        if checkpoint.state.get("run") != sealed.identity.run:
            raise UsageError("it is of another run; remove it")
        whole.append(checkpoint)
        return N_("files, hashes, shapes and numbers are correct")

    if all("/" in file for file in damaged):
        yield HealthCheck("ok", N_("files"), N_("configuration, tokenizer, text record and log: as sealed"))
    yield from (HealthCheck("unknown", N_("own parts"), line) for line in missing)
    intact = [one for one in list_checkpoints(sealed.folder.steps) if f"steps/{one.name}" not in damaged]
    yield from [check(one.name, loaded, one) for one in intact]
    yield from examine_report(sealed.folder.path / "report")
    if not whole:
        yield HealthCheck("wrong", N_("checkpoints"), N_("none is complete"))
        return
    if replay:
        events = [] if LOG in damaged else sealed.folder.metrics("step")
        losses = {event["step"]: event["loss"] for event in events}
        yield check(N_("recomputed step"), _recomputed, sealed, whole, losses)
    yield HealthCheck("ok", N_("progress"), _remaining(sealed, whole[-1]))


def _recomputed(sealed: SealedRun, whole: list[Checkpoint], losses: dict[int, Any]) -> str:
    """A logged step, computed again from the checkpoint before it."""
    start = next((one for one in reversed(whole) if one.step + 1 in losses), None)
    if start is None:
        raise Unchecked("no step after a checkpoint was logged")
    try:
        recorded, here = sealed.document("environment"), describe_environment()
        for key in ("numerics", "packages", "machine", "cpu_capability"):
            if (UNRECORDED | recorded).get(key) != here[key]:
                raise Unchecked("not compared: {part} differs here", part=key)
        if sealed.config.training.compile:
            raise Unchecked("not compared: it was compiled")
        require_same_parts(sealed.config, str(sealed.folder.path))
        with using_threads(int(recorded["threads"])), torch.no_grad():
            trainer = restored(sealed, start, silent)
            same_batches = chain_from_anchor(trainer) == trainer.state.chain
            summed = StepSum([], trainer.config.training)
            for micro in range(trainer.config.training.accumulation):
                summed.add(loss_of(trainer, start.step, micro)[0].cpu())
    except Unchecked:
        raise
    except (VitralError, KeyError, ValueError, TypeError) as error:
        raise Unchecked("not compared: {reason}", reason=error) from None
    if not same_batches:
        raise UsageError("the batches up to step {step} differ from those of the training", step=start.step)
    compared = {"step": start.step + 1, "loss": float(summed.total()), "logged": losses[start.step + 1]}
    if compared["loss"] != compared["logged"]:
        raise UsageError("step {step}: loss {loss!r}, but {logged!r} was logged", **compared)
    return N_("step {step}: loss {loss:.6f}, bit-equal to the logged loss").format(**compared)


def _remaining(sealed: SealedRun, last: Checkpoint) -> str:
    left = sealed.config.training.steps - last.step
    if sealed.imported is not None:
        found = N_("imported from {source}; there is no training to finish")
        return found.format(source=sealed.imported.get("source"))
    if left <= 0:
        return N_("finished at step {step:,}").format(step=last.step)
    found = N_("step {step:,}, {left:,} steps left; continue with: vitral resume {run}")
    return found.format(step=last.step, left=left, run=sealed.folder.path)


def repair_run(path: Path) -> tuple[str, ...]:
    """Restore what the newest intact checkpoint seals: config.toml, run.json, log.

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
        identity = found.identity
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
    return tuple(done)


def _set_aside(folder: RunFolder, name: str) -> str:
    """Keep a damaged file under another name."""
    if not os.path.lexists(folder.path / name):
        return N_("{file} was missing and has been restored").format(file=name)
    number = 1
    while os.path.lexists(folder.path / (kept := f"{Path(name).stem}.damaged-{number}{Path(name).suffix}")):
        number += 1
    with storage(folder.path / name):
        insist(os.rename, folder.path / name, folder.path / kept)
    return N_("{file} has been restored; the damaged one is {kept}").format(file=name, kept=kept)


def _repair_log(folder: RunFolder) -> str:
    """Cut the log after the last line that some checkpoint still seals, say so in the log, and seal it again."""
    log, intact, raw = folder.log.path, 0, b""
    for one in reversed(list_checkpoints(folder.steps)):
        with suppress(UsageError, StorageError, KeyError):
            folder.log.require(seal := load_state(one).history["metrics"])
            intact = int(seal["bytes"])
            break
    if log.is_file() and not log.is_symlink():
        raw = read(log, MOST_BYTES)
    done = _set_aside(folder, LOG)
    replace_durably(log, raw[:intact])
    folder.append_metric({"event": "repaired", "text": N_("the log was damaged and has been cut here")})
    folder.reseal("metrics")
    return done
