"""One walkthrough in every form: each form shows its numbers, says what it leaves out, and obeys no text."""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.report.handmade import CASES, nasty, panel, walkthrough
from vitral.explanation.formulas import latex, markdown_latex, mathml, number, text
from vitral.explanation.formulas.notation import Equation, Name, Number, Sum
from vitral.explanation.phrasebook import phrases
from vitral.explanation.steps import Arithmetic, Chapter, Panel
from vitral.explanation.walkthrough import LAST_POSITIONS, MOST_FEATURES, Walkthrough, to_plain, to_text
from vitral.report.sections import CellTable, Details
from vitral.report.walkthrough import to_latex, to_markdown, to_page, to_sections

DIGITS = 3

Grid = list[list[str]]


def stores(page: str) -> list[dict[str, Any]]:
    """What the page keeps for its script: of each table the arithmetic, and the whole table where it can be opened."""
    return [json.loads(each) for each in re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)]


def in_text(walk: Walkthrough) -> list[Grid]:
    grids = []
    for block in to_text(walk, digits=DIGITS).split("\n\n"):
        lines = block.removeprefix("   head 1\n").splitlines()
        if re.match(r" +(c\d|…)", lines[0]):
            headings, *rows = [re.split(r"  +", line.strip()) for line in lines]
            grids.append([["", *headings], *rows])
    return grids


def in_markdown(walk: Walkthrough) -> list[Grid]:
    blocks = [block.splitlines() for block in to_markdown(walk, digits=DIGITS).split("\n\n") if block.startswith("|")]
    return [
        [[cell.strip().replace("\\", "") for cell in line.strip("|").split("|")] for line in [block[0], *block[2:]]]
        for block in blocks
    ]


def in_page(walk: Walkthrough) -> list[Grid]:
    def shown(attributes: str, content: str) -> str:
        plain = unescape(re.sub("<[^>]*>", "", content))
        return f"[{plain}]" if 'aria-selected="true"' in attributes else plain

    tables = re.findall(r"<table.*?</table>", to_page(walk, digits=DIGITS), re.DOTALL)
    return [
        [
            [shown(*cell) for cell in re.findall(r"<t[dh]([^>]*)>(.*?)</t[dh]>", row, re.DOTALL)]
            for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
        ]
        for table in tables
    ]


def in_latex(walk: Walkthrough) -> list[Grid]:
    arrays = re.findall(r"\\begin\{array\}\{[l|r]+\}(.*?)\\end\{array\}", to_latex(walk, digits=DIGITS), re.DOTALL)

    def plain(cell: str) -> str:
        cell = cell.strip().replace(r"\cdots", "…").replace(r"\ldots{}", "…").replace("-", "−")
        return re.sub(r"\\text\{\\scriptsize (.*)\}", r"\1", re.sub(r"\\boxed\{(.*)\}", r"[\1]", cell))

    lines = [
        [line.removesuffix(r"\hline").strip().removesuffix("\\\\") for line in array.strip().splitlines()]
        for array in arrays
    ]
    return [[[plain(cell) for cell in line.split("&")] for line in array] for array in lines]


def left_out(labels: list[str]) -> int:
    return sum(int(label.split()[1]) for label in labels if label.startswith("…"))


def check(grid: Grid, whole: Panel) -> None:
    """Every number shown is the panel's, every row and column is shown or counted, the chosen one alone is marked."""
    (_, *columns), *lines = grid
    labels = [line[0] for line in lines]
    for shown, every in ((columns, whole.column_labels), (labels, whole.row_labels)):
        kept = [label for label in shown if not label.startswith("…")]
        assert kept == [label for label in every if label in kept]
        assert len(kept) + left_out(shown) == len(every)
    marked = []
    for label, *cells in lines:
        assert len(cells) == len(columns)
        for column, cell in zip(columns, cells, strict=True):
            if label.startswith("…") or column.startswith("…"):
                assert cell == "…"
                continue
            position = whole.row_labels.index(label), whole.column_labels.index(column)
            assert cell.strip("[]") == number(whole.matrix[position[0]][position[1]], DIGITS)
            marked += [position] if cell.startswith("[") else []
    assert marked == [whole.cell]


@pytest.mark.parametrize("reader", [in_text, in_markdown, in_page, in_latex])
@pytest.mark.parametrize("case", CASES)
def test_every_number_shown_is_the_walkthroughs_and_every_other_is_counted(
    case: str, reader: Callable[[Walkthrough], list[Grid]]
) -> None:
    other = panel(2, 2, (0, 1), "head 1")
    grids = reader(walkthrough(CASES[case], other))
    assert len(grids) == 4
    for grid, whole in zip(grids, (CASES[case], other) * 2, strict=True):
        check(grid, whole)


def test_a_long_text_shows_its_end_and_what_is_worked_out() -> None:
    (grid, *_) = in_text(walkthrough(CASES["far"]))
    last = [f"{{}}{position}" for position in range(31 - LAST_POSITIONS, 31)]
    assert grid[0] == ["", "… 2 more", "c2", "… 20 more", *(label.format("c") for label in last)]
    assert [line[0] for line in grid[1:]] == ["… 23 more", *(label.format("r") for label in last)]


def test_one_alone_is_shown_since_a_gap_takes_as_much_room() -> None:
    (grid, *_) = in_text(walkthrough(CASES["next to the gap"]))
    assert grid[0][:4] == ["", "… 10 more", "c10", "c11"]
    (grid, *_) = in_text(walkthrough(CASES["features"]))
    assert grid[0] == ["", *(f"c{position}" for position in range(MOST_FEATURES + 1))]


@pytest.mark.parametrize("write", [to_text, to_markdown, to_page, to_latex])
@pytest.mark.parametrize("case", CASES)
def test_cutting_is_said_where_it_happens_and_only_there(case: str, write: Callable[[Walkthrough], str]) -> None:
    written = write(walkthrough(CASES[case]))
    assert ("left out" in written) == bool(re.search(r"… \d|ldots\{\} \d", written))
    assert ("left out" in written) == (case in ("long", "far", "next to the gap", "wide", "both"))


def test_whole_numbers_are_written_whole() -> None:
    whole = Panel(
        "", ((1.0, -2.0), (0.0, -math.inf)), ("a", "b"), ("c", "d"), False, (0, 0), panel(2, 2, (0, 0)).working
    )
    assert "   a  [1]  −2\n   b    0  −∞" in to_text(walkthrough(whole))


def test_the_text_stands_in_columns_and_its_equals_signs_below_one_another() -> None:
    written = to_text(walkthrough(CASES["far"], panel(2, 2, (0, 1))), digits=DIGITS)
    assert not [line for line in written.splitlines() if line != line.rstrip()]
    table = next(block for block in written.split("\n\n") if block.lstrip().startswith("… 2 more"))
    assert len({len(line) for line in table.splitlines()}) == 1
    match = re.search(r"^( +)n\[30,2\] (=) a\[30\]·b\[2\]\n +(=) 1 \+ 30\.021\n +(=) 30\.021$", written, re.MULTILINE)
    assert match
    starts = {match.start(group) - written.rindex("\n", 0, match.start(group)) for group in (2, 3, 4)}
    assert len(starts) == 1


def test_wide_and_hidden_characters_do_not_shift_the_table() -> None:
    narrow = panel(3, 1, (0, 0))
    odd = Panel("", ((1.0,), (2.5,), (3.0,)), ("中", "ab", "\x1bé"), ("0",), False, (0, 0), narrow.working)
    written = to_text(walkthrough(odd))
    assert "   中  [1.0]\n   ab    2.5\n   ␛é    3.0\n" in written
    assert "\x1b" not in written


@pytest.mark.parametrize("digits", [0, 1, 5])
def test_digits_are_those_asked_for(digits: int) -> None:
    third = Panel("", ((1 / 3, -2 / 3),), ("a",), ("c", "d"), False, (0, 1), panel(1, 2, (0, 0)).working)
    walk = walkthrough(third)
    for write in (to_text, to_markdown, to_page):
        assert number(1 / 3, digits) in write(walk, digits=digits)
        assert number(-2 / 3, digits) in write(walk, digits=digits)
        assert not re.search(rf"[ >]{number(1 / 3, digits + 1)}[ <]", write(walk, digits=digits))


def test_the_page_tells_every_shown_cell_of_every_panel() -> None:
    say = phrases("en")
    walk = walkthrough(CASES["both"])
    details = [section for section in to_sections(walk) if isinstance(section, Details)]
    assert len(details) == len(walk.steps)
    (table,) = [section for section in details[0].sections if isinstance(section, CellTable)]
    whole, page = CASES["both"], to_page(walk, digits=DIGITS)
    stored = {each for table in stores(page) for each in table["told"].values()}
    written_cells = 0
    for (label, *_), workings in zip(table.rows, table.workings, strict=True):
        for column, working in zip(table.columns[1:], workings, strict=True):
            if label.startswith("…") or column.startswith("…"):
                assert working is None
                continue
            made = whole.working(whole.row_labels.index(label), whole.column_labels.index(column))
            written = mathml(Equation((made.target, *made.stages, Number(made.value))), DIGITS, say)
            assert working is not None
            assert working.mathml == written
            assert written in stored
            written_cells += 1
    # Row 1, row 0 alone before it, and the last ones; column 36 and the first ones.
    assert written_cells == (2 + LAST_POSITIONS) * (1 + MOST_FEATURES)
    assert page.count("<details open") == len(walk.steps)


def test_plain_data_holds_everything_and_goes_through_json() -> None:
    infinite = Panel(
        "h", ((1 / 3, -math.inf), (math.inf, 2.0)), ("a", "b"), ("c", "d"), True, (0, 0), CASES["small"].working
    )
    walk = walkthrough(CASES["both"], infinite)
    plain = to_plain(walk, digits=DIGITS)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert (plain["title"], plain["intro"], plain["language"]) == ("A title", ["An intro."], "en")
    say = phrases("en")
    for chapter, made in zip(walk.chapters, plain["chapters"], strict=True):
        assert made["title"] == chapter.title
        for each, data in zip(chapter.steps, made["steps"], strict=True):
            assert [data[key] for key in ("name", "title", "shapes", "sentence")] == [
                each.name,
                each.title,
                each.shapes,
                each.sentence,
            ]
            assert (data["formula"], data["latex"]) == (text(each.formula, 3, say), latex(each.formula, 3, say))
            for shown, whole in zip(data["panels"], each.panels, strict=True):
                assert (shown["label"], shown["rows"], shown["columns"], shown["cell"]) == (
                    whole.label,
                    list(whole.row_labels),
                    list(whole.column_labels),
                    list(whole.cell),
                )
                assert [[float(value) for value in row] for row in shown["matrix"]] == [
                    list(row) for row in whole.matrix
                ]
                assert shown["arithmetic"].startswith(f"n[{whole.cell[0]},{whole.cell[1]}] = ")
    assert plain["chapters"][1]["steps"][0]["panels"][1]["matrix"][1][0] == "inf"


def test_every_form_has_the_steps_in_their_order() -> None:
    walk = walkthrough(CASES["small"], CASES["one"])
    for write in (to_text, to_markdown, to_page, to_latex):
        written = write(walk).replace("\\.", ".")
        positions = [written.index(each.title) for each in walk.steps]
        assert positions == sorted(positions)


def test_no_text_is_obeyed() -> None:
    for write in (to_text, to_markdown, to_page, to_latex):
        written = write(nasty())
        assert "\x1b" not in written
        assert "\u202e" not in written
    assert "<b>" not in to_page(nasty())
    assert "<b>" not in re.sub(r"```.*?```", "", to_markdown(nasty()).replace(r"\<", ""), flags=re.DOTALL)
    written = to_latex(nasty())
    assert written.count(r"\end{document}") == 1
    assert "ж" not in written


@pytest.mark.merge
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_pdflatex_sets_it(tmp_path: Path) -> None:
    letters = "".join(chr(point) for point in range(0x20, 0x500)) + "∑√ℝ→⟨⟩—–“”‘’…€🙂中ﬁ\u200b\u0301"
    every = Walkthrough("All", (letters,), (Chapter(letters, walkthrough(CASES["both"]).steps),))
    for name, walk in {"nasty": nasty("pt"), "every": every, "heads": walkthrough(*CASES.values())}.items():
        (tmp_path / f"{name}.tex").write_text(to_latex(walk), encoding="utf-8", newline="\n")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", f"{name}.tex"]
        made = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
        log = made.stdout.decode("utf-8", "replace")
        assert made.returncode == 0, log[-3000:]
        assert "Missing character" not in log
        assert "Overfull \\hbox" not in log or name != "heads"
        assert (tmp_path / f"{name}.pdf").stat().st_size > 1000


@pytest.mark.parametrize("case", CASES)
def test_a_page_holds_the_whole_of_a_table_that_it_cuts(case: str) -> None:
    page, whole = to_page(walkthrough(CASES[case]), digits=DIGITS), CASES[case]
    is_cut = case in ("long", "far", "next to the gap", "wide", "both")
    assert ("<button" in page) == is_cut
    for table in stores(page):
        assert ("rows" in table) == is_cut
        if is_cut:
            assert table["columns"] == list(whole.column_labels)
            assert [row[0] for row in table["rows"]] == list(whole.row_labels)
            assert [row[1:] for row in table["rows"]] == [
                [number(value, DIGITS) for value in row] for row in whole.matrix
            ]
            assert "ask" in table


def test_every_number_is_named_on_the_page_by_its_place_in_the_whole_table() -> None:
    whole = CASES["both"]
    page = to_page(walkthrough(whole), digits=DIGITS)
    cells = re.findall(r'<td[^>]* data-row="(\d+)" data-column="(\d+)"[^>]*>([^<]*)</td>', page)
    assert len(cells) == 2 * (2 + LAST_POSITIONS) * (1 + MOST_FEATURES)
    for row, column, shown in cells:
        assert shown == number(whole.matrix[int(row)][int(column)], DIGITS)


def long_sum(count: int) -> Panel:
    """One cell that is a sum of so many terms."""
    terms = Sum(tuple(Number(float(position)) for position in range(1, count + 1)))
    total = sum(range(1, count + 1))
    return Panel(
        "", ((float(total),),), ("a",), ("b",), False, (0, 0), lambda *_: Arithmetic(Name("s"), (terms,), total)
    )


def test_all_terms_of_a_long_sum_can_be_seen() -> None:
    walk = walkthrough(long_sum(40))
    every = " + ".join(str(position) for position in range(1, 41))
    assert every not in to_text(walk)
    for write in (to_text, to_markdown):
        assert every in write(walk, whole=True)
    (stored, _) = stores(to_page(walk))
    shown = re.sub("<[^>]+>", "", stored["terms"]["0,0"])
    assert every.replace(" ", "") in shown
    assert every.replace(" ", "") not in re.sub("<[^>]+>", "", stored["told"]["0,0"])


@pytest.mark.parametrize("write", [to_text, to_markdown, to_page, to_latex])
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_left_out_where_everything_is_asked_for(case: str, write: Callable[..., str]) -> None:
    written = write(walkthrough(CASES[case]), whole=True)
    assert not re.search(r"… \d|ldots\{\} \d|left out", written)
    whole = CASES[case]
    for position in (0, len(whole.column_labels) // 2, len(whole.column_labels) - 1):
        assert number(whole.matrix[0][position], DIGITS).replace("−", "-") in written.replace("−", "-")


def test_further_worked_cells_are_shown_and_marked_in_every_form() -> None:
    walk = walkthrough(replace(CASES["far"], also=((3, 7),)))
    for write in (to_text, to_markdown, to_latex):
        written = write(walk).replace("\\", "")
        assert written.count("n[3,7]") + written.count("n_{3,7}") == 2
    page = to_page(walk)
    assert page.count('class=" also"') == 2
    assert page.count("beside-told") >= 2
    (step, _) = (each for chapter in to_plain(walk)["chapters"] for each in chapter["steps"])
    assert step["panels"][0]["also"][0]["cell"] == [3, 7]


def test_formulas_in_markdown_are_mathematics_without_a_plain_copy() -> None:
    written = to_markdown(walkthrough(CASES["small"]))
    formulas = re.findall(r"^\$\$\n(.*)\n\$\$$", written, re.MULTILINE)
    assert len(formulas) == 2 * 2
    assert "```" not in written
    for formula in (*formulas, markdown_latex(nasty().steps[0].formula, 3, phrases("en"))):
        # GitHub takes a backslash before a punctuation mark away; a brace or a dollar would end the formula.
        assert not re.search(r"\\[!-/:-@\[^`{-~](?<!\\_)", formula)
        assert formula.count("{") == formula.count("}")
        assert "$" not in formula


def test_a_page_of_many_large_tables_stays_small_and_says_what_it_leaves_out() -> None:
    large = panel(120, 120, (60, 60))
    walk = walkthrough(*(large for _ in range(30)))
    page = to_page(walk)
    assert len(page.encode()) < 2_000_000
    assert "--format json" in page
    assert "--format json" not in to_page(walkthrough(panel(60, 60, (30, 30))))
