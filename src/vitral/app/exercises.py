"""Exercises as files: the sheet and its key in every form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.core.files import require_free, storage
from vitral.core.language import _, language
from vitral.explanation.examples.by_name import write_new
from vitral.explanation.exercises.sheets import ExerciseSheet
from vitral.explanation.exercises.workbook import workbook
from vitral.report.paper import practice_page, sheet_latex, sheet_page

Maker = Callable[[], bytes | None]
FORMS = ("toml", "tex", "html", "xlsx")
"""Endings of the forms of a sheet."""
KEY = {"en": "key", "pt": "gabarito"}
"""The suffix of keys; with an s, the folder of keys."""
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
    targets = _of_file(sheets[0], out) if is_file else _of_folder(sheets, out, with_practice=with_practice)
    for path in targets:
        require_free(path)
    contents = {path: make() for path, make in targets.items()}
    missing = {path.suffix.removeprefix(".") for path, content in contents.items() if content is None}
    why = {
        "html": _("no page for practice: derivatives are not computed in the browser"),
        "xlsx": _("no spreadsheet: openpyxl is not installed; pip install 'vitral[xlsx]'"),
    }
    if is_file and missing:
        raise UsageError("{file}: {why}", file=out, why=why[form])
    with storage(out):
        for inside in {path.parent for path in targets}:
            inside.mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        if content is not None:
            write_new(path, content)
    written = tuple(path for path, content in contents.items() if content is not None)
    return WrittenExercise(written, tuple(why[one] for one in FORMS if one in missing))


def _of_file(sheet: ExerciseSheet, out: Path) -> dict[Path, Maker]:
    form, key = out.suffix.removeprefix("."), out.with_name(f"{out.stem}-{KEY[language()]}{out.suffix}")
    return {out: _forms(sheet)[form], key: _forms(sheet, key=True)[form]}


def _of_folder(sheets: Sequence[ExerciseSheet], out: Path, *, with_practice: bool) -> dict[Path, Maker]:
    suffix, targets = KEY[language()], dict[Path, Maker]()
    for sheet in sheets:
        name = sheet.exercise.name
        targets |= {out / f"{name}.{form}": make for form, make in _forms(sheet).items()}
        keys = _forms(sheet, key=True).items()
        targets |= {out / f"{suffix}s" / f"{name}-{suffix}.{form}": make for form, make in keys}
        if with_practice:
            page = out / PRACTICE[language()] / f"{name}.html"
            targets[page] = lambda sheet=sheet: (practice_page(sheet) or "").encode() or None
    return targets


def _forms(sheet: ExerciseSheet, *, key: bool = False) -> dict[str, Maker]:
    """Each form, made when it is asked for; None where it cannot be made."""
    return {
        "toml": lambda: (sheet.key_toml if key else sheet.toml).encode(),
        "tex": lambda: sheet_latex(sheet, is_key=key).encode(),
        "html": lambda: sheet_page(sheet, is_key=key).encode(),
        "xlsx": lambda: workbook(sheet.key_toml if key else sheet.toml),
    }
