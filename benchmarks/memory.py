"""`python -m benchmarks.memory TEXT`: train a few steps on a text; prints the seconds, and the memory beyond the start.

Memory is what the process alone holds (Linux: RssAnon): pages of files that are mapped belong to the system, which
takes them back when it needs them.
"""

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from vitral import configure
from vitral.training import train

STEPS = 5
EVERY = 0.002


def anonymous() -> float:
    """Megabytes of this process's own memory."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


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
