"""Write the pages of docs/studies from studies that have been run: python docs/make_studies.py FOLDER ...

Each page is the study's own report, its figures beside it. Only the sentences of the index are written by hand, in
findings.toml; their numbers are those of the results.
"""

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path
from statistics import fmean
from typing import Any

from vitral.studies import study_named, study_names

FOLDER = Path(__file__).parent / "studies"
DATA = {name: name for name in ("results.json", "comparisons.csv", "tuning.csv")} | {"study.csv": "runs.csv"}
"""Data beside each page, by their names in a report."""
INDEX = """# Studies

The effect of each part of a Transformer, measured on Shakespeare's complete works. Each page is the report of
`vitral study NAME`: numbers, figures and claims. One rule judges all claims (`src/vitral/studies/judging.py`). The
models are small and the trainings short; the results hold at this size. Two or more trainings ran at a time on 2
cores, one thread each, so FLOPs are more informative than seconds. To make a page again:
`VITRAL_CORPORA=FOLDER vitral study NAME --budget BUDGET`, then `python docs/make_studies.py studies/NAME-BUDGET`.
The format of a study file is described in [study-files.md](../study-files.md). The folder of each page has its data:
`results.json` ([everything](../json.md#the-results-of-a-study)), `comparisons.csv`, `runs.csv` and,
where arms were tuned, `tuning.csv`.

| study | question | run at | main result |
| --- | --- | --- | --- |
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
    _write_index()


def _write_index() -> None:
    """The list of all pages, and of studies that have not been run."""
    with_page = [name for name in study_names() if (FOLDER / f"{name}.md").is_file()]
    text = INDEX + "".join(map(_row, with_page))
    others = ", ".join(f"`{name}`" for name in study_names() if name not in with_page)
    text += f"\nNot run for a page yet: {others}.\n" if others else ""
    (FOLDER / "README.md").write_text(text, encoding="utf-8", newline="\n")


def _row(name: str) -> str:
    """A study's line in the index."""
    found = json.loads((FOLDER / name / "results.json").read_text(encoding="utf-8"))
    finding = tomllib.loads((FOLDER / "findings.toml").read_text(encoding="utf-8")).get(name, "")
    headline = (finding.format_map(_numbers(found)) if finding else found["headline"]).replace("|", "\\|")
    budget = found["budget"] or ""
    return f"| [{name}]({name}.md) | {study_named(name).question} | {budget} | {headline} |\n"


def _numbers(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By arm: its mean loss, and its contrast."""
    numbers: dict[str, dict[str, Any]] = {}
    for arm in results["arms"]:
        losses = [run["compared_loss"] for run in arm["runs"] if run["compared_loss"] is not None]
        numbers[arm["name"]] = {"loss": fmean(losses)} if losses else {}
    for claim in results["claims"]:
        if claim["of"] == "losses" and claim["arm"] in numbers:
            percent = None if claim["percent"] is None else f"{claim['percent']:+.1f}".replace("-", "\N{MINUS SIGN}")
            numbers[claim["arm"]] |= {"percent": percent, "failed": claim["failed"], "seeds": claim["seeds"]}
    return numbers


if __name__ == "__main__":
    main(sys.argv[1:])
