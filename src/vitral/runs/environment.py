"""The environment of a run: versions, machine, threads; and what of it differs elsewhere."""

import os
import platform
from collections.abc import Mapping
from typing import Any

import torch

from vitral.core.language import N_, _
from vitral.core.machine import cores, installed, processor

NUMERICS = 4
"""A larger number wherever the same configuration gives other bits than before; the changelog says why.

2: dropout on the CPU (`core/streams.py`).
3: Muon in bfloat16 (`training/optimizers.py`).
4: the loss is compiled together with the model (`training/objectives.py`).
"""
PACKAGES = ("torch", "numpy", "scipy", "safetensors", "tokenizers")
DISPATCH = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "OMP_DYNAMIC",
    "OMP_THREAD_LIMIT",
    "ONEDNN_MAX_CPU_ISA",
)
"""Environment variables that choose the kernels, or give a run fewer threads than it asks for."""
COMPARED = {
    "numerics": N_("Vitral's arithmetic"),
    "torch": "PyTorch",
    "numpy": "NumPy",  # draws the batches
    "system": N_("system"),
    "machine": N_("machine"),
    "processor": N_("processor"),
    "cpu_capability": "cpu_capability",
    "dispatch": N_("environment variables"),
}
"""The entries that may change the bits of a run on the CPU, and their names for people."""
ON_CUDA = {"cuda": "CUDA", "accelerator": N_("accelerator")}
"""Those that may change the bits of a run on a GPU as well."""
LONGEST = 60
"""Characters shown of a recorded value, which may be a stranger's."""


def describe_environment() -> dict[str, Any]:
    """Versions of Python, Vitral and the numerical packages; processor, cores, threads, kernels, accelerator."""
    return {
        "vitral": installed("vitral"),
        "numerics": NUMERICS,
        "python": platform.python_version(),
        "packages": {name: installed(name) for name in PACKAGES},
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": processor(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "dispatch": {name: os.environ[name] for name in DISPATCH if os.environ.get(name)},
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def environment_differences(recorded: Mapping[str, Any], here: Mapping[str, Any], device: str = "cpu") -> list[str]:
    """The differences of two environments that may change the bits of a run, in a few words each.

    Threads are not among them: their number is part of a run's configuration. What one side does not record is no
    difference.

    Args:
        recorded: the environment of the run.
        here: that of this process (`describe_environment`).
        device: the device of the run; only for "cuda" do GPU and CUDA count.

    >>> environment_differences({"packages": {"torch": "2.13.0"}}, {"packages": {"torch": "2.14.0"}, "cores": 2})
    ['PyTorch 2.13.0 → 2.14.0']
    """
    compared = COMPARED | (ON_CUDA if device == "cuda" else {})
    before, now = ({**one, **one.get("packages", {})} for one in (recorded, here))
    return [
        f"{_(name)} {str(before[key])[:LONGEST]} → {str(now[key])[:LONGEST]}"
        for key, name in compared.items()
        if None not in (before.get(key), now.get(key)) and before[key] != now[key]
    ]
