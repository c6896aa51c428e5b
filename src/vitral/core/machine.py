"""The machine a process runs on: cores, memory and processor, with the limits of its container; installed versions.

A container's limits are those of the process's control group (cgroup) and of every group above it, in version 1 or 2.
Every function returns None where a number is unknown. `ROOT` is where /proc and /sys are; tests use another folder.
"""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
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
    for group in _groups("cpu"):
        share = _quota(group)
        if share is not None:
            count = min(count, int(share))
    return max(1, count)


def memory_limit() -> int | None:
    """Memory in bytes that this process may use: the smallest of physical memory, cgroup limits and RLIMIT_AS."""
    limits = [_physical_memory(), _resource_limit("RLIMIT_AS")]
    limits += [_first_number(group, ("memory.max", "memory.limit_in_bytes")) for group in _groups("memory")]
    return min((limit for limit in limits if limit is not None), default=None)


def has_address_limit() -> bool:
    """Whether addresses are limited, not only the memory that is used: by RLIMIT_AS, RLIMIT_DATA, or the kernel."""
    if (_read(ROOT / "proc/sys/vm/overcommit_memory") or "").strip() == STRICT:
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
    for line in (_read(ROOT / "proc/cpuinfo") or "").splitlines():
        name, _colon, value = line.partition(":")
        if name.strip() == wanted:
            return value.strip()
    return ""


def _groups(controller: str) -> Iterator[Path]:
    """The folders of the process's cgroup and of those above it, for a controller ("cpu" or "memory")."""
    mounts = ROOT / "sys/fs/cgroup"
    for line in (_read(ROOT / "proc/self/cgroup") or "").splitlines():
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


def _quota(group: Path) -> float | None:
    """The cores that a cgroup's quota amounts to."""
    quota, _space, period = (_read(group / "cpu.max") or "").strip().partition(" ")
    if not quota:
        quota, period = (_read(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
    granted, every = _number(quota), _number(period)
    return granted / every if granted and every else None


def _first_number(group: Path, names: Sequence[str]) -> int | None:
    return next((found for name in names if (found := _number(_read(group / name) or "")) is not None), None)


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


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_READ).decode("utf-8", errors="replace")
    except OSError:
        return None


def _gigabytes(size: int) -> str:
    """A size in words, in GB; small sizes in MB."""
    return f"{number(size / 1e9, ',.1f')} GB" if size >= 1e9 else f"{number(size / 1e6, ',.1f')} MB"
