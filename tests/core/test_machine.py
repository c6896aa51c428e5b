"""A container's limits count like the machine's; an unknown number refuses nothing."""

import os
from pathlib import Path

import pytest

from vitral.core import machine
from vitral.core.errors import UsageError
from vitral.core.machine import (
    cores,
    has_matrix_unit,
    memory_limit,
    processor,
    require_memory,
)

GIB = 2**30


@pytest.fixture(autouse=True)
def _sixteen_cores_sixty_four_gib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A known machine below the container."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr(machine, "_physical_memory", lambda: 64 * GIB)
    monkeypatch.setattr(machine, "_resource_limit", lambda name: None)


def write(root: Path, files: dict[str, str]) -> None:
    """Put these files into the folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("unified", ["sys/fs/cgroup", "sys/fs/cgroup/unified"])
def test_version_2_counts_every_group_above(unified: str, tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            f"{unified}/outer/cpu.max": "450000 100000\n",
            f"{unified}/outer/memory.max": f"{8 * GIB}\n",
            f"{unified}/outer/inner/cpu.max": "max 100000\n",
            f"{unified}/outer/inner/memory.max": "max\n",
        },
    )
    assert cores() == 4
    assert memory_limit() == 8 * GIB


def test_version_1_counts_every_group_above(tmp_path: Path) -> None:
    unlimited = str(2**63 - 4096)
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/job/step\n2:cpu,cpuacct:/job\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": unlimited,
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(5 * GIB),
            "sys/fs/cgroup/memory/job/step/memory.limit_in_bytes": unlimited,
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
        },
    )
    assert cores() == 2
    assert memory_limit() == 5 * GIB


@pytest.mark.parametrize(("quota", "count"), [("1000 100000", 1), ("99999 100000", 1), ("9900000 100000", 16)])
def test_cores_are_at_least_one_and_at_most_those_there(quota: str, count: int, tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota})
    assert cores() == count


def test_the_address_space_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_resource_limit", {"RLIMIT_AS": 3 * GIB}.get)
    assert memory_limit() == 3 * GIB
    monkeypatch.setattr(machine, "_physical_memory", lambda: None)
    monkeypatch.setattr(machine, "_resource_limit", lambda name: None)
    assert memory_limit() is None


@pytest.mark.parametrize("flags", ["fma amx_bf16 avx2", "avx2"])
def test_a_unit_for_matrices_is_listed_by_the_kernel(flags: str, tmp_path: Path) -> None:
    write(tmp_path, {"proc/cpuinfo": f"processor : 0\nmodel name\t: Some CPU\nflags\t\t: {flags}\n"})
    assert has_matrix_unit() == ("amx" in flags)
    assert processor() == "Some CPU"


def test_more_memory_than_there_is_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_limit", lambda: 23_000_000_000)
    require_memory(23_000_000_000, "runs/a", "training")
    with pytest.raises(UsageError) as refused:
        require_memory(41_000_000_000, "runs/a", "training")
    said = str(refused.value)
    assert said.startswith("runs/a: ")
    assert "41.0 GB" in said
    assert "23.0 GB" in said
    with pytest.raises(UsageError, match=r"2\.0 MB"):
        require_memory(2_000_000, "x", "y", there=1_000_000)
    monkeypatch.setattr(machine, "memory_limit", lambda: None)
    require_memory(10**18, "runs/a", "training")
