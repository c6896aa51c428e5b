"""Worked examples of books, courses and sites, judged by NumPy, which shares nothing with the checker."""

import re
import tomllib
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from vitral.explanation import Verdict, check
from vitral.explanation.examples.by_name import find_example

FILES = sorted((Path(__file__).parent / "published").glob("*.toml"))
STEPS = ("q", "k", "v", "scores", "scaled", "weights", "output")
Steps = dict[str, NDArray[np.float64]]


def computed(given: Steps, scale: bool) -> Steps:
    """All steps of attention [head, time, d] or [head, time, source]; those that are given stay as they are."""
    steps = dict(given)
    for name in "qkv":
        if name not in steps:
            steps[name] = steps["x"] @ steps[f"w_{name}"]
    if "scores" not in steps:
        steps["scores"] = steps["q"] @ steps["k"].swapaxes(-1, -2)
    if "scaled" not in steps:
        steps["scaled"] = steps["scores"] / (np.sqrt(steps["k"].shape[-1]) if scale else 1)
    if "weights" not in steps:
        exp = np.exp(steps["scaled"])
        steps["weights"] = exp / exp.sum(-1, keepdims=True)
    steps.setdefault("output", steps["weights"] @ steps["v"])
    return steps


def first_off(path: Path) -> str | None:
    """The first step with a number that no honest hand arrives at.

    Honest are the exact values, those of the printed steps before, exponentials of two digits, and a last weight that
    completes its row.
    """
    file = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    scaled = file["scale"] == "sqrt"
    given = {name: np.atleast_3d(np.array(value, float).T).T for name, value in file["given"].items() if name != "w_o"}
    exact = computed(given, scaled)
    printed = dict(given)
    claims = {key.replace("z[", "output["): value for key, value in file["claimed"].items()}
    for step in STEPS:
        for key, value in claims.items():
            if key.partition("[")[0] != step:
                continue
            part = tuple(int(index) - 1 for index in re.findall(r"\d+", key)) or ...
            part = part if file.get("heads", 1) > 1 or part is ... else (0, *part)
            cells = [Decimal(str(cell).rstrip("%")).scaleb(-2 if "%" in str(cell) else 0) for cell in np.ravel(value)]
            sources = [np.ravel(steps[step][part]) for steps in (exact, computed(printed, scaled))]
            if step == "weights":
                exp = np.round(np.exp(computed(printed, scaled)["scaled"]), 2)
                rest = exact["weights"].copy()
                if part is ...:
                    rest[..., -1] = 1 - np.array(cells, float).reshape(rest.shape)[..., :-1].sum(-1)
                sources += [np.ravel((exp / exp.sum(-1, keepdims=True))[part]), np.ravel(rest[part])]
            for index, cell in enumerate(cells):
                half = 0.5 * 10.0 ** int(cell.as_tuple().exponent) + 1e-9
                if all(abs(float(cell) - source[index]) > half for source in sources):
                    return step
            if part is ...:
                printed[step] = np.array(cells, float).reshape(exact[step].shape)
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_published_example_is_judged_as_numpy_judges_it(path: Path) -> None:
    report = check(find_example(path))
    off = first_off(path)
    if off is None:
        assert report.worst in (Verdict.right, Verdict.rounding)
    else:
        assert report.worst not in (Verdict.right, Verdict.rounding)
    if off is not None and report.first_wrong is not None:  # else the numbers are doubtful, and no step is accused
        assert off.startswith(report.first_wrong.name)
