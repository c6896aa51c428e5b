"""Tables whose numbers tell how they come about: on a page that lets nothing else run, and in Markdown."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import unescape
from typing import NamedTuple

import pytest
from tags import attributes, tags

from vitral.report.html import page
from vitral.report.markdown import markdown
from vitral.report.sections import (
    CELL_WORDS,
    CellTable,
    Columns,
    Details,
    Formula,
    Paragraph,
    Section,
)

NASTY = "</td><script>alert(1)</script> \x1b[31m `|*"


def working(name: str) -> Formula:
    return Formula(f"<math><mi>{name}</mi></math>", f"{name} = 1 + 1\n  = 2")


def table(chosen: tuple[int, int] = (1, 0), caption: str = "numbers", heat: bool = True) -> CellTable:
    """Two rows of three, the middle column left out."""
    rows = (("a", "0.25", "…", "0.75"), ("b", "1.00", "…", "−∞"))
    workings = ((working("aa"), None, working("ac")), (working("ba"), None, working("bc")))
    shares = ((0.25, 0.0, 0.75), (1.0, 0.0, 0.0)) if heat else ()
    columns = ("", "one", "… 3 more", "five")
    return CellTable(caption, columns, rows, workings, chosen, shares, rows_at=(0, 1), columns_at=(0, None, 4))


class Cells(NamedTuple):
    """The cells of a page with their attributes and texts, and every tag."""

    cells: list[dict[str, str]]
    texts: list[str]
    tags: list[tuple[str, dict[str, str]]]


def read(*sections: Section) -> tuple[str, Cells]:
    written = page("t", sections)
    cells = re.findall(r"<td([^>]*)>(.*?)</td>", written, re.DOTALL)
    texts = [unescape(text) for _, text in cells]
    return written, Cells([attributes(rest) for rest, _ in cells], texts, tags(written))


def test_each_cell_points_to_its_own_arithmetic() -> None:
    for chosen in ((0, 0), (0, 2), (1, 0), (1, 2)):
        written, cells = read(table(chosen))
        [stored] = re.findall(r'<script type="application/json">(.*?)</script>', written, re.DOTALL)
        kept = json.loads(stored)["told"]
        arithmetic = {
            text: kept[f"{cell['data-row']},{cell['data-column']}"]
            for text, cell in zip(cells.texts, cells.cells, strict=True)
            if cell.get("role") == "gridcell"
        }
        assert arithmetic == {
            "0.25": working("aa").mathml,
            "0.75": working("ac").mathml,
            "1.00": working("ba").mathml,
            "−∞": working("bc").mathml,
        }
        first = re.search(r'<div class="told" aria-live="polite"><math><mi>(\w+)</mi>', written)
        assert first is not None
        assert first[1] == "ab"[chosen[0]] + "abc"[chosen[1]]


def test_one_cell_of_each_table_is_reached_by_tab_and_the_others_by_arrows() -> None:
    _, cells = read(table((0, 2)), Columns((table((1, 0)), table((1, 2)))))
    reached = [index for index, cell in enumerate(cells.cells) if cell.get("tabindex") == "0"]
    selected = [index for index, cell in enumerate(cells.cells) if cell.get("aria-selected") == "true"]
    assert reached == selected == [2, 6 + 3, 12 + 5]
    quiet = [cell for cell, text in zip(cells.cells, cells.texts, strict=True) if text == "…"]
    assert quiet == [{"class": "quiet"}] * 6
    assert [attributes["role"] for tag, attributes in cells.tags if tag == "table"] == ["grid"] * 3


def test_cells_are_shaded_by_share_and_infinite_ones_are_muted() -> None:
    _, cells = read(table())
    heat = [cell["style"] for cell in cells.cells if cell.get("role") == "gridcell"]
    assert heat == ["--heat:0.250", "--heat:0.750", "--heat:1.000", "--heat:0.000"]
    assert [text for cell, text in zip(cells.cells, cells.texts, strict=True) if cell.get("class") == "infinite"] == [
        "−∞"
    ]
    assert "--heat:" not in read(table(heat=False))[0]


@pytest.mark.parametrize("section", [table(), Columns((table(),)), Details("s", (Details("t", (table(),)),))])
def test_only_the_pages_own_script_may_run_and_only_where_it_is_needed(section: Section) -> None:
    written, cells = read(section)
    (script,) = re.findall(r"<script>(.*?)</script>", written, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [
        attributes["content"]
        for tag, attributes in cells.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives == {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "script-src": f"'sha256-{allowed}'",
    }
    for _, given in cells.tags:
        assert not [name for name in given if name.startswith("on") or name in ("src", "href")]
    plain, without = read(Paragraph("no cells"), Formula("<math><mi>x</mi></math>", "x"))
    assert "<script" not in plain
    assert "script-src" not in plain
    assert ("math", {}) in without.tags


def test_nothing_in_a_text_is_obeyed() -> None:
    nasty = CellTable(NASTY, ("", NASTY), ((NASTY, NASTY),), ((working("aa"),),), (0, 0))
    written, cells = read(nasty, Formula("<math></math>", NASTY))
    assert written.count("<script>") == 1
    assert cells.texts == [NASTY.replace("\x1b", "␛")]
    assert "<script>" not in markdown("t", [nasty])
    whole = {"columns": (NASTY,), "rows": ((NASTY, NASTY),), "ask": NASTY, "first": 0}
    written, _ = read(replace(nasty, whole=whole, words=dict.fromkeys(CELL_WORDS, NASTY)))
    assert written.count("</script>") == 2  # the table, the script
    assert "\x1b" not in written


def test_markdown_shows_the_table_the_chosen_cell_and_its_arithmetic() -> None:
    written = markdown("t", [table((1, 0)), Formula("<math></math>", "q = x W")])
    assert "| b | \\[1.00\\] | … | −∞ |" in written
    assert written.count("\\[") == 1
    assert "```text\nba = 1 + 1\n  = 2\n```" in written
    assert written.endswith("```text\nq = x W\n```\n")
    both = markdown("t", [Columns((table(caption="left"), table(caption="right")))])
    assert both.index("left") < both.index("ba = ") < both.index("right") < both.rindex("ba = ")


def test_a_gap_is_a_button_only_where_the_whole_table_is_there() -> None:
    words = {name: name for name in CELL_WORDS}
    rows = (("a", "0.25", "0.1", "0.2", "0.3", "0.75"), ("b", "1.00", "0.4", "0.5", "0.6", "−∞"))
    columns = ("one", "two", "three", "four", "five")
    whole = {"columns": columns, "rows": rows, "ask": "look at {row} and {column}", "first": 0}
    written, cells = read(replace(table(), whole=whole, words=words))
    (gap,) = [attributes for tag, attributes in cells.tags if tag == "button"]
    assert gap["aria-label"] == "… 3 more: open"
    assert "disabled" in gap  # the page's script enables it
    (stored,) = re.findall(r'<script type="application/json">(.*?)</script>', written, re.DOTALL)
    kept = json.loads(stored)
    assert [tuple(row) for row in kept["rows"]] == list(rows)
    assert tuple(kept["columns"]) == columns
    assert not [tag for tag, _ in read(table())[1].tags if tag == "button"]
