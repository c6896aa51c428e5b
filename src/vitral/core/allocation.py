"""The C library's allocator, which PyTorch asks for the memory of tensors on a CPU."""

import ctypes
import sys
from functools import cache
from pathlib import Path

from vitral.core.machine import ROOT, has_address_limit, memory_limit

TRIM_THRESHOLD, MMAP_MAX, NEVER = -1, -4, -1  # M_TRIM_THRESHOLD and M_MMAP_MAX of glibc's malloc.h
ADVISE_LARGE_PAGES = 14  # MADV_HUGEPAGE of Linux's mman.h
LARGE_PAGE = 2 << 20
"""Bytes of a large page. Where they are larger, as with small pages of 64 KB, they would waste memory."""
SHARE = 4
"""The part of the memory that the process may use for which large pages are asked for."""


def keep_freed_memory() -> None:
    """Keep freed memory for the next tensors, and let it consist of large pages, where there are Linux and glibc.

    By its own rule glibc gives the memory of a whole pass back to the system when it is freed, and every page of it is
    filled with zeros again for the next pass. A processor knows the addresses of a few thousand pages only, so with
    pages of 4 KB it looks them up again and again. What the largest pass has used stays with the process to its end.
    """
    libc = _glibc()
    if libc is not None:
        libc.mallopt(MMAP_MAX, 0)  # large tensors come from the heap too, where freed memory stays
        libc.mallopt(TRIM_THRESHOLD, NEVER)
        _ask_for_large_pages(libc)


def give_back_freed_memory() -> None:
    """Give the freed memory back to the system."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(ctypes.c_size_t(0))


def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None


def _ask_for_large_pages(libc: ctypes.CDLL) -> None:
    """Let the kernel use large pages for the heap: take a large piece of it, ask for them, and free it."""
    size = _bytes_to_ask_for()
    if not size:
        return
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    begin = libc.malloc(size)
    if not begin:
        return
    end = begin + size
    if end <= libc.sbrk(0):  # a piece outside the heap is not used again
        first, last = -(-begin // LARGE_PAGE) * LARGE_PAGE, end // LARGE_PAGE * LARGE_PAGE
        libc.madvise(first, last - first, ADVISE_LARGE_PAGES)
    libc.free(begin)


@cache
def _bytes_to_ask_for() -> int:
    """Memory that is taken and not used has addresses only; where these are limited, no bytes."""
    limit = memory_limit()
    return 0 if limit is None or has_address_limit() or not _has_large_pages() else limit // SHARE


def _has_large_pages(root: Path = ROOT) -> bool:
    """Whether the kernel gives large pages, of this size, to those who ask."""
    folder = root / "sys/kernel/mm/transparent_hugepage"
    try:
        size, given = (folder / "hpage_pmd_size").read_text(), (folder / "enabled").read_text()
    except OSError:
        return False
    return size.strip() == str(LARGE_PAGE) and "[never]" not in given
