"""A run that one worker began, copied for the next one while nobody knows whether the first still writes to it."""

from contextlib import suppress
from pathlib import Path

from vitral.core.errors import VitralError
from vitral.core.guarded import GuardedFolder
from vitral.runs.folder import is_run
from vitral.runs.sealed import enter


def copy_run(there: GuardedFolder, name: str, to: str) -> bool:
    """Copy what is whole of a run; return whether the copy can be resumed.

    The log is copied last, so that it reaches as far as every copied checkpoint; a checkpoint that was removed or
    written meanwhile is incomplete in the copy, and an earlier one is used.

    Args:
        there: the folder that contains both.
        name: the run.
        to: its copy, which must not exist.
    """
    beside = f".{to}.copy"
    there.remove_folder(beside, lambda path: True)
    files = [path for path in _files(there.within(name)) if not any(part.startswith(".") for part in path.split("/"))]
    for path in sorted(files, key=lambda path: (path == "metrics.jsonl", not path.startswith("steps/"))):
        with suppress(OSError, VitralError):  # a network's file system has more words for a file that is gone
            there.make(f"{beside}/{path}".rpartition("/")[0])
            with there.within(name).stream(path) as file:
                there.write(f"{beside}/{path}", file.read())
    if not is_run(there.path / beside) or not _is_whole(there.path / beside):
        there.remove_folder(beside, lambda path: True)
        return False
    there.rename(beside, to)
    return True


def _is_whole(path: Path) -> bool:
    try:
        enter(path, lambda line: None)
    except VitralError:
        return False
    return True


def _files(folder: GuardedFolder, inside: str = "") -> list[str]:
    found = list[str]()
    for name in folder.names(inside):
        path = f"{inside}/{name}" if inside else name
        kind = folder.kind(path)
        found += _files(folder, path) if kind == "folder" else [path] * (kind == "file")
    return found
