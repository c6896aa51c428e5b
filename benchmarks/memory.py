"""`python -m benchmarks.memory TEXT`: train a few steps on a text; prints the seconds, and the memory beyond the start.

`peak_of` watches another process. Memory is what the process alone holds (Linux: RssAnon): pages of files that are
mapped belong to the system, which takes them back when it needs them.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.options import LeftOut
from benchmarks.processes import ROOT
from vitral import configure
from vitral.training import train

STEPS = 5
EVERY = 0.002


def anonymous(process: int | str = "self") -> float:
    """Megabytes of a process's own memory; 0 once it has ended."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), 0.0)


def peak_of(command: Sequence[str], env: Mapping[str, str]) -> tuple[float, float]:
    """Seconds of a process from start to end, and the most of its own memory in megabytes.

    Raises:
        LeftOut: it failed.
    """
    began, most = time.perf_counter(), 0.0
    with subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            with suppress(OSError):
                most = max(most, anonymous(process.pid))
            time.sleep(EVERY)
    if process.returncode:
        raise LeftOut(f"{' '.join(command[1:4])} … failed ({process.returncode})")
    return time.perf_counter() - began, most


def peak_while_training(text: str) -> dict[str, float]:
    """Seconds of a run on this text, and its peak memory above the start, in megabytes."""
    config = configure("fast", corpus=text, overrides=[{"training": {"steps": STEPS}}])
    before, began, done = anonymous(), time.perf_counter(), threading.Event()
    seen = [before]

    def watch() -> None:
        while not done.wait(EVERY):
            seen.append(max(seen.pop(), anonymous()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run")
    done.set()
    watcher.join()
    return {"seconds": time.perf_counter() - began, "megabytes": seen[0] - before}


if __name__ == "__main__":
    print(json.dumps(peak_while_training(sys.argv[1])))
