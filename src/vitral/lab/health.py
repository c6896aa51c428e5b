"""The health of this machine and of a run. Nothing is written."""

import os
import platform
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from vitral.core.errors import StorageError, UsageError, VitralError
from vitral.core.streams import torch_stream
from vitral.data import prepare
from vitral.data.tokenizers import tokenizer_from_plain
from vitral.model import ModelConfig, Transformer
from vitral.model.selfcheck import check_device
from vitral.runs import Checkpoint, RunFolder
from vitral.runs.checkpoint import list_checkpoints, load_checkpoint, step_name
from vitral.runs.environment import describe_environment
from vitral.runs.loading import memory_bytes, needed_shapes
from vitral.training import RunConfig, silent
from vitral.training.loop import loss_of
from vitral.training.run import restored
from vitral.training.trainer import chain_from_anchor

Mark = Literal["ok", "wrong", "unknown"]
PROBE = {"context_length": 16, "d_model": 64, "num_layers": 2, "num_heads": 2}
PRODUCT = 512
SOON = 0.05


@dataclass(frozen=True)
class HealthCheck:
    """The result of one check.

    Attributes:
        mark: "ok", "wrong", or "unknown" where it could not be checked.
        what: the subject of the check.
        found: the result, in one line.
    """

    mark: Mark
    what: str
    found: str


@dataclass(frozen=True)
class Diagnosis:
    """The results of all checks."""

    findings: tuple[HealthCheck, ...]

    @property
    def healthy(self) -> bool:
        """Whether no check found something wrong."""
        return all(finding.mark != "wrong" for finding in self.findings)

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {"healthy": self.healthy, "findings": [asdict(finding) for finding in self.findings]}


def examine_machine() -> Diagnosis:
    """Processor, memory, disk and compiler of this machine, and whether it computes correctly."""
    memory, disk = memory_bytes(), shutil.disk_usage(Path.cwd())
    compiler = next((found for name in ("c++", "g++", "clang++", "cl") if (found := shutil.which(name))), None)
    has_bfloat16 = _speed(torch.float32) / _speed(torch.bfloat16)
    findings = [
        HealthCheck("ok", "Python", f"{platform.python_version()}, PyTorch {torch.__version__}"),
        HealthCheck("ok", "processor", f"{os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"),
        HealthCheck("ok", "threads", f"{torch.get_num_threads()} used by PyTorch; set OMP_NUM_THREADS to change it"),
        HealthCheck("ok", "memory", "unknown" if memory is None else f"{memory / 1e9:,.1f} GB"),
        HealthCheck("ok" if disk.free > 1e9 else "wrong", "disk here", f"{disk.free / 1e9:,.1f} GB free"),
        HealthCheck("ok", "bfloat16", f"a matrix product takes {has_bfloat16:.2f} of the time in float32"),
        HealthCheck(
            "ok" if compiler else "unknown",
            "compiler",
            f"{compiler}; training.compile can be used" if compiler else "none; training.compile has no effect",
        ),
        _precision_finding(),
    ]
    return Diagnosis((*findings, *_accelerator_findings()))


def _speed(dtype: torch.dtype) -> float:
    left = torch.ones(PRODUCT, PRODUCT, dtype=dtype)
    left.matmul(left)
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < SOON:
        left.matmul(left)
        done += 1
    return done / (time.perf_counter() - began)


def _probe() -> Transformer:
    return Transformer(ModelConfig.parse(PROBE), 61, seed=1).eval()


def _precision_finding() -> HealthCheck:
    model, tokens = _probe(), torch.randint(61, (2, 16), generator=torch_stream(0, "doctor"))
    with torch.inference_mode():
        single = model(tokens).double()
        difference = float((single - model.double()(tokens)).abs().max())
    mark: Mark = "ok" if difference < 1e-4 else "wrong"
    return HealthCheck(mark, "float32", f"logits of a small model differ from float64 by {difference:.1e}")


def _accelerator_findings() -> list[HealthCheck]:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not any(there.values()):
        return [HealthCheck("ok", "accelerator", "none; everything runs on the CPU")]
    findings = []
    for name, is_there in there.items():
        if is_there:
            try:
                difference = check_device(_probe(), torch.device(name))
                findings.append(HealthCheck("ok", name, f"logits differ from the CPU by {difference:.1e}"))
            except UsageError as error:
                findings.append(HealthCheck("wrong", name, str(error)))
    return findings


def examine_run(path: Path) -> Diagnosis:
    """Whether a run is complete: its documents and checkpoints, and one logged step computed again.

    Raises:
        UsageError: not a run.
    """
    folder = RunFolder.open(path)
    try:
        config = RunConfig.parse(folder.config, f"{path}/config.toml")
        tokenizer = tokenizer_from_plain(folder.document("tokenizer"))
        shapes = needed_shapes(config.model, tokenizer.vocab_size, str(path))
        events = folder.metrics()
    except VitralError as error:
        return Diagnosis((HealthCheck("wrong", "documents", str(error)),))
    findings = [HealthCheck("ok", "documents", f"configuration, tokenizer, {len(events):,} lines of metrics")]
    whole: list[Checkpoint] = []
    for one in list_checkpoints(folder.steps):
        try:
            checkpoint = load_checkpoint(one, shapes=shapes)
            bad = [name for name, tensor in checkpoint.model.items() if not tensor.isfinite().all()]
            if bad:
                raise UsageError(f"{bad[0]} contains numbers that are not finite")
            whole.append(checkpoint)
            findings.append(HealthCheck("ok", one.name, "files, hashes, shapes and numbers are correct"))
        except (UsageError, StorageError) as error:
            findings.append(HealthCheck("wrong", one.name, str(error).removeprefix(f"{one}: ")))
    findings += _left_behind(folder)
    if not whole:
        findings.append(HealthCheck("wrong", "checkpoints", "none is complete"))
        return Diagnosis(tuple(findings))
    findings += _pointers(folder, whole)
    findings.append(_replay(folder, config, whole, events))
    findings.append(_remaining(path, config, whole[-1]))
    return Diagnosis(tuple(findings))


def _left_behind(folder: RunFolder) -> list[HealthCheck]:
    damaged = sorted(entry.name for entry in folder.steps.iterdir() if entry.name.startswith("damaged-"))
    swept = sorted(entry.name for entry in folder.steps.iterdir() if entry.name.startswith("."))
    found = []
    if damaged:
        found.append(HealthCheck("unknown", "set aside", f"{', '.join(damaged)}: can be deleted"))
    if swept:
        found.append(HealthCheck("unknown", "leftovers", f"{len(swept)} from an interrupted save; resume removes them"))
    return found


def _pointers(folder: RunFolder, whole: list[Checkpoint]) -> list[HealthCheck]:
    names = {step_name(checkpoint.step) for checkpoint in whole}
    findings = []
    for pointer in ("best", "last"):
        path = folder.path / pointer
        if path.is_file():
            name = path.read_text(encoding="utf-8", errors="replace").strip()
            good = name in names
            found = f"is {name}" if good else f"names {name!a:.40}, which is not a complete checkpoint of this run"
            findings.append(HealthCheck("ok" if good else "wrong", pointer, found))
    return findings


def _replay(folder: RunFolder, config: RunConfig, whole: list[Checkpoint], events: list[dict[str, Any]]) -> HealthCheck:
    what = "recomputed step"
    losses = {event["step"]: event["loss"] for event in events if event["event"] == "step"}
    start = next((one for one in reversed(whole) if one.step + 1 in losses), None)
    if start is None:
        return HealthCheck("unknown", what, "no step after a checkpoint was logged")
    recorded, here = folder.document("environment"), describe_environment()
    differing = [key for key in ("packages", "machine", "cpu_capability") if recorded.get(key) != here[key]]
    if config.training.compile or differing:
        why = f"{differing[0]} differs here" if differing else "it was compiled"
        return HealthCheck("unknown", what, f"not compared: {why}")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(int(recorded["threads"]))
        dataset = prepare(config.corpus, tokenizer=tokenizer_from_plain(folder.document("tokenizer")))
        trainer = restored(folder, config, dataset, start, silent)
        if chain_from_anchor(trainer) != trainer.state.chain:
            return HealthCheck("wrong", what, f"the batches up to step {start.step} differ from those of the training")
        with torch.no_grad():
            found = sum(
                (loss_of(trainer, start.step, micro)[0].cpu() for micro in range(config.training.accumulation)),
                start=torch.zeros(()),
            )
    except (VitralError, KeyError, ValueError, TypeError) as error:
        return HealthCheck("unknown", what, f"not compared: {error}")
    finally:
        torch.set_num_threads(threads)
    loss, logged = float(found), losses[start.step + 1]
    if loss == logged:
        return HealthCheck("ok", what, f"step {start.step + 1}: loss {loss:.6f}, bit-equal to the logged loss")
    return HealthCheck("wrong", what, f"step {start.step + 1}: loss {loss!r}, but {logged!r} was logged")


def _remaining(path: Path, config: RunConfig, last: Checkpoint) -> HealthCheck:
    left = config.training.steps - last.step
    if left <= 0:
        return HealthCheck("ok", "progress", f"finished at step {last.step:,}")
    return HealthCheck(
        "ok", "progress", f"step {last.step:,}, {left:,} steps left; continue with: vitral resume {path}"
    )
