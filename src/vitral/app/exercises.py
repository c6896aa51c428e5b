"""Exercises as files: the sheet and its key in every form."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.core.errors import StorageError, UsageError
from vitral.core.files import create_durably, storage
from vitral.core.language import _, language
from vitral.explanation.exercises.sheets import ExerciseSheet
from vitral.explanation.exercises.workbook import workbook
from vitral.report.paper import practice_page, sheet_latex, sheet_page

PDFLATEX_SECONDS = 60
FORMS = ("toml", "tex", "html", "pdf", "xlsx")
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
    """Write exercises into a folder in all forms; a single one into a file with the ending of a form.

    Args:
        sheets: the exercises.
        out: the folder or the file.
        with_practice: whether to write pages for practice too, into the folder.

    Raises:
        UsageError: several exercises for one file, or a file exists; then none is written.
        StorageError: writing to disk failed.
    """
    if out.is_dir() or out.suffix.removeprefix(".") not in FORMS:
        return write_exercises(sheets, out, with_practice=with_practice)
    if with_practice:
        raise UsageError("exercise: pages for practice need a folder, not {out}", out=out)
    if len(sheets) > 1:
        raise UsageError("exercise: several exercises need a folder, not {out}", out=out)
    return write_exercise(sheets[0], out)


def write_exercises(sheets: Sequence[ExerciseSheet], folder: Path, *, with_practice: bool = False) -> WrittenExercise:
    """Write exercises into a folder in all forms; their keys, and pages for practice, into folders inside it.

    Raises:
        UsageError: a file exists; then none is written.
        StorageError: writing to disk failed.
    """
    suffix = KEY[language()]
    keys, practice = folder / f"{suffix}s", folder / PRACTICE[language()]
    targets: dict[Path, Callable[[], bytes | None]] = {}
    for sheet in sheets:
        name = sheet.exercise.name
        targets |= {folder / f"{name}.{form}": make for form, make in _forms(sheet).items()}
        targets |= {keys / f"{name}-{suffix}.{form}": make for form, make in _forms(sheet, key=True).items()}
        if with_practice:
            targets[practice / f"{name}.html"] = lambda sheet=sheet: (practice_page(sheet) or "").encode() or None
    _refuse_existing(targets)
    contents = {path: make() for path, make in targets.items()}
    with storage(folder):
        for inside in {path.parent for path in targets}:
            inside.mkdir(parents=True, exist_ok=True)
    return _write(contents)


def write_exercise(sheet: ExerciseSheet, file: Path) -> WrittenExercise:
    """Write an exercise in the form of the file's ending, and its key beside it.

    Raises:
        UsageError: the form cannot be made here, or a file exists; then none is written.
        StorageError: writing to disk failed.
    """
    form = file.suffix.removeprefix(".")
    key = file.with_name(f"{file.stem}-{KEY[language()]}{file.suffix}")
    targets = {file: _forms(sheet)[form], key: _forms(sheet, key=True)[form]}
    _refuse_existing(targets)
    written = _write({path: make() for path, make in targets.items()})
    if written.missing:
        raise UsageError("{file}: {why}", file=file, why=written.missing[0])
    return written


def _forms(sheet: ExerciseSheet, *, key: bool = False) -> dict[str, Callable[[], bytes | None]]:
    """Each form, made when it is asked for; None where it cannot be made."""
    return {
        "toml": lambda: (sheet.key_toml if key else sheet.toml).encode(),
        "tex": lambda: sheet_latex(sheet, is_key=key).encode(),
        "html": lambda: sheet_page(sheet, is_key=key).encode(),
        "pdf": lambda: pdf_of(sheet_latex(sheet, is_key=key)),
        "xlsx": lambda: workbook(sheet.key_toml if key else sheet.toml),
    }


def _refuse_existing(targets: Mapping[Path, object]) -> None:
    for path in targets:
        if os.path.lexists(path):
            raise UsageError("{target}: exists already and was not overwritten; choose another name", target=path)


def _write(contents: Mapping[Path, bytes | None]) -> WrittenExercise:
    paths, missing = [], set[str]()
    for path, content in contents.items():
        if content is None:
            missing.add(path.suffix.removeprefix("."))
            continue
        try:
            create_durably(path, content)
        except FileExistsError:
            raise UsageError(
                "{target}: exists already and was not overwritten; choose another name", target=path
            ) from None
        paths.append(path)
    why = {
        "pdf": _("no PDF: pdflatex is not installed; the .html prints well, and the .tex is its source"),
        "html": _("no page for practice: derivatives are not computed in the browser"),
        "xlsx": _("no spreadsheet: openpyxl is not installed; pip install 'vitral[xlsx]'"),
    }
    return WrittenExercise(tuple(paths), tuple(why[form] for form in FORMS if form in missing))


def pdf_of(latex: str) -> bytes | None:
    """A LaTeX document as PDF; None if pdflatex is not installed.

    Raises:
        StorageError: pdflatex failed.
    """
    program = shutil.which("pdflatex")
    if program is None:
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sheet.tex").write_text(latex, encoding="utf-8")
        command = [program, "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "sheet.tex"]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=PDFLATEX_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            raise StorageError("pdflatex did not finish; the .html prints well") from None
        if done.returncode != 0 or not (folder / "sheet.pdf").is_file():
            lines = done.stdout.decode(errors="replace").splitlines()
            why = next((line for line in lines if line.startswith("!")), "")
            raise StorageError("pdflatex failed ({why}); the .html prints well", why=why)
        return (folder / "sheet.pdf").read_bytes()
