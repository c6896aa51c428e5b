"""The environment of a run: versions, machine, threads."""

import platform
from importlib import metadata
from typing import Any

import torch

PACKAGES = ("torch", "numpy", "scipy", "safetensors", "tokenizers")


def describe_environment() -> dict[str, Any]:
    """Versions of Python, Vitral and the numerical packages; processor, threads, accelerator."""
    return {
        "vitral": _version("vitral"),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
