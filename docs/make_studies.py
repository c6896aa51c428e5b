"""Write the pages of docs/studies from studies that have been run: python docs/make_studies.py FOLDER ...

Each page is the study's own report, its figures beside it. Only the sentences of the index are written by hand, in
findings.toml; their numbers are read from the results, by `fill`. `make sources` then renews the page that cites them.
"""

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from vitral.studies import study_named, study_names

DOCS = Path(__file__).parent
FOLDER = DOCS / "studies"
LOSSES = ".3f"
DATA = {name: name for name in ("results.json", "comparisons.csv", "tuning.csv")} | {"study.csv": "runs.csv"}
"""Data beside each page, by their names in a report."""
INDEX = """# Studies

The effect of each part of a Transformer, measured on Shakespeare's complete works;
[one rule](../study-files.md#how-it-is-judged) judges all claims. The models are small and the trainings short; the
results hold at this size. FLOPs are more informative than seconds. To make a page again:
`VITRAL_CORPORA=FOLDER vitral study NAME --budget BUDGET`, `python docs/make_studies.py studies/NAME-BUDGET`,
`make sources`. The folder of each page has its data: [`results.json`](../json.md#the-results-of-a-study),
`comparisons.csv`, `runs.csv` and, where arms were tuned, `tuning.csv`. Claims of five lecture notes:
[sources.md](../sources.md).

| study | question | run at | main result |
| --- | --- | --- | --- |
"""
BESIDE = """
Beside these: [tricks](tricks.md), by `python -m benchmarks.tricks` and judged by the same rule: which tricks of fast
training lower the loss on two cores, at equal processor time?
"""


def main(folders: list[str]) -> None:
    """Write the pages of these studies, and the index of all pages."""
    FOLDER.mkdir(exist_ok=True)
    for folder in map(Path, folders):
        record = json.loads((folder / "study.json").read_text(encoding="utf-8"))
        name = record["study"]["name"]
        page = (folder / "report" / "study.md").read_text(encoding="utf-8").replace("](figures/", f"]({name}/")
        (FOLDER / f"{name}.md").write_text(page, encoding="utf-8", newline="\n")
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        (FOLDER / name).mkdir()
        for link in sorted(set(re.findall(rf"\]\({name}/([\w.-]+)\)", page))):
            shutil.copy(folder / "report" / "figures" / link, FOLDER / name / link)
        for data, copied in DATA.items():
            if (folder / "report" / data).is_file():
                (FOLDER / name / copied).write_bytes((folder / "report" / data).read_bytes())
    (FOLDER / "README.md").write_text(index(), encoding="utf-8", newline="\n")


def index() -> str:
    """The list of all pages, and of studies that have not been run."""
    with_page = [name for name in study_names() if (FOLDER / f"{name}.md").is_file()]
    findings = tomllib.loads((FOLDER / "findings.toml").read_text(encoding="utf-8"))
    text = INDEX + "".join(_row(name, findings.get(name)) for name in with_page)
    others = ", ".join(f"`{name}`" for name in study_names() if name not in with_page)
    return text + (f"\nNot run for a page yet: {others}.\n" if others else "") + BESIDE


def _row(name: str, finding: Mapping[str, Any] | None) -> str:
    """A study's line in the index."""
    found = results(name)
    headline = (fill(finding["text"], finding["numbers"]) if finding else found["headline"]).replace("|", "\\|")
    return f"| [{name}]({name}.md) | {study_named(name).question} | {found['budget'] or ''} | {headline} |\n"


# ---------------------------------------------------------------- numbers that sentences name


def fill(text: str, numbers: Mapping[str, str], language: str = "en") -> str:
    """The text with the numbers that it names in braces, written as in the language.

    Args:
        text: such as "two heads: {two}%".
        numbers: by name where each is read, see `number`.
        language: "en" or "pt".

    Raises:
        ValueError: a number is not used by the text.
    """
    if unused := {name for name in numbers if f"{{{name}}}" not in text}:
        raise ValueError(f"{sorted(unused)} not in {text!r}")
    return text.format_map({name: _written(number(where), language) for name, where in numbers.items()})


def number(where: str) -> str:
    """What stands at a place, as printed.

    Args:
        where: parts between bars. "STUDY | ARM | KEY" is a number of the arm's losses (see `_of_arm`) in results.json,
            and "PAGE.md | TEXT | ROW | COLUMN" a cell of the first table with that column from a line with the text
            on; the row is named by its first cells, with " / " between them. A further part is a format: "| .2f" for
            the cell's first number, "| .0%" for a share.

    Raises:
        LookupError: nothing stands there.
    """
    page, *parts = (part.strip() for part in where.split("|"))
    if page.endswith(".md"):
        text, row, column, *form = parts
        found: Any = _cell(page, text, row, column)
    else:
        arm, key, *form = parts
        try:
            found = _of_arm(page, arm)[key]
        except KeyError as error:
            raise LookupError(f"{where}: no {error}") from None
        form = form or [LOSSES if key in ("loss", "least", "most") else "+.1f"]
        if isinstance(found, str | int):
            return str(found)
    if form:
        value = float(re.sub(r"[^\d.e-].*", "", str(found).replace(",", "").replace("\N{MINUS SIGN}", "-").lstrip("+")))
        told = format(value, form[0])
        return re.sub(r"^[+-](?=[0.,%]*$)", "", told).replace("-", "\N{MINUS SIGN}")  # a rounded zero has no sign
    return str(found)


@cache
def results(name: str) -> dict[str, Any]:
    """The results of a study that has a page."""
    return json.loads((FOLDER / name / "results.json").read_text(encoding="utf-8"))


@cache
def _of_arm(study: str, name: str) -> dict[str, Any]:
    """The arm's mean, `least` and `most` loss, its checks by quantity, its contrast: `low` and `high` in percent."""
    found = results(study)
    arm = next((arm for arm in found["arms"] if arm["name"] == name), None)
    if arm is None:
        raise LookupError(f"{study} has no arm {name}")
    losses = [run["compared_loss"] for run in arm["runs"] if run["compared_loss"] is not None]
    claims = (claim for claim in found["claims"] if (claim["of"], claim["arm"]) == ("losses", name))
    claim = next(claims, {})
    checks = {check["quantity"]: check["value"] for check in found["checks"] if check["arm"] == name}
    told = {**checks, **claim, "low": claim.get("percent_low"), "high": claim.get("percent_high")}
    known = {key: value for key, value in told.items() if value is not None}
    return {**known, "loss": fmean(losses), "least": min(losses), "most": max(losses)}


@cache
def _lines(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.sub(r"\\([_<>*])", r"\1", text).replace("**", "").splitlines()


def _cell(page: str, text: str, row: str, column: str) -> str:
    lines = _lines(page)
    start = next((place for place, line in enumerate(lines) if text in line), None)
    if start is None:
        raise LookupError(f"{page} has no line with {text!r}")
    for is_table, group in groupby(lines[start:], key=lambda line: line.startswith("|")):
        head, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in group)
        if is_table and column in head:
            wanted = row.split(" / ")
            found = [cells[head.index(column)] for cells in rows if cells[: len(wanted)] == wanted]
            if len(found) == 1:
                return found[0]
            raise LookupError(f"{page}: {len(found)} rows {row!r} in the table below {text!r} with {column!r}")
    raise LookupError(f"{page} has no table with {column!r} below {text!r}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _written(told: str, language: str) -> str:
    """A number of an English page as the language writes it."""
    return told.translate({ord("."): ",", ord(","): "."}).replace(" to ", " a ") if language == "pt" else told


if __name__ == "__main__":
    main(sys.argv[1:])
