"""The health of a run, and the repair of a damaged one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vitral.core.checked import checked
from vitral.core.errors import StorageError, UsageError, VitralError
from vitral.core.files import storage
from vitral.core.language import N_, in_language
from vitral.core.parts import own_parts
from vitral.decoding import way_of
from vitral.lab.health import Diagnosis, HealthCheck, Mark
from vitral.model import Transformer
from vitral.model.native import native
from vitral.reports.folder import MANIFEST, check_report
from vitral.runs import Checkpoint, RunFolder, SealedRun, enter
from vitral.runs.checkpoint import DAMAGED, STEP, list_checkpoints, load_checkpoint, load_state, step_name
from vitral.runs.checkpoint_files import FORMAT
from vitral.runs.environment import UNRECORDED, describe_environment
from vitral.runs.folder import CONFIG
from vitral.runs.loading import needed_shapes
from vitral.runs.lock import only_writer
from vitral.runs.metrics_log import NAME as LOG
from vitral.training import silent
from vitral.training.loop import loss_of
from vitral.training.parts import require_same_parts
from vitral.training.resumption import restored
from vitral.training.summing import StepSum
from vitral.training.trainer import chain_from_anchor

MOST_SAMPLE = 1 << 26
MOST_POINTER = 1 << 12


@checked(first=True)
def examine_run(path: Path, *, replay: bool = True) -> Diagnosis:
    """Whether a run is complete: its files and checkpoints, and one logged step computed again. Nothing is written.

    Args:
        path: the run's folder.
        replay: whether to compute a logged step again.

    Raises:
        UsageError: not a run.
    """
    folder = RunFolder.open(path)
    with in_language("en"):
        return _examined(path, folder, replay=replay)


def _examined(path: Path, folder: RunFolder, *, replay: bool) -> Diagnosis:
    complaints: list[str] = []
    try:
        sealed = enter(path, complaints.append)
        missing = [own.missing for own in own_parts(sealed.config) if own.registered is None]
        shapes = None if missing else needed_shapes(sealed.config.model, sealed.tokenizer.vocab_size, str(path))
    except VitralError as error:
        return Diagnosis((HealthCheck("wrong", N_("files"), str(error)), *_left_behind(folder)))
    files = [_as_finding(path, line) for line in complaints if line not in sealed.notes]
    as_sealed = (
        N_("configuration: as sealed")
        if sealed.notes
        else N_("configuration, tokenizer, text record and log: as sealed")
    )
    findings = [one for one in files if not STEP.fullmatch(one.what)] or [HealthCheck("ok", "files", as_sealed)]
    findings += [HealthCheck("unknown", N_("format"), line.removeprefix(f"{path}: ")) for line in sealed.notes]
    findings += [HealthCheck("unknown", N_("own parts"), line) for line in missing]
    events = _events(folder, findings)
    checkpoints, whole = _checkpoints(sealed, shapes)
    findings += [*checkpoints, *_left_behind(folder), *_pointers(folder, sealed), *_samples(folder, events)]
    findings += _report(folder)
    if not whole:
        findings.append(HealthCheck("wrong", N_("checkpoints"), N_("none is complete")))
        return Diagnosis(tuple(findings))
    if replay:
        findings.append(_replay(sealed, whole, events))
    if not missing:
        findings.append(_generation(sealed))
    findings.append(_remaining(path, sealed, whole[-1]))
    return Diagnosis(tuple(findings))


def _as_finding(path: Path, complaint: str) -> HealthCheck:
    where, _, found = complaint.partition(": ")
    return HealthCheck("wrong", Path(where).name if where.startswith(str(path)) else "files", found or complaint)


def _events(folder: RunFolder, findings: list[HealthCheck]) -> list[dict[str, Any]]:
    try:
        events = folder.metrics()
    except UsageError as error:
        if not any(finding.what == LOG for finding in findings):
            findings.append(HealthCheck("wrong", LOG, str(error).removeprefix(f"{folder.path / LOG}: ")))
        return []
    findings.append(HealthCheck("ok", LOG, N_("{n:,} events").format(n=len(events))))
    return events


def _checkpoints(sealed: SealedRun, shapes: Mapping[str, Any] | None) -> tuple[list[HealthCheck], list[Checkpoint]]:
    folder, findings, whole = sealed.folder, [], []
    for one in list_checkpoints(folder.guarded_steps):
        try:
            checkpoint = load_checkpoint(folder.guarded_steps.within(one.name), shapes=shapes)
            bad = [name for name, tensor in checkpoint.model.items() if not tensor.isfinite().all()]
            if bad:
                raise UsageError("{bad} contains numbers that are not finite", bad=bad[0])
            if checkpoint.state.get("run", sealed.identity.run) != sealed.identity.run:
                raise UsageError("it is of another run; remove it")
            whole.append(checkpoint)
            findings.append(HealthCheck("ok", one.name, N_("files, hashes, shapes and numbers are correct")))
        except (UsageError, StorageError) as error:
            findings.append(HealthCheck("wrong", one.name, str(error).removeprefix(f"{one}: ")))
    return findings, whole


def _left_behind(folder: RunFolder) -> list[HealthCheck]:
    names = folder.files.names("steps")
    damaged = [name for name in names if name.startswith(DAMAGED)]
    swept = [name for name in names if name.startswith(".")]
    found = []
    if damaged:
        deletable = N_("{names}: can be deleted").format(names=", ".join(damaged))
        found.append(HealthCheck("unknown", N_("set aside"), deletable))
    if swept:
        left = N_("{n} from an interrupted save; resume removes them").format(n=len(swept))
        found.append(HealthCheck("unknown", N_("leftovers"), left))
    return found


def _pointers(folder: RunFolder, sealed: SealedRun) -> list[HealthCheck]:
    """The files `best` and `last`, which are for people."""
    if sealed.newest is None:
        return []
    best = sealed.newest.state.get("best_step")
    findings = []
    for pointer, step in (("best", best), ("last", sealed.newest.step)):
        if folder.files.kind(pointer) is None or step is None:
            continue
        try:
            name = folder.files.read(pointer, MOST_POINTER).decode("utf-8", "replace").strip()
        except (UsageError, OSError, ValueError) as error:
            findings.append(HealthCheck("wrong", pointer, str(error)))
            continue
        right = name == step_name(step)
        found = (
            N_("is step-{step:08d}").format(step=step)
            if right
            else N_("says {name!a}, but the sealed one is {sealed}, which is used").format(
                name=name[:40], sealed=step_name(step)
            )
        )
        findings.append(HealthCheck("ok" if right else "wrong", pointer, found))
    return findings


def _samples(folder: RunFolder, events: list[dict[str, Any]]) -> list[HealthCheck]:
    """The files of samples, compared with the log."""
    texts = {f"{step_name(event['step'])}.txt": event["text"] for event in events if event["event"] == "sample"}
    wrong, right = list[str](), 0
    for name in folder.files.names("samples") if folder.files.kind("samples") == "folder" else []:
        try:
            text = folder.files.read(f"samples/{name}", MOST_SAMPLE).decode("utf-8", "replace")
        except (UsageError, OSError, ValueError):
            text = None
        if name in texts and text != texts[name] + "\n":
            wrong.append(name)
        right += name in texts and name not in wrong
    if wrong:
        differing = N_("{names}: differ from the log, which is right").format(names=", ".join(wrong[:3]))
        return [HealthCheck("wrong", N_("samples"), differing)]
    return [HealthCheck("ok", "samples", N_("{n} as in the log").format(n=right))] if texts else []


def _report(folder: RunFolder) -> list[HealthCheck]:
    """The pages and figures, compared with their manifest."""
    report = folder.files.within("report")
    complaints, is_listed = check_report(report), report.kind(MANIFEST) is not None
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


def _generation(sealed: SealedRun) -> HealthCheck:
    """Whether `vitral generate` computes this model in C, or why not; the values of the weights do not matter."""
    way = way_of(Transformer(sealed.config.model, sealed.tokenizer.vocab_size).eval())
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

    The returned lines, one for each, are English; `retold` gives them in the current language.

    What was there is kept beside it, under a name with "damaged".

    Raises:
        UsageError: not a run, or nothing seals it.
        StorageError: a file cannot be written.
    """
    RunFolder.open(path)
    done: list[str] = []
    with only_writer(path):
        RunFolder.open(path).sweep()
        sealed = enter(path, lambda line: None)
        folder = sealed.folder
        if sealed.format == 1:
            raise UsageError("{path}: of format 1, without a seal of its files; vitral resume seals it", path=path)
        if sealed.changed:
            done.append(_set_aside(folder, CONFIG))
            folder.write_config(sealed.with_free_keys(sealed.identity.config).plain())
        if not _is_born(folder, sealed):
            done.append(_set_aside(folder, "run.json"))
            folder.write_document("run", {"format": FORMAT, **sealed.identity.plain()})
        seal = None if sealed.newest is None else sealed.newest.history.get("metrics")
        if seal is not None and folder.log.complaint(seal):
            done.append(_repair_log(folder))
        wrong = [found.what for found in _pointers(folder, sealed) if found.mark == "wrong"]
        done += [_set_aside(folder, pointer) for pointer in wrong]
        if wrong and sealed.newest is not None:
            folder.point(sealed.newest)
    return tuple(line for line in done if line)


def _is_born(folder: RunFolder, sealed: SealedRun) -> bool:
    try:
        return (folder.born() or {}).get("run") == sealed.identity.run
    except UsageError:
        return False


def _set_aside(folder: RunFolder, name: str) -> str:
    """Keep a damaged file under another name."""
    if folder.files.kind(name) is None:
        return N_("{file} was missing and has been restored").format(file=name)
    stem, suffix = Path(name).stem, Path(name).suffix
    number = 1
    while folder.files.kind(kept := f"{stem}.damaged-{number}{suffix}") is not None:
        number += 1
    with storage(folder.path / name):
        folder.files.rename(name, kept)
    return N_("{file} has been restored; the damaged one is {kept}").format(file=name, kept=kept)


def _repair_log(folder: RunFolder) -> str:
    """Cut the log after the last line that some checkpoint still seals, say so in the log, and seal it again."""
    intact = 0
    for one in reversed(list_checkpoints(folder.guarded_steps)):
        try:
            seal = load_state(folder.guarded_steps.within(one.name)).history["metrics"]
        except (UsageError, StorageError, KeyError):
            continue
        if folder.log.complaint(seal) is None:
            intact = int(seal["bytes"])
            break
    there = folder.files.kind(LOG) == "file"
    kept = ""
    if there:
        with storage(folder.path / LOG):
            kept = _copied(folder)
        folder.log.cut({"bytes": intact})
    elif folder.files.kind(LOG) is not None:
        _set_aside(folder, LOG)
    text = N_("the log was damaged and has been cut here")
    folder.append_metric({"event": "repaired", "text": text, "kept": kept})
    folder.reseal("metrics")
    found = {"file": LOG, "bytes": intact}
    if not kept:
        return N_("{file} has been cut after {bytes:,} bytes; the damaged one is lost").format(**found)
    return N_("{file} has been cut after {bytes:,} bytes; the damaged one is {kept}").format(**found, kept=kept)


def _copied(folder: RunFolder) -> str:
    number = 1
    while folder.files.kind(kept := f"metrics.damaged-{number}.jsonl") is not None:
        number += 1
    folder.files.copy(LOG, kept)
    return kept
