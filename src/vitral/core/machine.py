"""The machine a process runs on: cores, memory and processor, with the limits of its container; installed versions.

A container's limits are those of the process's control group (cgroup) and of every group above it, in version 1 or 2.
A function returns None where a number is unknown. `ROOT` is where /proc and /sys are; tests use another folder.

At the end the C library's allocator, which PyTorch asks for the memory of tensors on a CPU.
"""

import ctypes
import math
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath

from vitral.core.errors import UsageError
from vitral.core.language import _, number

ROOT = Path("/")
STRICT = "2"
"""Of vm.overcommit_memory: the addresses of all programs together may not exceed the memory."""
LARGEST_READ = 2**20
"""Bytes read of a file of the kernel; /proc/cpuinfo has about a kilobyte per core."""


def cores() -> int:
    """Number of cores this process may use: its CPU affinity, or fewer by the container's quota; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = os.cpu_count() or 1 if affinity is None else len(affinity(0))
    return max(1, int(min([count, *map(_quota, _groups("cpu"))])))


def memory_limit() -> int | None:
    """Memory in bytes that this process may use: the smallest of physical memory, cgroup limits and RLIMIT_AS."""
    limits = [_physical_memory(), _resource_limit("RLIMIT_AS")]
    files = ("memory.max", "memory.limit_in_bytes")
    limits += [_number(_read(group / name)) for group in _groups("memory") for name in files]
    return min((limit for limit in limits if limit is not None), default=None)


def has_address_limit() -> bool:
    """Whether addresses are limited, not only the memory that is used: by RLIMIT_AS, RLIMIT_DATA, or the kernel."""
    if _read(ROOT / "proc/sys/vm/overcommit_memory").strip() == STRICT:
        return True
    return any(limit is not None for limit in map(_resource_limit, ("RLIMIT_AS", "RLIMIT_DATA")))


def require_memory(needed: int, where: str, what: str, *, there: int | None = None) -> None:
    """Refuse, before it is begun, work that does not fit into memory.

    Args:
        needed: bytes needed.
        where: the file or option that asks for the work.
        what: the work, as the subject of a sentence.
        there: bytes there are; `memory_limit()` if None. Unknown memory refuses nothing.

    Raises:
        UsageError: more is needed than there is.
    """
    there = memory_limit() if there is None else there
    if there is not None and needed > there:
        raise UsageError(
            "{where}: {what} needs {needed}, {there} are there; use a smaller model, batch or context",
            where=where,
            what=what,
            needed=_gigabytes(needed),
            there=_gigabytes(there),
        )


def processor() -> str | None:
    """The processor's model name, as "AMD EPYC 7B13"."""
    return _of_processor("model name") or platform.processor() or None


def has_matrix_unit() -> bool:
    """Whether the processor is known to have a unit for products of whole matrices in bfloat16 (AMX)."""
    return "amx_bf16" in _of_processor("flags").split()


def versions() -> str:
    """The versions of Vitral, Python and PyTorch in one line; nothing heavy is imported."""
    vitral, torch = (installed(package) or _("not installed") for package in ("vitral", "torch"))
    return f"Vitral {vitral}, Python {platform.python_version()}, PyTorch {torch}"


def installed(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _of_processor(wanted: str) -> str:
    """What the kernel says of the first processor."""
    for line in _read(ROOT / "proc/cpuinfo").splitlines():
        name, _colon, value = line.partition(":")
        if name.strip() == wanted:
            return value.strip()
    return ""


def _groups(controller: str) -> Iterator[Path]:
    """The folders of the process's cgroup and of those above it, for a controller ("cpu" or "memory")."""
    mounts = ROOT / "sys/fs/cgroup"
    for line in _read(ROOT / "proc/self/cgroup").splitlines():
        number, _colon, rest = line.partition(":")
        names, _colon, path = rest.partition(":")
        if number == "0" and not names:
            trees = [mounts, mounts / "unified"]
        elif controller in names.split(","):
            trees = [mounts / names, mounts / controller]
        else:
            continue
        # In a container the path can be the one outside it; then only the mount's own root is there.
        inside = PurePosixPath(*(part for part in PurePosixPath(path).parts if part not in ("/", "..")))
        for tree in trees:
            yield from (tree / group for group in (inside, *inside.parents) if (tree / group).is_dir())


def _quota(group: Path) -> float:
    """The cores that a cgroup's quota amounts to; infinite without one."""
    quota, _space, period = _read(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = (_read(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    granted, every = _number(quota), _number(period)
    return granted / every if granted and every else math.inf


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # Windows has no sysconf
        return None


def _resource_limit(name: str) -> int | None:
    """A limit of this process in bytes; None if there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(getattr(resource, name))[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _number(text: str) -> int | None:
    """A number that is not negative; None for "max", -1 and whatever else means no limit."""
    return int(text) if (text := text.strip()).isascii() and text.isdigit() else None


def _read(path: Path) -> str:
    """The text of a file of the kernel; empty if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_READ).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _gigabytes(size: int) -> str:
    """A size in words, in GB; small sizes in MB."""
    return f"{number(size / 1e9, ',.1f')} GB" if size >= 1e9 else f"{number(size / 1e6, ',.1f')} MB"


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
    if libc is None:
        return
    libc.mallopt(MMAP_MAX, 0)  # large tensors come from the heap too, where freed memory stays
    libc.mallopt(TRIM_THRESHOLD, NEVER)
    size = _bytes_to_ask_for()
    if not size or not (begin := libc.malloc(size)):
        return
    # The kernel may use large pages for the heap: a large piece of it is taken, they are asked for, and it is freed.
    end = begin + size
    if end <= libc.sbrk(0):  # it is in the heap
        first, last = -(-begin // LARGE_PAGE) * LARGE_PAGE, end // LARGE_PAGE * LARGE_PAGE
        libc.madvise(first, last - first, ADVISE_LARGE_PAGES)
    libc.free(begin)


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
