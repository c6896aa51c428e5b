"""Exercises as files: the sheet and its key in every form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.core.files import require_free, storage
from vitral.core.language import _, language
from vitral.explanation.examples.by_name import write_new
from vitral.explanation.exercises.sheets import ExerciseSheet
from vitral.explanation.exercises.workbook import workbook
from vitral.report.live import practice_page, sheet_latex, sheet_page

Maker = Callable[[], bytes | None]
FORMS = ("toml", "tex", "html", "xlsx")
"""Endings of the forms of a sheet."""
KEY = {"en": "key", "pt": "gabarito"}
"""The suffix of keys; with an s, the folder of keys."""
OWN_STEPS = "difference"
"""The kind that no spreadsheet is read of: none of its quantities has a name that every example knows."""
PRACTICE = {"en": "practice", "pt": "pratica"}
"""The folder of pages that judge each number as it is filled in, and thus contain the answers."""


@dataclass(frozen=True)
class WrittenExercise:
    """The files of an exercise.

    Attributes:
        paths: that were written, sheets first.
        missing: forms that could not be made here, with the reason, one sentence each.
    """

    paths: tuple[Path, ...]
    missing: tuple[str, ...]


def write_sheets(sheets: Sequence[ExerciseSheet], out: Path, *, with_practice: bool = False) -> WrittenExercise:
    """Write exercises into a folder in all forms, their keys into a folder inside it; a single one into a file.

    Args:
        sheets: the exercises.
        out: the folder; or, with the ending of a form, the file, beside which the key is written.
        with_practice: whether to write pages for practice too, into the folder.

    Raises:
        UsageError: several exercises for one file, the form cannot be made here, or a file exists; then none is
            written.
        StorageError: writing to disk failed.
    """
    form = out.suffix.removeprefix(".")
    is_file = form in FORMS and not out.is_dir()
    if is_file and (with_practice or len(sheets) > 1):
        raise UsageError("exercise: several exercises, and pages for practice, need a folder, not {out}", out=out)
    targets = dict[Path, Maker]()
    for sheet in sheets:
        targets |= _of_file(sheet, out) if is_file else _of_folder(sheet, out, with_practice=with_practice)
    for path in targets:
        require_free(path)
    contents = {path: make() for path, make in targets.items()}
    missing = {path.suffix.removeprefix(".") for path, content in contents.items() if content is None}
    why = {
        "html": _("no page for practice: derivatives are not computed in the browser"),
        "xlsx": _("no spreadsheet: openpyxl is not installed; pip install 'vitral[xlsx]'")
        if all(sheet.exercise.kind != OWN_STEPS for sheet in sheets)
        else _("no spreadsheet: this kind has only steps of its own, whose names no spreadsheet is read by"),
    }
    if is_file and missing:
        raise UsageError("{file}: {why}", file=out, why=why[form])
    written = {path: content for path, content in contents.items() if content is not None}
    for path, content in written.items():
        with storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_new(path, content)
    return WrittenExercise(tuple(written), tuple(why[one] for one in FORMS if one in missing))


def _of_file(sheet: ExerciseSheet, out: Path) -> dict[Path, Maker]:
    key = out.with_stem(f"{out.stem}-{KEY[language()]}")
    return {path: partial(_content, sheet, out.suffix, is_key=path == key) for path in (out, key)}


def _of_folder(sheet: ExerciseSheet, out: Path, *, with_practice: bool) -> dict[Path, Maker]:
    """The sheet in every form, its key in every form in a folder inside, and its page for practice in another."""
    name, suffix = sheet.exercise.name, KEY[language()]
    targets = dict[Path, Maker]()
    for stem, is_key in ((out / name, False), (out / f"{suffix}s" / f"{name}-{suffix}", True)):
        targets |= {Path(f"{stem}.{form}"): partial(_content, sheet, f".{form}", is_key=is_key) for form in FORMS}
    if with_practice:
        targets[out / PRACTICE[language()] / f"{name}.html"] = lambda: (practice_page(sheet) or "").encode() or None
    return targets


def _content(sheet: ExerciseSheet, suffix: str, *, is_key: bool) -> bytes | None:
    """A form of the sheet or its key; None where it cannot be made."""
    toml = sheet.key_toml if is_key else sheet.toml
    if suffix == ".xlsx":
        return None if sheet.exercise.kind == OWN_STEPS else workbook(toml)
    made = {".tex": sheet_latex, ".html": sheet_page}
    return (made[suffix](sheet, is_key=is_key) if suffix in made else toml).encode()
