"""Worked examples in every format: the same numbers give the same verdicts; complaints name line or cell."""

import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from vitral.app.terminal import run
from vitral.core.errors import UsageError
from vitral.explanation import KINDS, Verdict, check, load_example
from vitral.explanation.checks.checker import corrected
from vitral.explanation.documents import MOST_BYTES, document_of
from vitral.explanation.documents.formats import SpreadsheetDocument
from vitral.explanation.documents.labels import Label, known_label
from vitral.explanation.examples.by_name import find_example
from vitral.explanation.examples.file import read_example

Matrix = list[list[str]]

GIVEN: dict[str, Matrix] = {
    "Q": [["2", "0", "-1"], ["0", "2", "1"]],
    "K": [["1", "0", "0"], ["0", "1", "2"]],
    "V": [["4", "0"], ["0", "4"]],
}
CLAIMED: dict[str, Matrix] = {
    "scores": [["2", "-2"], ["0", "4"]],
    "weights": [["1", "0"], ["0.02", "0.98"]],
    "output": [["4", "0"], ["0.07", "3.93"]],
}


def toml(given: dict[str, Matrix], claimed: dict[str, Matrix]) -> str:
    def table(values: dict[str, Matrix]) -> str:
        return "".join(
            f"{name.lower()} = {[[float(x) for x in row] for row in rows]}\n" for name, rows in values.items()
        )

    return f'mask = "causal"\nscale = "none"\n[given]\n{table(given)}\n[claimed]\n{table(claimed)}'


def markdown(given: dict[str, Matrix], claimed: dict[str, Matrix]) -> str:
    def table(name: str, rows: Matrix) -> str:
        head = f"| | {' | '.join(f'c{place}' for place in range(len(rows[0])))} |\n|---{'|---' * len(rows[0])}|\n"
        return f"**{name}**\n\n{head}" + "".join(f"| r{i} | {' | '.join(row)} |\n" for i, row in enumerate(rows)) + "\n"

    parts = ["# By hand\n\nmask: causal\nscale: none\n\n## Given\n", *(table(*one) for one in given.items())]
    return "\n".join([*parts, "## Results\n", *(table(*one) for one in claimed.items())])


def printed(given: dict[str, Matrix], claimed: dict[str, Matrix]) -> str:
    def array(name: str, rows: Matrix) -> str:
        return f"{name}:\n[" + "\n ".join(f"[{'  '.join(row)}]" for row in rows) + "]\n"

    parts = ["mask = 'causal'", "scale = 'none'"]
    return "\n".join([*parts, *(array(*one) for one in {**given, **claimed}.items())])


def grid(given: dict[str, Matrix], claimed: dict[str, Matrix]) -> Matrix:
    rows: Matrix = [["mask", "causal"], ["scale", "none"], [], ["given"]]
    (first, left), (second, right), *others = given.items()
    rows.append([first, *[""] * len(left[0]), second])
    rows += [[*one, "", *other] for one, other in zip(left, right, strict=True)]
    for name, values in others:
        rows += [[], [name], *values]
    rows.append(["claimed"])
    for name, values in claimed.items():
        rows += [[name, *values[0]], *(["", *row] for row in values[1:]), []]
    return rows


def csv(given: dict[str, Matrix], claimed: dict[str, Matrix]) -> str:
    return "\n".join(";".join(row).replace(".", ",") for row in grid(given, claimed))


def xlsx(given: dict[str, Matrix], claimed: dict[str, Matrix]) -> bytes:
    book = openpyxl.Workbook()
    sheet: Any = book.active
    for line, row in enumerate(grid(given, claimed), start=1):
        for column, cell in enumerate(row, start=1):
            try:
                sheet.cell(line, column).value = float(cell)
            except ValueError:
                sheet.cell(line, column).value = cell or None
    return saved(book)


def saved(book: openpyxl.Workbook) -> bytes:
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


FORMS = {".md": markdown, ".txt": printed, ".csv": csv, ".xlsx": xlsx}


def read(raw: str | bytes, suffix: str):
    return read_example(document_of(raw.encode() if isinstance(raw, str) else raw, f"notes{suffix}"))


@pytest.mark.parametrize("suffix", FORMS)
def test_every_format_gives_the_verdicts_of_toml(suffix: str) -> None:
    expected = check(read(toml(GIVEN, CLAIMED), ".toml"))
    report = check(read(FORMS[suffix](GIVEN, CLAIMED), suffix))
    assert report.counts() == expected.counts()
    assert [claim.name for claim in report.example.claims] == [claim.name for claim in expected.example.claims]


@pytest.mark.parametrize("suffix", FORMS)
def test_random_sheets_are_read_exactly(suffix: str) -> None:
    draw = random.Random(suffix)
    for _ in range(20):
        time, source, width, value = (draw.randint(1, 5) for _ in range(4))
        number = lambda: draw.choice(["0", "-1", "2", "0.5", "-0.25", "12", "0.30", "1.75"])  # noqa: E731
        made = {
            name: [[number() for _ in range(columns)] for _ in range(rows)]
            for name, rows, columns in (("Q", time, width), ("K", source, width), ("V", source, value))
        }
        if suffix in (".csv", ".xlsx") and time != source:
            continue  # this layout has them side by side
        scores = {"scores": [["?"] * source for _ in range(time)]}
        example = read(FORMS[suffix](made, scores), suffix)
        for name in "QKV":
            assert example.sheet.values[name.lower()][0].tolist() == [[float(x) for x in row] for row in made[name]]


@pytest.mark.parametrize("suffix", FORMS)
def test_a_corrected_file_has_the_same_format_and_is_right(suffix: str, tmp_path: Path) -> None:
    claimed = {**CLAIMED, "weights": [["1", "0"], ["0.50", "0.50"]]}
    report = check(read(FORMS[suffix](GIVEN, claimed), suffix))
    assert report.worst is Verdict.wrong
    fixed = tmp_path / f"fixed{suffix}"
    fixed.write_bytes(corrected(report))
    again = check(load_example(fixed))
    assert again.worst in (Verdict.right, Verdict.rounding)
    assert sum(again.counts().values()) == sum(report.counts().values())


@pytest.mark.parametrize("suffix", FORMS)
def test_a_cell_that_is_no_number_is_named_by_its_place(suffix: str) -> None:
    claimed = {**CLAIMED, "scores": [["2", "-2"], ["0", "4x"]]}
    with pytest.raises(UsageError) as refused:
        read(FORMS[suffix](GIVEN, claimed), suffix)
    assert "4x" in str(refused.value)
    raw = FORMS[suffix](GIVEN, claimed)
    if isinstance(raw, str) and suffix != ".csv":
        line = 1 + raw[: raw.index("4x")].count("\n")
        assert f"line {line}" in str(refused.value)
    assert (suffix == ".xlsx") == ("cell " in str(refused.value))


NOTES = Path(__file__).parent / "notes"


def test_row_1_alone_an_identity_and_shares_in_percent_are_read() -> None:
    report = check(load_example(NOTES / "row-one-only.md"))
    [output] = [quantity for quantity in report.quantities if quantity.claim.name == "out"]
    assert int((~output.claim.values.isnan()).sum()) == 2  # 0.60 and 0.40 are right, 0.59 and 0.41 are claimed
    example = load_example(NOTES / "identity-in-notes.md")
    assert example.sheet.values["w_q"][0].tolist() == [[float(i == j) for j in range(4)] for i in range(4)]
    assert example.document.notes == ()
    percent = load_example(NOTES / "percent.toml")
    assert check(percent).worst is Verdict.right
    text = percent.text.replace("33.9%", "39.9%")
    wrong = check(read(text, ".toml"))
    assert wrong.counts()["wrong"] >= 1
    assert corrected(wrong).decode() == percent.text


@pytest.mark.parametrize("suffix", FORMS)
def test_row_1_alone_is_enough_in_every_format(suffix: str) -> None:
    for claimed in ({"weights[1]": [["1", "0"]]}, {"output, row 1": [["4", "0"]]}):
        report = check(read(FORMS[suffix](GIVEN, claimed), suffix))
        assert report.counts() == {**dict.fromkeys(report.counts(), 0), "right": 2, "unknown": 2}


def test_a_table_of_another_subject_is_noted() -> None:
    notes = markdown(GIVEN, CLAIMED) + "\n## Marks\n\n| who | mark |\n|---|---|\n| A | 3 |\n"
    example = read(notes, ".md")
    assert len(example.document.notes) == 1
    assert check(example).counts() == check(read(markdown(GIVEN, CLAIMED), ".md")).counts()


def test_a_printed_table_that_beam_search_reads_is_judged() -> None:
    page = (Path(__file__).parents[2] / "docs/gallery/beam-beats-greedy.md").read_bytes()
    wrong = page.replace(b"| the | 0.0 | 0.6 |", b"| the | 0.0 | 0.5 |")
    assert check(read_example(document_of(wrong, "beam.md"))).worst is Verdict.wrong


def test_rows_one_by_one_are_a_matrix() -> None:
    text = "mask = causal\nscale = none\nq_1 = (1, 0)\nq_2 = (0, 2)\nk = [[1, 0], [0, 1]]\nscores = [[1, 0], [0, 2]]"
    assert check(read(text, ".txt")).worst is Verdict.right
    with pytest.raises(UsageError):
        read(text.replace("q_2", "q_3"), ".txt")


def cell_of(book: openpyxl.Workbook, value: float) -> Any:
    """The first cell with this number."""
    sheet: Any = book.active
    return next(cell for row in sheet.iter_rows() for cell in row if cell.value == value)


def test_a_formula_needs_its_stored_value() -> None:
    book = openpyxl.load_workbook(io.BytesIO(xlsx(GIVEN, CLAIMED)))
    where = cell_of(book, 0.98)
    where.value = "=1-0.02"
    with pytest.raises(UsageError, match=where.coordinate):
        read(saved(book), ".xlsx")


def test_a_corrected_spreadsheet_has_numbers_where_it_had_formulas() -> None:
    claimed = {**CLAIMED, "weights": [["1", "0"], ["0.50", "0.50"]]}
    document = document_of(xlsx(GIVEN, claimed), "notes.xlsx")
    assert isinstance(document, SpreadsheetDocument)
    book = openpyxl.load_workbook(io.BytesIO(document.raw))
    where = cell_of(book, 3.93)
    where.value = "=4-0.07"
    document.raw = saved(book)
    report = check(read_example(document))
    again = check(read_example(document_of(corrected(report), "notes.xlsx")))
    assert again.worst in (Verdict.right, Verdict.rounding)


def test_the_number_format_says_what_a_spreadsheet_shows() -> None:
    book = openpyxl.load_workbook(io.BytesIO(xlsx(GIVEN, CLAIMED)))
    where = cell_of(book, 0.98)
    where.value, where.number_format = 0.98201379, "0.00"
    example = read(saved(book), ".xlsx")
    [claim] = [claim for claim in example.claims if claim.name == "weights"]
    assert example.typed(claim, (0, 1, 1)) == "0.98"


@pytest.mark.parametrize(
    ("raw", "suffix"),
    [
        (b"", ".md"),
        (b"no numbers here", ".md"),
        (b"PK\x03\x04 not a zip", ".xlsx"),
        (b"\xff\xfe\x00", ".csv"),
        (b"Q\n1;2\n3", ".csv"),
        (b'"open', ".csv"),
        (b"Q = [[1, 2], [3]]\nscores = [[1]]", ".txt"),
        (b"Q = [[1, 2]]\nQ = [[1, 2]]\nscores = [[1]]", ".txt"),
        (b"# Q\n| a | b |\n|---|---|\n", ".md"),
    ],
)
def test_bad_files_are_one_line(raw: bytes, suffix: str) -> None:
    with pytest.raises(UsageError):
        read(raw, suffix)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "[1 " * 100_000,
        "| " * 200_000,
        ("|a|b|\n" * 20_000),
        (" " * 400_000),
        ("key " * 50_000) + ": 1",
        "Q = (" + "1, " * 100_000,
        "# " + "x " * 100_000,
    ],
)
def test_hostile_text_is_read_in_time(text: str) -> None:
    with pytest.raises(UsageError):
        read(text, ".md")


def test_latex_is_refused_by_name_with_the_formats_that_are_read() -> None:
    for raw, suffix in ((b"q & 1 \\\\", ".tex"), (b"\\documentclass{article}\n[given]", "")):
        with pytest.raises(UsageError, match=r"LaTeX.*TOML, Markdown, CSV or \.xlsx"):
            read(raw, suffix)


def test_unzipped_size_is_asked_first() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"0" * 2**25)
    with pytest.raises(UsageError):
        read(buffer.getvalue(), ".xlsx")


def test_kinds_of_exercises_are_those_of_the_completion() -> None:
    from vitral.app.command import EXERCISE_KINDS

    assert tuple(KINDS) == EXERCISE_KINDS


@pytest.mark.parametrize("label", ["Q" + " " * 100_000 + "head", "Q " * 50_000, "q" + "_" * 100_000, "[" * 100_000])
def test_a_long_label_in_a_cell_is_read_in_time(label: str) -> None:
    known_label(label)
    assert known_label(" " * 100_000 + "Q") == Label("q")


def test_brackets_nested_too_deep_are_refused() -> None:
    for depth in (300, 420, 900):
        text = f'mask = "causal"\n[given]\nq = {"[" * depth}1{"]" * depth}\n'
        with pytest.raises(UsageError):
            read_example(document_of(text.encode(), "deep.toml"))


def test_more_standard_input_than_a_file_may_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = (toml(GIVEN, CLAIMED) + "#" * MOST_BYTES).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    with pytest.raises(UsageError):
        find_example("-")


def test_the_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[given]\nq = [[")))
    assert run(["check", "-", "--format", "json"]) == 2
    [entry] = json.loads(capsys.readouterr().out)
    assert "line 2" in entry["error"]


def test_a_step_that_mentions_a_longer_word_leaves_the_setting() -> None:
    text = (
        '[given]\nq = [[1, 0]]\nk = [[1, 2]]\nmask = "bidirectional"\nscale = "none"\n[steps]\nother = "scaled + 1"\n'
    )
    example = read_example(document_of(text.encode(), "own.toml"))
    assert "scale" not in example.sheet.values


def test_a_merged_range_of_the_whole_sheet_is_refused() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet["A1"] = "Q"
    sheet.merge_cells("A1:B2")
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(book))) as before, zipfile.ZipFile(changed, "w") as after:
        for entry in before.infolist():
            after.writestr(entry.filename, before.read(entry).replace(b"A1:B2", b"A1:XFD1048576"))
    with pytest.raises(UsageError):
        document_of(changed.getvalue(), "huge.xlsx")
