"""Worked examples by file or by name, their corrected files, and exercises."""

import os
import sys
from importlib import resources
from pathlib import Path

from vitral.core.config import closest
from vitral.core.errors import UsageError
from vitral.core.files import create_durably
from vitral.core.language import N_
from vitral.explanation import CheckReport, Example, Exercise, ExerciseSheet, load_example, parse_example
from vitral.explanation.checks.checker import corrected
from vitral.explanation.documents import MOST_BYTES, SUFFIXES, document_of
from vitral.explanation.examples.file import read_example


def gallery() -> dict[str, str]:
    """The bundled worked examples: their TOML texts by name."""
    files = (resources.files("vitral.explanation") / "gallery").iterdir()
    texts = {file.name: file.read_text(encoding="utf-8") for file in files if file.name.endswith(".toml")}
    return {name.removesuffix(".toml"): texts[name] for name in sorted(texts)}


def find_example(name: str | Path) -> Example:
    """A worked example by the path of its file, or by its name in the gallery; "-" is the standard input.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    path = Path(name)
    if name == "-":
        return read_example(document_of(sys.stdin.buffer.read(MOST_BYTES + 1), "-"))
    if os.path.exists(name) or path.suffix in SUFFIXES:
        return load_example(path)
    texts = gallery()
    if str(name) not in texts:
        hint = closest(str(name), texts) or N_("vitral list examples lists them")
        raise UsageError("{named}: neither a file nor a worked example; {hint}", named=name, hint=hint)
    return parse_example(texts[str(name)], path)


def correct(report: CheckReport, folder: str | Path | None = None) -> Path:
    """Write the corrected example beside the original, or into a folder, and return its path.

    The file has the format of the original, and "fixed" in its name: notes.fixed.md.

    Raises:
        UsageError: the file exists.
        StorageError: writing to disk failed.
    """
    source = report.example.path
    if source is None:
        raise UsageError("check: the standard input has no file beside which a corrected one can be written")
    suffix = source.suffix if source.suffix in SUFFIXES else ".toml"
    target = Path(folder or source.parent, f"{source.name.removesuffix(suffix)}.fixed{suffix}")
    return write_new(target, corrected(report))


def make_exercise(tiny: Exercise, target: Path | None = None) -> Example:
    """A small exercise to be solved by hand; written to the file `target`, if given, with question marks to fill in.

    Raises:
        UsageError: an invalid size, or the file exists.
        StorageError: writing to disk failed.
    """
    text = ExerciseSheet(tiny).toml
    if target is not None:
        write_new(target, text)
    return parse_example(text, target)


def write_new(target: Path, text: str | bytes) -> Path:
    """Write a new file, whole or not at all; an existing one is never overwritten.

    Raises:
        UsageError: the file exists.
        StorageError: writing to disk failed.
    """
    create_durably(target, text.encode() if isinstance(text, str) else text)
    return target
