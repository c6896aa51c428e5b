"""Random streams keyed by (seed, purpose, step): the only source of randomness in Vitral.

Each random draw has a purpose ("batches", "dropout", "init", "sampling" …) and uses a generator that depends only
on its key. Evaluating more often, sampling during training or resuming from a checkpoint therefore changes no other
number.
"""

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


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
