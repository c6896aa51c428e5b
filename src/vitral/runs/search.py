"""Folders of runs below a folder, by the names of their files alone."""

import os
from collections import deque
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
    """Folders that are runs, whole or not, those of an upper folder first; what is not looked into is noted.

    Raises:
        UsageError: the top folder cannot be read.
    """
    waiting, looked = deque([top]), 0
    while waiting:
        folder = waiting.popleft()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            if _was_a_run({entry.name for entry in entries}):
                yield folder
                continue
            inside = [entry for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
        except OSError as error:
            if folder == top:
                raise UsageError("{folder}: cannot be read ({error})", folder=top, error=reason(error)) from None
            notes.append(
                N_("{folder}: cannot be read ({error})").format(folder=readable_path(folder), error=reason(error))
            )
            continue
        for entry in inside:
            if entry.is_symlink():
                notes.append(N_("{folder}: a link, which is not followed").format(folder=readable_path(entry.path)))
            elif looked >= most:
                notes.append(N_("{folder}: not looked into; name it itself").format(folder=readable_path(entry.path)))
            else:
                looked += 1
                waiting.append(Path(entry.path))


def _was_a_run(names: set[str]) -> bool:
    """Whether a folder with these names is a run, or a part of one that was not copied whole."""
    if "steps" in names:
        return bool(names & {"config.toml", "run.json", "metrics.jsonl"})
    return "run.json" in names or {"corpus.json", "tokenizer.json"} <= names
