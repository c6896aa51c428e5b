"""Write the lessons of docs/course and docs/pt/course from docs/course/lessons: make course.

A lesson is NAME.toml, NAME.en.j2 and NAME.pt.j2. The texts are templates (jinja2) that have no number of a measurement
typed in: they name it, as in `{{ loss|n(3) }}`. NAME.toml says how each is made, as expressions of Python:

    [values]      seconds: a test evaluates them again
    [trainings]   minutes: evaluated by `make course` alone

The functions of `NAMES` can be used, and earlier names of the same lesson. What they returned is kept in NAME.json by
its expression, so the pages are rendered without measuring; `make course` evaluates the values and what is new of the
trainings, and `make course AGAIN=02` those of lesson 2 too.
"""

import json
import math
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jinja2
import torch

import vitral
from docs import make_sources
from docs.make_studies import number
from vitral.core.language import in_language, localised
from vitral.core.text import minus
from vitral.explanation.examples.by_name import find_example

DOCS = Path(__file__).parent
LESSONS = DOCS / "course" / "lessons"
FOLDERS = {"en": DOCS / "course", "pt": DOCS / "pt" / "course"}
OTHER = {
    "en": "**English** · [Português](../pt/course/{name}.md)",
    "pt": "[English](../../course/{name}.md) · **Português**",
}
WHERE = {
    "en": "Run the commands in [a copy of this repository](README.md).",
    "pt": "Rode os comandos em [uma cópia deste repositório](README.md).",
}
"""At the head of a lesson that has a command with a file of the repository."""
DIGITS = 9
"""Significant digits that are kept of a measured number."""


# ---------------------------------------------------------------- what an expression can use


def example(name: str) -> dict[str, Any]:
    """Every quantity of a worked example, by name; with one head its axis is left out."""
    return _quantities(find_example(name))


def exercise(kind: str, **sizes: Any) -> dict[str, Any]:
    """The same of the key of an exercise."""
    return _quantities(vitral.exercise(kind, **sizes))


def _quantities(found: Any) -> dict[str, Any]:
    return {name: value.squeeze(0) if len(value.shape) == 3 else value for name, value in found.sheet.values.items()}


def toml(path: str) -> dict[str, Any]:
    """A TOML file of the repository, such as a filled sheet."""
    return tomllib.loads(read(path))


@cache
def read(path: str) -> str:
    """The text of a file of the repository."""
    return (DOCS.parent / path).read_text(encoding="utf-8")


def lines(path: str, first: str, last: str) -> str:
    """The lines of a file from the first that has one text to the next that has another, without their indentation."""
    text = read(path).splitlines()
    start = next(place for place, line in enumerate(text) if first in line)
    end = next(place for place, line in enumerate(text) if place >= start and last in line)
    return textwrap.dedent("\n".join(text[start : end + 1]))


@cache
def run(name: str) -> "vitral.Run":
    """A run, as zoo:NAME."""
    return vitral.load(name)


@cache
def survey(name: str) -> Any:
    """What `vitral corpus NAME` measures."""
    return vitral.survey(name)


@cache
def shell(command: str) -> str:
    """What a command of a lesson prints."""
    with TemporaryDirectory() as folder:
        return _printed(command, Path(folder))


@cache
def trained(command: str) -> dict[str, Any]:
    """What a training, a command with --out, ends with.

    Its `seconds`, `parameters`, `samples` written on the way, `evaluations`, and the last one: `step`, `test_loss` …
    """
    with TemporaryDirectory() as folder:
        begun = time.perf_counter()
        printed = _printed(command, Path(folder))
        seconds = time.perf_counter() - begun
        made = vitral.load(Path(folder, re.split(" --out ", command)[1].split()[0]))
        losses = made.metrics("evaluation")
    samples = re.findall(r"^--- sample.*?\n(.*?)^---$", printed, re.MULTILINE | re.DOTALL)
    parameters = sum(each.numel() for each in made.model.parameters())
    return {"seconds": seconds, "parameters": parameters, "samples": samples, "evaluations": losses, **losses[-1]}


def _printed(command: str, folder: Path) -> str:
    """What a command prints in a folder that has the repository's docs and texts."""
    program, *arguments = shlex.split(command)
    words = [sys.executable, *(["-m", "vitral"] if program == "vitral" else []), *arguments]
    environment = {**os.environ, "VITRAL_LANG": "en", "COLUMNS": "100"}
    for name in ("docs", "src"):
        Path(folder, name).symlink_to(DOCS.parent / name)
    return subprocess.run(words, cwd=folder, env=environment, stdout=-1, encoding="utf-8", check=True).stdout


NAMES = {
    **{each.__name__: each for each in (example, exercise, toml, read, lines, run, survey, shell, trained)},
    **{"study": number, "vitral": vitral, "torch": torch, "math": math, "re": re, "json": json, "Counter": Counter},
}


# ---------------------------------------------------------------- measured once, rendered in both languages


def names() -> list[str]:
    """The names of all pages."""
    return sorted(path.name.removesuffix(".en.j2") for path in LESSONS.glob("*.en.j2"))


def expressions(name: str) -> dict[str, dict[str, str]]:
    """How a lesson's numbers are made: `values` and `trainings`."""
    file = LESSONS / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def evaluated(name: str, kinds: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a lesson's expressions of these kinds; those of `known` are not evaluated again."""
    made, found = dict[str, Any](), dict[str, Any]()
    for kind in kinds:
        for key, expression in expressions(name).get(kind, {}).items():
            result = known[expression] if expression in known else plain(eval(expression, found | NAMES))
            made[expression] = found[key] = result
    return made


def plain(value: Any) -> Any:
    """A result as JSON has it: tensors as lists, numbers of `DIGITS` digits."""
    if isinstance(value, torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    return value


def kept(name: str) -> dict[str, Any]:
    """What was measured for a lesson, by expression."""
    file = LESSONS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def rendered(name: str) -> dict[Path, str]:
    """A lesson in both languages, by file.

    Raises:
        KeyError: a number has not been measured.
        jinja2.UndefinedError: a template names what its lesson has not.
    """
    known = kept(name)
    numbers = {key: known[each] for kind in expressions(name).values() for key, each in kind.items()}
    pages = {}
    for language, folder in FOLDERS.items():
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined, finalize=_written, keep_trailing_newline=True
        )
        environment.filters |= {"n": digits, "percent": percent, "table": table}
        environment.globals |= {"claims": partial(claims, language), "minutes": partial(minutes, language)}
        template = environment.from_string((LESSONS / f"{name}.{language}.j2").read_text(encoding="utf-8"))
        with in_language(language):
            text = template.render(numbers)
        title, _, rest = text.partition("\n")
        head = OTHER[language].format(name=name)
        if name[0].isdigit() and re.search(r"\bvitral \w+ .*\bdocs/", rest):
            head += f"\n\n{WHERE[language]}"
        pages[folder / f"{name}.md"] = f"{title}\n\n{head}\n{rest}"
    return pages


def _written(value: Any) -> Any:
    """What a template writes: whole numbers with their thousands apart, text that is a number as the language has it.

    Raises:
        TypeError: a number without a filter that says its digits.
    """
    if isinstance(value, float):
        raise TypeError(f"{value}: say how many digits, as in |n(3)")
    if isinstance(value, int):
        return localised(f"{value:,}")
    is_number = isinstance(value, str) and re.fullmatch(r"[-+−]?[\d.,]*\d[\d.,]* ?%?", value) is not None
    return localised(value) if is_number else value


def digits(value: float, places: int = 0) -> str:
    """A number with so many digits after the point, in English form; `_written` gives it that of the language."""
    return minus(f"{float(value):,.{places}f}").replace("inf", "∞")


def percent(value: float, places: int = 0) -> str:
    """A share in percent."""
    return f"{digits(100 * value, places)}%"


def table(rows: Sequence[Sequence[Any]], labels: Sequence[str], columns: Sequence[str], places: int = 0) -> str:
    """A matrix as a table in Markdown, with a label for each row and column."""
    cells = [[localised(digits(each, places)) for each in row] for row in rows]
    head = f"| | {' | '.join(columns)} |\n| --- |{' ---: |' * len(columns)}"
    return "\n".join([head, *(f"| {label} | {' | '.join(row)} |" for label, row in zip(labels, cells, strict=True))])


def minutes(language: str, lesson: int) -> list[int]:
    """The minutes of a lesson's reading, page, sheet, training and questions, as its first paragraph has them."""
    (template,) = LESSONS.glob(f"{lesson:02}-*.{language}.j2")
    found = re.search(r"^\*\*(?:Time|Tempo)\*\*: \d+ \w+ \((.*?)\)", template.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise LookupError(f"{template.name} does not say how long it takes")
    return [int(each) for each in re.findall(r"\d+", found[1])]


def claims(language: str, *beginnings: str) -> str:
    """Rows of docs/sources.md as a table: what lecture notes say, what was measured, the verdict, where.

    Args:
        language: of the rows.
        beginnings: of the claims, in English.

    Raises:
        LookupError: not one claim begins so.
    """
    said = make_sources.sources()
    rows = []
    for beginning in beginnings:
        found = [each for each in make_sources.claims(said) if each["en"]["claim"].startswith(beginning)]
        if len(found) != 1:
            raise LookupError(f"{len(found)} claims of sources.toml begin with {beginning!r}")
        rows.append(make_sources.row(found[0], language, make_sources.verdicts(said, language)))
    return make_sources.table(said["page"][language]["head"], rows).replace("](", "](../")


def main(again: Sequence[str]) -> None:
    """Measure and write all pages; the trainings only of lessons that have new ones, or begin as one of `again`."""
    for name in names():
        trainings = set(expressions(name).get("trainings", {}).values())
        anew = any(name.startswith(each) for each in again)
        known = {each: result for each, result in kept(name).items() if each in trainings and not anew}
        found = evaluated(name, ("values", "trainings"), known)
        if found:
            text = json.dumps(found, ensure_ascii=False, indent=1) + "\n"
            (LESSONS / f"{name}.json").write_text(text, encoding="utf-8", newline="\n")
        for file, page in rendered(name).items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(page, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
