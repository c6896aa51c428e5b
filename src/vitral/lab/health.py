"""The results of health checks, and the health of this machine. Nothing is written."""

import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from vitral.core.errors import UsageError
from vitral.core.machine import memory_limit
from vitral.core.streams import torch_stream
from vitral.core.versions import versions
from vitral.model import ModelConfig, Transformer
from vitral.model.selfcheck import check_device

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
    memory, disk = memory_limit(), shutil.disk_usage(Path.cwd())
    compiler = next((found for name in ("c++", "g++", "clang++", "cl") if (found := shutil.which(name))), None)
    has_bfloat16 = _speed(torch.float32) / _speed(torch.bfloat16)
    findings = [
        HealthCheck("ok", "versions", versions()),
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
