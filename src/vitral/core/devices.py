"""The device a model runs on, and its precision."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch

from vitral.core.errors import UsageError

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
DtypeName = Literal["float32", "bfloat16", "float64"]


def resolve_device(name: str) -> torch.device:
    """The device for `auto` (cuda, else mps, else cpu), `cpu`, `cuda` or `mps`.

    Raises:
        UsageError: the name is unknown, or this machine has no such device.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(device for device, there in available.items() if there))
    if name not in available:
        raise UsageError("device {name!r} is not one of auto, {available}", name=name, available=", ".join(available))
    if not available[name]:
        raise UsageError(
            "device {name!r}: PyTorch {version} finds none on this machine; use --device cpu",
            name=name,
            version=torch.__version__,
        )
    return torch.device(name)


def weight_dtype(dtype: DtypeName) -> torch.dtype:
    """The dtype of the weights: float64 if configured, else float32 (bfloat16 is for arithmetic only)."""
    return torch.float64 if dtype == "float64" else torch.float32


def precision(device: torch.device, dtype: DtypeName) -> AbstractContextManager[object]:
    """The context for the forward pass: autocast for bfloat16, otherwise no change."""
    return torch.autocast(device.type, torch.bfloat16) if dtype == "bfloat16" else nullcontext()


@contextmanager
def ordered_sums(device: torch.device) -> Generator[None]:
    """The context for the loss and its gradients: the CPU adds in one order for each number of threads.

    Otherwise its threads add the gradients of indexed numbers in any order: those of relative positions, and in
    compiled code those of the token embedding. PyTorch's deterministic algorithms add them in one thread. An operation
    that has no such algorithm only warns. On other devices nothing changes.
    """
    if device.type != "cpu":
        yield
        return
    deterministic, mode = torch.utils.deterministic, torch.get_deterministic_debug_mode()
    fills = deterministic.fill_uninitialized_memory
    try:
        torch.set_deterministic_debug_mode("warn")  # `use_deterministic_algorithms` would import the compiler: 1 s
        # All new memory would be written twice.
        deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        deterministic.fill_uninitialized_memory = fills  # pyright: ignore[reportAttributeAccessIssue]
