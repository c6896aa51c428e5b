"""docs/json.md: its shapes are those of what the commands print; and tables in their other forms say the same."""

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from symbols import symbolic_lengths

from tests.app.conftest import SETTINGS

DOCUMENT = Path(__file__).parents[2] / "docs" / "json.md"
COURSE = DOCUMENT.parent / "gallery"
SHAPES: dict[str, Any] = {
    command: json.loads(shape)
    for command, shape in re.findall(r"^## vitral ([\w ]+)\n+```json\n(.*?)```", DOCUMENT.read_text(), re.M | re.S)
}
RESULTS = json.loads(
    re.findall(r"^## The results of a study\n.*?```json\n(.*?)```", DOCUMENT.read_text(), re.M | re.S)[0]
)
WORDS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "whole": (int,),
    "number": (int, float),
    "truth": (bool,),
    "any": (object,),
}


def difference(shape: Any, value: Any, where: str = "") -> str:
    """Where a value does not have a shape; empty if it has."""
    if isinstance(shape, str):
        if shape.endswith("?") and value is None:
            return ""
        kinds = WORDS[shape.rstrip("?")]
        fits = isinstance(value, kinds) and (bool in kinds or object in kinds or not isinstance(value, bool))
        return "" if fits else f"{where}: {value!r} is no {shape}"
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where}: {value!r} is no list"
        return next(filter(None, (difference(shape[0], one, f"{where}[{i}]") for i, one in enumerate(value))), "")
    if not isinstance(value, dict):
        return f"{where}: {value!r} is no table"
    if "*" in shape:
        return next(filter(None, (difference(shape["*"], one, f"{where}.{key}") for key, one in value.items())), "")
    if "…" in shape:
        shape = {key: one for key, one in shape.items() if key != "…"}
        value = {key: one for key, one in value.items() if key in shape}
    if shape.keys() != value.keys():
        return f"{where}: keys {sorted(shape.keys() ^ value.keys())}"
    return next(filter(None, (difference(one, value[key], f"{where}.{key}") for key, one in shape.items())), "")


STUDY = """
name = "two"
title = "Two"
question = "Which?"
[[arms]]
name = "a"
title = "A"
[[arms]]
name = "b"
title = "B"
changes.model.norm_type = "rmsnorm"
"""
FORECAST = ["fast", "--gpus", "2", "--vocabulary", "11", *SETTINGS, "--set", "training.accumulation=2"]


def command_line(command: str, trained: Path) -> list[str]:
    run = str(trained)
    told = {
        "check": ["life-is-awesome"],
        "compare": [run, "copy", "--max-tokens", "3"],
        "corpus": ["sample"],
        "count": ["fast"],
        "evaluate": [run],
        "explain": [run, "--text", "To"],
        "bundle": [run, "--no-ablations"],
        "forecast": FORECAST,
        "generate": [run, "--max-tokens", "3"],
        "grade": [str(COURSE / "class"), "--key", str(COURSE / "class-key.toml")],
        "inspect": [run, "--text", "a light"],
        "list": [],
        "doctor": [run],
        "why": [run],
        "list runs": [run],
    }
    if command == "compare":
        shutil.copytree(trained, "copy")
    return [*command.split(), *told[command]]


@pytest.mark.parametrize("command", [command for command in SHAPES if not command.startswith(("study", "fill"))])
def test_a_document_has_its_shape(command: str, trained: Path, vitral) -> None:
    with symbolic_lengths():
        told = vitral(*command_line(command, trained), "--format", "json")
    assert (told.code, told.err) == (0, "")
    assert difference(SHAPES[command], json.loads(told.out)) == ""


@pytest.mark.parametrize("command", ["count", "corpus", "evaluate", "compare"])
def test_a_table_is_the_same_in_every_form(command: str, trained: Path, vitral) -> None:
    line = [*command_line(command, trained), *(["--no-copying"] if command == "evaluate" else [])]
    told = {form: vitral(*line, "--format", form) for form in ("csv", "markdown", "latex")}
    rows = list(csv.reader(io.StringIO(told["csv"].out)))
    assert len({len(row) for row in rows}) == 1
    assert told["markdown"].out.count("\n") == len(rows) + 1
    assert told["latex"].out.count(r" \\") == len(rows)


def test_a_study_is_trained_printed_and_written(vitral) -> None:
    Path("two.toml").write_text(STUDY)
    line = ["two.toml", "--corpus", "sample", "--seeds", "1,2", *SETTINGS, "--threads", "1", "--out", "shared"]
    found = json.loads(vitral("study", *line, "--format", "json").out)
    assert difference(SHAPES["study"], found) == ""
    report = Path(found["html"]).parent
    results = json.loads((report / "results.json").read_text())
    assert difference(RESULTS, results) == ""
    assert [{key: one[key] for key in one if key != "of"} for one in results["claims"]] == found["comparisons"]
    assert (report / "comparisons.csv").read_text() == vitral("study", *line, "--format", "csv").out
    assert {path.suffix for path in (report / "figures").iterdir()} == {".svg", ".png", ".pdf"}
