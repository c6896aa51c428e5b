"""Row `long-text`: a report on, and training on, a text that does not fit into memory."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.options import LeftOut, Options
from benchmarks.processes import cold, finish, last_json, python, shakespeare_corpus, wall
from benchmarks.results import OURS, Goal, Measurement, Section

NAMES = ("long-text",)
REPORTED, TRAINED, QUICK = 10**9, 10**10, 10**6
SPARE = 3
"""Bytes on the disk for each of the text: the text, its tokens while they are made, and where they stay."""
MEGABYTES = "MB of memory beyond the start"
MOST_MEGABYTES = 300


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure the row, once: a process a text.

    Raises:
        LeftOut: the complete Shakespeare is not here, the disk is too small, or this is no Linux.
    """
    if not Path("/proc/self/status").exists():
        raise LeftOut("only Linux reports a process's own memory")
    written = str(shakespeare_corpus().text).encode()
    sizes = (QUICK, QUICK) if options.quick else (REPORTED, TRAINED)
    with cold(options) as (scratch, env):
        if shutil.disk_usage(scratch).free < SPARE * max(sizes):
            raise LeftOut(f"{SPARE * max(sizes) / 1e9:.0f} GB of the disk at {scratch} are needed")
        text = scratch / "long.txt"
        _write(text, written, sizes[0])
        report = wall(python("-m", "vitral", "corpus", str(text)), env)()
        _write(text, written, sizes[1])
        found = last_json(finish(python("-m", "benchmarks.memory", str(text)), env))
    trained = Measurement(OURS, (found["seconds"],), {MEGABYTES: round(found["megabytes"])})
    return [
        Section(
            "long-text",
            f"vitral corpus on {sizes[0] / 1e6:,.0f} MB: tokens, alphabet, duplicates, n-gram baselines",
            (Measurement(OURS, (report,)),),
            unit="MB",
            work=sizes[0] / 1e6,
        ),
        Section(
            "long-text",
            f"training on {sizes[1] / 1e6:,.0f} MB: reading, tokens, 5 steps, an evaluation",
            (trained,),
            unit="MB",
            work=sizes[1] / 1e6,
            goals=(Goal("fact", MOST_MEGABYTES, MEGABYTES),),
            notes=("the text: the complete Shakespeare over and over",),
        ),
    ]


def _write(path: Path, text: bytes, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size // len(text)):
            file.write(text)
        file.write(text[: size % len(text)])
