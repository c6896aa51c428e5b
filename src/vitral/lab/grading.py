"""The grading of a class: the files of a folder checked against keys."""

from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from vitral.core.checked import checked
from vitral.core.config import parse_toml
from vitral.core.errors import UsageError, VitralError, reason
from vitral.core.files import read_capped, replace_durably, storage
from vitral.core.language import N_, in_language
from vitral.explanation.checks.report import Verdict, first_wrong
from vitral.explanation.examples.document import Document
from vitral.explanation.examples.file import load_document
from vitral.explanation.grading.answers import agreement
from vitral.explanation.grading.grading import check_rule, grade_document
from vitral.explanation.grading.key import AnswerKey
from vitral.explanation.grading.pseudonyms import read_pseudonyms, with_pseudonyms, written_pseudonyms
from vitral.explanation.grading.rule import GradingRule
from vitral.explanation.phrasebook import phrases
from vitral.lab.examples import find_example, preset_model, write_new
from vitral.reports.graded_class import GradedClass, GradedSheet
from vitral.reports.marked_sheet import marked_page

MOST_SHEETS = 5000
"""More files in a folder are not a class."""
MOST_RULE_BYTES = 2**16
NEITHER = N_("{sheet}: belongs to none of the keys: neither its title nor its given numbers are theirs")

KeyArgument = str | Path | Sequence[str | Path]


@checked(first=True)
def grade(
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
    keys = list(_keys([key] if isinstance(key, str | Path) else key))
    used = _rule(rule, points, total)
    check_rule(used, keys)
    home = Path(folder)
    if out is not None and Path(out).exists():
        raise UsageError("{target}: exists already and was not overwritten; choose another name", target=out)
    names = {path: path.relative_to(home).as_posix() for path in _files(home, keys)}
    if not names:
        raise UsageError("{folder}: has no sheets", folder=home)
    if pseudonyms is not None:
        known = read_pseudonyms(Path(pseudonyms))
        made = with_pseudonyms(known, list(names.values()))
        if made != known:
            replace_durably(Path(pseudonyms), written_pseudonyms(made))
        names = {path: made[name] for path, name in names.items()}
    with in_language("en"):
        sheets = [_graded(path, name, keys, used) for path, name in names.items()]
        notes = tuple(_notes(keys))
    graded = GradedClass(tuple(keys), used, tuple(sorted(sheets, key=lambda sheet: sheet.name)), notes)
    if marked is not None:
        write_marked(graded, Path(marked))
    if out is not None:
        write_new(Path(out), graded.page())
    return graded


def write_marked(graded: GradedClass, folder: Path) -> list[Path]:
    """Write a page for each sheet into a folder, and return their paths.

    Raises:
        UsageError: a page exists; then none is written.
        StorageError: writing to disk failed.
    """
    pages = {folder / f"{_flat(sheet.name)}.html": sheet for sheet in graded.graded}
    for path in pages:
        if path.exists():
            raise UsageError("{path}: exists already; choose another folder for the marked sheets", path=path)
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for path, sheet in pages.items():
        assert sheet.grade is not None
        write_new(path, marked_page(sheet.name, sheet.grade))
    return list(pages)


def _flat(name: str) -> str:
    """A file's name without folders; the ending stays, since two forms of one sheet are two sheets."""
    return name.replace("/", "--")


def _rule(given: GradingRule | str | Path | None, points: dict[str, float] | None, total: float | None) -> GradingRule:
    """The rule, with the points that are given apart.

    Raises:
        UsageError: the file cannot be read, or has a wrong key or value.
    """
    if isinstance(given, str | Path):
        path = Path(given)
        try:
            raw = read_capped(path, MOST_RULE_BYTES)
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise UsageError("{path}: cannot be read ({reason})", path=path, reason=why) from None
        given = GradingRule.parse(parse_toml(raw, path), str(path))
    changed: dict[str, Any] = (given or GradingRule()).plain()
    if points:
        changed["points"] = {**changed.get("points", {}), **{name: float(value) for name, value in points.items()}}
    if total is not None:
        changed["total"] = float(total)
    return GradingRule.parse(changed, "points")


def _keys(named: Sequence[str | Path]) -> Iterator[AnswerKey]:
    """The keys; of a folder, every file that is one.

    Raises:
        UsageError: there is none, or one cannot be read.
    """
    if not named:
        raise UsageError("grade: name the key")
    for each in named:
        path = Path(each)
        if not path.is_dir():
            yield AnswerKey(find_example(each), preset_model)
            continue
        found = [file for file in _inside(path) if file.suffix == ".toml"]
        if not found:
            raise UsageError("{folder}: has no key (a .toml file)", folder=path)
        yield from (AnswerKey(find_example(file), preset_model) for file in found)


def _files(folder: Path, keys: Sequence[AnswerKey]) -> list[Path]:
    """The files of the folder, keys and hidden files left out.

    Raises:
        UsageError: there is no such folder, or it has too many files.
    """
    if not folder.is_dir():
        raise UsageError("{folder}: is no folder; give the folder with the sheets", folder=folder)
    of_keys = {key.example.path.resolve() for key in keys if key.example.path is not None}
    found = [path for path in _inside(folder) if path.resolve() not in of_keys]
    if len(found) > MOST_SHEETS:
        raise UsageError("{folder}: has more than {most:,} files", folder=folder, most=MOST_SHEETS)
    return found


def _inside(folder: Path) -> list[Path]:
    """Files in a folder and in its folders, without hidden ones and those that programs leave."""
    found: list[Path] = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not any(part.startswith((".", "~$", "__MACOSX")) for part in parts) and not path.is_dir():
            found.append(path)
    return found


def _graded(path: Path, name: str, keys: Sequence[AnswerKey], rule: GradingRule) -> GradedSheet:
    try:
        if not path.is_file():
            return GradedSheet(name, None, N_("{path}: is not a regular file").format(path=name))
        document = _named(load_document(path), name)
        key = agreement(document, keys)
        if key is None:
            return GradedSheet(name, None, NEITHER.format(sheet=name))
        return GradedSheet(name, grade_document(document, key, rule))
    except VitralError as error:
        return GradedSheet(name, None, str(error).replace(str(path), name, 1))


def _named(document: Document, name: str) -> Document:
    """The document with the name under which its sheet is shown, which may be a pseudonym."""
    named = copy(document)
    object.__setattr__(named, "name", name)  # some documents are frozen
    return named


def _notes(keys: Sequence[AnswerKey]) -> Iterator[str]:
    """Keys with numbers that are wrong in themselves."""
    for key in keys:
        if key.report.worst in (Verdict.follows, Verdict.wrong):
            yield N_("The key {key} has wrong numbers; the computed ones are used. {first}").format(
                key=key.title, first=first_wrong(key.report, phrases("en"))
            )
