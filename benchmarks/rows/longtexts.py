"""Row `long-text`: a report on, and training on, a text that does not fit into memory."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.memory import peak_of
from benchmarks.options import LeftOut, Options
from benchmarks.processes import cold, finish, last_json, python, shakespeare_corpus
from benchmarks.results import OURS, Goal, Measurement, Section

NAMES = ("long-text",)
REPORTED, TRAINED, QUICK = 10**9, 10**10, 10**6
SPARE = 3
"""Bytes on the disk for each of the text: the text, its tokens while they are made, and where they stay."""
FILES = 100
FILE, FOLDER = "one file", f"a folder of {FILES} files"
MEGABYTES, PEAK = "MB of memory beyond the start", "MB of memory"
MOST_MEGABYTES, MOST_SECONDS = 300, 40


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
        folder = _folder(scratch / "folder", text)
        reports = [_reported(name, path, env) for name, path in ((FILE, text), (FOLDER, folder))]
        shutil.rmtree(folder)
        _write(text, written, sizes[1])
        memory = last_json(finish(python("-m", "benchmarks.memory", str(text)), env))
    trained = Measurement(OURS, (memory["seconds"],), {MEGABYTES: round(memory["megabytes"])})
    return [
        Section(
            "long-text",
            f"vitral corpus on {sizes[0] / 1e6:,.0f} MB: tokens, alphabet, duplicates, n-gram baselines",
            tuple(reports),
            unit="MB",
            work=sizes[0] / 1e6,
            goals=(Goal("seconds", MOST_SECONDS),),
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


def _reported(name: str, text: Path, env: dict[str, str]) -> Measurement:
    """The report on a text."""
    seconds, megabytes = peak_of(python("-m", "vitral", "corpus", str(text)), env)
    return Measurement(name, (seconds,), {PEAK: round(megabytes)})


def _folder(folder: Path, text: Path) -> Path:
    """The lines of a text in files of a folder, equally long."""
    folder.mkdir()
    size = -(-text.stat().st_size // FILES)
    with text.open("rb") as file:
        for number in range(FILES):
            (folder / f"{number:03}.txt").write_bytes(file.read(size) + file.readline())
    return folder


def _write(path: Path, text: bytes, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size // len(text)):
            file.write(text)
        file.write(text[: size % len(text)])
