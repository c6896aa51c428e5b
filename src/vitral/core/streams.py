"""Random streams keyed by (seed, purpose, step): the only source of randomness in Vitral; and dropout.

Each random draw has a purpose ("batches", "dropout", "init", "sampling" …) and uses a generator that depends only
on its key. Evaluating more often, sampling during training or resuming from a checkpoint therefore changes no other
number. Dropout (Srivastava et al. 2014): during training, each number is zero with a probability.
"""

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


def key(seed: int, purpose: str, *index: int | str) -> int:
    """The 63-bit key of a stream: the first bytes of a BLAKE2 hash of its name."""
    name = "/".join(str(part) for part in (seed, purpose, *index))
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1


def numpy_stream(seed: int, purpose: str, *index: int | str) -> np.random.Generator:
    """A NumPy generator (Philox) for this key."""
    return np.random.Generator(np.random.Philox(key(seed, purpose, *index)))


def torch_stream(seed: int, purpose: str, *index: int | str) -> torch.Generator:
    """A PyTorch CPU generator for this key."""
    return torch.Generator().manual_seed(key(seed, purpose, *index))


@contextmanager
def ambient_stream(seed: int, purpose: str, *index: int | str) -> Generator[None]:
    """Seed PyTorch's global generators with this key inside the block, and restore their state afterwards.

    Dropout, inside and outside fused attention, always draws from the global generators.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    # torch.manual_seed seeds accelerators too, and notes the whole stack of calls for those that are not there.
    accelerated = bool(devices) or torch.backends.mps.is_available()
    seeded: Any = torch if accelerated else torch.default_generator
    with torch.random.fork_rng(devices):  # pyright: ignore[reportUnknownMemberType]
        seeded.manual_seed(key(seed, purpose, *index))
        yield


LEVELS = 2**16


def drop_out(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """Set each element of `x` to zero with probability `rate`, and divide the others by `1 - rate`.

    PyTorch draws one number at a time on the CPU. Here four elements share 64 random bits, which takes a quarter of the
    time; the rate is therefore rounded to a multiple of 1/65,536, and the elements that stay are divided by exactly
    the probability with which they stay. Accelerators and compiled models use PyTorch's kernels.

    Args:
        x: any shape.
        rate: probability of a zero, from 0 to 1.
        training: False returns `x`.

    Returns:
        A tensor of the shape and the dtype of `x`. Random numbers come from PyTorch's global generator.
    """
    dropped = round(LEVELS * rate)
    if not training or x.device.type != "cpu" or torch.compiler.is_compiling() or not 0 < dropped < LEVELS:
        return functional.dropout(x, rate, training)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    levels = words.view(torch.int16)[: x.numel()].view(x.shape)
    kept = torch.ge(levels, dropped - LEVELS // 2, out=torch.empty(x.shape, dtype=x.dtype))
    return x * kept.mul_(LEVELS / (LEVELS - dropped))


class Dropout(nn.Dropout):
    """`drop_out` as a module: the identity outside training."""

    def forward(self, input: Tensor) -> Tensor:
        """`drop_out` of `input`, of any shape."""
        return drop_out(input, self.p, self.training)
