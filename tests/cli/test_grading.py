"""vitral exercise KIND and vitral grade, as a lecturer uses them."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pytest

COURSE = Path(__file__).parents[2] / "docs" / "gallery"
KEY = str(COURSE / "class-key.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A class with other things in its folder."""
    made = shutil.copytree(COURSE / "class", tmp_path / "class")
    (made / "broken.toml").write_text("title = [")
    (made / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (made / "deep.toml").write_text("a = " + "[" * 4000)
    (made / "huge.toml").write_bytes(b"#" * (2**20 + 1))
    (made / ".hidden.toml").write_text("no")
    (made / "Ana").mkdir()
    (made / "Ana" / "sheet.toml").write_text((COURSE / "class" / "sheet-01.toml").read_text())
    (made / "loop").symlink_to(made)
    return made


def test_a_broken_file_does_not_stop_the_others(vitral, folder: Path) -> None:
    told = vitral("grade", "class", "--key", KEY, "--format", "json")
    assert told.code == 2
    assert len(told.err.splitlines()) == 5
    found = json.loads(told.out)
    assert (found["graded"], found["unreadable"]) == (13, 5)
    points = {sheet["sheet"]: sheet.get("points") for sheet in found["sheets"]}
    assert points["Ana/sheet.toml"] == points["sheet-01.toml"] == 8
    assert {sheet["sheet"] for sheet in found["sheets"] if "error" in sheet} == {
        "broken.toml",
        "photo.png",
        "deep.toml",
        "huge.toml",
        "loop",
    }
    assert vitral("grade", str(COURSE / "class"), "--key", KEY).code == 0
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.toml")
        assert json.loads(vitral("grade", "class", "--key", KEY, "--format", "json").out)["unreadable"] == 6


def test_data_is_english_in_every_language(vitral, folder: Path) -> None:
    for form in ("json", "csv"):
        one, other = (vitral("grade", "class", "--key", KEY, "--format", form, "--lang", code) for code in ("en", "pt"))
        assert one.out == other.out
        assert one.err != other.err
    rows = list(csv.DictReader(io.StringIO(one.out)))
    assert len(rows) == 18
    assert {row["points_q"] for row in rows if row["sheet"] == "sheet-01.toml"} == {"1.0"}


def test_pages_are_written_once_and_in_the_language(vitral, folder: Path, tmp_path: Path) -> None:
    line = ("grade", "class", "--key", KEY, "--out", "page.html", "--marked", "marked", "--lang", "pt")
    assert vitral(*line).code == 2
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<html lang="pt-BR"' in page
    assert "<script src" not in page
    marked = sorted(path.name for path in (tmp_path / "marked").iterdir())
    assert len(marked) == 13
    assert "Ana--sheet.toml.html" in marked
    again = vitral(*line)
    assert (again.code, again.out) == (2, "")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert vitral("grade", "class", "--key", KEY, "--marked", "marked").code == 2
    for form in ("html", "markdown"):
        assert "sheet-05" in vitral("grade", "class", "--key", KEY, "--format", form).out


def test_pseudonyms_stand_in_everything_that_is_written(vitral, folder: Path, tmp_path: Path) -> None:
    line = ("grade", "class", "--key", KEY, "--pseudonyms", "who.csv", "--format")
    first = vitral(*line, "csv")
    mapping = (tmp_path / "who.csv").read_bytes()
    assert first.out == vitral(*line, "csv").out
    assert (tmp_path / "who.csv").read_bytes() == mapping
    (folder / "late.toml").write_text((COURSE / "class" / "sheet-01.toml").read_text())
    vitral(*line, "csv", "--out", "page.html", "--marked", "marked")
    assert (tmp_path / "who.csv").read_bytes().startswith(mapping)
    written = [tmp_path / "page.html", *(tmp_path / "marked").iterdir()]
    texts = [first.out, first.err, *(path.name for path in written), *(path.read_text("utf-8") for path in written)]
    for name in ("sheet-", "Ana", "broken", "photo"):
        assert not [text for text in texts if name in text], name
    (tmp_path / "who.csv").write_text("precious")
    assert vitral(*line, "csv").code == 2
    assert (tmp_path / "who.csv").read_text() == "precious"


def test_points_are_set_by_options_and_by_a_file(vitral, tmp_path: Path) -> None:
    (tmp_path / "rule.toml").write_text('per = "step"\nfollows = 0\ntotal = 10\n[points]\nweights = 2\n')
    line = ("grade", str(COURSE / "class"), "--key", KEY, "--format", "json")
    strict = json.loads(vitral(*line, "--rule", "rule.toml").out)
    usual = json.loads(vitral(*line, "--points", "weights=2", "--total", "10").out)
    assert {sheet["most"] for found in (strict, usual) for sheet in found["sheets"]} == {10}
    assert strict["mean"] < usual["mean"]
    for wrong in (
        ("--points", "weights"),
        ("--points", "wights=2"),
        ("--rule", "nowhere.toml"),
        ("--rule", KEY),
        ("--total", "-1"),
    ):
        told = vitral(*line, *wrong)
        assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), wrong


def test_a_lecturer_makes_exercises_for_a_class_and_grades_them(vitral, tmp_path: Path) -> None:
    made = vitral("exercise", "attention", "--count", "3", "--out", "week", "--lang", "pt")
    assert made.code == 0
    sheets = {path.name for path in (tmp_path / "week").iterdir()}
    assert {"attention-1.toml", "attention-3.tex", "attention-2.html", "gabaritos"} <= sheets
    keys = tmp_path / "week" / "gabaritos"
    assert "attention-2-gabarito.html" in {path.name for path in keys.iterdir()}
    assert vitral("exercise", "attention", "--seed", "2,9", "--out", "week", "--lang", "pt").code == 2
    assert not (tmp_path / "week" / "attention-9.toml").exists()
    answers = tmp_path / "answers"
    answers.mkdir()
    for number in (1, 2, 3):
        shutil.copy(keys / f"attention-{number}-gabarito.toml", answers / f"ana {number}.toml")
    shutil.copy(tmp_path / "week" / "attention-1.toml", answers / "blank.toml")
    if (tmp_path / "week" / "attention-1.xlsx").exists():
        shutil.copy(keys / "attention-3-gabarito.xlsx", answers / "eva.xlsx")
    told = json.loads(vitral("grade", "answers", "--key", "week/gabaritos", "--format", "json").out)
    points = {sheet["sheet"]: sheet["points"] / sheet["most"] for sheet in told["sheets"]}
    assert points.pop("blank.toml") == 0
    assert set(points.values()) == {1}
    assert len({sheet["exercise"] for sheet in told["sheets"]}) == 3


def test_one_form_is_written_with_its_key_beside_it(vitral, tmp_path: Path) -> None:
    assert vitral("exercise", "loss", "--seed", "4", "--out", "mine.html").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"mine.html", "mine-key.html"}
    assert vitral("exercise", "choice", "--out", "all", "--practice").code == 0
    assert [path.name for path in (tmp_path / "all" / "practice").iterdir()] == ["choice-1.html"]
    assert vitral("exercise", "loss", "mine.toml", "--seed", "4").code == 0
    assert '"?"' in (tmp_path / "mine.toml").read_text(encoding="utf-8")
    for wrong in (
        ("atention",),
        ("a", "b.toml"),
        ("choice", "--positions", "2"),
        ("loss", "--seed", "x"),
        ("loss", "--seed", "1,2", "--out", "x.html"),
        ("loss", "--seed", "1,2"),
        ("loss", "--count", "0", "--out", "x"),
        ("loss", "--practice"),
        ("loss", "--practice", "--out", "x.html"),
        ("loss", "--seed", "1,2", "--count", "2", "--out", "x"),
    ):
        told = vitral("exercise", *wrong)
        assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), wrong


def _grade(vitral, *line: str):
    told = vitral("grade", "class", "--key", KEY, "--format", "json", *line)
    return told, {sheet["sheet"]: sheet for sheet in json.loads(told.out)["sheets"]}


def test_names_of_files_never_stop_the_class_and_never_leak(vitral, tmp_path: Path) -> None:
    sheet = (COURSE / "class" / "sheet-01.toml").read_bytes()
    made = tmp_path / "class"
    (made / "a").mkdir(parents=True)
    long = "n" * 235
    for name in ("a/b.toml", "a--b.toml", f"{long}.toml", "=cmd.toml", "'@x.toml"):
        (made / name).write_bytes(sheet)
    bad = os.fsencode(made) + b"/caf\xe9.toml"
    try:
        Path(os.fsdecode(bad)).write_bytes(sheet)
    except OSError:
        pytest.skip("names are UTF-8 here")
    secret = "Maria\u202fda Silva"
    (made / f"{secret}.toml").write_text("[given")
    (made / f"{secret} 2.md").write_bytes(b"\xff")
    (made / f"{secret} 3.xlsx").write_bytes(b"no")
    told, sheets = _grade(vitral, "--pseudonyms", "class/who.csv", "--marked", "class/marked", "--out", "class/p.html")
    assert len(sheets) == 9
    assert "Maria" not in told.out + told.err
    assert "Silva" not in told.out + told.err
    _again, same = _grade(vitral, "--pseudonyms", "class/who.csv", "--marked", "class/other")
    assert {name for name in same if name in sheets} == set(sheets)
    plain, _sheets = _grade(vitral, "--marked", "marked")
    assert (
        len(list((tmp_path / "marked").iterdir()))
        == len(json.loads(plain.out)["sheets"]) - json.loads(plain.out)["unreadable"]
    )
    rows = list(csv.reader(io.StringIO(vitral("grade", "class", "--key", KEY, "--format", "csv").out)))
    assert {row[0][0] for row in rows} & {"=", "@"} == set()
    assert "'=cmd.toml" in {row[0] for row in rows}


def test_one_exercise_and_its_key_are_one_key(vitral, tmp_path: Path) -> None:
    assert vitral("exercise", "attention", "--count", "2", "--out", "week").code == 0
    week, answers = tmp_path / "week", tmp_path / "answers"
    answers.mkdir()
    shutil.copy(week / "keys" / "attention-1-key.toml", answers / "ana.toml")
    told = json.loads(vitral("grade", "answers", "--key", "week", "--format", "json").out)
    assert (told["graded"], len(told["keys"])) == (1, 2)
    assert told["sheets"][0]["points"] == told["sheets"][0]["most"]
    assert vitral("grade", "answers", "--key", "week/attention-1.toml", "--key", "week/attention-1.toml").code == 0


def test_what_fails_on_one_sheet_does_not_stop_the_others(vitral, folder: Path, monkeypatch) -> None:
    from vitral.lab import grading

    (folder / "nested.toml").write_text("[given]\n[claimed]\n" + "q = " + "[" * 150 + "]" * 150 + "\n")
    real = grading.grade_document

    def failing(document, key, rule):
        if document.name == "sheet-02.toml":
            raise ZeroDivisionError
        return real(document, key, rule)

    monkeypatch.setattr(grading, "grade_document", failing)
    _told, sheets = _grade(vitral)
    assert "ZeroDivisionError" in sheets["sheet-02.toml"]["error"]
    assert "points" in sheets["sheet-03.toml"]
    assert "nested.toml" in sheets


def test_marked_sheets_replace_no_link(vitral, tmp_path: Path) -> None:
    shutil.copytree(COURSE / "class", tmp_path / "class")
    (tmp_path / "marked").mkdir()
    (tmp_path / "marked" / "sheet-05.toml.html").symlink_to(tmp_path / "nowhere")
    assert vitral("grade", "class", "--key", KEY, "--marked", "marked", "--out", "p.html").code == 2
    assert [path.name for path in (tmp_path / "marked").iterdir()] == ["sheet-05.toml.html"]
    assert not (tmp_path / "p.html").exists()
