"""The files of a folder: which of them are read, and which folders are Vitral's own and never a text."""

import os
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from vitral.core.errors import UsageError, reason
from vitral.core.language import N_, _


def user_files(
    root: Path, glob: Sequence[str] | None = None, without: Collection[str] = ()
) -> tuple[list[Path], list[Path]]:
    """The files under a folder by path, without hidden ones, and Vitral's own folders, which are left out.

    Links to folders are not followed.

    Args:
        root: the folder.
        glob: patterns, see `CorpusConfig`.
        without: names of folders that are left out.

    Raises:
        UsageError: a folder cannot be read, or this one is Vitral's own; says what the user may have meant.
    """
    found, own = list[Path](), list[Path]()
    for folder, subfolders, names in os.walk(root, onerror=_refuse):
        if kind := own_kind(subfolders, names):
            own.append(Path(folder))
            if own[0] == root:
                raise UsageError(_(_REMEDIES[kind], folder=root, path=root))
            subfolders.clear()
            continue
        subfolders[:] = [name for name in subfolders if not name.startswith(".") and name not in without]
        for file in (Path(folder, name) for name in names if not name.startswith(".")):
            parts = file.relative_to(root).parts
            if glob is None or any(matches(parts, pattern) for pattern in glob):
                found.append(file)
    return sorted(found, key=lambda file: file.parts), own


def _refuse(error: OSError) -> None:
    raise UsageError("{path}: cannot be read ({reason})", path=error.filename, reason=reason(error)) from None


def matches(parts: Sequence[str], pattern: str) -> bool:
    """Whether a path in a folder matches a pattern, see `CorpusConfig`.

    >>> matches(("src", "a.py"), "*.py"), matches(("src", "a.py"), "src/*"), matches(("src", "in", "a.py"), "src/*")
    (True, True, False)
    >>> matches(("src", "in", "a.py"), "src/**/*.py"), matches(("a.py",), "**/a.py"), matches(("A.PY",), "*.py")
    (True, True, False)
    """
    wanted = pattern.split("/")
    return _fits(parts if len(wanted) > 1 else parts[-1:], wanted)


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    if not wanted:
        return not parts
    first, *others = wanted
    if first == "**":
        return any(_fits(parts[skipped:], others) for skipped in range(len(parts) + 1))
    return len(parts) > 0 and fnmatchcase(parts[0], first) and _fits(parts[1:], others)


def own_kind(folders: Collection[str], files: Collection[str]) -> str:
    """The kind of a folder that Vitral wrote, by the names in it: run, study and so on; else empty.

    >>> own_kind(["steps"], ["config.toml"]), own_kind(["src"], ["config.toml"])
    ('run', '')
    """
    if ("run.json" in files or "config.toml" in files) and ("metrics.jsonl" in files or "steps" in folders):
        return "run"
    if "study.json" in files and ("arms" in folders or "measures" in folders):
        return "study"
    return "report" if "MANIFEST.json" in files and any(name.endswith(".html") for name in files) else ""


_REMEDIES = {
    "run": N_(
        "{folder}: is a run, not a text; vitral evaluate {path} measures it; vitral train TEXT --init-from "
        "{path} trains it further on a text"
    ),
    "study": N_("{folder}: is a study, not a text; its pages are in {path}/report; vitral doctor {path} examines it"),
    "report": N_("{folder}: is a report, not a text; open its page in a browser"),
}
