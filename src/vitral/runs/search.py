"""Folders of runs below a folder, by the names of their files alone."""

import os
from collections.abc import Iterator
from pathlib import Path

from vitral.core.errors import UsageError, reason
from vitral.core.language import N_

MOST_FOLDERS = 100_000
"""Folders that are looked into."""


def readable_path(path: Path | str) -> str:
    r"""A path as text that every file can hold: bytes that are no UTF-8 are written as `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def run_folders(top: Path, notes: list[str], most: int = MOST_FOLDERS) -> Iterator[Path]:
    """Folders that are runs, whole or not; what is not looked into is noted.

    Raises:
        UsageError: the top folder cannot be read.
    """

    def unreadable(error: OSError) -> None:
        told = {"folder": readable_path(error.filename), "error": reason(error)}
        if Path(error.filename) == top:
            raise UsageError("{folder}: cannot be read ({error})", **told)
        notes.append(N_("{folder}: cannot be read ({error})").format(**told))

    for number, (folder, inside, names) in enumerate(os.walk(top, onerror=unreadable)):
        if _was_a_run({*inside, *names}):
            yield Path(folder)
            inside.clear()
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        for path in (os.path.join(folder, name) for name in inside):
            if os.path.islink(path):
                notes.append(N_("{folder}: a link, which is not followed").format(folder=readable_path(path)))
        if number == most:
            notes.append(N_("{folder}: not looked into; name it itself").format(folder=readable_path(folder)))
            return


def _was_a_run(names: set[str]) -> bool:
    """Whether a folder with these names is a run, or a part of one that was not copied whole."""
    if "steps" in names:
        return bool(names & {"config.toml", "run.json", "metrics.jsonl"})
    return "run.json" in names or {"corpus.json", "tokenizer.json"} <= names
