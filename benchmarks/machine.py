"""A description of the machine that ran the measurements."""

import platform
import re
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

from vitral.core.machine import cores, memory_limit, processor
from vitral.runs.environment import describe_environment


def describe_machine(threads: int) -> dict[str, Any]:
    """Processor, cores, threads, memory, versions, date, commit."""
    memory = memory_limit()
    return {
        "processor": processor() or platform.machine(),
        "cores": cores(),
        "threads": threads,
        "memory_gib": None if memory is None else round(memory / 2**30, 1),
        "date": date.today().isoformat(),
        "commit": commit(),
        **{
            name: value
            for name, value in describe_environment().items()
            if name not in ("processor", "cores", "threads")
        },
    }


def commit() -> str | None:
    """The commit of this checkout, with "-dirty" where files have changed since; None where it is no checkout."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def machine_slug(description: dict[str, Any]) -> str:
    """A file name for the results of a machine.

    >>> machine_slug({"processor": "AMD Ryzen(TM) 7 5800X 8-Core", "cores": 8, "threads": 4})
    'amd-ryzen-7-5800x-8-core-8-cores-4-threads'
    """
    named = re.sub(r"\((r|tm)\)|@.*", "", str(description["processor"]).lower())
    words = re.findall(r"[a-z0-9]+", named)
    return "-".join([*words, str(description["cores"]), "cores", str(description["threads"]), "threads"])
