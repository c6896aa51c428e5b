"""The C library's allocator, which PyTorch asks for the memory of tensors on a CPU."""

import ctypes
import sys
from functools import cache
from pathlib import Path

from vitral.core.machine import has_address_limit, memory_limit

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # M_TRIM_THRESHOLD and so on of glibc's malloc.h
NEVER = -1  # as TRIM_THRESHOLD
ADVISE_LARGE_PAGES = 14  # MADV_HUGEPAGE of Linux's mman.h
KEPT = 256 << 20
"""Bytes of freed memory that are kept."""
LARGEST = 32 << 20
"""Bytes of the largest tensor whose memory is kept."""
LARGE_PAGE = 2 << 20
"""Bytes of a large page. Where they are larger, as with small pages of 64 KB, they would waste memory."""
LARGE_PAGES_FOR = 0.25
"""Share of the memory that the process may use for which large pages are asked for."""


@cache
def keep_freed_memory() -> None:
    """Keep up to 256 MiB of freed memory for the next tensors of at most 32 MiB each, where the C library is glibc.

    By its own rule glibc gives the memory of a whole pass back to the system when it is freed, and every page of it is
    filled with zeros again for the next pass.
    """
    libc = _glibc()
    if libc is not None:
        libc.mallopt(MMAP_THRESHOLD, LARGEST)
        libc.mallopt(TRIM_THRESHOLD, KEPT)


def keep_all_freed_memory() -> None:
    """Keep all memory that the main thread frees, in large pages, where there are Linux and glibc.

    A processor keeps the addresses of a few thousand pages only; with pages of 4 KB it looks them up again and again.
    The memory of the largest training then stays with the process until it ends.
    """
    keep_freed_memory()  # so that it does not undo this later
    libc = _glibc()
    if libc is not None:
        libc.mallopt(MMAP_MAX, 0)  # large tensors come from the heap too, where freed memory stays
        libc.mallopt(TRIM_THRESHOLD, NEVER)
        _ask_for_large_pages(libc)


def give_back_freed_memory() -> None:
    """Give the freed memory back to the system."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc and no other allocator is loaded before it; looked up once."""
    if not sys.platform.startswith("linux"):
        return None
    everything = ctypes.CDLL(None)
    if not hasattr(everything, "gnu_get_libc_version"):
        return None
    libc = ctypes.CDLL("libc.so.6")
    used, own = (ctypes.cast(one.malloc, ctypes.c_void_p).value for one in (everything, libc))
    if used != own:
        return None
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.malloc_trim.argtypes = [ctypes.c_size_t]
    return libc


def _ask_for_large_pages(libc: ctypes.CDLL) -> None:
    """Let the kernel use large pages for the heap: take a large piece of it, ask for them, and free it."""
    size = _bytes_to_ask_for()
    if not size:
        return
    begin = libc.malloc(size)
    if not begin:
        return
    end = begin + size
    if end <= libc.sbrk(0):  # it is in the heap
        first, last = -(-begin // LARGE_PAGE) * LARGE_PAGE, end // LARGE_PAGE * LARGE_PAGE
        libc.madvise(first, last - first, ADVISE_LARGE_PAGES)
    libc.free(begin)


@cache
def _bytes_to_ask_for() -> int:
    """Bytes of the heap for which large pages are asked; none where the kernel has none of this size to give.

    Memory that is taken and not used costs only addresses, so where addresses are limited there are none.
    """
    try:
        size = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_text()
    except OSError:
        return 0
    limit = memory_limit()
    return (
        0 if limit is None or has_address_limit() or size.strip() != str(LARGE_PAGE) else int(LARGE_PAGES_FOR * limit)
    )
