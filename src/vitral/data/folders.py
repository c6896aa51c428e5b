"""The files of a folder: which of them are read, and which folders are Vitral's own and never a text."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from vitral.core.errors import UsageError, reason
from vitral.core.language import N_, _
from vitral.data.opening import shown

_SURELY_TEXT = {".txt", ".md"}


@dataclass(frozen=True)
class Listing:
    """The files of a folder that are read as text, sorted by path.

    Attributes:
        files: the files.
        own: Vitral's own folders in it, which are left out, each with its kind.
    """

    files: list[Path]
    own: dict[Path, str]


def user_files(root: Path, glob: Sequence[str] | None = None, without: Collection[str] = ()) -> Listing:
    """All files under a folder, without hidden ones; links to folders are not followed.

    Args:
        root: the folder.
        glob: patterns, see `CorpusConfig`.
        without: names of folders that are left out.

    Raises:
        UsageError: a folder cannot be read.
    """
    found: dict[tuple[str, ...], Path] = {}
    own: dict[Path, str] = {}
    for folder, subfolders, names in os.walk(root, onerror=_refuse):
        if kind := own_kind(subfolders, names):
            own[Path(folder)] = kind
            subfolders.clear()
            continue
        subfolders[:] = [name for name in subfolders if not name.startswith(".") and name not in without]
        files = (Path(folder, name) for name in names if not name.startswith("."))
        found |= {file.relative_to(root).parts: file for file in files}
    wanted = [parts for parts in found if glob is None or any(matches(parts, pattern) for pattern in glob)]
    return Listing([found[parts] for parts in sorted(wanted)], own)


def _refuse(error: OSError) -> None:
    raise UsageError("{path}: cannot be read ({reason})", path=shown(error.filename), reason=reason(error)) from None


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


def is_surely_text(path: Path) -> bool:
    """Whether a file of a folder must be text, rather than be skipped if it is not."""
    return path.suffix.lower() in _SURELY_TEXT


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


def refuse_own(root: Path, listing: Listing) -> None:
    """Refuse a folder that Vitral wrote, or in which there is nothing else.

    Raises:
        UsageError: it is one; the line says what the user may have meant.
    """
    if kind := listing.own.get(root):
        raise UsageError(_(_REMEDIES[kind], folder=shown(root), path=shown(root)))
    if listing.own and not listing.files and not user_files(root).files:
        raise UsageError(
            "{folder}: contains no text, only folders that Vitral wrote ({names})",
            folder=shown(root),
            names=own_named(root, listing),
        )


def own_named(root: Path, listing: Listing) -> str:
    """The first of Vitral's own folders that are left out."""
    return shown(next(iter(listing.own)).relative_to(root)) + (", …" if len(listing.own) > 1 else "")
