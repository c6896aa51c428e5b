"""Tables of plain data: the values in data, the shown cells for people, whatever is in them."""

import csv
import io
import json
import math
from typing import get_args

import pytest

from vitral.core.language import in_language
from vitral.report.html import page
from vitral.report.markdown import markdown, plain_text
from vitral.report.tables import ENDINGS, Column, Table, decimals, whole

NASTY = 'a_b & 50% "x", <i> | {y} \\ \n\u202e'
TABLE = Table(
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
    assert len(plain_text("", [Table("", TABLE.columns, TABLE.rows)]).splitlines()) == 4


def test_forms_are_those_of_the_command_line() -> None:
    from vitral.app.arguments import TableFormat

    assert {*ENDINGS, "text"} == set(get_args(TableFormat))


def test_a_sortable_table_has_keys_and_a_script_named_by_its_hash() -> None:
    columns = (Column("name", "name", is_name=True), Column("shown", "loss", is_name=True, sort="loss"))
    rows = [{"name": "a", "shown": "one", "loss": 1.0}, {"name": NASTY}]
    made = page("t", [Table("c", columns, rows, is_sortable=True)])
    assert made.count("<button") == 2
    assert 'data-key="1.0"' in made
    assert 'data-key=""' in made
    assert "script-src 'sha256-" in made
    assert "<i>" not in made
    plain = Table("c", ("name", "loss"), (("a", "one"), (NASTY, "–")))
    assert "script-src" not in page("t", [plain])
    assert markdown("t", [Table("c", columns, rows, is_sortable=True)]) == markdown("t", [plain])


@pytest.mark.parametrize("first", ["[2pt] x", "*", "  [a]"])
def test_latex_reads_no_argument_at_the_beginning_of_a_row(first: str) -> None:
    table = Table("", (Column("name", first, is_name=True), Column("other", "[b]", is_name=True)), [{"name": first}])
    rows = [line for line in table.write("latex").splitlines() if "&" in line]
    assert len(rows) == 2
    for row in rows:
        assert row.lstrip().startswith(("{[}", "{*}"))
