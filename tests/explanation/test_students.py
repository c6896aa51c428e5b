"""The checker on sheets as students write them, and that those sheets are what they claim to be."""

import ast
import os
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from students import HABITS, KINDS, LISTED, PROBLEMS, SLIPS, Sheet, student_sheet

from benchmarks.sheets import Row, measured
from vitral.explanation import Example, parse_example

FULL = os.environ.get("VITRAL_FULL") == "1"
SHEETS = 2000 if FULL else 16
SEED = int(os.environ.get("VITRAL_SEED", "1"))
HONEST = [student_sheet(seed) for seed in range(120)]


# What the sheets are.


def test_a_seed_is_a_sheet() -> None:
    assert [student_sheet(seed) for seed in range(20)] == HONEST[:20]
    assert len({sheet.text for sheet in HONEST}) == len(HONEST)


def test_there_are_many_kinds() -> None:
    assert {sheet.kind for sheet in HONEST} == set(KINDS)
    assert {sheet.digits for sheet in HONEST} == {1, 2, 3, 4}
    assert {sheet.extent for sheet in HONEST} == {"all", "some", "output"}
    assert {tomllib.loads(sheet.text).get("heads", 1) for sheet in HONEST} == {1, 2, 3, 4}
    assert any('"?"' in sheet.text for sheet in HONEST)
    assert Counter(sheet.habit.name for sheet in HONEST).keys() == LISTED.keys()


def test_nothing_is_shared_with_the_checker() -> None:
    for path in (Path(__file__).parents[1] / "helpers" / "students").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            assert not any(name.startswith(("vitral", "torch")) for name in (*names, module)), path


def read(sheet: Sheet) -> Example:
    return parse_example(sheet.text)


def units_off(example: Example) -> float:
    """How far the worst number is from the true one, in units of its own typed digits."""
    worst = 0.0
    for claim in example.claims:
        true = example.sheet.values[claim.name]
        for place in (~claim.values.isnan() & true.isfinite()).nonzero().tolist():
            text = (example.typed(claim, tuple(place)) or "0").replace(",", ".")
            places = max(len(text.partition(".")[2]), 1)
            worst = max(worst, abs(float(claim.values[tuple(place)] - true[tuple(place)])) * 10**places)
    return worst


def test_full_precision_is_the_computation_of_the_package() -> None:
    for seed in range(40):
        sheet = student_sheet(seed, habit="full")
        assert units_off(read(sheet)) <= 0.51, sheet.text


def test_every_habit_and_every_slip_can_be_drawn() -> None:
    assert all(student_sheet(1, habit=habit).habit.name == habit for habit in HABITS)
    assert all(student_sheet(1, slip=slip, kinds=tuple(PROBLEMS)).slip == slip for slip in SLIPS)


# What the checker makes of them.


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return measured(SHEETS, SEED)


@pytest.mark.merge
def test_the_checker_is_as_good_as_it_has_to_be(rows: list[Row]) -> None:
    """Every limit holds, in a small sample but for its error."""
    for row in rows:
        print(row, *row.seeds, sep="\n    ")
    missed = [row for row in rows if not row.holds(slack=0 if FULL else 3)]
    assert not missed, "\n".join(str(row) for row in missed)
