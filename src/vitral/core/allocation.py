"""The C library's allocator, which PyTorch asks for the memory of tensors on a CPU."""

import ctypes
import sys
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h
KEPT = 256 << 20
"""Bytes of freed memory that are kept."""
LARGEST = 32 << 20
"""Bytes of the largest tensor whose memory is kept."""


@cache
def keep_freed_memory() -> None:
    """Keep up to 256 MiB of freed memory for the next tensors of at most 32 MiB each, where the C library is glibc.

    By its own rule glibc gives the memory of a whole pass back to the system when it is freed, and every page of it is
    filled with zeros again for the next pass.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, KEPT)
