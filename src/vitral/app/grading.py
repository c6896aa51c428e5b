"""The grading of a class: the files of a folder checked against keys."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.core.files import replace_durably, storage
from vitral.core.language import in_language
from vitral.explanation.examples.by_name import write_new
from vitral.explanation.grading.grading import check_rule
from vitral.explanation.grading.pseudonyms import read_pseudonyms, with_pseudonyms, written_pseudonyms
from vitral.explanation.grading.rule import GradingRule
from vitral.explanation.grading.sheets import (
    answer_keys,
    different_keys,
    graded_sheet,
    grading_rule,
    key_notes,
    sheet_files,
    sheet_names,
)
from vitral.report.graded_class import GradedClass
from vitral.report.marked_sheet import marked_page

MOST_NAME_BYTES = 150
KeyArgument = str | Path | Sequence[str | Path]


def grade_class(
    folder: str | Path,
    key: KeyArgument,
    *,
    rule: GradingRule | str | Path | None = None,
    points: dict[str, float] | None = None,
    total: float | None = None,
    pseudonyms: str | Path | None = None,
    out: str | Path | None = None,
    marked: str | Path | None = None,
) -> GradedClass:
    """Grade the sheets of a class: the files of a folder, one for each student, folders in it included.

    Args:
        folder: its files are the sheets.
        key: the key or the exercise itself, as a file, a name of the gallery or a folder of keys; several are a list.
            A sheet belongs to the key with its title, else to the one with most of its given numbers.
        rule: of the points, or a TOML file with it; see `GradingRule`.
        points: of steps, by name; stronger than the rule's.
        total: points of a sheet without fault; stronger than the rule's.
        pseudonyms: a CSV file with a pseudonym for each file, used instead of the files' names; new students are added.
        out: write the page of the class to this file.
        marked: write a page for each sheet into this folder.

    Raises:
        UsageError: there is no folder, no key or no sheet, a key or the rule cannot be read, or a file to write exists.
        StorageError: writing to disk failed.
    """
    keys = list(answer_keys([key] if isinstance(key, str | Path) else key))
    key_paths = [each.example.path for each in keys]
    keys = different_keys(keys)
    used = grading_rule(rule, points, total)
    check_rule(used, keys)
    home = Path(folder)
    if out is not None and os.path.lexists(out):
        raise UsageError("{target}: exists already and was not overwritten; choose another name", target=out)
    ours = [out, marked, pseudonyms, rule if isinstance(rule, str | Path) else None]
    names = sheet_names(home, sheet_files(home, [*key_paths, *(Path(path) for path in ours if path is not None)]))
    if not names:
        raise UsageError("{folder}: has no sheets", folder=home)
    if pseudonyms is not None:
        known = read_pseudonyms(Path(pseudonyms))
        made = with_pseudonyms(known, list(names.values()))
        if made != known:
            replace_durably(Path(pseudonyms), written_pseudonyms(made))
        names = {path: made[name] for path, name in names.items()}
    with in_language("en"):
        sheets = [graded_sheet(path, name, keys, used) for path, name in names.items()]
        notes = tuple(key_notes(keys))
    graded = GradedClass(tuple(keys), used, tuple(sorted(sheets, key=lambda sheet: sheet.name)), notes)
    page = "" if out is None else graded.page()
    if marked is not None:
        write_marked(graded, Path(marked))
    if out is not None:
        write_new(Path(out), page)
    return graded


def write_marked(graded: GradedClass, folder: Path) -> list[Path]:
    """Write a page for each sheet into a folder, and return their paths.

    Raises:
        UsageError: a page exists; then none is written.
        StorageError: writing to disk failed.
    """
    names = _apart([_short(sheet.name.replace("/", "--")) for sheet in graded.graded])
    targets = [folder / f"{name}.html" for name in names]
    for path in targets:
        if os.path.lexists(path):
            raise UsageError("{path}: exists already; choose another folder for the marked sheets", path=path)
    pages = [marked_page(sheet.name, sheet.grade) for sheet in graded.graded if sheet.grade is not None]
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for path, page in zip(targets, pages, strict=True):
        write_new(path, page)
    return targets


def _short(name: str) -> str:
    """A name that leaves room for an ending and for the temporary file beside it; the hash keeps names apart."""
    raw = name.encode()
    if len(raw) <= MOST_NAME_BYTES:
        return name
    return f"{raw[:MOST_NAME_BYTES].decode(errors='ignore')}-{hashlib.sha256(raw).hexdigest()[:8]}"


def _apart(names: Sequence[str]) -> list[str]:
    """The names, with a number after those that are there already, also in other case."""
    made: dict[str, str] = {}
    for name in names:
        number, other = 1, name
        while other.casefold() in made:
            number += 1
            other = f"{name}-{number}"
        made[other.casefold()] = other
    return list(made.values())
