"""The sheets of a class: the files of a folder, the keys that they belong to, and the grade of each."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.core.config import merge, read_toml
from vitral.core.errors import TRACEBACK, UsageError, VitralError, reason
from vitral.core.language import N_, in_language
from vitral.explanation.checks.report import ReportText, Verdict
from vitral.explanation.documents import read_document
from vitral.explanation.examples.by_name import find_example
from vitral.explanation.grading.answers import AnswerKey, agreement
from vitral.explanation.grading.grading import GradingRule, SheetGrade, grade_document
from vitral.explanation.phrasebook import phrases

MOST_SHEETS = 5000
"""More files in a folder are not a class."""
NEITHER = N_("{sheet}: belongs to none of the keys: neither its title nor its file name is theirs")
SEVERAL = N_("{sheet}: fits several keys equally well; give it the title of its exercise")
FAILED = N_("{sheet}: a fault of Vitral ({kind}); set VITRAL_TRACEBACK=1 to see where")


@dataclass(frozen=True)
class GradedSheet:
    """One file of the folder.

    Attributes:
        name: the file.
        grade: None if the file cannot be read.
        error: why it cannot be read, with its name, in English, or empty.
    """

    name: str
    grade: SheetGrade | None
    error: str = ""

    @property
    def slip(self) -> str:
        """The guess for the first wrong step, in the current language, or empty."""
        if self.grade is None:
            return ""
        rows = ReportText(self.grade.report, phrases()).rows()
        return next((row.guess for row in rows if row.guess and row.step == self.grade.first_wrong), "")

    def plain(self) -> dict[str, Any]:
        """As plain data, in English."""
        if self.grade is None:
            return {"sheet": self.name, "error": self.error}
        with in_language("en"):
            slip = self.slip
        return {"sheet": self.name, **self.grade.plain(), "slip": slip or None}


class FailedSheet(GradedSheet):
    """A sheet on which the program failed."""


def sheet_names(home: Path, paths: Sequence[Path]) -> dict[Path, str]:
    """The names of the sheets; bytes that are no UTF-8 are written out."""
    return {path: os.fsencode(path.relative_to(home).as_posix()).decode("utf-8", "backslashreplace") for path in paths}


def grading_rule(
    rule: GradingRule | str | Path | None, points: dict[str, float] | None, total: float | None
) -> GradingRule:
    """The rule, with the points that are given apart.

    Raises:
        UsageError: the file cannot be read, or has a wrong key or value.
    """
    if isinstance(rule, str | Path):
        rule = GradingRule.parse(read_toml(Path(rule)), str(rule))
    changed = merge(
        (rule or GradingRule()).plain(), {"points": points or {}}, {} if total is None else {"total": total}
    )
    return GradingRule.parse(changed, "points")


def answer_keys(named: Sequence[str | Path]) -> Iterator[AnswerKey]:
    """The keys; of a folder, every file that is one.

    A name in one language is that of the other too where only that exists: you-key.toml and you-gabarito.toml.

    Raises:
        UsageError: there is none, or one cannot be read.
    """
    if not named:
        raise UsageError("grade: name the key")
    for name in map(_existing, named):
        path = Path(name)
        if not os.path.isdir(path):
            yield AnswerKey(find_example(name))
            continue
        files = [file for file in _inside(path) if file.suffix == ".toml"]
        if not files:
            raise UsageError("{folder}: has no key (a .toml file)", folder=path)
        yield from (AnswerKey(find_example(file)) for file in files)


def _existing(named: str | Path) -> str | Path:
    """The name of a key, or where there is no such file or folder, the same in another language if that exists."""
    path = Path(named)
    if not os.path.lexists(path):
        for word, translated in (("key", "gabarito"), ("gabarito", "key")):
            pattern = rf"\b{word}(?=s?(\.toml)?$)"
            renamed = path.with_name(re.sub(pattern, translated, path.name)) if path.name else path
            if os.path.lexists(renamed):
                return renamed
    return named


def different_keys(keys: Sequence[AnswerKey]) -> list[AnswerKey]:
    """The keys without those that ask the same of the same numbers; one with numbers stays rather than one without."""
    kept: list[AnswerKey] = []
    for key in sorted(keys, key=lambda key: not key.has_numbers):
        if not any(key.is_same(other) for other in kept):
            kept.append(key)
    return kept


def sheet_files(folder: Path, others: Sequence[Path | None]) -> list[Path]:
    """The files of the folder without hidden files, keys, and what this command reads and writes besides.

    Raises:
        UsageError: there is no such folder, or it has too many files.
    """
    if not os.path.isdir(folder):
        raise UsageError("{folder}: is no folder; give the folder with the sheets", folder=folder)
    left_out = {_own_path(path) for path in others if path is not None}
    files = [path for path in _inside(folder) if left_out.isdisjoint(map(_own_path, (path, *path.parents)))]
    if len(files) > MOST_SHEETS:
        raise UsageError("{folder}: has more than {most:,} files", folder=folder, most=MOST_SHEETS)
    return files


def _own_path(path: Path) -> Path:
    """The path of a file in its real folder; a link is not the file that it leads to."""
    return path.parent.resolve() / path.name


def _inside(folder: Path) -> list[Path]:
    """Files in a folder and in its folders, without hidden ones and those that programs leave."""
    hidden = (".", "~$", "__MACOSX")
    files = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    return [path for path in files if not any(part.startswith(hidden) for part in path.relative_to(folder).parts)]


def graded_sheet(path: Path, name: str, keys: Sequence[AnswerKey], rule: GradingRule) -> GradedSheet:
    """The grade of one file; whatever is wrong with it, the others are graded."""
    try:
        document = read_document(path, name, mend=True)
        fitting = agreement(document, keys)
        if len(fitting) != 1:
            return GradedSheet(name, None, (SEVERAL if fitting else NEITHER).format(sheet=name))
        graded = GradedSheet(name, grade_document(document, fitting[0], rule))
        _ = graded.slip  # so that a failure is this sheet's alone
        return graded
    except VitralError as error:
        return GradedSheet(name, None, reason(error))
    except RecursionError:
        return GradedSheet(name, None, N_("{where}: not a worked example: brackets nested too deep").format(where=name))
    except Exception as error:
        if os.environ.get(TRACEBACK) == "1":
            raise
        return FailedSheet(name, None, FAILED.format(sheet=name, kind=type(error).__name__))


def key_notes(keys: Sequence[AnswerKey]) -> Iterator[str]:
    """Keys with numbers that are wrong in themselves."""
    for key in keys:
        if key.report.worst in (Verdict.follows, Verdict.wrong):
            yield N_("The key {key} has wrong numbers; the computed ones are used. {first}").format(
                key=key.title, first=ReportText(key.report, phrases("en")).first_wrong()
            )
