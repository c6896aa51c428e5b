"""Tables of plain data: the values in data, the shown cells for people, whatever is in them."""

import csv
import io
import json
import math
from typing import get_args

import pytest

from vitral.core.language import in_language
from vitral.report.html import page
from vitral.report.markdown import markdown
from vitral.report.plain import plain_text
from vitral.report.sections import SortableTable, Table
from vitral.report.sparkline import Spark
from vitral.report.tables import FORMS, Column, DataTable, decimals, whole

NASTY = 'a_b & 50% "x", <i> | {y} \\ \n\u202e'
TABLE = DataTable(
    "caption",
    (
        Column("name", "run", is_name=True),
        Column("count", "count", whole, is_name=True),
        Column("loss", "loss", decimals(2), is_name=True),
        Column("why", "why", is_prose=True, is_name=True),
    ),
    [
        {"name": "one", "count": 1234, "loss": 1.23456789012345, "why": "", "other": 1},
        {"name": NASTY, "count": None, "loss": -0.5, "why": "x"},
        {"name": "three", "count": 0, "loss": math.nan},
    ],
)


def test_data_have_the_values_in_full_whatever_the_language() -> None:
    written = {form: TABLE.write(form) for form in ("json", "csv")}
    with in_language("pt"):
        assert {form: TABLE.write(form) for form in ("json", "csv")} == written
    rows = list(csv.reader(io.StringIO(written["csv"])))
    assert rows == [
        ["name", "count", "loss", "why"],
        ["one", "1234", "1.23456789012345", ""],
        [NASTY, "", "-0.5", "x"],
        ["three", "0", "", ""],
    ]
    assert json.loads(written["json"])[0] == {"name": "one", "count": 1234, "loss": 1.23456789012345, "why": ""}
    assert json.loads(written["json"])[2]["loss"] is None


def test_people_read_numbers_as_their_language_writes_them() -> None:
    assert TABLE.cells[0][:3] == ("one", "1,234", "1.23")
    assert TABLE.cells[2][1:] == ("0", "–", "–")
    with in_language("pt"):
        assert TABLE.cells[0][:3] == ("one", "1.234", "1,23")
        assert TABLE.cells[1][2] == "\N{MINUS SIGN}0,50"


def test_latex_has_booktabs_and_escapes() -> None:
    written = TABLE.write("latex")
    assert r"\begin{tabular}{lrrl}" in written
    assert [written.count(rf"\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
    assert r"a\_b \& 50\%" in written
    assert r"\{y\}" in written
    assert all(line.endswith(r"\\") for line in written.splitlines() if "&" in line.replace(r"\&", ""))
    assert len([line for line in written.splitlines() if line.endswith(r"\\")]) == 4


def test_markdown_and_text_have_a_line_for_each_row() -> None:
    lines = TABLE.write("markdown").splitlines()
    assert len(lines) == 5
    assert {len([c for c in line.replace(r"\|", "") if c == "|"]) for line in lines} == {5}
    assert len(plain_text("", [DataTable("", TABLE.columns, TABLE.rows).section()]).splitlines()) == 4


def test_forms_are_those_of_the_command_line() -> None:
    from vitral.app.options import TableFormat

    assert {*FORMS, "text"} == set(get_args(TableFormat))


def spark(*points: tuple[float, float]) -> Spark:
    """A curve in a frame from (0, 0) to (10, 4)."""
    return Spark(points, (0.0, 10.0, 0.0, 4.0), (1.0, 9.0))


def test_a_sortable_table_has_keys_drawings_and_a_script_named_by_its_hash() -> None:
    table = Table("c", ("name", "loss"), (("a", "1.0"), (NASTY, "–")))
    drawings = (spark((0, 4), (10, 0)).svg, "")
    made = page("t", [SortableTable(table, (("a", 1.0), (NASTY, None)), drawings, "curve", ("falls", ""))])
    assert made.count("<button") == 2
    assert 'data-key="1.0"' in made
    assert 'data-key=""' in made
    assert made.count("<svg") == 1
    assert "script-src 'sha256-" in made
    assert "<i>" not in made
    assert "script-src" not in page("t", [table])
    assert markdown("t", [SortableTable(table, (("a", 1.0), ("b", None)))]) == markdown("t", [table])


def test_a_small_curve_stays_in_its_frame() -> None:
    svg = spark((0, 400.0), (10, 0)).svg
    assert svg.count("<path") == 2  # the level 1.0 and the curve; the level 9.0 is outside
    assert "M4.0 4.0L128.0 30.0" in svg
    assert spark().svg == ""


@pytest.mark.parametrize("first", ["[2pt] x", "*", "  [a]"])
def test_latex_reads_no_argument_at_the_beginning_of_a_row(first: str) -> None:
    table = DataTable(
        "", (Column("name", first, is_name=True), Column("other", "[b]", is_name=True)), [{"name": first}]
    )
    rows = [line for line in table.write("latex").splitlines() if "&" in line]
    assert len(rows) == 2
    for row in rows:
        assert row.lstrip().startswith(("{[}", "{*}"))
