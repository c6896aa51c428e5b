"""A description of the machine that ran the measurements."""

import os
import platform
import re
from datetime import date
from pathlib import Path
from typing import Any

from vitral.runs.environment import describe_environment


def describe_machine(threads: int) -> dict[str, Any]:
    """Processor, cores, threads, memory, versions, date."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_gib": memory_gib(),
        "date": date.today().isoformat(),
        **{name: value for name, value in describe_environment().items() if name != "threads"},
    }


def machine_slug(description: dict[str, Any]) -> str:
    """A file name for the results of a machine.

    >>> machine_slug({"processor": "AMD Ryzen(TM) 7 5800X 8-Core", "cores": 8, "threads": 4})
    'amd-ryzen-7-5800x-8-core-8-cores-4-threads'
    """
    named = re.sub(r"\((r|tm)\)|@.*", "", str(description["processor"]).lower())
    words = re.findall(r"[a-z0-9]+", named)
    return "-".join([*words, str(description["cores"]), "cores", str(description["threads"]), "threads"])


def processor() -> str:
    """The processor's name, from /proc on Linux, elsewhere from Python."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory_gib() -> float | None:
    """Memory in GiB; None if unknown."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
