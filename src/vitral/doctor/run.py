"""The health of a run. Nothing is written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from vitral.core.errors import StorageError, UsageError, VitralError, reason
from vitral.core.files import names
from vitral.core.language import N_
from vitral.core.parts import own_parts
from vitral.core.process import using_threads
from vitral.doctor.health import Diagnosis, HealthCheck, Mark, examine_report
from vitral.doctor.repair import POINTERS
from vitral.model import Transformer
from vitral.runs import Checkpoint, SealedRun, verify
from vitral.runs.checkpoint import DAMAGED, list_checkpoints, load_checkpoint
from vitral.runs.environment import UNRECORDED, describe_environment
from vitral.runs.loading import load_weights, require_model_memory
from vitral.runs.metrics_log import NAME as LOG
from vitral.runs.sealed import opened
from vitral.runs.verification import Verified
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
    found = verify(path, deep=True)
    checks = [_damage(path, one.file, one.line) for one in found.findings]
    if not any(one.is_refused for one in found.findings):
        try:
            checks += _whole(found, replay=replay)
        except VitralError as error:
            checks.append(HealthCheck("wrong", N_("files"), reason(error)))
    there = names(found.folder.steps)
    damaged, swept = ([name for name in there if name.startswith(start)] for start in (DAMAGED, "."))
    if damaged:
        deletable = N_("{names}: can be deleted").format(names=", ".join(damaged))
        checks.append(HealthCheck("unknown", N_("set aside"), deletable))
    if swept:
        left = N_("{n} from an interrupted save; resume removes them").format(n=len(swept))
        checks.append(HealthCheck("unknown", N_("leftovers"), left))
    return Diagnosis(tuple(checks))


def _damage(path: Path, file: str, line: str) -> HealthCheck:
    top, _, last = file.rpartition("/")
    said = line.removeprefix(f"{path}/{file}: ").removeprefix(f"{path}: ")
    return HealthCheck("wrong", top if top == "samples" else last, said)


def _whole(found: Verified, *, replay: bool) -> Iterator[HealthCheck]:
    """The checks of a run whose seal can be read."""
    sealed, damaged = opened(found), {one.file for one in found.findings}
    missing = [own.missing for own in own_parts(sealed.config) if own.registered is None]
    model = None
    if not missing:
        require_model_memory(sealed.config.model, sealed.tokenizer.vocab_size, str(sealed.folder.path))
        model = Transformer(sealed.config.model, sealed.tokenizer.vocab_size).eval()
    if all("/" in file for file in damaged - POINTERS):
        yield HealthCheck("ok", N_("files"), N_("configuration, tokenizer, text record and log: as sealed"))
    yield from (HealthCheck("unknown", N_("own parts"), line) for line in missing)
    whole = list[Checkpoint]()
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
            yield HealthCheck("ok", one.name, N_("files, hashes, shapes and numbers are correct"))
        except (UsageError, StorageError) as error:
            yield HealthCheck("wrong", one.name, reason(error).removeprefix(f"{one}: "))
    yield from examine_report(sealed.folder.path / "report")
    if not whole:
        yield HealthCheck("wrong", N_("checkpoints"), N_("none is complete"))
        return
    if replay:
        events = [] if LOG in damaged else sealed.folder.metrics("step")
        yield HealthCheck(*_replayed(sealed, whole, {event["step"]: event["loss"] for event in events}))
    yield HealthCheck("ok", N_("progress"), _remaining(sealed, whole[-1]))


def _replayed(sealed: SealedRun, whole: list[Checkpoint], losses: dict[int, Any]) -> tuple[Mark, str, str]:
    """A logged step, computed again from the checkpoint before it."""
    what = N_("recomputed step")
    start = next((one for one in reversed(whole) if one.step + 1 in losses), None)
    if start is None:
        return "unknown", what, N_("no step after a checkpoint was logged")
    try:
        recorded, here = sealed.document("environment"), describe_environment()
        keys = ("numerics", "packages", "machine", "cpu_capability")
        differing = [key for key in keys if (UNRECORDED | recorded).get(key) != here[key]]
        if differing:
            return "unknown", what, N_("not compared: {part} differs here").format(part=differing[0])
        if sealed.config.training.compile:
            return "unknown", what, N_("not compared: it was compiled")
        require_same_parts(sealed.config, str(sealed.folder.path))
        with using_threads(int(recorded["threads"])), torch.no_grad():
            trainer = restored(sealed, start, silent)
            if chain_from_anchor(trainer) != trainer.state.chain:
                others = N_("the batches up to step {step} differ from those of the training")
                return "wrong", what, others.format(step=start.step)
            summed = StepSum([], trainer.config.training)
            for micro in range(trainer.config.training.accumulation):
                summed.add(loss_of(trainer, start.step, micro)[0].cpu())
    except (VitralError, KeyError, ValueError, TypeError) as error:
        return "unknown", what, N_("not compared: {reason}").format(reason=error)
    compared = {"step": start.step + 1, "loss": float(summed.total()), "logged": losses[start.step + 1]}
    if compared["loss"] == compared["logged"]:
        return "ok", what, N_("step {step}: loss {loss:.6f}, bit-equal to the logged loss").format(**compared)
    return "wrong", what, N_("step {step}: loss {loss!r}, but {logged!r} was logged").format(**compared)


def _remaining(sealed: SealedRun, last: Checkpoint) -> str:
    left = sealed.config.training.steps - last.step
    if sealed.imported is not None:
        found = N_("imported from {source}; there is no training to finish")
        return found.format(source=sealed.imported.get("source"))
    if left <= 0:
        return N_("finished at step {step:,}").format(step=last.step)
    found = N_("step {step:,}, {left:,} steps left; continue with: vitral resume {run}")
    return found.format(step=last.step, left=left, run=sealed.folder.path)
